#pragma once
/// \file
/// Matrix products by Eigen for number types without packets on the CPU, such as complex numbers. Not part of
/// calm/calm.hpp.
/// \shows{examples/05_layer.cpp,main}

#include "calm/tensor/detail/kernels/cpu/eigen.hpp"
