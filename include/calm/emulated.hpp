#pragma once
// The backend `emulated`: a GPU's kernels on the host, in memory that the host cannot touch.

#include "calm/tensor/copy.hpp"
#include "calm/tensor/emulated/context.hpp"
#include "calm/tensor/emulated/device.hpp"
