#pragma once
// Single-shot element-wise expressions: `y = silu(gate) * up` is one loop over memory, and
// `differentiate(ctx, silu(wrt(gate, dgate)) * wrt(up, dup), dy)` one more that writes both gradients.
//
// An operand is a named tensor, a view, a number or a sub-expression still in flight. Same-index aliasing is legal
// (`x = x + y`); any other overlap of memory is refused in every build.

#include <complex>
#include <concepts>

#include "calm/tensor/elementwise.hpp"
#include "calm/tensor/tensor.hpp"

namespace calm {

// What the operators below give: a tree of operations over operands, and its shape. It computes nothing until it is
// assigned, evaluated or differentiated, and refers to its operands' memory.
template <class Tree, class Extents, class Backend> class expression {
public:
    using scalar = typename Tree::scalar;
    using extents_type = Extents;
    using backend = Backend;

    // Of a tree over operands of that shape.
    constexpr expression(Tree const& t, Extents const& e) : tree_(t), extents_(e) {}
    expression(expression&&) = default;  // moves along a chain of operators
    expression(expression const&) = delete;
    expression& operator=(expression const&) = delete;
    [[nodiscard]] constexpr Tree const& tree() const { return tree_; }           // what runs in the loop
    [[nodiscard]] constexpr Extents const& extents() const { return extents_; }  // of every operand

private:
    Tree tree_;
    Extents extents_;
};

namespace detail {

template <class Tree, class E, class B> inline constexpr bool is_expression<expression<Tree, E, B>> = true;

template <class T> struct operand_kind {
    static constexpr bool tensor_like = false;
    static constexpr bool is_expression = false;
};
template <class T, class E, class B> struct operand_kind<tensor<T, E, B>> {
    static constexpr bool tensor_like = true;
    static constexpr bool is_expression = false;
    static constexpr bool owns = true;
};
template <class T, class E, class B> struct operand_kind<view<T, E, B>> {
    static constexpr bool tensor_like = true;
    static constexpr bool is_expression = false;
    static constexpr bool owns = false;
};
template <class Tree, class E, class B> struct operand_kind<expression<Tree, E, B>> {
    static constexpr bool tensor_like = false;
    static constexpr bool is_expression = true;
};

template <class T> using kind_of = operand_kind<std::remove_cvref_t<T>>;

}  // namespace detail

// What operators take beside numbers: tensors, views and expressions.
template <class T>
concept tensor_operand = detail::kind_of<T>::tensor_like || detail::kind_of<T>::is_expression;

namespace detail {

// Any legal operand as an expression; what is illegal says why.
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
            static_assert(std::is_lvalue_reference_v<A>,
                          "calm: an expression cannot hold a temporary tensor, which is gone before it is read: give "
                          "the tensor a name first");
        using T = std::remove_const_t<typename plain::value_type>;
        return expression<tree::input<T>, typename plain::extents_type, typename plain::backend>({a.data()},
                                                                                                 a.extents());
    }
}

template <class A, class B> auto merged_extents(A const& a, B const& b) {
    using m = merged<A, B>;
    static_assert(A::rank == B::rank, "calm: element-wise operands must have the same rank");
    static_assert(m::possible, "calm: element-wise operands must have the same shape");
    require(a == b, errc::usage, "calm: element-wise operands must have the same shape, found ", a, " and ", b);
    return extents_cast<typename m::type>(a);
}

template <class Op, class A> auto make_unary(A&& a) {
    auto x = as_expression(std::forward<A>(a));
    using X = decltype(x);
    return expression<tree::unary<Op, std::remove_cvref_t<decltype(x.tree())>>, typename X::extents_type,
                      typename X::backend>({x.tree()}, x.extents());
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
        using tree_type =
            tree::binary<Op, std::remove_cvref_t<decltype(x.tree())>, std::remove_cvref_t<decltype(y.tree())>>;
        auto shape = merged_extents(x.extents(), y.extents());
        return expression<tree_type, decltype(shape), typename X::backend>({x.tree(), y.tree()}, shape);
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

// Throws the sentence where the n elements at y and x overlap without being the same.
template <class T> void check_overlap(T const* y, T const* x, index_t n, char const* sentence) {
    auto const a = reinterpret_cast<std::uintptr_t>(y);
    auto const b = reinterpret_cast<std::uintptr_t>(x);
    std::uintptr_t const bytes = static_cast<std::uintptr_t>(n) * sizeof(T);
    require(a == b || a + bytes <= b || b + bytes <= a, errc::usage, sentence);
}

template <class Tree, class T> void check_destination(Tree const& tree, T const* y, index_t n) {
    tree::for_each_leaf(tree, [&](T const* x, bool, bool) {
        check_overlap(
            y, x, n,
            "calm: the destination overlaps an operand at another index: expected the same memory or separate "
            "memory; write into another tensor and copy");
    });
}

// Gradients may share memory with each other only where the later one accumulates, and with operands index by index.
template <class Tree, class T> void check_gradients(Tree const& tree, T const* dy, index_t n) {
    constexpr char const* sentence = "calm::differentiate: a gradient overlaps an operand, the cotangent or another "
                                     "gradient at another index: expected "
                                     "the same memory or separate memory; write into another tensor and copy";
    if (n == 0) return;  // nothing is written, and empty tensors may share an address
    int place = 0;
    tree::for_each_leaf(tree, [&](T const* dx, bool is_gradient, bool accumulates) {
        int const here = place++;
        if (!is_gradient) return;
        if (dy != nullptr) check_overlap(dx, dy, n, sentence);
        int other = 0;
        tree::for_each_leaf(tree, [&](T const* x, bool x_is_gradient, bool) {
            int const there = other++;
            if (there == here) return;
            check_overlap(dx, x, n, sentence);
            require(
                !(x_is_gradient && x == dx && there < here && !accumulates), errc::usage,
                "calm::differentiate: two gradients go to the same tensor and the second would overwrite the first; "
                "use accumulate(x, dx) for it");
        });
    });
}

}  // namespace detail

// a + b, element by element. The operands of this and of the operators below are tensors, views, expressions and, one
// of two, numbers; another shape, backend or type is a sentence at compile time, or errc::usage where a size is
// dynamic.
template <class A, class B>
requires detail::operand_pair<A, B>
auto operator+(A&& a, B&& b) {
    return detail::make_binary<op::add>(std::forward<A>(a), std::forward<B>(b));
}
// a - b, element by element.
template <class A, class B>
requires detail::operand_pair<A, B>
auto operator-(A&& a, B&& b) {
    return detail::make_binary<op::subtract>(std::forward<A>(a), std::forward<B>(b));
}
// a b, element by element.
template <class A, class B>
requires detail::operand_pair<A, B>
auto operator*(A&& a, B&& b) {
    return detail::make_binary<op::multiply>(std::forward<A>(a), std::forward<B>(b));
}
// a / b, element by element.
template <class A, class B>
requires detail::operand_pair<A, B>
auto operator/(A&& a, B&& b) {
    return detail::make_binary<op::divide>(std::forward<A>(a), std::forward<B>(b));
}
// The larger of a and b, element by element; NaN where one is. Where they are equal the gradient goes to a.
template <class A, class B>
requires detail::operand_pair<A, B>
auto maximum(A&& a, B&& b) {
    return detail::make_binary<op::maximum>(std::forward<A>(a), std::forward<B>(b));
}
// -a.
template <tensor_operand A> auto operator-(A&& a) {
    return detail::make_unary<op::negate>(std::forward<A>(a));
}
// e^a.
template <tensor_operand A> auto exp(A&& a) {
    return detail::make_unary<op::exponential>(std::forward<A>(a));
}
// The natural logarithm: -inf at 0, NaN below.
template <tensor_operand A> auto log(A&& a) {
    return detail::make_unary<op::logarithm>(std::forward<A>(a));
}
// The square root: NaN below 0.
template <tensor_operand A> auto sqrt(A&& a) {
    return detail::make_unary<op::square_root>(std::forward<A>(a));
}
// a^2.
template <tensor_operand A> auto square(A&& a) {
    return detail::make_unary<op::squared>(std::forward<A>(a));
}
// 1 / (1 + e^-a).
template <tensor_operand A> auto sigmoid(A&& a) {
    return detail::make_unary<op::sigmoid>(std::forward<A>(a));
}
// The hyperbolic tangent.
template <tensor_operand A> auto tanh(A&& a) {
    return detail::make_unary<op::hyperbolic_tangent>(std::forward<A>(a));
}
// a / (1 + e^-a).
template <tensor_operand A> auto silu(A&& a) {
    return detail::make_unary<op::silu>(std::forward<A>(a));
}

// A user's own operation: a struct with value and back (or back_a, back_b) as in ops.hpp.
template <class Op, tensor_operand A> auto apply(A&& a) {
    return detail::make_unary<Op>(std::forward<A>(a));
}
// The same with two operands.
template <class Op, class A, class B>
requires detail::operand_pair<A, B>
auto apply(A&& a, B&& b) {
    return detail::make_binary<Op>(std::forward<A>(a), std::forward<B>(b));
}

namespace detail {
template <class T, class E, class T2, class E2, class B>
auto make_variable(view<T, E, B> const& x, view<T2, E2, B> const& dx, bool accumulates) {
    static_assert(!std::is_const_v<T2>, "calm::wrt: the gradient must be writable");
    auto shape = merged_extents(x.extents(), dx.extents());
    return expression<tree::variable<std::remove_const_t<T>>, decltype(shape), B>({x.data(), dx.data(), accumulates},
                                                                                  shape);
}
template <class T, class E, class B> view<T, E, B> as_view(tensor<T, E, B>& x) {
    return x.view();
}
template <class T, class E, class B> view<T const, E, B> as_view(tensor<T, E, B> const& x) {
    return x.view();
}
template <class T, class E, class B> view<T, E, B> as_view(view<T, E, B> const& x) {
    return x;
}

// Where a result goes or a cotangent comes from must be the expression's kind of memory.
template <class Expression, class Backend, class V> constexpr void check_kind() {
    static_assert(std::is_same_v<typename Expression::backend, Backend> && std::is_same_v<typename V::backend, Backend>,
                  "calm: the context, the expression and its tensors have different backends");
    static_assert(std::is_same_v<typename Expression::scalar, typename V::value_type>,
                  "calm: the expression and its destination or cotangent have different scalar types");
}
}  // namespace detail

// x as an operand whose gradient is written to dx, of x's shape.
template <class X, class DX> auto wrt(X const& x, DX&& dx) {
    return detail::make_variable(detail::as_view(x), detail::as_view(dx), false);
}
// x as an operand whose gradient is added to dx, of x's shape.
template <class X, class DX> auto accumulate(X const& x, DX&& dx) {
    return detail::make_variable(detail::as_view(x), detail::as_view(dx), true);
}

// y = expression, on the context's threads. Throws errc::usage where the shapes differ, or y overlaps an operand other
// than index by index.
template <class Backend, class Y, tensor_operand A> void evaluate(context<Backend> const& ctx, Y&& y, A&& a) {
    auto e = detail::as_expression(std::forward<A>(a));
    auto const out = detail::as_view(y);
    detail::check_kind<decltype(e), Backend, std::remove_const_t<decltype(out)>>();
    (void)detail::merged_extents(out.extents(), e.extents());
    detail::check_destination(e.tree(), static_cast<typename decltype(e)::scalar const*>(out.data()), out.size());
    detail::run_evaluate(ctx, e.tree(), out.data(), out.size());
}

// From y = expression and dy: the gradients of every wrt and accumulate leaf, in one loop. Throws errc::usage where the
// shapes differ, a gradient overlaps other memory than index by index, or two are written to one place.
template <class Backend, class DY, tensor_operand A>
void differentiate(context<Backend> const& ctx, A&& a, DY const& dy) {
    auto e = detail::as_expression(std::forward<A>(a));
    static_assert(std::remove_cvref_t<decltype(e.tree())>::active,
                  "calm::differentiate: no operand asks for a gradient: write wrt(x, dx) for x");
    auto const cotangent = detail::as_view(dy);
    detail::check_kind<decltype(e), Backend, std::remove_const_t<decltype(cotangent)>>();
    (void)detail::merged_extents(cotangent.extents(), e.extents());
    using T = typename decltype(e)::scalar;
    T const* const p = cotangent.data();
    detail::check_gradients(e.tree(), p, cotangent.size());
    detail::run_differentiate(ctx, e.tree(), p, cotangent.size());
}

// From scale * sum(expression): the gradients of its wrt and accumulate leaves. Throws as differentiate does.
template <class Backend, tensor_operand A> void differentiate_sum(context<Backend> const& ctx, A&& a, double scale) {
    auto e = detail::as_expression(std::forward<A>(a));
    static_assert(std::remove_cvref_t<decltype(e.tree())>::active,
                  "calm::differentiate_sum: no operand asks for a gradient: write wrt(x, dx) for x");
    using T = typename decltype(e)::scalar;
    detail::check_gradients(e.tree(), static_cast<T const*>(nullptr), e.extents().size());
    detail::run_differentiate_sum(ctx, e.tree(), static_cast<T>(scale), e.extents().size());
}

// The sum of all elements of an expression, accumulated in double for float; 0 in a rehearsal. The order of the
// additions follows from the size alone.
template <class Backend, tensor_operand A> auto sum(context<Backend>& ctx, A&& a) {
    auto e = detail::as_expression(std::forward<A>(a));
    return detail::run_sum(ctx, e.tree(), e.extents().size());
}

// Declared in view.hpp. Throws as evaluate does.
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
