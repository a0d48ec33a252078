#pragma once
// A product as described to cuBLASLt. Descriptions need no device. Empty where the library is absent.

#if defined(__CUDACC__) && __has_include(<cublasLt.h>)

#include <cublasLt.h>

#include <bit>
#include <compare>
#include <cstdint>

#include "calm/base/bf16.hpp"
#include "calm/base/error.hpp"
#include "calm/tensor/detail/ops/product.hpp"

namespace calm::detail {

inline void check_blas(cublasStatus_t status, char const* tried) {
    if (status != CUBLAS_STATUS_SUCCESS)
        throw error(errc::device, sentence("calm::cuda: ", tried, ": ", cublasLtGetStatusString(status)));
}

// cuBLASLt's types of a product with result T and factors W: of its matrices, its sums, and alpha and beta.
template <class T, class W = T> struct lt_types {
    static_assert(sizeof(T) == 0, "calm::matmul: on cuda expected float or double; another scalar needs its lt_types");
};
template <> struct lt_types<float> {
    using factor = float;
    static constexpr cudaDataType_t result = CUDA_R_32F;
    static constexpr cudaDataType_t matrix = CUDA_R_32F;
    static constexpr cudaDataType_t factors = CUDA_R_32F;
    static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F;  // no TF32
};
template <> struct lt_types<float, bf16> : lt_types<float> { static constexpr cudaDataType_t matrix = CUDA_R_16BF; };
template <> struct lt_types<bf16, bf16> : lt_types<float, bf16> {
    static constexpr cudaDataType_t result = CUDA_R_16BF;  // also of the bias
};
template <> struct lt_types<double> {
    using factor = double;
    static constexpr cudaDataType_t result = CUDA_R_64F;
    static constexpr cudaDataType_t matrix = CUDA_R_64F;
    static constexpr cudaDataType_t factors = CUDA_R_64F;
    static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_64F;
};

inline constexpr std::size_t lt_workspace_bytes = std::size_t{32} << 20;

// The largest power of two, up to 256, that divides an address; 0 for null.
inline std::uint32_t alignment_of(void const* p) {
    if (p == nullptr) return 0;
    return std::uint32_t{1} << std::countr_zero(reinterpret_cast<std::uintptr_t>(p) | 256U);
}

// Everything that the choice of an algorithm may depend on: products that agree in it share one.
struct lt_shape {
    cudaDataType_t type, result;
    index_t m, n, k, lda, ldb, ldc;
    bool a_transposed, b_transposed;
    std::uint32_t a_alignment, b_alignment, c_alignment;
    std::uint32_t plus_alignment, bias_alignment;  // 0: absent
    auto operator<=>(lt_shape const&) const = default;
};
template <class T, class W> lt_shape shape_of(product<T, W, W> const& p) {
    return {lt_types<T, W>::matrix,
            lt_types<T, W>::result,
            p.m,
            p.n,
            p.k,
            p.lda,
            p.ldb,
            p.ldc,
            p.a_transposed,
            p.b_transposed,
            alignment_of(p.a),
            alignment_of(p.b),
            alignment_of(p.c),
            alignment_of(p.addend),
            alignment_of(p.bias)};
}

// The library's descriptors. Row-major C = A B is column-major C^T = B^T A^T, so the factors change places: `first` is
// our b, and row-major storage counts as not transposed. The library's D is our C; its C is the matrix to add, which
// may be the same.
struct lt_description {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t first, second, result;
    cublasLtMatmulPreferenceOpaque_t wanted;

    template <class V> void set(cublasLtMatmulDescAttributes_t name, V const& value) {
        check_blas(cublasLtMatmulDescSetAttribute(&product, name, &value, sizeof(V)), "describing a product");
    }
    template <class V> void prefer(cublasLtMatmulPreferenceAttributes_t name, V const& value) {
        check_blas(cublasLtMatmulPreferenceSetAttribute(&wanted, name, &value, sizeof(V)), "describing a product");
    }
    void set_bias(void const* bias) { set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); }
};

inline cublasLtMatrixLayoutOpaque_t lt_layout(cudaDataType_t type, index_t rows, index_t columns, index_t stride) {
    cublasLtMatrixLayoutOpaque_t x;
    check_blas(cublasLtMatrixLayoutInit(&x, type, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns),
                                        stride),
               "describing a matrix");
    return x;
}

template <class T, class W> lt_description describe(product<T, W, W> const& p) {
    using types = lt_types<T, W>;
    lt_description d;
    check_blas(cublasLtMatmulDescInit(&d.product, types::compute, types::factors), "describing a product");
    d.set(CUBLASLT_MATMUL_DESC_TRANSA, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    d.set(CUBLASLT_MATMUL_DESC_TRANSB, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.bias != nullptr) {
        d.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
        d.set_bias(p.bias);
    }
    d.first = lt_layout(types::matrix, p.b_transposed ? p.k : p.n, p.b_transposed ? p.n : p.k, p.ldb);
    d.second = lt_layout(types::matrix, p.a_transposed ? p.m : p.k, p.a_transposed ? p.k : p.m, p.lda);
    d.result = lt_layout(types::result, p.n, p.m, p.ldc);

    check_blas(cublasLtMatmulPreferenceInit(&d.wanted), "describing a product");
    d.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{lt_workspace_bytes});
    // k may be split: partial sums go to our workspace, in the type of the sums, and a separate step adds them. The
    // bits are then equal in every run, as cuBLAS promises for one kind of GPU, one version, and the caller's
    // workspace.
    d.prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
             static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    d.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b));
    d.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a));
    d.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.addend != nullptr ? p.addend : p.c));
    d.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.c));
    return d;
}

}  // namespace calm::detail

#endif
