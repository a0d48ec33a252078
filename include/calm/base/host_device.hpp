#pragma once
// CALM_HD marks what runs on the host and, compiled by nvcc, on the device.

#ifdef __CUDACC__
// Before a function: for host and device; nothing without nvcc.
#define CALM_HD __host__ __device__
#else
#define CALM_HD
#endif
