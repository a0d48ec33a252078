#pragma once
// A fake cuBLASLt without a device: reads the library's real descriptors, and nothing else, and computes the product on
// the host.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "calm/cuda.hpp"

namespace calm::test {

inline void expect(bool holds, char const* what) {
    if (!holds) throw std::runtime_error(std::string("the descriptors say otherwise: ") + what);
}

template <class V, class Get, class Descriptor, class Name> V attribute_of(Get get, Descriptor* d, Name name) {
    V value{};
    std::size_t written = 0;
    detail::check_blas(get(d, name, &value, sizeof value, &written), "reading a descriptor");
    expect(written == sizeof value, "the size of an attribute");
    return value;
}
template <class V> V said(cublasLtMatmulDescOpaque_t& d, cublasLtMatmulDescAttributes_t name) {
    return attribute_of<V>(cublasLtMatmulDescGetAttribute, &d, name);
}
template <class V> V said(cublasLtMatrixLayoutOpaque_t& d, cublasLtMatrixLayoutAttribute_t name) {
    return attribute_of<V>(cublasLtMatrixLayoutGetAttribute, &d, name);
}
template <class V> V said(cublasLtMatmulPreferenceOpaque_t& d, cublasLtMatmulPreferenceAttributes_t name) {
    return attribute_of<V>(cublasLtMatmulPreferenceGetAttribute, &d, name);
}

// A column-major matrix described by a layout, possibly transposed.
struct lt_matrix {
    index_t rows, columns, stride;
    bool is_transposed;

    lt_matrix(cublasLtMatrixLayoutOpaque_t& layout, std::int32_t type, std::int32_t operation) :
        rows(static_cast<index_t>(said<std::uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_ROWS))),
        columns(static_cast<index_t>(said<std::uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_COLS))),
        stride(said<std::int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_LD)), is_transposed(operation == CUBLAS_OP_T) {
        expect(static_cast<std::int32_t>(said<std::uint32_t>(layout, CUBLASLT_MATRIX_LAYOUT_TYPE)) == type,
               "the type of a matrix");
        expect(said<std::int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_ORDER) == CUBLASLT_ORDER_COL, "by columns");
        expect(said<std::int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) == 1, "one matrix");
        expect(stride >= rows, "columns that do not overlap");
        expect(operation == CUBLAS_OP_T || operation == CUBLAS_OP_N, "transposed or not");
        if (is_transposed) std::swap(rows, columns);
    }
    [[nodiscard]] index_t at(index_t i, index_t j) const { return is_transposed ? i * stride + j : j * stride + i; }
};

// Numbers of calls, and the results to return.
struct lt_log {
    int choices = 0;
    int products = 0;
    cublasStatus_t choice = CUBLAS_STATUS_SUCCESS;
    int ways = 1;
    cublasStatus_t state = CUBLAS_STATUS_SUCCESS;
    cublasStatus_t product = CUBLAS_STATUS_SUCCESS;
};

// The library of lt_products: checks that the arguments match those for which the algorithm was chosen.
class lt_on_host {
public:
    explicit lt_on_host(lt_log& log) : log_(&log) {}

    cublasStatus_t choose(detail::lt_description& d, cublasLtMatmulHeuristicResult_t& way, int& ways) const {
        ++log_->choices;
        expect(said<std::uint64_t>(d.wanted, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) == detail::lt_workspace_bytes,
               "the workspace is the one that is there");
        expect((said<std::uint32_t>(d.wanted, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) &
                ~static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) == 0,
               "sums in one order");
        way = {};
        way.state = log_->state;
        way.algo.data[0] = key(d);
        ways = log_->ways;
        return log_->choice;
    }

    cublasStatus_t multiply(detail::lt_description& d, cublasLtMatmulAlgo_t const& way, void const* alpha,
                            void const* first, void const* second, void const* beta, void const* plus, void* c,
                            cudaStream_t) const {
        ++log_->products;
        if (log_->product != CUBLAS_STATUS_SUCCESS) return log_->product;
        expect(way.data[0] == key(d), "the algorithm of this product");
        expect(is_aligned(d, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, first) &&
                   is_aligned(d, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, second) &&
                   is_aligned(d, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, plus) &&
                   is_aligned(d, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c),
               "pointers as aligned as was said");
        auto const compute = said<std::int32_t>(d.product, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE);
        auto const factors = said<std::int32_t>(d.product, CUBLASLT_MATMUL_DESC_SCALE_TYPE);
        auto const type = static_cast<std::int32_t>(said<std::uint32_t>(d.first, CUBLASLT_MATRIX_LAYOUT_TYPE));
        auto const result = static_cast<std::int32_t>(said<std::uint32_t>(d.result, CUBLASLT_MATRIX_LAYOUT_TYPE));
        if (compute == CUBLAS_COMPUTE_32F && factors == CUDA_R_32F && type == CUDA_R_16BF && result == CUDA_R_16BF)
            compute_in<bf16, bf16>(d, result, type, alpha, first, second, beta, plus, c);
        else if (compute == CUBLAS_COMPUTE_32F && factors == CUDA_R_32F && type == CUDA_R_16BF)
            compute_in<float, bf16>(d, CUDA_R_32F, type, alpha, first, second, beta, plus, c);
        else if (compute == CUBLAS_COMPUTE_32F && factors == CUDA_R_32F)
            compute_in<float, float>(d, CUDA_R_32F, CUDA_R_32F, alpha, first, second, beta, plus, c);
        else if (compute == CUBLAS_COMPUTE_64F && factors == CUDA_R_64F)
            compute_in<double, double>(d, CUDA_R_64F, CUDA_R_64F, alpha, first, second, beta, plus, c);
        else
            expect(false, "types that go together");
        return CUBLAS_STATUS_SUCCESS;
    }

private:
    // A hash of everything that the choice may depend on.
    static std::uint64_t key(detail::lt_description& d) {
        std::uint64_t sum = 14695981039346656037U;
        auto const add = [&](std::uint64_t x) { sum = (sum ^ x) * 1099511628211U; };
        add(static_cast<std::uint64_t>(said<std::int32_t>(d.product, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE)));
        add(static_cast<std::uint64_t>(said<std::int32_t>(d.product, CUBLASLT_MATMUL_DESC_TRANSA)));
        add(static_cast<std::uint64_t>(said<std::int32_t>(d.product, CUBLASLT_MATMUL_DESC_TRANSB)));
        add(said<std::uint32_t>(d.product, CUBLASLT_MATMUL_DESC_EPILOGUE));
        add(detail::alignment_of(said<void const*>(d.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER)));
        for (auto* layout : {&d.first, &d.second, &d.result}) {
            add(said<std::uint64_t>(*layout, CUBLASLT_MATRIX_LAYOUT_ROWS));
            add(said<std::uint64_t>(*layout, CUBLASLT_MATRIX_LAYOUT_COLS));
            add(static_cast<std::uint64_t>(said<std::int64_t>(*layout, CUBLASLT_MATRIX_LAYOUT_LD)));
            add(said<std::uint32_t>(*layout, CUBLASLT_MATRIX_LAYOUT_TYPE));
        }
        return sum;
    }
    static bool is_aligned(detail::lt_description& d, cublasLtMatmulPreferenceAttributes_t name, void const* p) {
        auto const bytes = said<std::uint32_t>(d.wanted, name);
        return bytes > 0 && reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
    }

    template <class T, class W>
    static void compute_in(detail::lt_description& d, std::int32_t type, std::int32_t multiplied, void const* alpha,
                           void const* first, void const* second, void const* beta, void const* plus, void* result) {
        using factor = computed_in<T>;
        lt_matrix const a(d.first, multiplied, said<std::int32_t>(d.product, CUBLASLT_MATMUL_DESC_TRANSA));
        lt_matrix const b(d.second, multiplied, said<std::int32_t>(d.product, CUBLASLT_MATMUL_DESC_TRANSB));
        lt_matrix const c(d.result, type, CUBLAS_OP_N);
        expect(a.columns == b.rows && c.rows == a.rows && c.columns == b.columns, "sizes that go together");
        expect(said<std::int32_t>(d.product, CUBLASLT_MATMUL_DESC_POINTER_MODE) == CUBLASLT_POINTER_MODE_HOST,
               "factors on the host");
        auto const epilogue = said<std::uint32_t>(d.product, CUBLASLT_MATMUL_DESC_EPILOGUE);
        expect(epilogue == CUBLASLT_EPILOGUE_DEFAULT || epilogue == CUBLASLT_EPILOGUE_BIAS, "a known epilogue");
        T const* bias = nullptr;
        if (epilogue == CUBLASLT_EPILOGUE_BIAS) {
            auto const of_bias = said<std::int32_t>(d.product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
            expect(of_bias == -1 || of_bias == type, "the type of the bias");  // -1: that of the result
            bias = said<T const*>(d.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
        }
        auto const x = static_cast<W const*>(first);
        auto const y = static_cast<W const*>(second);
        auto const* const added = static_cast<T const*>(plus);
        auto* const z = static_cast<T*>(result);
        for (index_t i = 0; i < c.rows; ++i)
            for (index_t j = 0; j < c.columns; ++j) {
                factor sum{};
                for (index_t l = 0; l < a.columns; ++l)
                    sum += static_cast<factor>(x[a.at(i, l)]) * static_cast<factor>(y[b.at(l, j)]);
                factor const share = *static_cast<factor const*>(beta);
                factor const before = share == factor{} ? factor{} : share * added[c.at(i, j)];
                factor const row = bias == nullptr ? factor{} : factor{bias[i]};
                z[c.at(i, j)] = static_cast<T>(*static_cast<factor const*>(alpha) * sum + before + row);
            }
    }

    lt_log* log_;
};

}  // namespace calm::test
