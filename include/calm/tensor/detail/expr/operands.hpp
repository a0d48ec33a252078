#pragma once
// Element-wise operators: their operands, their results (expressions), and how shapes combine.

#include <array>
#include <complex>
#include <concepts>

#include "calm/tensor/detail/core/tensor_like.hpp"
#include "calm/tensor/detail/expr/row_tree.hpp"
#include "calm/tensor/expr/row_ops.hpp"

namespace calm {

// The result of the operators in expr.hpp: a tree of operations over operands, and its shape. It computes nothing until
// it is assigned, evaluated or differentiated, and refers to its operands' memory.
template <class Tree, class Extents, class Backend> class expression {
public:
    using scalar = typename Tree::scalar;
    using extents_type = Extents;
    using backend = Backend;

    // A tree over operands of that shape.
    constexpr expression(Tree const& t, Extents const& e) : tree_(t), extents_(e) {}
    expression(expression&&) = default;  // so that operators can pass it on
    expression(expression const&) = delete;
    expression& operator=(expression const&) = delete;
    [[nodiscard]] constexpr Tree const& tree() const { return tree_; }           // the tree of operations
    [[nodiscard]] constexpr Extents const& extents() const { return extents_; }  // the shape

private:
    Tree tree_;
    Extents extents_;
};

namespace detail {

template <class Tree, class E, class B> inline constexpr bool is_expression<expression<Tree, E, B>> = true;

template <class T> struct operand_kind { static constexpr bool is_expression = false; };
template <class T, class E, class B> struct operand_kind<tensor<T, E, B>> {
    static constexpr bool is_expression = false;
    static constexpr bool owns = true;
};
template <class T, class E, class B> struct operand_kind<view<T, E, B>> {
    static constexpr bool is_expression = false;
    static constexpr bool owns = false;
};
template <class Tree, class E, class B> struct operand_kind<expression<Tree, E, B>> {
    static constexpr bool is_expression = true;
};

template <class T> using kind_of = operand_kind<std::remove_cvref_t<T>>;

}  // namespace detail

// Operands of operators other than numbers: tensors, views and expressions.
template <class T>
concept tensor_operand = tensor_like<T> || detail::kind_of<T>::is_expression;

namespace detail {

// Any legal operand as an expression; an illegal one fails with a clear compile error.
template <tensor_operand A> auto as_expression(A&& a) {
    using plain = std::remove_cvref_t<A>;
    if constexpr (kind_of<A>::is_expression) {
        static_assert(!std::is_lvalue_reference_v<A>,
                      "calm: an expression is used where it is written: don't keep it in a variable, assign it to a "
                      "tensor, or write it again");
        return expression<std::remove_cvref_t<decltype(a.tree())>, typename plain::extents_type,
                          typename plain::backend>(a.tree(), a.extents());
    } else {
        if constexpr (kind_of<A>::owns)
            static_assert(
                std::is_lvalue_reference_v<A>,
                "calm: an expression cannot hold a temporary tensor, which is destroyed before it is read: give "
                "the tensor a name first");
        using T = std::remove_const_t<typename plain::value_type>;
        return expression<tree::input<T>, typename plain::extents_type, typename plain::backend>({a.data()},
                                                                                                 a.extents());
    }
}

// How an operand smaller than its tree is broadcast.
enum class broadcasting { none, row, column };

// The common shape of two operands: equal shapes, or (R, D) if the other one is broadcast: a row (D) or a column (R,
// 1), where R may be several sizes. A column is one by its static size.
template <class A, class B> struct shapes_together;
template <index_t... A, index_t... B> struct shapes_together<extents<A...>, extents<B...>> {
    static constexpr std::size_t rank = std::max(sizeof...(A), sizeof...(B));
    static constexpr std::array<index_t, sizeof...(A) + 1> a{A..., 0};  // one more element: a rank may be 0
    static constexpr std::array<index_t, sizeof...(B) + 1> b{B..., 0};

    // How x is broadcast to y.
    template <std::size_t X, std::size_t Y>
    static constexpr broadcasting of(std::array<index_t, X> const& x, std::array<index_t, Y> const& y) {
        if (X == 2 && Y > 2) return broadcasting::row;
        return X == Y && X > 2 && x[X - 2] == 1 && y[Y - 2] != 1 ? broadcasting::column : broadcasting::none;
    }
    static constexpr broadcasting of_a = of(a, b);
    static constexpr broadcasting of_b = of(b, a);
    static constexpr bool same_rank =
        sizeof...(A) == sizeof...(B) || of_a == broadcasting::row || of_b == broadcasting::row;

    // Size r of the common shape, as far as this operand determines it.
    template <std::size_t X>
    static constexpr index_t size(std::array<index_t, X> const& x, broadcasting p, std::size_t r) {
        if (p == broadcasting::row) return r + 1 == rank ? x[0] : dyn;
        return p == broadcasting::column && r + 1 == rank ? dyn : x[r];
    }
    static constexpr bool possible = [] {
        bool good = same_rank;
        for (std::size_t r = 0; good && r < rank; ++r) good = compatible(size(a, of_a, r), size(b, of_b, r));
        return good;
    }();
    template <std::size_t... R> static constexpr auto shape_type(std::index_sequence<R...>) {
        return extents<(size(a, of_a, R) != dyn ? size(a, of_a, R) : size(b, of_b, R))...>();
    }
    using type = decltype(shape_type(std::make_index_sequence < possible ? rank : 0 > {}));
};

// The common shape. Throws errc::usage if sizes known only at run time differ.
template <class A, class B> auto merged_extents(A const& a, B const& b) {
    using m = shapes_together<A, B>;
    static_assert(m::same_rank, "calm: element-wise operands must have the same rank, or one of them is a row (D)");
    static_assert(
        !m::same_rank || m::possible,
        "calm: element-wise operands must have the same shape, or be a row (D) or a column (R, 1) next to (R, D)");
    constexpr bool smaller_a = m::of_a != broadcasting::none;
    bool good = true;
    if constexpr (m::of_a == broadcasting::row)
        good = a[0] == b[m::rank - 1];
    else if constexpr (m::of_b == broadcasting::row)
        good = b[0] == a[m::rank - 1];
    else if constexpr (smaller_a || m::of_b != broadcasting::none)
        for (std::size_t r = 0; r + 1 < m::rank; ++r) good = good && a[r] == b[r];
    else
        good = a == b;
    require(good, errc::usage, "calm: element-wise operands must have the same shape, found ", a, " and ", b);
    if constexpr (!m::possible)
        return a;
    else if constexpr (smaller_a)
        return extents_cast<typename m::type>(b);
    else
        return extents_cast<typename m::type>(a);
}

// The common shape of two that must be equal.
template <class A, class B> auto equal_extents(A const& a, B const& b) {
    using m = shapes_together<A, B>;
    static_assert(A::rank == B::rank,
                  "calm: a result, a cotangent and a gradient must have the rank of their expression or operand");
    static_assert(A::rank != B::rank || (m::possible && m::of_a == broadcasting::none && m::of_b == broadcasting::none),
                  "calm: a result, a cotangent and a gradient must have the shape of their expression or operand");
    require(a == b, errc::usage, "calm: element-wise operands must have the same shape, found ", a, " and ", b);
    return extents_cast<typename m::type>(a);
}

template <broadcasting P, class Tree> constexpr auto broadcast_to(Tree const& t) {
    if constexpr (P == broadcasting::row)
        return broadcast_row<Tree>{t};
    else if constexpr (P == broadcasting::column)
        return broadcast_column<Tree>{t};
    else
        return t;
}

// The shape (R, 1) for (R, D).
template <index_t... Sizes> constexpr auto column_extents(extents<Sizes...> const& e) {
    constexpr std::size_t rank = sizeof...(Sizes);
    static_assert(rank >= 2, "calm: only rows of a shape (R, D) can be reduced");
    constexpr std::array<index_t, rank> sizes{Sizes...};
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return extents_cast<extents<(I + 1 == rank ? 1 : sizes[I])...>>(
            extents<((void)I, dyn)...>((I + 1 == rank ? 1 : e[I])...));
    }
    (std::make_index_sequence<rank>{});
}

// Rows and columns of a shape; below rank 2 all elements are one row.
template <index_t... Sizes> constexpr tree::span span_of(extents<Sizes...> const& e) {
    if constexpr (sizeof...(Sizes) < 2)
        return {1, e.size()};
    else {
        index_t const columns = e[sizeof...(Sizes) - 1];
        return {columns > 0 ? e.size() / columns : 0, columns};
    }
}

template <class Op, class A> auto make_unary(A&& a) {
    auto x = as_expression(std::forward<A>(a));
    using X = decltype(x);
    return expression<tree::unary<Op, std::remove_cvref_t<decltype(x.tree())>>, typename X::extents_type,
                      typename X::backend>({x.tree()}, x.extents());
}

template <class Op, class A> auto make_reduction(A&& a) {
    auto x = as_expression(std::forward<A>(a));
    using X = decltype(x);
    using tree_type = reduction<Op, std::remove_cvref_t<decltype(x.tree())>>;
    static_assert(!is_column<std::remove_cvref_t<decltype(x.tree())>>,
                  "calm: a reduction gives one number per row, which cannot be reduced again");
    auto shape = column_extents(x.extents());
    return expression<tree_type, decltype(shape), typename X::backend>({x.tree(), span_of(x.extents()).columns}, shape);
}

template <class Op, class A, class B> auto make_binary(A&& a, B&& b) {
    if constexpr (tensor_operand<A> && tensor_operand<B>) {
        auto x = as_expression(std::forward<A>(a));
        auto y = as_expression(std::forward<B>(b));
        using X = decltype(x);
        using Y = decltype(y);
        static_assert(std::is_same_v<typename X::backend, typename Y::backend>,
                      "calm: operands live on different backends; copy(ctx, dst, src) moves data between them");
        static_assert(std::is_same_v<typename X::scalar, typename Y::scalar>,
                      "calm: operands have different scalar types; convert one of them");
        using together = shapes_together<typename X::extents_type, typename Y::extents_type>;
        auto shape = merged_extents(x.extents(), y.extents());
        auto const s = broadcast_to<together::of_a>(x.tree());
        auto const t = broadcast_to<together::of_b>(y.tree());
        using tree_type = tree::binary<Op, std::remove_cv_t<decltype(s)>, std::remove_cv_t<decltype(t)>>;
        return expression<tree_type, decltype(shape), typename X::backend>({s, t}, shape);
    } else if constexpr (tensor_operand<A>) {
        auto x = as_expression(std::forward<A>(a));
        using X = decltype(x);
        using c = tree::constant<typename X::scalar>;
        return expression<tree::binary<Op, std::remove_cvref_t<decltype(x.tree())>, c>, typename X::extents_type,
                          typename X::backend>({x.tree(), c{static_cast<typename X::scalar>(b)}}, x.extents());
    } else {
        auto y = as_expression(std::forward<B>(b));
        using Y = decltype(y);
        using c = tree::constant<typename Y::scalar>;
        return expression<tree::binary<Op, c, std::remove_cvref_t<decltype(y.tree())>>, typename Y::extents_type,
                          typename Y::backend>({c{static_cast<typename Y::scalar>(a)}, y.tree()}, y.extents());
    }
}

template <class A, class B>
concept operand_pair = (tensor_operand<A> && (tensor_operand<B> || std::is_arithmetic_v<std::remove_cvref_t<B>>)) ||
                       (std::is_arithmetic_v<std::remove_cvref_t<A>> && tensor_operand<B>);

}  // namespace detail

}  // namespace calm
