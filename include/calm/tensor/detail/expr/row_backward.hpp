#pragma once
// The backward plan of a row_tree.hpp tree at one row. First the gradients of columns and reductions, to which every
// element of the row contributes, are summed (`settle`). Then one pass writes all gradients of the row, in the order of
// the leaves; so a gradient may overwrite the tensor that it belongs to.

#include "calm/tensor/detail/expr/row_tree.hpp"

namespace calm::detail {

// A tree over (D): its gradient goes to memory, and its operands' gradients are computed from that after the last row.
template <class A> struct backward_row {
    using scalar = typename A::scalar;
    static constexpr bool active = true;
    static constexpr bool by_rows = false;
    A a;               // the tree
    scalar* gradient;  // (D)
    bool accumulates;  // whether the gradient is added to
    template <class V> struct trace { V value; };
    template <class V> [[gnu::always_inline]] CALM_HD trace<V> forward(index_t j) const {
        return {a.template forward<V>(j).value};
    }
    template <class V> [[gnu::always_inline]] CALM_HD void backward(trace<V> const&, index_t j, V dy) const {
        store(gradient + j, accumulates ? load<V>(gradient + j) + dy : dy);
    }
};

// A tree over (R, 1) at one row: a scalar.
template <class Plan> struct backward_column {
    using scalar = typename Plan::scalar;
    static constexpr bool active = true;
    static constexpr bool by_rows = false;
    Plan a;  // its operands and its value
    template <class V> struct trace {
        V value;
        typename Plan::template trace<V> a;
    };
    template <class V> [[gnu::always_inline]] CALM_HD trace<V> forward(index_t j) const {
        return {splat<V>(a.value), a.template forward<V>(j)};
    }
    template <class V> [[gnu::always_inline]] CALM_HD void backward(trace<V> const& t, index_t j, V) const {
        a.template backward<V>(t.a, j);
    }
};

// The nodes of an open column: each holds its value and, once settled, its incoming gradient. forward and backward
// concern the rows of its reductions.
template <class T> struct backward_constant {
    using scalar = T;
    T value;
    template <class V> struct trace {};
    template <class V> [[gnu::always_inline]] CALM_HD trace<V> forward(index_t) const { return {}; }
    template <class V> [[gnu::always_inline]] CALM_HD void backward(trace<V> const&, index_t) const {}
};
template <class T> struct backward_variable {
    using scalar = T;
    T value;
    T* dx;
    bool accumulates;
    T dy;
    template <class V> struct trace {};
    template <class V> [[gnu::always_inline]] CALM_HD trace<V> forward(index_t) const { return {}; }
    template <class V> [[gnu::always_inline]] CALM_HD void backward(trace<V> const&, index_t) const {}
};
template <class Op, class A> struct backward_unary {
    using scalar = typename A::scalar;
    A a;
    scalar value;
    template <class V> using trace = typename A::template trace<V>;
    template <class V> [[gnu::always_inline]] CALM_HD trace<V> forward(index_t j) const {
        return a.template forward<V>(j);
    }
    template <class V> [[gnu::always_inline]] CALM_HD void backward(trace<V> const& t, index_t j) const {
        a.template backward<V>(t, j);
    }
};
template <class Op, class A, class B> struct backward_binary {
    using scalar = typename A::scalar;
    A a;
    B b;
    scalar value;
    template <class V> struct trace {
        typename A::template trace<V> a;
        typename B::template trace<V> b;
    };
    template <class V> [[gnu::always_inline]] CALM_HD trace<V> forward(index_t j) const {
        return {a.template forward<V>(j), b.template forward<V>(j)};
    }
    template <class V> [[gnu::always_inline]] CALM_HD void backward(trace<V> const& t, index_t j) const {
        a.template backward<V>(t.a, j);
        b.template backward<V>(t.b, j);
    }
};
template <class Op, class Tree> struct backward_reduction {
    using scalar = typename Tree::scalar;
    Tree tree;     // opened at the row
    scalar value;  // Op of that row
    scalar share;  // each element's share of the gradient, before Op::back
    template <class V> using trace = typename Tree::template trace<V>;
    template <class V> [[gnu::always_inline]] CALM_HD trace<V> forward(index_t j) const {
        return tree.template forward<V>(j);
    }
    template <class V> [[gnu::always_inline]] CALM_HD void backward(trace<V> const& t, index_t j) const {
        tree.template backward<V>(t, j, slope<V>(t));
    }
    // The incoming gradient of an element.
    template <class V> [[gnu::always_inline]] CALM_HD V slope(trace<V> const& t) const {
        return Op::template back<V>(splat<V>(share), t.value, splat<V>(value));
    }
};

// ---- opening

template <class Row, class Tree>
requires(!Tree::active) [[gnu::always_inline]] CALM_HD inline auto backward_value(Row& row, Tree const& t) {
    return backward_constant<typename Tree::scalar>{value_at(row, t)};
}
template <class Row, class T>
[[gnu::always_inline]] CALM_HD inline auto backward_value(Row& row, variable<T> const& t) {
    return backward_variable<T>{t.x[row.row], t.dx + row.row, t.accumulates, T{}};
}
template <class Row, class A>
requires(A::active) [[gnu::always_inline]] CALM_HD inline auto backward_value(Row& row, tee<A> const& t) {
    return backward_value(row, t.a);
}
template <class Row, class Op, class A>
requires(A::active) [[gnu::always_inline]] CALM_HD inline auto backward_value(Row& row, unary<Op, A> const& t) {
    auto const a = backward_value(row, t.a);
    return backward_unary<Op, std::remove_cv_t<decltype(a)>>{a, Op::template value<typename A::scalar>(a.value)};
}
template <class Row, class Op, class A, class B>
requires(A::active || B::active) [[gnu::always_inline]] CALM_HD
    inline auto backward_value(Row& row, binary<Op, A, B> const& t) {
    auto const a = backward_value(row, t.a);
    auto const b = backward_value(row, t.b);
    return backward_binary<Op, std::remove_cv_t<decltype(a)>, std::remove_cv_t<decltype(b)>>{
        a, b, Op::template value<typename A::scalar>(a.value, b.value)};
}
template <class Row, class Op, class A>
requires(A::active) [[gnu::always_inline]] CALM_HD inline auto backward_value(Row& row, reduction<Op, A> const& t) {
    using T = typename A::scalar;
    auto const at = backward_plan(row, t.a);
    T const value = Op::reduce(
        row, [&]<class V>(index_t j) __attribute__((always_inline))->V { return at.template forward<V>(j).value; });
    return backward_reduction<Op, std::remove_cv_t<decltype(at)>>{at, value, T{}};
}

template <class Row, class Tree>
requires(!Tree::active) [[gnu::always_inline]] CALM_HD inline auto backward_plan(Row& row, Tree const& t) {
    return bind_row(row, t);
}
template <class Row, class T> [[gnu::always_inline]] CALM_HD inline auto backward_plan(Row& row, variable<T> const& t) {
    index_t const first = row.row * row.columns;
    return variable<T>{t.x + first, t.dx + first, t.accumulates};
}
template <class Row, class A>
requires(A::active) [[gnu::always_inline]] CALM_HD inline auto backward_plan(Row& row, broadcast_row<A> const& t) {
    return backward_row<A>{t.a, t.gradient + row.row * t.stride, t.stride == 0};
}
template <class Row, class A>
requires(A::active) [[gnu::always_inline]] CALM_HD inline auto backward_plan(Row& row, broadcast_column<A> const& t) {
    auto const a = backward_value(row, t.a);
    return backward_column<std::remove_cv_t<decltype(a)>>{a};
}
template <class Row, class Op, class A>
requires(A::active) [[gnu::always_inline]] CALM_HD inline auto backward_plan(Row& row, unary<Op, A> const& t) {
    auto const a = backward_plan(row, t.a);
    return unary<Op, std::remove_cv_t<decltype(a)>>{a};
}
template <class Row, class Op, class A, class B>
requires(A::active || B::active) [[gnu::always_inline]] CALM_HD
    inline auto backward_plan(Row& row, binary<Op, A, B> const& t) {
    auto const a = backward_plan(row, t.a);
    auto const b = backward_plan(row, t.b);
    return binary<Op, std::remove_cv_t<decltype(a)>, std::remove_cv_t<decltype(b)>>{a, b};
}

// ---- settling

template <class Tree> inline constexpr int columns_in = 0;
template <class Plan> inline constexpr int columns_in<backward_column<Plan>> = 1;
template <class Op, class A> inline constexpr int columns_in<unary<Op, A>> = columns_in<A>;
template <class Op, class A, class B> inline constexpr int columns_in<binary<Op, A, B>> = columns_in<A> + columns_in<B>;

// Column K of an open tree.
template <int K, class Plan> CALM_HD auto& column_of(backward_column<Plan>& t) {
    return t.a;
}
template <int K, class Op, class A> CALM_HD auto& column_of(unary<Op, A>& t) {
    return column_of<K>(t.a);
}
template <int K, class Op, class A, class B> CALM_HD auto& column_of(binary<Op, A, B>& t) {
    if constexpr (K < columns_in<A>)
        return column_of<K>(t.a);
    else
        return column_of<K - columns_in<A>>(t.b);
}

// What an element with gradient dy contributes to the gradient of column K.
template <int K, class V, class Plan, class Trace>
[[gnu::always_inline]] CALM_HD inline V incoming_gradient(backward_column<Plan> const&, Trace const&, V dy) {
    return dy;
}
template <int K, class V, class Op, class A, class Trace>
[[gnu::always_inline]] CALM_HD inline V incoming_gradient(unary<Op, A> const& tree, Trace const& t, V dy) {
    return incoming_gradient<K, V>(tree.a, t.a, Op::template back<V>(dy, t.a.value, t.value));
}
template <int K, class V, class Op, class A, class B, class Trace>
[[gnu::always_inline]] CALM_HD inline V incoming_gradient(binary<Op, A, B> const& tree, Trace const& t, V dy) {
    if constexpr (K < columns_in<A>)
        return incoming_gradient<K, V>(tree.a, t.a, Op::template back_a<V>(dy, t.a.value, t.b.value, t.value));
    else
        return incoming_gradient<K - columns_in<A>, V>(tree.b, t.b,
                                                       Op::template back_b<V>(dy, t.a.value, t.b.value, t.value));
}

// Sums the incoming gradients of columns K and later of the open tree; dy<V>(j, trace) is the incoming gradient of the
// tree's element j.
template <int K = 0, class Row, class Tree, class DY>
CALM_HD void reduce_column_adjoints(Row& row, Tree& tree, DY const& dy) {
    if constexpr (K < columns_in<Tree>) {
        auto const total = row.sum([&]<class V>(index_t j) __attribute__((always_inline))->V {
            auto const t = tree.template forward<V>(j);
            return incoming_gradient<K, V>(tree, t, dy.template operator()<V>(j, t));
        });
        reduce_adjoints(row, column_of<K>(tree), total);
        reduce_column_adjoints<K + 1>(row, tree, dy);
    }
}

// Passes the incoming gradient dy of a scalar on to its operands.
template <class Row, class T> CALM_HD void reduce_adjoints(Row&, backward_constant<T>&, T) {}
template <class Row, class T> CALM_HD void reduce_adjoints(Row&, backward_variable<T>& t, T dy) {
    t.dy = dy;
}
template <class Row, class Op, class A>
CALM_HD void reduce_adjoints(Row& row, backward_unary<Op, A>& t, typename A::scalar dy) {
    reduce_adjoints(row, t.a, Op::template back<typename A::scalar>(dy, t.a.value, t.value));
}
template <class Row, class Op, class A, class B>
CALM_HD void reduce_adjoints(Row& row, backward_binary<Op, A, B>& t, typename A::scalar dy) {
    using T = typename A::scalar;
    reduce_adjoints(row, t.a, Op::template back_a<T>(dy, t.a.value, t.b.value, t.value));
    reduce_adjoints(row, t.b, Op::template back_b<T>(dy, t.a.value, t.b.value, t.value));
}
template <class Row, class Op, class Tree>
CALM_HD void reduce_adjoints(Row& row, backward_reduction<Op, Tree>& t, typename Tree::scalar dy) {
    t.share = Op::share(
        row, [&]<class V>(index_t j) __attribute__((always_inline))->V { return t.tree.template forward<V>(j).value; },
        dy, t.value);
    reduce_column_adjoints(
        row, t.tree, [&]<class V>(index_t, auto const& trace) __attribute__((always_inline))->V {
            return t.template slope<V>(trace);
        });
}

// ---- storing

// Stores the gradients of operands over (R, 1).
template <class Row, class T> CALM_HD void write_columns(Row& row, backward_variable<T> const& t) {
    row.once([&] { *t.dx = t.accumulates ? *t.dx + t.dy : t.dy; });
}
template <class Row, class Tree> CALM_HD void write_columns(Row& row, Tree const& t) {
    if constexpr (of_two<Tree const>) {
        write_columns(row, t.a);
        write_columns(row, t.b);
    } else if constexpr (of_one<Tree const>)
        write_columns(row, t.a);
}
template <class Row, class Op, class Tree> CALM_HD void write_columns(Row& row, backward_reduction<Op, Tree> const& t) {
    write_columns(row, t.tree);
}

// Stores all gradients of row `row`, except for operands over (D), of a tree with incoming gradient dy.at<V>(i).
template <class Row, class Tree, class DY> CALM_HD void differentiate_row(Row& row, Tree const& t, DY const& dy) {
    if constexpr (is_column<Tree>) {
        auto plan = backward_value(row, t);
        reduce_adjoints(row, plan, dy.template at<typename Tree::scalar>(row.row));
        row.each([&]<class V>(index_t j)
                     __attribute__((always_inline)) { plan.template backward<V>(plan.template forward<V>(j), j); });
        write_columns(row, plan);
    } else {
        auto plan = backward_plan(row, t);
        index_t const first = row.row * row.columns;
        reduce_column_adjoints(
            row, plan, [&]<class V>(index_t j, auto const&) __attribute__((always_inline))->V {
                return dy.template at<V>(first + j);
            });
        row.each([&]<class V>(index_t j) __attribute__((always_inline)) {
            plan.template backward<V>(plan.template forward<V>(j), j, dy.template at<V>(first + j));
        });
        write_columns(row, plan);
    }
}

}  // namespace calm::detail
