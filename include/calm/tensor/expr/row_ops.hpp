#pragma once
/// \file
/// Differentiable row reductions, one struct each: `reduce` computes the value y, `share` turns y's gradient dy into
/// the part that all elements get, `back` gives one element's gradient. x<V>(j) is element j; Row is as in
/// row_tree.hpp. A new reduction is a new struct and a function in expr.hpp.
/// \shows{examples/03_expression.cpp,main}

#include "calm/tensor/core/extents.hpp"
#include "calm/tensor/expr/ops.hpp"

namespace calm::op {

/// The sum of the row.
struct sum_axis1 {
    template <class Row, class X> CALM_HD static auto reduce(Row& row, X const& x) { return row.sum(x); }
    template <class Row, class X, class T> CALM_HD static T share(Row&, X const&, T dy, T) { return dy; }
    template <class V> CALM_HD static V back(V share, V, V) { return share; }
};
/// The mean of the row.
struct mean_axis1 {
    template <class Row, class X> CALM_HD static auto reduce(Row& row, X const& x) {
        auto const total = row.sum(x);
        return total / detail::number<std::remove_cv_t<decltype(total)>>(row.columns);
    }
    template <class Row, class X, class T> CALM_HD static T share(Row& row, X const&, T dy, T) {
        return dy / detail::number<T>(row.columns);
    }
    template <class V> CALM_HD static V back(V share, V, V) { return share; }
};
/// The mean of the row's squares.
struct mean_square_axis1 {
    template <class Row, class X> CALM_HD static auto reduce(Row& row, X const& x) {
        return mean_axis1::reduce(
            row, [&]<class V>(index_t j) __attribute__((always_inline))->V {
                V const value = x.template operator()<V>(j);
                return value * value;
            });
    }
    template <class Row, class X, class T> CALM_HD static T share(Row& row, X const&, T dy, T) {
        return (dy + dy) / detail::number<T>(row.columns);
    }
    template <class V> CALM_HD static V back(V share, V x, V) { return share * x; }
};
/// The largest element; NaN if one is NaN. Elements equal to it share its gradient.
struct max_axis1 {
    template <class Row, class X> CALM_HD static auto reduce(Row& row, X const& x) {
        return row.fold(x, [](auto a, auto b) { return maximum::value(a, b); });
    }
    template <class Row, class X, class T> CALM_HD static T share(Row& row, X const& x, T dy, T y) {
        auto const count = row.sum([&]<class V>(index_t j) __attribute__((always_inline))->V {
            return back<V>(splat<V>(T{1}), x.template operator()<V>(j), splat<V>(y));
        });
        return dy / count;
    }
    template <class V> CALM_HD static V back(V share, V x, V y) {
        return math::where_greater(y, x, share - share, share);
    }
};

}  // namespace calm::op
