#pragma once
// Row-wise expression trees as portable block kernels: one block per row.

#include "calm/tensor/detail/expr/row_backward.hpp"
#include "calm/tensor/detail/kernels/block/elementwise.hpp"
#include "calm/tensor/detail/kernels/block/rows.hpp"

namespace calm::detail {

// The tree with memory for the gradients of its operands over (D), `width` elements each; `stride` is as in
// broadcast_row.
template <class Tree, class T> CALM_HD Tree with_gradients(Tree t, T* memory, index_t width, index_t stride) {
    for_each_node(t, [&]<class A>(broadcast_row<A>& node) {
        if (!A::active) return;
        node.gradient = memory;
        node.stride = stride;
        memory += width;
    });
    return t;
}

// Calls f(tree over (D), its incoming gradient) for each such operand, of `width` elements each.
template <class Tree, class T, class F>
void for_each_shared(Tree const& t, T const* arrived, index_t width, F const& f) {
    for_each_node(t, [&]<class A>(broadcast_row<A> const& node) {
        if constexpr (A::active) {
            f(node.a, arrived);
            arrived += width;
        }
    });
}

// A row, processed by the threads of a block. All of them get the results of sum and fold.
template <class Block, class T> struct block_row {
    Block& b;
    index_t row;
    index_t columns;
    template <class F> CALM_HD T sum(F const& f) {
        typename Block::template per_thread<T> partial;
        b.phase([&](int t) {
            group_of<T> groups{};
            T others{};
            for_columns(t, [&]<class V>(index_t j) {
                if constexpr (grouped<V>)
                    groups += f.template operator()<V>(j);
                else
                    others += f.template operator()<V>(j);
            });
            partial[t] = calm::sum(groups) + others;
        });
        return b.sum(partial);
    }
    template <class F, class Combine> CALM_HD T fold(F const& f, Combine const& combine) {
        typename Block::template per_thread<T> partial;
        b.phase([&](int t) {
            T most = f.template operator()<T>(0);
            for (index_t j = t; j < columns; j += Block::threads) most = combine(most, f.template operator()<T>(j));
            partial[t] = most;
        });
        return b.fold(partial, combine);
    }
    template <class F> CALM_HD void each(F const& f) {
        b.phase([&](int t) { for_columns(t, f); });
    }
    template <class F> CALM_HD void once(F const& f) {
        b.phase([&](int t) {
            if (t == 0) f();
        });
    }

private:
    // Calls f for the columns of thread t: in groups if the width is a multiple of a group, so that every row is
    // aligned.
    template <class F> CALM_HD void for_columns(int t, F const& f) {
        if (columns % lanes<group_of<T>> == 0)
            for_groups<Block, T>(t, 0, columns, f);
        else
            for (index_t j = t; j < columns; j += Block::threads) f.template operator()<T>(j);
    }
};

inline constexpr int row_threads = 128;

template <class Tree, class T> struct evaluate_rows_kernel {
    static constexpr int threads = row_threads;
    struct shared {};
    Tree tree;
    T* y;
    index_t columns;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t r) const {
        block_row<Block, computed_in<T>> row{b, r, columns};
        evaluate_row(row, tree, y);
    }
};

template <class Tree, class DY> struct differentiate_rows_kernel {
    using T = typename Tree::scalar;
    static constexpr int threads = row_threads;
    struct shared {};
    Tree tree;
    DY dy;
    index_t columns;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t r) const {
        block_row<Block, T> row{b, r, columns};
        differentiate_row(row, tree, dy);
    }
};

// sums[row] = the sum of the tree's row.
template <class Tree, class Wide> struct sum_rows_kernel {
    using T = typename Tree::scalar;
    static constexpr int threads = row_threads;
    struct shared {};
    Tree tree;
    Wide* sums;
    index_t columns;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t r) const {
        block_row<Block, T> row{b, r, columns};
        if constexpr (is_column<Tree>) {
            auto const value = value_at(row, tree);
            row.once([&] { sums[r] = static_cast<Wide>(value); });
        } else {
            auto const at = bind_row(row, tree);
            Wide const total =
                sum_terms(b, 0, columns, [&](index_t j) { return static_cast<Wide>(at.template forward<T>(j).value); });
            row.once([&] { sums[r] = total; });
        }
    }
};

template <block_backend Backend, class Tree, class T>
void run_evaluate_rows(context<Backend> const& ctx, Tree const& tree, T* y, tree::span shape) {
    launch(ctx, shape.rows, evaluate_rows_kernel<Tree, T>{tree, y, shape.columns});
}

template <block_backend Backend, class Tree, class DY>
requires(shared_operands<Tree> == 0) void run_differentiate_rows(context<Backend> const& ctx, Tree const& tree,
                                                                 DY const& dy, tree::span shape) {
    launch(ctx, shape.rows, differentiate_rows_kernel<Tree, DY>{tree, dy, shape.columns});
}

// Gradients of operands over (D) are stored row by row before they are summed.
template <block_backend Backend, class Tree, class DY>
requires(shared_operands<Tree> > 0) void run_differentiate_rows(context<Backend>& ctx, Tree const& tree, DY const& dy,
                                                                tree::span shape) {
    using T = typename Tree::scalar;
    constexpr index_t shared = shared_operands<Tree>;
    arena_scope const scope(ctx.workspace);
    auto const each = ctx.workspace.template take<T>(extents<dyn, dyn>(shared, shape.size()));
    auto const arrived = ctx.workspace.template take<T>(extents<dyn, dyn>(shared, shape.columns));
    launch(ctx, shape.rows,
           differentiate_rows_kernel<Tree, DY>{with_gradients(tree, each.data(), shape.size(), shape.columns), dy,
                                               shape.columns});
    run_fill(ctx, arrived.data(), arrived.size(), T{});
    for (index_t k = 0; k < shared; ++k)
        run_add_sum_axis0(ctx, arrived.data() + k * shape.columns, each.data() + k * shape.size(), shape.rows,
                          shape.columns);
    for_each_shared(tree, arrived.data(), shape.columns, [&](auto const& of_row, T const* dy_of_row) {
        run_differentiate(ctx, of_row, tensor_cotangent<T>{dy_of_row}, shape.columns);
    });
}

// The sum of each row of a tree, (R), in ctx.workspace.
template <block_backend Backend, class Tree>
auto sums_of_rows(context<Backend>& ctx, Tree const& tree, tree::span shape) {
    using wide = typename accumulator<typename Tree::scalar>::type;
    auto const sums = ctx.workspace.template take<wide>(extents<dyn>(shape.rows));
    launch(ctx, shape.rows, sum_rows_kernel<Tree, wide>{tree, sums.data(), shape.columns});
    return tree::input<wide>{sums.data()};
}
template <block_backend Backend, class Tree>
auto run_sum_rows(context<Backend>& ctx, Tree const& tree, tree::span shape) {
    arena_scope const scope(ctx.workspace);
    return run_sum(ctx, sums_of_rows(ctx, tree, shape), shape.rows);
}
template <block_backend Backend, class Tree>
void run_add_sum_rows(context<Backend>& ctx, double* total, Tree const& tree, tree::span shape, double factor) {
    arena_scope const scope(ctx.workspace);
    run_add_sum(ctx, total, sums_of_rows(ctx, tree, shape), shape.rows, factor);
}

}  // namespace calm::detail
