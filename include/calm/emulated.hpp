#pragma once
// The `emulated` backend: runs GPU kernels on the host, in memory that host code cannot access directly.

#include "calm/tensor/copy.hpp"
#include "calm/tensor/emulated/context.hpp"
#include "calm/tensor/emulated/device.hpp"
