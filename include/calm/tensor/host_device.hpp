#pragma once
// CALM_HD marks what runs on the host and, compiled by nvcc, on the device.

#ifdef __CUDACC__
#define CALM_HD __host__ __device__
#else
#define CALM_HD
#endif
