#pragma once
// Products and what stands beside them: a sum with rows, and other products of the same factor. On executors of blocks
// each is one with its product.

#include <algorithm>
#include <array>
#include <utility>

#include "calm/tensor/expr.hpp"
#include "calm/tensor/matmul.hpp"

namespace calm {

namespace detail {

// Of few rows a device is asked once.
template <class Backend, class T, class W, std::size_t N>
void gemm_each(context<Backend>& ctx, std::array<product<T, W>, N> const& products) {
    if constexpr (device_memory<Backend>)
        if (std::ranges::all_of(products, [](auto const& p) { return goes_by_warps(p); }))
            return products_by_warps(ctx, products);
    for (auto const& p : products) gemm(ctx, p);
}

// c = plus + the product, bias null or of c's width.
template <class Backend, class C, class A, class B, class T>
void matmul_onto(context<Backend>& ctx, C const& c, C const& plus, A const& a, B const& b, T const* bias) {
    require(plus.extents() == c.extents(), errc::usage, "calm::matmul_onto: expected rows to add of shape ",
            c.extents(), ", found ", plus.extents());
    require(!overlap(as_matrix(c), as_matrix(plus)), errc::usage,
            "calm::matmul_onto: the destination overlaps the rows to add; use into::accumulate");
    auto p = product_of(as_matrix(c), as_matrix(a), as_matrix(b), into::overwrite, bias);
    if constexpr (block_executor<Backend>) {
        p.plus = plus.data();
        gemm(ctx, p);
    } else {
        gemm(ctx, p);
        evaluate(ctx, c, c + plus);
    }
}

}  // namespace detail

// c (M, N) = plus (M, N) + a (M, K) b (K, N); plus stays as it is. Operands and what is thrown are matmul's.
template <class T, index_t N, class Backend, class A, class B>
void matmul_onto(context<Backend>& ctx, matrix_view<T, N, Backend> const& c,
                 std::type_identity_t<matrix_view<T const, N, Backend>> const& plus, A const& a, B const& b) {
    detail::matmul_onto(ctx, c, matrix_view<T, N, Backend>(const_cast<T*>(plus.data()), plus.extents()), a, b,
                        static_cast<T const*>(nullptr));
}
// The same and bias (N) on every row.
template <class T, index_t N, class Backend, class A, class B>
void matmul_onto(context<Backend>& ctx, matrix_view<T, N, Backend> const& c,
                 std::type_identity_t<matrix_view<T const, N, Backend>> const& plus, A const& a, B const& b,
                 view<T const, extents<N>, Backend> const& bias) {
    detail::check_bias(bias.size(), c.extent(1));
    detail::matmul_onto(ctx, c, matrix_view<T, N, Backend>(const_cast<T*>(plus.data()), plus.extents()), a, b,
                        bias.data());
}

// c = a (M, K) b (K, N) for each pair (c, b) of `to`: the bits are those of each by itself. Operands and what is thrown
// are matmul's.
template <class Backend, class A, class... C, class... B>
void matmul_each(context<Backend>& ctx, A const& a, std::pair<C, B> const&... to) {
    detail::gemm_each(ctx, std::array{detail::product_of(detail::as_matrix(to.first), detail::as_matrix(a),
                                                         detail::as_matrix(to.second), into::overwrite, nullptr)...});
}

}  // namespace calm
