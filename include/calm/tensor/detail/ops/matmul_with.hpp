#pragma once
// Products fused with other operations: a residual sum, more products of the same factor, or RMSNorm of its rows. Block
// backends fuse the sum; devices fuse the others if there are few rows.

#include <algorithm>
#include <array>
#include <utility>

#include "calm/tensor/expr/expr.hpp"
#include "calm/tensor/ops/matmul.hpp"
#include "calm/tensor/ops/norm.hpp"

namespace calm {

// Lazy RMSNorm: rows x (R, N) that products read normalised, as rms_norm would with a gain (N).
template <class T, index_t N, class Backend> struct rms_norm_prologue {
    matrix_view<T const, N, Backend> x;     // (R, N)
    vector_view<T const, N, Backend> gain;  // (N)
    double eps;                             // added to the mean square

    [[nodiscard]] index_t extent(std::size_t r) const { return x.extent(r); }  // size r of the shape
};

namespace detail {

// The rows of a first factor before normalisation, and the norm that a product of few rows applies to them.
template <class A> decltype(auto) rows_of_factor(A const& a) {
    return as_matrix(a);
}
template <class T, index_t N, class Backend> auto rows_of_factor(rms_norm_prologue<T, N, Backend> const& a) {
    return as_matrix(a.x);
}
template <class A> no_norm norm_of_factor(A const&) {
    return {};
}
template <class T, index_t N, class Backend>
rms_norm_of_rows<T> norm_of_factor(rms_norm_prologue<T, N, Backend> const& a) {
    return {a.gain.data(), static_cast<T>(a.eps)};
}

// Calls f with the factor; rms_norm_prologue is normalised before, in ctx.workspace.
template <class Backend, class A, class F> void with_factor(context<Backend>&, A const& a, F const& f) {
    f(a);
}
template <class Backend, class T, index_t N, class F>
void with_factor(context<Backend>& ctx, rms_norm_prologue<T, N, Backend> const& a, F const& f) {
    arena_scope const scope(ctx.workspace);
    auto const y = take_activations<T, N>(ctx, ctx.workspace, a.extent(0));
    auto const r = ctx.workspace.template take<T>(extents<dyn>(a.extent(0)));
    with_numbers([&](auto const& normed) { rms_norm(ctx, normed, r, a.x, a.gain, a.eps); }, y);
    f(y);
}

// If all products of the factor `a` have few rows, computes them and the extra result `beside` in one launch and
// returns true; otherwise does nothing.
template <product_epilogue Epilogue, device_memory Backend, class A, class T, class W, std::size_t N>
bool try_skinny_products(context<Backend> const& ctx, A const& a, std::array<product<T, W>, N> const& products,
                         T* epilogue = nullptr) {
    bool const all = std::ranges::all_of(products, [](auto const& p) { return is_skinny_on_device(p); });
    if (all) launch_skinny_products<Epilogue>(ctx, products, epilogue, norm_of_factor(a));
    return all;
}

// c = plus + the product; bias is null or has c's width.
template <class Backend, class C, class A, class B, class T>
void matmul_residual(context<Backend>& ctx, C const& c, C const& addend, A const& a, B const& b, T const* bias) {
    require(addend.extents() == c.extents(), errc::usage, "calm::matmul_residual: expected rows to add of shape ",
            c.extents(), ", found ", addend.extents());
    require(!overlap(as_matrix(c), as_matrix(addend)), errc::usage,
            "calm::matmul_residual: the destination overlaps the rows to add; use into::accumulate");
    auto p = product_of(as_matrix(c), as_matrix(a), as_matrix(b), into::overwrite, bias);
    if constexpr (block_backend<Backend>) {
        p.addend = addend.data();
        gemm(ctx, p);
    } else {
        gemm(ctx, p);
        evaluate(ctx, c, c + addend);
    }
}

}  // namespace detail

// c (M, N) = plus (M, N) + a (M, K) b (K, N); plus does not change. Operands and errors as for matmul.
template <class T, index_t N, class Backend, class A, class B>
void matmul_residual(context<Backend>& ctx, matrix_view<T, N, Backend> const& c,
                     std::type_identity_t<matrix_view<T const, N, Backend>> const& addend, A const& a, B const& b) {
    detail::matmul_residual(ctx, c, matrix_view<T, N, Backend>(const_cast<T*>(addend.data()), addend.extents()), a, b,
                            static_cast<T const*>(nullptr));
}
// With bias (N) added to every row as well.
template <class T, index_t N, class Backend, class A, class B>
void matmul_residual(context<Backend>& ctx, matrix_view<T, N, Backend> const& c,
                     std::type_identity_t<matrix_view<T const, N, Backend>> const& addend, A const& a, B const& b,
                     view<T const, extents<N>, Backend> const& bias) {
    detail::check_bias(bias.size(), c.extent(1));
    detail::matmul_residual(ctx, c, matrix_view<T, N, Backend>(const_cast<T*>(addend.data()), addend.extents()), a, b,
                            bias.data());
}

// c = a (M, K) b (K, N) for each pair (c, b) of `to`, bit-identical to separate products. `a` may be rms_norm_prologue;
// with few rows on a device the bits then differ from rms_norm followed by a product. Operands and errors as for
// matmul.
template <class Backend, class A, class... C, class... B>
void matmul_grouped(context<Backend>& ctx, A const& a, std::pair<C, B> const&... to) {
    auto const products = [&](auto const& x) {
        return std::array{detail::product_of(detail::as_matrix(to.first), x, detail::as_matrix(to.second),
                                             into::overwrite, nullptr)...};
    };
    if constexpr (device_memory<Backend>)
        if (detail::try_skinny_products<detail::product_epilogue::nothing>(ctx, a, products(detail::rows_of_factor(a))))
            return;
    detail::with_factor(ctx, a, [&](auto const& x) {
        for (auto const& p : products(detail::as_matrix(x))) gemm(ctx, p);
    });
}

}  // namespace calm
