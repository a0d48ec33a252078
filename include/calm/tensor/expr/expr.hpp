#pragma once
/// \file
/// Single-use element-wise expressions: `y = silu(gate) * up` is one loop over memory, and
/// `differentiate(ctx, silu(wrt(gate, dgate)) * wrt(up, dup), dy)` is one more, which writes both gradients.
///
/// An operand is a named tensor, a view, a number or a temporary sub-expression. Two operands have equal shapes, or one
/// is broadcast: a row (D) or a column (R, 1) next to (R, D), where R may be several sizes. The compiler recognises a
/// column by its static size 1; column(v) makes one of a vector (R).
///
/// Same-index aliasing is legal (`x = x + y`); any other overlap of memory throws, in every build.
/// \shows{examples/03_expression.cpp}

#include "calm/tensor/detail/expr/by_rows.hpp"
#include "calm/tensor/detail/expr/operands.hpp"
#include "calm/tensor/detail/expr/overlap.hpp"

namespace calm {

namespace detail {

// The memory of every tensor in a tree.
template <class Tree> std::array<touched, Tree::leaves> touched_by(Tree const& tree, tree::span shape) {
    std::array<touched, Tree::leaves> all;
    std::size_t count = 0;
    for_each_leaf(tree, shape, [&](auto const& leaf) { all[count++] = touched(leaf); });
    return all;
}

// Rows and columns of a tree with a result of this shape. A tree of reductions has the columns of the rows that it
// reduces.
template <class Tree, class E> tree::span span_of_tree(Tree const& tree, E const& shape) {
    auto span = span_of(shape);
    if constexpr (is_column<Tree>) span.columns = dyn;
    for_each_node(tree, [&]<class Op, class A>(reduction<Op, A> const& node) {
        if (span.columns == dyn) span.columns = node.columns;
        require(node.columns == span.columns, errc::usage, [&] {
            return sentence("calm: expected all reductions of an expression over rows of one width, ", span.columns,
                            ", found ", node.columns, ": evaluate that one separately");
        });
    });
    require(span.columns > 0 || span.rows == 0, errc::usage,
            "calm: expected rows of at least one number to reduce, found ", span.rows, " rows with none");
    return span;
}

}  // namespace detail

/// a + b, element by element. Operands here and below are tensors, views and expressions; one of two may be a number.
/// Different shapes, backends or types are a clear compile-time error, or errc::usage where a size is dynamic.
template <class A, class B>
requires detail::operand_pair<A, B>
auto operator+(A&& a, B&& b) {
    return detail::make_binary<op::add>(std::forward<A>(a), std::forward<B>(b));
}
/// a - b, element by element.
template <class A, class B>
requires detail::operand_pair<A, B>
auto operator-(A&& a, B&& b) {
    return detail::make_binary<op::subtract>(std::forward<A>(a), std::forward<B>(b));
}
/// a b, element by element.
template <class A, class B>
requires detail::operand_pair<A, B>
auto operator*(A&& a, B&& b) {
    return detail::make_binary<op::multiply>(std::forward<A>(a), std::forward<B>(b));
}
/// a / b, element by element.
template <class A, class B>
requires detail::operand_pair<A, B>
auto operator/(A&& a, B&& b) {
    return detail::make_binary<op::divide>(std::forward<A>(a), std::forward<B>(b));
}
/// The larger of a and b, element by element; NaN if either is NaN. Where they are equal the gradient goes to a.
template <class A, class B>
requires detail::operand_pair<A, B>
auto maximum(A&& a, B&& b) {
    return detail::make_binary<op::maximum>(std::forward<A>(a), std::forward<B>(b));
}
/// -a.
template <tensor_operand A> auto operator-(A&& a) {
    return detail::make_unary<op::negate>(std::forward<A>(a));
}
/// e^a.
template <tensor_operand A> auto exp(A&& a) {
    return detail::make_unary<op::exponential>(std::forward<A>(a));
}
/// The natural logarithm: -inf at 0, NaN below.
template <tensor_operand A> auto log(A&& a) {
    return detail::make_unary<op::logarithm>(std::forward<A>(a));
}
/// The square root: NaN below 0.
template <tensor_operand A> auto sqrt(A&& a) {
    return detail::make_unary<op::square_root>(std::forward<A>(a));
}
/// a^2.
template <tensor_operand A> auto square(A&& a) {
    return detail::make_unary<op::squared>(std::forward<A>(a));
}
/// 1 / (1 + e^-a).
template <tensor_operand A> auto sigmoid(A&& a) {
    return detail::make_unary<op::sigmoid>(std::forward<A>(a));
}
/// The hyperbolic tangent.
template <tensor_operand A> auto tanh(A&& a) {
    return detail::make_unary<op::hyperbolic_tangent>(std::forward<A>(a));
}
/// a / (1 + e^-a).
template <tensor_operand A> auto silu(A&& a) {
    return detail::make_unary<op::silu>(std::forward<A>(a));
}

/// Row sums of an operand (R, D), as (R, 1). Like every (R, 1) and (D), the result broadcasts against (R, D).
template <tensor_operand A> auto sum_axis1(A&& a) {
    return detail::make_reduction<op::sum_axis1>(std::forward<A>(a));
}
/// The mean of every row, (R, 1).
template <tensor_operand A> auto mean_axis1(A&& a) {
    return detail::make_reduction<op::mean_axis1>(std::forward<A>(a));
}
/// The mean of the squares of every row, (R, 1).
template <tensor_operand A> auto mean_square_axis1(A&& a) {
    return detail::make_reduction<op::mean_square_axis1>(std::forward<A>(a));
}
/// The maximum of every row, (R, 1); NaN if an element is NaN. Equal maxima share the gradient.
template <tensor_operand A> auto max_axis1(A&& a) {
    return detail::make_reduction<op::max_axis1>(std::forward<A>(a));
}

/// A custom operation: a struct with `value` and `back`, as in ops.hpp.
template <class Op, tensor_operand A> auto apply(A&& a) {
    return detail::make_unary<Op>(std::forward<A>(a));
}
/// A custom operation with two operands: `value`, `back_a` and `back_b`.
template <class Op, class A, class B>
requires detail::operand_pair<A, B>
auto apply(A&& a, B&& b) {
    return detail::make_binary<Op>(std::forward<A>(a), std::forward<B>(b));
}

namespace detail {
template <class T, class E, class T2, class E2, class B>
auto make_variable(view<T, E, B> const& x, view<T2, E2, B> const& dx, bool accumulates) {
    static_assert(!std::is_const_v<T2>, "calm::wrt: the gradient must be writable");
    auto shape = equal_extents(x.extents(), dx.extents());
    return expression<tree::variable<std::remove_const_t<T>>, decltype(shape), B>({x.data(), dx.data(), accumulates},
                                                                                  shape);
}

template <class> inline constexpr bool is_context = false;
template <class Backend> inline constexpr bool is_context<context<Backend>> = true;
template <class Context>
concept context_type = is_context<std::remove_const_t<Context>>;

// A destination or cotangent must have the expression's backend and type; on a device bf16 memory counts as float, the
// type it is computed in.
template <class Expression, class Backend, class V> constexpr void check_kind() {
    using T = typename V::value_type;
    using computed = std::conditional_t<device_memory<Backend>, computed_in<T>, T>;
    static_assert(std::is_same_v<typename Expression::backend, Backend> && std::is_same_v<typename V::backend, Backend>,
                  "calm: the context, the expression and its tensors have different backends");
    static_assert(std::is_same_v<typename Expression::scalar, computed>,
                  "calm: the expression and its destination or cotangent have different scalar types");
}
}  // namespace detail

/// A tensor or view v of R elements as a column (R, 1), which broadcasts against (R, D).
template <class V> auto column(V&& v) {
    static_assert(std::is_lvalue_reference_v<V> || !detail::kind_of<V>::owns,
                  "calm::column: the tensor would be destroyed before it is read: give it a name first");
    auto const x = detail::as_view(v);
    return reshape(x, extents<dyn, 1>(x.size()));
}

/// The expression a (R, 1); `evaluate` also writes its values to `to` (R).
template <class V, tensor_operand A> auto tee(V&& to, A&& a) {
    auto e = detail::as_expression(std::forward<A>(a));
    using X = decltype(e);
    auto const out = column(std::forward<V>(to));
    detail::check_kind<X, typename X::backend, std::remove_const_t<decltype(out)>>();
    using tree_type = detail::tee<std::remove_cvref_t<decltype(e.tree())>>;
    auto shape = detail::equal_extents(out.extents(), e.extents());
    return expression<tree_type, decltype(shape), typename X::backend>({e.tree(), out.data()}, shape);
}

/// x as an operand whose gradient is written to dx, of x's shape. If x occurs several times, only its first occurrence
/// may be a wrt with this dx: the later ones are accumulate(x, dx).
template <class X, class DX> auto wrt(X const& x, DX&& dx) {
    return detail::make_variable(detail::as_view(x), detail::as_view(dx), false);
}
/// x as an operand whose gradient is added to dx, of x's shape.
template <class X, class DX> auto accumulate(X const& x, DX&& dx) {
    return detail::make_variable(detail::as_view(x), detail::as_view(dx), true);
}

/// y = expression, on the context's threads; on a device y may be bf16 where the expression is float. Throws
/// errc::usage if the shapes differ, or if y overlaps an operand other than index by index.
template <class Backend, class Y, tensor_operand A> void evaluate(context<Backend> const& ctx, Y&& y, A&& a) {
    auto e = detail::as_expression(std::forward<A>(a));
    auto const out = detail::as_view(y);
    using destination = std::remove_const_t<decltype(out)>;
    detail::check_kind<decltype(e), Backend, destination>();
    auto const shape = detail::equal_extents(out.extents(), e.extents());
    using tree_type = std::remove_cvref_t<decltype(e.tree())>;
    using T = typename destination::value_type;
    tree::leaf<T> const to{out.data(), detail::span_of(shape), tree::written::never};
    detail::check_destination(detail::touched(to), detail::touched_by(e.tree(), to.shape));
    if constexpr (tree_type::by_rows)
        detail::run_evaluate_rows(ctx, e.tree(), out.data(), detail::span_of_tree(e.tree(), shape));
    else
        detail::run_evaluate(ctx, e.tree(), out.data(), out.size());
}

namespace detail {
// Backward from the gradient dy of the expression; memory_of_dy is the memory of dy, empty for a constant.
template <class Context, class Expression, class DY>
void differentiate_from(Context& ctx, Expression const& e, DY const& dy, touched const& memory_of_dy) {
    using tree_type = std::remove_cvref_t<decltype(e.tree())>;
    constexpr bool lends = shared_operands<tree_type> == 0 || !std::is_const_v<Context>;
    static_assert(tree_type::active, "calm::differentiate: no operand asks for a gradient: write wrt(x, dx) for x");
    static_assert(lends,
                  "calm::differentiate: the gradient of a row (D) needs workspace: pass a context that is not const");
    check_gradients(memory_of_dy, touched_by(e.tree(), span_of(e.extents())));
    if constexpr (!tree_type::by_rows)
        run_differentiate(ctx, e.tree(), dy, e.extents().size());
    else if constexpr (lends)
        run_differentiate_rows(ctx, e.tree(), dy, span_of_tree(e.tree(), e.extents()));
}
}  // namespace detail

/// Backward of y = expression from dy: computes the gradients of every wrt and accumulate leaf in one loop. Gradients
/// of operands (D) need workspace, so a context that is not const. Throws errc::usage if the shapes differ, if a
/// gradient overlaps memory other than index by index, or if two gradients overwrite the same memory.
template <detail::context_type Context, class DY, tensor_operand A>
void differentiate(Context& ctx, A&& a, DY const& dy) {
    auto e = detail::as_expression(std::forward<A>(a));
    auto const cotangent = detail::as_view(dy);
    detail::check_kind<decltype(e), typename Context::backend, std::remove_const_t<decltype(cotangent)>>();
    auto const shape = detail::equal_extents(cotangent.extents(), e.extents());
    using T = typename decltype(cotangent)::value_type;
    detail::differentiate_from(
        ctx, e, detail::tensor_cotangent<T>{cotangent.data()},
        detail::touched(tree::leaf<T>{cotangent.data(), detail::span_of(shape), tree::written::never}));
}

/// Backward of scale * sum(expression): gradients of its wrt and accumulate leaves. Throws as differentiate does.
template <detail::context_type Context, tensor_operand A> void differentiate_sum(Context& ctx, A&& a, double scale) {
    auto e = detail::as_expression(std::forward<A>(a));
    using T = typename decltype(e)::scalar;
    detail::differentiate_from(ctx, e, detail::constant_cotangent<T>{static_cast<T>(scale)}, {});
}

/// The sum of all elements of an expression, on the host, so it waits for a device; 0 in a dry run. For float it is
/// accumulated and returned in double. The order of the additions depends only on the shape.
template <class Backend, tensor_operand A> auto sum(context<Backend>& ctx, A&& a) {
    auto e = detail::as_expression(std::forward<A>(a));
    if constexpr (std::remove_cvref_t<decltype(e.tree())>::by_rows)
        return detail::run_sum_rows(ctx, e.tree(), detail::span_of_tree(e.tree(), e.extents()));
    else
        return detail::run_sum(ctx, e.tree(), e.extents().size());
}

/// Declared in view.hpp. Throws as evaluate does.
template <class T, class Extents, class Backend> template <class Expression>
requires detail::is_expression<std::remove_cvref_t<Expression>> view<T, Extents, Backend>
const& view<T, Extents, Backend>::operator=(Expression&& a) const {
    static_assert(host_memory<Backend>,
                  "calm: y = expression runs on the calling thread: for memory of a device write evaluate(ctx, y, "
                  "expression)");
    context<Backend> const here(0, 1);
    evaluate(here, *this, std::forward<Expression>(a));
    return *this;
}

}  // namespace calm
