#pragma once
// Row-by-row trees on the cpu: chunks of rows are divided among threads, a row is processed in packets. For block
// backends see detail/kernels/block/by_rows.hpp.

#include "calm/tensor/detail/kernels/block/by_rows.hpp"
#include "calm/tensor/ops/rows.hpp"

namespace calm::detail {

// A row that is processed in packets.
template <class T> struct packet_row {
    index_t row;
    index_t columns;
    template <class F> [[gnu::always_inline]] CALM_HD T sum(F const& f) const { return sum_packets<T>(columns, f); }
    template <class F, class Combine> CALM_HD T fold(F const& f, Combine const& combine) const {
        using V = packet<T>;
        T most = f.template operator()<T>(0);
        V packets{};
        bool any = false;
        for_packets<T>(0, columns, [&]<class W>(index_t j) {
            W const value = f.template operator()<W>(j);
            if constexpr (std::is_same_v<W, T>)
                most = combine(most, value);
            else {
                packets = any ? combine(packets, value) : value;
                any = true;
            }
        });
        if constexpr (!std::is_same_v<V, T>)
            for (int lane = 0; any && lane < lanes<V>; ++lane) most = combine(most, packets[lane]);
        return most;
    }
    template <class F> [[gnu::always_inline]] CALM_HD void each(F const& f) const { for_pieces<T>(0, columns, f); }
    template <class F> [[gnu::always_inline]] CALM_HD void once(F const& f) const { f(); }
};

template <class Tree, class T>
void run_evaluate_rows(context<cpu> const& ctx, Tree const& tree, T* y, tree::span shape) {
    ctx.parallel_ranges(shape.rows, row_chunk, [&](index_t begin, index_t end) {
        for (packet_row<T> row{begin, shape.columns}; row.row < end; ++row.row) evaluate_row(row, tree, y);
    });
}

template <class Tree, class DY>
requires(shared_operands<Tree> == 0) void run_differentiate_rows(context<cpu> const& ctx, Tree const& tree,
                                                                 DY const& dy, tree::span shape) {
    ctx.parallel_ranges(shape.rows, row_chunk, [&](index_t begin, index_t end) {
        for (packet_row<typename Tree::scalar> row{begin, shape.columns}; row.row < end; ++row.row)
            differentiate_row(row, tree, dy);
    });
}

// Gradients of operands over (D) are summed over the rows of a chunk, then over the chunks.
template <class Tree, class DY>
requires(shared_operands<Tree> > 0) void run_differentiate_rows(context<cpu>& ctx, Tree const& tree, DY const& dy,
                                                                tree::span shape) {
    using T = typename Tree::scalar;
    arena_scope const scope(ctx.workspace);
    auto const arrived = ctx.workspace.template take<T>(extents<dyn>(shared_operands<Tree> * shape.columns));
    run_fill(ctx, arrived.data(), arrived.size(), T{});
    reduce_chunks(ctx, shape.rows, arrived.size(), arrived.data(), [&](index_t begin, index_t end, T* partial) {
        auto const bound = with_gradients(tree, partial, shape.columns, 0);
        for (packet_row<T> row{begin, shape.columns}; row.row < end; ++row.row) differentiate_row(row, bound, dy);
    });
    for_each_shared(tree, arrived.data(), shape.columns, [&](auto const& of_row, T const* dy_of_row) {
        run_differentiate(ctx, of_row, tensor_cotangent<T>{dy_of_row}, shape.columns);
    });
}

// Sums each row, then adds the row sums in order.
template <class Tree> auto run_sum_rows(context<cpu>& ctx, Tree const& tree, tree::span shape) {
    using T = typename Tree::scalar;
    using wide = typename accumulator<T>::type;
    arena_scope const scope(ctx.workspace);
    auto const sums = ctx.workspace.template take<wide>(extents<dyn>(shape.rows));
    ctx.parallel_ranges(shape.rows, row_chunk, [&](index_t begin, index_t end) {
        for (packet_row<T> row{begin, shape.columns}; row.row < end; ++row.row) {
            if constexpr (is_column<Tree>)
                sums[row.row] = static_cast<wide>(value_at(row, tree));
            else
                sums[row.row] = serial_sum(bind_row(row, tree), 0, shape.columns);
        }
    });
    wide total{};
    if (!ctx.is_dry_run())
        for (wide const s : sums) total += s;
    return total;
}

// *total += factor * the sum
template <class Tree>
void run_add_sum_rows(context<cpu>& ctx, double* total, Tree const& tree, tree::span shape, double factor) {
    auto const sum = run_sum_rows(ctx, tree, shape);
    if (!ctx.is_dry_run()) *total += factor * real_part(sum);
}

}  // namespace calm::detail
