#pragma once
// One handle of cuBLASLt and its workspace; where the library is absent, nothing.

#ifdef __CUDACC__

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

#include <bit>
#include <memory>

#include "calm/tensor/cuda/memory.hpp"
#include "calm/tensor/product.hpp"

namespace calm::detail {

#if __has_include(<cublasLt.h>)

inline void check_blas(cublasStatus_t status, char const* tried) {
    if (status != CUBLAS_STATUS_SUCCESS)
        throw error(errc::device, sentence("calm::cuda: ", tried, ": ", cublasLtGetStatusString(status)));
}

class blas {
public:
    blas() {
        cublasLtHandle_t handle = nullptr;
        check_blas(cublasLtCreate(&handle), "starting cuBLASLt");
        handle_.reset(handle);
        workspace_.reset(memory_of<cuda>::allocate(workspace_bytes));
        require(workspace_ != nullptr, errc::memory, "calm::cuda: expected 32 MiB of free memory for cuBLASLt");
    }

    // False, and nothing done, where the library knows no way. Row-major C = A B is column-major C^T = B^T A^T: the
    // factors change places, and what is stored row by row is not transposed.
    template <class T> bool multiply(cudaStream_t queue, product<T> const& p) const {
        constexpr bool is_float = std::is_same_v<T, float>;
        constexpr cudaDataType_t type = is_float ? CUDA_R_32F : CUDA_R_64F;
        if (p.m == 0 || p.n == 0 || p.k == 0) return false;
        if (p.bias != nullptr && alignment(p.bias) < 16) return false;  // epilogues read it in vectors

        cublasLtMatmulDescOpaque_t what;
        check_blas(cublasLtMatmulDescInit(&what, is_float ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_64F, type),
                   "describing a product");
        set(&what, CUBLASLT_MATMUL_DESC_TRANSA, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
        set(&what, CUBLASLT_MATMUL_DESC_TRANSB, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
        if (p.bias != nullptr) {
            set(&what, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
            set(&what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
        }
        cublasLtMatrixLayoutOpaque_t a = layout(type, p.b_transposed ? p.k : p.n, p.b_transposed ? p.n : p.k, p.ldb);
        cublasLtMatrixLayoutOpaque_t b = layout(type, p.a_transposed ? p.m : p.k, p.a_transposed ? p.k : p.m, p.lda);
        cublasLtMatrixLayoutOpaque_t c = layout(type, p.n, p.m, p.ldc);

        cublasLtMatmulPreferenceOpaque_t preference;
        check_blas(cublasLtMatmulPreferenceInit(&preference), "describing a product");
        prefer(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
        prefer(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
               static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
        prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p.b));
        prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p.a));
        prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(p.c));
        prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(p.c));
        cublasLtMatmulHeuristicResult_t way;
        int ways = 0;
        cublasStatus_t const found =
            cublasLtMatmulAlgoGetHeuristic(handle_.get(), &what, &a, &b, &c, &c, &preference, 1, &way, &ways);
        if (found != CUBLAS_STATUS_SUCCESS || ways == 0) return false;

        T const one{1};
        T const beta{p.accumulates ? T{1} : T{0}};
        check_blas(cublasLtMatmul(handle_.get(), &what, &one, p.b, &a, p.a, &b, &beta, p.c, &c, p.c, &c, &way.algo,
                                  workspace_.get(), workspace_bytes, queue),
                   "a product");
        return true;
    }

private:
    static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

    template <class V> static void set(cublasLtMatmulDesc_t what, cublasLtMatmulDescAttributes_t name, V const& value) {
        check_blas(cublasLtMatmulDescSetAttribute(what, name, &value, sizeof(V)), "describing a product");
    }
    template <class V>
    static void prefer(cublasLtMatmulPreference_t what, cublasLtMatmulPreferenceAttributes_t name, V const& value) {
        check_blas(cublasLtMatmulPreferenceSetAttribute(what, name, &value, sizeof(V)), "describing a product");
    }
    static cublasLtMatrixLayoutOpaque_t layout(cudaDataType_t type, index_t rows, index_t columns, index_t stride) {
        cublasLtMatrixLayoutOpaque_t x;
        check_blas(cublasLtMatrixLayoutInit(&x, type, static_cast<std::uint64_t>(rows),
                                            static_cast<std::uint64_t>(columns), stride),
                   "describing a matrix");
        return x;
    }
    // The power of two, up to 256, that divides an address.
    static std::uint32_t alignment(void const* p) {
        auto const address = reinterpret_cast<std::uintptr_t>(p) | 256U;
        return std::uint32_t{1} << static_cast<unsigned>(std::countr_zero(address));
    }

    struct destroy {
        void operator()(cublasLtHandle_t handle) const { (void)cublasLtDestroy(handle); }
    };
    struct release {
        void operator()(void* p) const { memory_of<cuda>::release(p); }
    };
    std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, destroy> handle_;
    std::unique_ptr<void, release> workspace_;
};

#else

class blas {
public:
    template <class T> bool multiply(cudaStream_t, product<T> const&) const { return false; }
};

#endif

}  // namespace calm::detail

#endif
