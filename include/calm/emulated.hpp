#pragma once
// The `emulated` backend: runs GPU kernels on the host, in memory that host code cannot access directly.

#include "calm/tensor/core/copy.hpp"
#include "calm/tensor/detail/device/emulated/device.hpp"
#include "calm/tensor/device/emulated/context.hpp"
