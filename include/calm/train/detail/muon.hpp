#pragma once
// Muon (Jordan et al. 2024): a hidden matrix moves along its orthogonalised momentum, so that all singular directions
// are learned equally, not only the directions of large gradients (docs/mathematics/optimizers.md).

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "calm/model/flops.hpp"
#include "calm/tensor/detail/core/for_each.hpp"
#include "calm/tensor/expr/expr.hpp"
#include "calm/tensor/ops/matmul.hpp"
#include "calm/tensor/ops/total.hpp"
#include "calm/train/detail/block/adamw.hpp"

namespace calm {

namespace detail {

// a s + b s^3 + c s^5, applied to singular values s.
struct odd_polynomial {
    double a, b, c;
};
// Applied in sequence, they map [0.01, 1] to [0.73, 1.27], the smallest deviation from 1 that three can reach. Each is
// optimal for the output range of the previous one (Amsel et al. 2025, arXiv 2505.16932).
inline constexpr std::array<odd_polynomial, flops::polynomials_of_muon> towards_one{
    {{8.093368512548254, -23.62043032882427, 17.446151749836247},
     {3.636585554259039, -2.721926746608907, 0.5365462883273613},
     {2.661299985777098, -1.9771545218846238, 0.4526164069964008}}};

// A matrix that Muon updates. Its slot is the whole matrix, or with several ranks this rank's shard.
template <class T> struct hidden_matrix {
    index_t slot;   // index of the slot
    T* gradient;    // (R, C), whole
    index_t first;  // offset of the slot's first element in the matrix
    index_t rows;
    index_t columns;
};

// Updates the values (n) of a slot with x (n), at `factor` times Muon's learning rate. Does nothing after a non-finite
// update.
template <class T> struct muon_update {
    adamw_memory<T> all;
    adamw_slot<T> slot;
    T const* x;
    T factor;
    CALM_HD void operator()(index_t i) const {
        if (all.record->bad_update != 0) return;
        T const keep = slot.decays ? all.arguments->keep : T{1};
        slot.value[i] = slot.value[i] * keep - all.arguments->muon * factor * x[i];
    }
};
// Clears the gradient (n), unless an update was not finite.
template <class T> struct forget_gradient {
    adamw_memory<T> all;
    T* gradient;
    CALM_HD void operator()(index_t i) const {
        if (all.record->bad_update == 0) gradient[i] = T{};
    }
};

// y (n) = x / sqrt(squares); `squares` is a scalar.
template <class T> struct divide_by_root {
    T* y;
    T const* x;
    double const* squares;
    CALM_HD void operator()(index_t i) const { y[i] = x[i] / static_cast<T>(math::sqrt(*squares + 1e-30)); }
};

// y = x / its Frobenius norm. A device uses add_sum, because it would reduce a single row in one block.
template <class T, class Backend>
void put_of_length_one(context<Backend>& ctx, view<T, extents<dyn, dyn>, Backend> const& y,
                       view<T, extents<dyn, dyn>, Backend> const& x) {
    if constexpr (block_backend<Backend>) {
        arena_scope const scope(ctx.workspace);
        auto const squares = new_total(ctx);
        add_sum(ctx, squares, square(x));
        for_each(ctx, x.size(), divide_by_root<T>{y.data(), x.data(), squares.data()});
    } else {
        extents<dyn, dyn> const as_row(1, x.size());
        auto const all = reshape(x, as_row);
        evaluate(ctx, reshape(y, as_row), all / sqrt(sum_axis1(square(all)) + 1e-30));
    }
}

}  // namespace detail

// Moves the singular values of x (R, C) towards 1 and keeps its singular vectors. Values of at least 0.01 of the
// Frobenius norm end in [0.73, 1.27], smaller ones are multiplied by 78 / norm, zeros stay. Returns the result in
// ctx.workspace; takes three such matrices there, two of the smaller size, and rounded operands.
template <class T, class Backend>
view<T, extents<dyn, dyn>, Backend> orthogonalised(context<Backend>& ctx,
                                                   view<T, extents<dyn, dyn>, Backend> const& x) {
    bool const wide = x.extent(0) <= x.extent(1);
    index_t const least = wide ? x.extent(0) : x.extent(1);
    auto now = ctx.workspace.template take<T>(x.extents());
    auto next = ctx.workspace.template take<T>(x.extents());
    auto const squared = ctx.workspace.template take<T>(extents<dyn, dyn>(least, least));
    auto const sum = ctx.workspace.template take<T>(extents<dyn, dyn>(least, least));
    detail::put_of_length_one(ctx, now, x);
    for (auto const& p : detail::towards_one) {
        arena_scope const scope(ctx.workspace);
        auto const factor = precast_factor(ctx, now);
        if (wide)
            matmul(ctx, squared, factor, transposed(factor));
        else
            matmul(ctx, squared, transposed(factor), factor);
        auto const square_factor = precast_factor(ctx, squared);
        matmul(ctx, sum, square_factor, square_factor);
        evaluate(ctx, sum, squared * p.b + sum * p.c);
        evaluate(ctx, next, now * p.a);
        if (wide)
            matmul(ctx, next, sum, factor, {.mode = into::accumulate});
        else
            matmul(ctx, next, factor, sum, {.mode = into::accumulate});
        std::swap(now, next);
    }
    return now;
}

namespace detail {

// Updates a slot with Muon, given the gradient of its whole matrix. Elements move about 0.2 learning rates, as with
// AdamW (Liu et al. 2025, arXiv 2502.16982).
template <class T, class Backend>
void update_by_muon(context<Backend>& ctx, adamw_memory<T> const& all, adamw_slot<T> const& slot,
                    hidden_matrix<T> const& m) {
    view<T, extents<dyn, dyn>, Backend> const ahead(m.gradient, {m.rows, m.columns});
    if (slot.size > 0) {
        arena_scope const scope(ctx.workspace);
        auto const x = orthogonalised(ctx, ahead);
        double const factor = 0.2 * std::sqrt(static_cast<double>(std::max(m.rows, m.columns)));
        for_each(ctx, slot.size, muon_update<T>{all, slot, x.data() + m.first, static_cast<T>(factor)});
    }
    for_each(ctx, ahead.size(), forget_gradient<T>{all, m.gradient});
}

}  // namespace detail

}  // namespace calm
