#pragma once
// Muon (Jordan et al. 2024): a matrix between hidden states moves along its orthogonalised momentum, so that all its
// directions are learned alike, and not those alone in which gradients are large (Muon in docs/mathematics.md).

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "calm/model/flops.hpp"
#include "calm/tensor/expr.hpp"
#include "calm/tensor/for_each.hpp"
#include "calm/tensor/matmul.hpp"
#include "calm/tensor/total.hpp"
#include "calm/train/block/adamw.hpp"

namespace calm {

namespace detail {

// a s + b s^3 + c s^5, of singular values s.
struct odd_polynomial {
    double a, b, c;
};
// One after the other they take [0.01, 1] to [0.73, 1.27], the least distance from 1 that three have: each is the best
// one where the one before leads (Amsel et al. 2025, arXiv 2505.16932).
inline constexpr std::array<odd_polynomial, flops::polynomials_of_muon> towards_one{
    {{8.093368512548254, -23.62043032882427, 17.446151749836247},
     {3.636585554259039, -2.721926746608907, 0.5365462883273613},
     {2.661299985777098, -1.9771545218846238, 0.4526164069964008}}};

// A matrix that Muon updates, of which a slot is all, or of several ranks a share.
template <class T> struct hidden_matrix {
    index_t slot;   // its number
    T* gradient;    // (R, C), whole
    index_t first;  // the number of the slot's first element in it
    index_t rows;
    index_t columns;
};

// The values (n) of a slot move against x (n) by `rate` times the executor's. Nothing changes after an update that was
// not finite.
template <class T> struct muon_update {
    adamw_memory<T> all;
    adamw_slot<T> slot;
    T const* x;
    T rate;
    CALM_HD void operator()(index_t i) const {
        if (all.record->bad_update != 0) return;
        T const keep = slot.decays ? all.told->keep : T{1};
        slot.value[i] = slot.value[i] * keep - all.told->muon * rate * x[i];
    }
};
// Its gradient (n) is zero afterwards, on the same condition.
template <class T> struct forget_gradient {
    adamw_memory<T> all;
    T* gradient;
    CALM_HD void operator()(index_t i) const {
        if (all.record->bad_update == 0) gradient[i] = T{};
    }
};

// y (n) = x / sqrt(squares), of which there is one.
template <class T> struct divide_by_root {
    T* y;
    T const* x;
    double const* squares;
    CALM_HD void operator()(index_t i) const { y[i] = x[i] / static_cast<T>(math::sqrt(*squares + 1e-30)); }
};

// y = x over the root of the sum of its squares. A device would add up one row by one block.
template <class T, class Backend>
void put_of_length_one(context<Backend>& ctx, view<T, extents<dyn, dyn>, Backend> const& y,
                       view<T, extents<dyn, dyn>, Backend> const& x) {
    if constexpr (block_executor<Backend>) {
        arena_scope const scope(ctx.scratch);
        auto const squares = new_total(ctx);
        add_sum(ctx, squares, square(x));
        for_each(ctx, x.size(), divide_by_root<T>{y.data(), x.data(), squares.data()});
    } else {
        extents<dyn, dyn> const as_row(1, x.size());
        auto const all = reshape(x, as_row);
        evaluate(ctx, reshape(y, as_row), all / sqrt(row_sum(square(all)) + 1e-30));
    }
}

}  // namespace detail

// x (R, C), on the same singular vectors, with singular values near 1 in place of its own: those of at least a
// hundredth of the root of the sum of its squares come to [0.73, 1.27], smaller ones are multiplied by 78 of that root.
// Zeros stay. Gives where the result is, in ctx.scratch; takes three such matrices there, and two of the smaller size,
// and what products round.
template <class T, class Backend>
view<T, extents<dyn, dyn>, Backend> orthogonalised(context<Backend>& ctx,
                                                   view<T, extents<dyn, dyn>, Backend> const& x) {
    bool const wide = x.extent(0) <= x.extent(1);
    index_t const least = wide ? x.extent(0) : x.extent(1);
    auto now = ctx.scratch.template take<T>(x.extents());
    auto next = ctx.scratch.template take<T>(x.extents());
    auto const squared = ctx.scratch.template take<T>(extents<dyn, dyn>(least, least));
    auto const sum = ctx.scratch.template take<T>(extents<dyn, dyn>(least, least));
    detail::put_of_length_one(ctx, now, x);
    for (auto const& p : detail::towards_one) {
        arena_scope const scope(ctx.scratch);
        auto const factor = shared_factor(ctx, now);
        if (wide)
            matmul(ctx, squared, factor, transposed(factor));
        else
            matmul(ctx, squared, transposed(factor), factor);
        auto const square_factor = shared_factor(ctx, squared);
        matmul(ctx, sum, square_factor, square_factor);
        evaluate(ctx, sum, squared * p.b + sum * p.c);
        evaluate(ctx, next, now * p.a);
        if (wide)
            matmul(ctx, next, sum, factor, into::accumulate);
        else
            matmul(ctx, next, factor, sum, into::accumulate);
        std::swap(now, next);
    }
    return now;
}

namespace detail {

// The update of a slot that leads, where the whole matrix does. Its elements move as far as AdamW's do: by about 0.2 of
// the rate (Liu et al. 2025, arXiv 2502.16982).
template <class T, class Backend>
void update_by_muon(context<Backend>& ctx, adamw_memory<T> const& all, adamw_slot<T> const& slot,
                    hidden_matrix<T> const& m) {
    view<T, extents<dyn, dyn>, Backend> const ahead(m.gradient, {m.rows, m.columns});
    if (slot.size > 0) {
        arena_scope const scope(ctx.scratch);
        auto const x = orthogonalised(ctx, ahead);
        double const rate = 0.2 * std::sqrt(static_cast<double>(std::max(m.rows, m.columns)));
        for_each(ctx, slot.size, muon_update<T>{all, slot, x.data() + m.first, static_cast<T>(rate)});
    }
    for_each(ctx, ahead.size(), forget_gradient<T>{all, m.gradient});
}

}  // namespace detail

}  // namespace calm
