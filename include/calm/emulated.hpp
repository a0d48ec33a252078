#pragma once
/// \file
/// The `emulated` backend: runs GPU kernels on the host, in memory that host code cannot access directly.
/// \shows{tests/emulated/device_test.cpp,numbers_are_copied_to_the_device_and_back}

#include "calm/tensor/core/copy.hpp"
#include "calm/tensor/detail/device/emulated/device.hpp"
#include "calm/tensor/device/emulated/context.hpp"
