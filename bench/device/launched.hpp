#pragma once
// How many kernels a device was asked for. On a GPU those of the library, and the products of cuBLASLt, each as one:
// the linker has what nvcc calls to launch a kernel (the second name from 13.0 on) and cublasLtMatmul come by here
// (--wrap, in CMakeLists.txt).

#include "device.hpp"

namespace bench {

#ifdef __CUDACC__
inline index_t launched = 0;
#endif

inline index_t launches_so_far() {
#ifdef __CUDACC__
    return launched;
#else
    return device_context::counts().launches;
#endif
}

}  // namespace bench

#ifdef __CUDACC__
extern "C" {
cudaError_t __real_cudaLaunchKernel(void const*, dim3, dim3, void**, std::size_t, cudaStream_t);
cudaError_t __wrap_cudaLaunchKernel(void const* f, dim3 blocks, dim3 threads, void** arguments, std::size_t shared,
                                    cudaStream_t queue) {
    ++bench::launched;
    return __real_cudaLaunchKernel(f, blocks, threads, arguments, shared, queue);
}
#if CUDART_VERSION >= 13000
cudaError_t __real___cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t f, dim3 blocks, dim3 threads, void** arguments, std::size_t shared,
                                      cudaStream_t queue) {
    ++bench::launched;
    return __real___cudaLaunchKernel(f, blocks, threads, arguments, shared, queue);
}
#endif
cublasStatus_t __real_cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, void const*, void const*,
                                     cublasLtMatrixLayout_t, void const*, cublasLtMatrixLayout_t, void const*,
                                     void const*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                                     cublasLtMatmulAlgo_t const*, void*, std::size_t, cudaStream_t);
cublasStatus_t __wrap_cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, void const* alpha,
                                     void const* a, cublasLtMatrixLayout_t of_a, void const* b,
                                     cublasLtMatrixLayout_t of_b, void const* beta, void const* c,
                                     cublasLtMatrixLayout_t of_c, void* d, cublasLtMatrixLayout_t of_d,
                                     cublasLtMatmulAlgo_t const* way, void* workspace, std::size_t bytes,
                                     cudaStream_t queue) {
    ++bench::launched;
    return __real_cublasLtMatmul(handle, product, alpha, a, of_a, b, of_b, beta, c, of_c, d, of_d, way, workspace,
                                 bytes, queue);
}
}
#endif
