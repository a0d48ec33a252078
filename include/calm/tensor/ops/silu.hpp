#pragma once
/// \file
/// SiLU with a gate: silu(gate) * up, as in SwiGLU (Shazeer 2020). matmul can do it as an epilogue.
/// \shows{tests/tensor/silu_test.cpp,gradients_take_the_place_of_gate_and_up}

#include "calm/tensor/core/activations.hpp"
#include "calm/tensor/expr/expr.hpp"

namespace calm {

/// y (R, N) = silu(gate (R, N)) * up (R, N): views or activations, all stored as one type.
template <class Backend, class Y, class X> void gated(context<Backend>& ctx, Y const& y, X const& gate, X const& up) {
    with_numbers([&](auto const& to, auto const& g, auto const& u) { evaluate(ctx, to, silu(g) * u); }, y, gate, up);
}

/// Backward of gated, from dy (R, N): the gradients overwrite gate and up.
template <class Backend, class DY, class X>
void gated_back(context<Backend>& ctx, X const& gate, X const& up, DY const& dy) {
    with_numbers(
        [&](auto const& g, auto const& u, auto const& d) { differentiate(ctx, silu(wrt(g, g)) * wrt(u, u), d); }, gate,
        up, dy);
}

}  // namespace calm
