#pragma once
/// \file
/// CALM_HD marks functions for the host and, when nvcc compiles them, for the device.
/// \shows{examples/11_block_kernel.cpp,row_maximum}

#ifdef __CUDACC__
/// Written before a function; empty without nvcc.
#define CALM_HD __host__ __device__
#else
#define CALM_HD
#endif
