#pragma once
// Products of numbers without packets on the CPU, complex ones for instance, by Eigen. Not part of calm/calm.hpp.

#include "calm/tensor/cpu/eigen.hpp"
