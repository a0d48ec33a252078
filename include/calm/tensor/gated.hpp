#pragma once
// silu(gate) * up, which SwiGLU is made of (Shazeer 2020): of rows, and of two products of the same rows, on executors
// of blocks as one with these where rows are few.

#include "calm/tensor/expr.hpp"
#include "calm/tensor/matmul_with.hpp"

namespace calm {

// y (R, N) = silu(gate (R, N)) * up (R, N): views or activations, all stored alike.
template <class Backend, class Y, class X> void gated(context<Backend>& ctx, Y const& y, X const& gate, X const& up) {
    with_numbers([&](auto const& to, auto const& g, auto const& u) { evaluate(ctx, to, silu(g) * u); }, y, gate, up);
}

// From dy (R, N): the gradients of gate and up take their place.
template <class Backend, class DY, class X>
void gated_back(context<Backend>& ctx, X const& gate, X const& up, DY const& dy) {
    with_numbers(
        [&](auto const& g, auto const& u, auto const& d) { differentiate(ctx, silu(wrt(g, g)) * wrt(u, u), d); }, gate,
        up, dy);
}

namespace detail {

template <index_t N, class Backend, class C, class A, class B, class T>
void matmul_gated(context<Backend>& ctx, C const& c, A const& a, B const& gate, B const& up, T const* gate_bias,
                  T const* up_bias) {
    auto const product = [&](auto const& to, auto const& x, B const& b, T const* bias) {
        return product_of(as_matrix(to), x, as_matrix(b), into::overwrite, bias);
    };
    if constexpr (block_executor<Backend>) {
        auto const& rows = rows_of_factor(a);
        std::array const both{product(c, rows, gate, gate_bias), product(c, rows, up, up_bias)};
        if (go_by_warps<products_as::gated>(ctx, a, both)) return;
    }
    arena_scope const scope(ctx.scratch);
    auto const of_gate = take_activations<T, N>(ctx, ctx.scratch, c.extent(0));
    auto const of_up = take_activations<T, N>(ctx, ctx.scratch, c.extent(0));
    with_factor(ctx, a, [&](auto const& x) {
        gemm(ctx, product(of_gate, as_matrix(x), gate, gate_bias));
        gemm(ctx, product(of_up, as_matrix(x), up, up_bias));
    });
    gated(ctx, c, of_gate, of_up);
}

}  // namespace detail

// c (M, N) = silu(a (M, K) gate (K, N)) * (a up (K, N)), where `a` may be rows_to_norm. c is activations. Operands and
// what is thrown are matmul's.
template <class T, index_t N, class Backend, class A, class B>
void matmul_gated(context<Backend>& ctx, std::type_identity_t<activations<T, N, Backend>> const& c, A const& a,
                  B const& gate, B const& up) {
    detail::matmul_gated<N>(ctx, c, a, gate, up, static_cast<T const*>(nullptr), static_cast<T const*>(nullptr));
}

}  // namespace calm
