#pragma once
// A matrix product as backends see it.

#include "calm/base/bf16.hpp"
#include "calm/base/host_device.hpp"
#include "calm/tensor/core/extents.hpp"
#include "calm/tensor/detail/ops/int8_blocks.hpp"

namespace calm::detail {

// C (m, n) = or += A (m, k) B (k, n), row-major, leading dimensions lda, ldb, ldc. A transposed operand is stored (k,
// m) or (n, k). With a bias (n), rows of C start with it instead of zero. B may be stored as another type W, and A as
// V; their values convert to T exactly. For backends that multiply in bf16, a float matrix may also have a rounded
// version of the same leading dimension, or that alone.
template <class T, class W = T, class V = T> struct product {
    index_t m, n, k;
    T* c;
    index_t ldc;
    V const* a;
    index_t lda;
    bool a_transposed;
    factor_pointer<W> b;
    index_t ldb;
    bool b_transposed;
    bool accumulates;
    T const* bias = nullptr;
    bf16 const* a_rounded = nullptr;
    bf16 const* b_rounded = nullptr;
    bf16* c_rounded = nullptr;
    T const* addend = nullptr;  // (m, n), ldc apart: added to C, by block backends only; not if accumulates
};

// Completes element (row, column) of C from its sum of products, and returns it.
template <class T, class W, class V>
CALM_HD T finish_element(product<T, W, V> const& p, index_t row, index_t column, computed_in<T> total) {
    T& c = p.c[row * p.ldc + column];
    if (p.bias != nullptr) total = p.bias[column] + total;
    if (p.addend != nullptr) total = total + p.addend[row * p.ldc + column];
    return c = static_cast<T>(p.accumulates ? c + total : total);
}

}  // namespace calm::detail
