#pragma once
// Products and what stands beside them: a sum with rows, other products of the same factor, a norm of its rows. A sum
// is one with its product on executors of blocks, the others are on devices where rows are few.

#include <algorithm>
#include <array>
#include <utility>

#include "calm/tensor/expr.hpp"
#include "calm/tensor/matmul.hpp"
#include "calm/tensor/norm.hpp"

namespace calm {

// Rows x (R, N) that products are to read normalised: what rms_norm makes of them with a gain (N).
template <class T, index_t N, class Backend> struct rows_to_norm {
    matrix_view<T const, N, Backend> x;     // (R, N)
    vector_view<T const, N, Backend> gain;  // (N)
    double eps;                             // under the root

    [[nodiscard]] index_t extent(std::size_t r) const { return x.extent(r); }  // size r of the shape
};

namespace detail {

// The rows of a first factor, as they are, and what a product of few of them does to them first.
template <class A> decltype(auto) rows_of_factor(A const& a) {
    return as_matrix(a);
}
template <class T, index_t N, class Backend> auto rows_of_factor(rows_to_norm<T, N, Backend> const& a) {
    return as_matrix(a.x);
}
template <class A> no_norm norm_of_factor(A const&) {
    return {};
}
template <class T, index_t N, class Backend> rms_norm_of_rows<T> norm_of_factor(rows_to_norm<T, N, Backend> const& a) {
    return {a.gain.data(), static_cast<T>(a.eps)};
}

// f(a factor as other products read it): normalised, in ctx.scratch.
template <class Backend, class A, class F> void with_factor(context<Backend>&, A const& a, F const& f) {
    f(a);
}
template <class Backend, class T, index_t N, class F>
void with_factor(context<Backend>& ctx, rows_to_norm<T, N, Backend> const& a, F const& f) {
    arena_scope const scope(ctx.scratch);
    auto const y = take_activations<T, N>(ctx, ctx.scratch, a.extent(0));
    auto const r = ctx.scratch.template take<T>(extents<dyn>(a.extent(0)));
    with_numbers([&](auto const& normed) { rms_norm(ctx, normed, r, a.x, a.gain, a.eps); }, y);
    f(y);
}

// Products of one factor `a`, and what is written beside them, in one launch if their rows are few; whether that was
// so.
template <beside_products Beside, device_memory Backend, class A, class T, class W, std::size_t N>
bool go_by_warps(context<Backend> const& ctx, A const& a, std::array<product<T, W>, N> const& products,
                 T* beside = nullptr) {
    bool const all = std::ranges::all_of(products, [](auto const& p) { return goes_by_warps(p); });
    if (all) products_by_warps<Beside>(ctx, products, beside, norm_of_factor(a));
    return all;
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

// c = a (M, K) b (K, N) for each pair (c, b) of `to`: the bits are those of each by itself. `a` may be rows_to_norm; of
// few rows on a device the bits are not those of rms_norm and a product then. Operands and what is thrown
// are matmul's.
template <class Backend, class A, class... C, class... B>
void matmul_each(context<Backend>& ctx, A const& a, std::pair<C, B> const&... to) {
    auto const products = [&](auto const& x) {
        return std::array{detail::product_of(detail::as_matrix(to.first), x, detail::as_matrix(to.second),
                                             into::overwrite, nullptr)...};
    };
    if constexpr (device_memory<Backend>)
        if (detail::go_by_warps<detail::beside_products::nothing>(ctx, a, products(detail::rows_of_factor(a)))) return;
    detail::with_factor(ctx, a, [&](auto const& x) {
        for (auto const& p : products(detail::as_matrix(x))) gemm(ctx, p);
    });
}

}  // namespace calm
