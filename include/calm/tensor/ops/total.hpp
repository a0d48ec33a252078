#pragma once
/// \file
/// Scalar accumulators in the memory of a backend: operations add to them without waiting, and only a read waits.
/// \shows{examples/07_head.hpp,guessing_head}

#include "calm/tensor/expr/expr.hpp"

namespace calm {

/// A view of an accumulator.
template <class Backend = cpu> using total_view = vector_view<double, 1, Backend>;

/// A new accumulator with value zero, in ctx.workspace.
template <class Backend> total_view<Backend> new_total(context<Backend>& ctx) {
    auto const total = ctx.workspace.template take<double>(extents<1>());
    fill(ctx, total, 0.0);
    return total;
}

/// total += factor * the sum of all elements of an expression, or of their real parts; float is accumulated in double.
/// It does not wait. The order of the additions depends on the shape alone.
template <class Backend, tensor_operand A>
void add_sum(context<Backend>& ctx, total_view<Backend> const& total, A&& a, double factor = 1) {
    auto e = detail::as_expression(std::forward<A>(a));
    if constexpr (std::remove_cvref_t<decltype(e.tree())>::by_rows)
        detail::run_add_sum_rows(ctx, total.data(), e.tree(), detail::span_of_tree(e.tree(), e.extents()), factor);
    else
        detail::run_add_sum(ctx, total.data(), e.tree(), e.extents().size(), factor);
}

/// The value of a new accumulator after add(total), on the host. Waits for a device; 0 in a dry run.
template <class Backend, class Add> double total_of(context<Backend>& ctx, Add const& add) {
    arena_scope const scope(ctx.workspace);
    auto const total = new_total(ctx);
    add(total);
    return copy_to_host(ctx, total.data());
}

namespace detail {
// total += factor * part
struct add_part {
    double* total;
    double const* part;
    double factor;
    CALM_HD void operator()(index_t) const { *total += factor * *part; }
};

// mean = total / count
struct mean_of {
    double* mean;
    double const* total;
    double count;
    CALM_HD void operator()(index_t) const { *mean = *total / count; }
};
}  // namespace detail

/// total += factor * part; both are accumulators.
template <class Backend>
void add_total(context<Backend> const& ctx, total_view<Backend> const& total, total_view<Backend> const& part,
               double factor = 1) {
    for_each(ctx, 1, detail::add_part{total.data(), part.data(), factor});
}

/// mean = total / count.
template <class Backend>
void put_mean(context<Backend> const& ctx, total_view<Backend> const& mean, total_view<Backend> const& total,
              index_t count) {
    for_each(ctx, 1, detail::mean_of{mean.data(), total.data(), static_cast<double>(count)});
}

}  // namespace calm
