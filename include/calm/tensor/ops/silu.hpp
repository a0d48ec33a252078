#pragma once
// SiLU of products: silu(c) and, with a gate, silu(gate) * up as in SwiGLU (Shazeer 2020). On a device, few rows are
// computed with their products in one kernel.

#include "calm/tensor/detail/ops/matmul_with.hpp"
#include "calm/tensor/expr/expr.hpp"

namespace calm {

// y (R, N) = silu(gate (R, N)) * up (R, N): views or activations, all stored as one type.
template <class Backend, class Y, class X> void gated(context<Backend>& ctx, Y const& y, X const& gate, X const& up) {
    with_numbers([&](auto const& to, auto const& g, auto const& u) { evaluate(ctx, to, silu(g) * u); }, y, gate, up);
}

// Backward of gated, from dy (R, N): the gradients overwrite gate and up.
template <class Backend, class DY, class X>
void gated_back(context<Backend>& ctx, X const& gate, X const& up, DY const& dy) {
    with_numbers(
        [&](auto const& g, auto const& u, auto const& d) { differentiate(ctx, silu(wrt(g, g)) * wrt(u, u), d); }, gate,
        up, dy);
}

namespace detail {

// Where a kernel writes y in addition to C. Throws errc::usage if y has another shape or overlaps C.
template <class Y, class T, class W> T* epilogue_output(char const* operation, Y const& y, product<T, W> const& p) {
    auto const to = as_matrix(y);
    require_shape(operation, "the result", {to.rows, to.columns}, {p.m, p.n});
    require(!overlap(plain_operand<T>(to), plain_operand<T>{p.c, p.m, p.n, p.ldc, false}), errc::usage, operation,
            ": the result overlaps the product, but both are kept; give separate memory");
    return const_cast<T*>(to.data);
}

template <class Backend, class Y, class C, class A, class T, class W>
void matmul_silu(context<Backend>& ctx, Y const& y, C const& c, A const& a, product<T, W> const& p) {
    if constexpr (device_memory<Backend>)
        if (try_skinny_products<product_epilogue::silu>(ctx, a, std::array{p},
                                                        epilogue_output("calm::matmul_silu", y, p)))
            return;
    gemm(ctx, p);
    with_numbers([&](auto const& to, auto const& x) { evaluate(ctx, to, silu(x)); }, y, c);
}

template <class Backend, class Y, class C, class A, class B, class T>
void matmul_gated(context<Backend>& ctx, Y const& y, A const& a, std::pair<C, B> const& gate, std::pair<C, B> const& up,
                  T const* gate_bias, T const* up_bias) {
    auto const products = [&](auto const& x) {
        return std::array{product_of(as_matrix(gate.first), x, as_matrix(gate.second), into::overwrite, gate_bias),
                          product_of(as_matrix(up.first), x, as_matrix(up.second), into::overwrite, up_bias)};
    };
    if constexpr (device_memory<Backend>) {
        auto const both = products(rows_of_factor(a));
        T* epilogue = nullptr;
        for (auto const& p : both) epilogue = epilogue_output("calm::matmul_gated", y, p);
        if (try_skinny_products<product_epilogue::gated>(ctx, a, both, epilogue)) return;
    }
    with_factor(ctx, a, [&](auto const& x) {
        for (auto const& p : products(as_matrix(x))) gemm(ctx, p);
    });
    gated(ctx, y, gate.first, up.first);
}

}  // namespace detail

// c (M, N) = or += a (M, K) b (K, N) for the pair (c, b), and y (M, N) = silu(c): views or activations, stored as one
// type. Operands and exceptions are as for matmul.
template <class Backend, class Y, class A, class C, class B>
void matmul_silu(context<Backend>& ctx, Y const& y, A const& a, std::pair<C, B> const& to,
                 into mode = into::overwrite) {
    detail::matmul_silu(ctx, y, to.first, a,
                        detail::product_of(detail::as_matrix(to.first), detail::as_matrix(a),
                                           detail::as_matrix(to.second), mode, nullptr));
}
// As above, where c is the product plus bias (N) on every row.
template <class Backend, class Y, class A, class C, class B, class T, index_t N>
void matmul_silu(context<Backend>& ctx, Y const& y, A const& a, std::pair<C, B> const& to,
                 view<T, extents<N>, Backend> const& bias) {
    auto const p = detail::product_of(detail::as_matrix(to.first), detail::as_matrix(a), detail::as_matrix(to.second),
                                      into::overwrite, bias.data());
    detail::check_bias(bias.size(), p.n);
    detail::matmul_silu(ctx, y, to.first, a, p);
}

// c (M, N) = a (M, K) b (K, N) for each of the pairs `gate` and `up`, and y (M, N) = silu(c of gate) * c of up. All are
// views or activations, stored as one type; `a` may be rms_norm_prologue, as in matmul_grouped. Operands and exceptions
// are as for matmul.
template <class Backend, class Y, class A, class C, class B>
void matmul_gated(context<Backend>& ctx, Y const& y, A const& a, std::pair<C, B> const& gate,
                  std::pair<C, B> const& up) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(detail::as_matrix(gate.first).data)>>;
    detail::matmul_gated(ctx, y, a, gate, up, static_cast<T const*>(nullptr), static_cast<T const*>(nullptr));
}
// As above, with a bias (N) for each of the two products.
template <class Backend, class Y, class A, class C, class B, class T, index_t N>
void matmul_gated(context<Backend>& ctx, Y const& y, A const& a, std::pair<C, B> const& gate, std::pair<C, B> const& up,
                  view<T, extents<N>, Backend> const& gate_bias, view<T, extents<N>, Backend> const& up_bias) {
    auto const columns = detail::as_matrix(gate.first).columns;
    detail::check_bias(gate_bias.size(), columns);
    detail::check_bias(up_bias.size(), columns);
    detail::matmul_gated(ctx, y, a, gate, up, gate_bias.data(), up_bias.data());
}

}  // namespace calm
