#pragma once
// Row-wise trees over (R, D): a row (D) or a column (R, 1) broadcast to a matrix, and row reductions. They run row by
// row. `placed` binds a tree to one row, with its columns and reductions computed; `opened` does so for backward, and
// passes gradients on to them.
//
// A Row processes row number `row` of `columns` elements: `sum(f)` sums f<V>(j), `fold(f, combine)` combines them in
// pairs, `each(f)` calls f<V>(j) for all j, `once(f)` calls f().

#include "calm/tensor/detail/expr/tree.hpp"

namespace calm::detail {

using tree::binary;
using tree::constant;
using tree::input;
using tree::leaf;
using tree::span;
using tree::unary;
using tree::variable;
using tree::written;

// A tree over (D), broadcast to every row.
template <class A> struct broadcast_row {
    using scalar = typename A::scalar;
    static constexpr bool active = A::active;
    static constexpr bool by_rows = true;
    static constexpr std::size_t leaves = A::leaves;
    A a;                         // the tree over (D)
    scalar* gradient = nullptr;  // of its value: one (D) that all rows add to, or a (D) per row
    index_t stride = 0;          // between two rows' gradients; 0: all add to one
};

// A tree over (R, 1), broadcast to every column.
template <class A> struct broadcast_column {
    using scalar = typename A::scalar;
    static constexpr bool active = A::active;
    static constexpr bool by_rows = true;
    static constexpr std::size_t leaves = A::leaves;
    A a;  // the tree over (R, 1)
};

// Op of each row of a tree over (R, D): a tree over (R, 1).
template <class Op, class A> struct reduction {
    using scalar = typename A::scalar;
    static constexpr bool active = A::active;
    static constexpr bool by_rows = true;
    static constexpr std::size_t leaves = A::leaves;
    A a;              // the tree over (R, D)
    index_t columns;  // D
};

// A tree over (R, 1) whose values are also stored.
template <class A> struct tee {
    using scalar = typename A::scalar;
    static constexpr bool active = A::active;
    static constexpr bool by_rows = true;
    static constexpr std::size_t leaves = A::leaves + 1;
    A a;         // the tree over (R, 1)
    scalar* to;  // (R)
};

// Whether a tree is over (R, 1), made of row reductions.
template <class Tree> inline constexpr bool is_column = false;
template <class Op, class A> inline constexpr bool is_column<reduction<Op, A>> = true;
template <class A> inline constexpr bool is_column<tee<A>> = true;
template <class Op, class A> inline constexpr bool is_column<unary<Op, A>> = is_column<A>;
template <class Op, class A, class B> inline constexpr bool is_column<binary<Op, A, B>> = is_column<A> || is_column<B>;

// Number of operands over (D) in a tree that need gradients.
template <class Tree> inline constexpr index_t shared_operands = 0;
template <class A> inline constexpr index_t shared_operands<broadcast_row<A>> = A::active ? 1 : 0;
template <class A> inline constexpr index_t shared_operands<broadcast_column<A>> = shared_operands<A>;
template <class A> inline constexpr index_t shared_operands<tee<A>> = shared_operands<A>;
template <class Op, class A> inline constexpr index_t shared_operands<reduction<Op, A>> = shared_operands<A>;
template <class Op, class A> inline constexpr index_t shared_operands<unary<Op, A>> = shared_operands<A>;
template <class Op, class A, class B>
inline constexpr index_t shared_operands<binary<Op, A, B>> = shared_operands<A> + shared_operands<B>;

template <class A, class F> void for_each_leaf(broadcast_row<A> const& t, span shape, F const& f) {
    for_each_leaf(t.a, span{1, shape.columns}, f);
}
template <class A, class F> void for_each_leaf(broadcast_column<A> const& t, span shape, F const& f) {
    for_each_leaf(t.a, span{shape.rows, 1}, f);
}
template <class Op, class A, class F> void for_each_leaf(reduction<Op, A> const& t, span shape, F const& f) {
    for_each_leaf(t.a, span{shape.rows, t.columns}, f);
}
template <class A, class F> void for_each_leaf(tee<A> const& t, span shape, F const& f) {
    for_each_leaf(t.a, shape, f);
    f(leaf<typename A::scalar>{t.to, shape, written::by_values});
}

// Nodes with at least one operand, and with two.
template <class Node>
concept of_one = requires(Node& node) {
    node.a;
};
template <class Node>
concept of_two = of_one<Node> && requires(Node& node) {
    node.b;
};

// Calls f(node) for the outermost nodes that f accepts, in order.
template <class Tree, class F> CALM_HD void for_each_node(Tree& t, F const& f) {
    if constexpr (std::is_invocable_v<F const&, Tree&>)
        f(t);
    else if constexpr (of_two<Tree>) {
        for_each_node(t.a, f);
        for_each_node(t.b, f);
    } else if constexpr (of_one<Tree>)
        for_each_node(t.a, f);
}

// ---- values

// The value at one row of a tree over (R, 1), or of an operand in it.
template <class Row, class T>
[[gnu::always_inline]] CALM_HD inline computed_in<T> value_at(Row& row, input<T> const& t) {
    return static_cast<computed_in<T>>(t.x[row.row]);
}
template <class Row, class T>
[[gnu::always_inline]] CALM_HD inline computed_in<T> value_at(Row& row, variable<T> const& t) {
    return static_cast<computed_in<T>>(t.x[row.row]);
}
template <class Row, class T> [[gnu::always_inline]] CALM_HD inline T value_at(Row&, constant<T> const& t) {
    return t.c;
}
template <class Row, class Op, class A>
[[gnu::always_inline]] CALM_HD inline auto value_at(Row& row, unary<Op, A> const& t) {
    return Op::template value<typename A::scalar>(value_at(row, t.a));
}
template <class Row, class Op, class A, class B>
[[gnu::always_inline]] CALM_HD inline auto value_at(Row& row, binary<Op, A, B> const& t) {
    auto const a = value_at(row, t.a);
    return Op::template value<typename A::scalar>(a, value_at(row, t.b));
}
template <class Row, class A> [[gnu::always_inline]] CALM_HD inline auto value_at(Row& row, tee<A> const& t) {
    auto const value = value_at(row, t.a);
    row.once([&] { t.to[row.row] = value; });
    return value;
}
template <class Row, class Op, class A>
[[gnu::always_inline]] CALM_HD inline auto value_at(Row& row, reduction<Op, A> const& t) {
    auto const at = bind_row(row, t.a);
    return Op::reduce(
        row, [&]<class V>(index_t j) __attribute__((always_inline))->V { return at.template forward<V>(j).value; });
}

// A tree over (R, D) bound to one row: without broadcast_row, broadcast_column and reductions, over the row's elements.
template <class Row, class T> [[gnu::always_inline]] CALM_HD inline input<T> bind_row(Row& row, input<T> const& t) {
    return {t.x + row.row * row.columns};
}
template <class Row, class T> [[gnu::always_inline]] CALM_HD inline input<T> bind_row(Row& row, variable<T> const& t) {
    return {t.x + row.row * row.columns};
}
template <class Row, class T> [[gnu::always_inline]] CALM_HD inline constant<T> bind_row(Row&, constant<T> const& t) {
    return t;
}
template <class Row, class A> [[gnu::always_inline]] CALM_HD inline A bind_row(Row&, broadcast_row<A> const& t) {
    return t.a;
}
template <class Row, class A>
[[gnu::always_inline]] CALM_HD inline auto bind_row(Row& row, broadcast_column<A> const& t) {
    return constant<typename A::scalar>{value_at(row, t.a)};
}
template <class Row, class Op, class A>
[[gnu::always_inline]] CALM_HD inline auto bind_row(Row& row, unary<Op, A> const& t) {
    auto const a = bind_row(row, t.a);
    return unary<Op, std::remove_cv_t<decltype(a)>>{a};
}
template <class Row, class Op, class A, class B>
[[gnu::always_inline]] CALM_HD inline auto bind_row(Row& row, binary<Op, A, B> const& t) {
    auto const a = bind_row(row, t.a);
    auto const b = bind_row(row, t.b);
    return binary<Op, std::remove_cv_t<decltype(a)>, std::remove_cv_t<decltype(b)>>{a, b};
}

// Stores one row of y, (R, D) or (R, 1).
template <class Row, class Tree, class T> CALM_HD void evaluate_row(Row& row, Tree const& t, T* y) {
    if constexpr (is_column<Tree>) {
        auto const value = value_at(row, t);
        row.once([&] { y[row.row] = static_cast<T>(value); });
    } else {
        auto const at = bind_row(row, t);
        T* const to = y + row.row * row.columns;
        row.each([&]<class V>(index_t j)
                     __attribute__((always_inline)) { store(to + j, at.template forward<V>(j).value); });
    }
}

}  // namespace calm::detail
