#pragma once
// Element-wise trees that differentiate themselves. trace<V> holds the values of a subtree in registers between forward
// and backward. Trees contain pointers only, no configurations and no shapes. On a device, bf16 tensors are read and
// written as float.

#include "calm/base/bf16.hpp"
#include "calm/tensor/core/extents.hpp"
#include "calm/tensor/core/packet.hpp"
#include "calm/tensor/expr/ops.hpp"

// Expressions without their shapes. A node is `active` if a gradient is needed below it, and is `by_rows`
// (row_tree.hpp) if an element depends on more than its own index; `leaves` counts the tensors that it touches.
namespace calm::tree {

// A tensor that is only read.
template <class T> struct input {
    using scalar = computed_in<T>;
    static constexpr bool active = false;
    static constexpr bool by_rows = false;
    static constexpr std::size_t leaves = 1;
    T const* x;  // the tensor's first element
    template <class V> struct trace { V value; };
    template <class V> [[gnu::always_inline]] CALM_HD trace<V> forward(index_t i) const { return {load<V>(x + i)}; }
    template <class V> [[gnu::always_inline]] CALM_HD void backward(trace<V> const&, index_t, V) const {}
};

// A tensor that is read and needs a gradient: dx is overwritten, or added to.
template <class T> struct variable {
    using scalar = computed_in<T>;
    static constexpr bool active = true;
    static constexpr bool by_rows = false;
    static constexpr std::size_t leaves = 2;
    T const* x;        // the tensor's first element
    T* dx;             // the gradient's first element
    bool accumulates;  // whether dx is added to
    template <class V> struct trace { V value; };
    template <class V> [[gnu::always_inline]] CALM_HD trace<V> forward(index_t i) const { return {load<V>(x + i)}; }
    template <class V> [[gnu::always_inline]] CALM_HD void backward(trace<V> const&, index_t i, V dy) const {
        store(dx + i, accumulates ? load<V>(dx + i) + dy : dy);
    }
};

// A constant, equal for all elements.
template <class T> struct constant {
    using scalar = T;
    static constexpr bool active = false;
    static constexpr bool by_rows = false;
    static constexpr std::size_t leaves = 0;
    T c;  // its value
    template <class V> struct trace { V value; };
    template <class V> [[gnu::always_inline]] CALM_HD trace<V> forward(index_t) const { return {splat<V>(c)}; }
    template <class V> [[gnu::always_inline]] CALM_HD void backward(trace<V> const&, index_t, V) const {}
};

// Op of one subtree.
template <class Op, class A> struct unary {
    using scalar = typename A::scalar;
    static constexpr bool active = A::active;
    static constexpr bool by_rows = A::by_rows;
    static constexpr std::size_t leaves = A::leaves;
    A a;  // the operand
    template <class V> struct trace {
        V value;
        typename A::template trace<V> a;  // of the operand
    };
    template <class V> [[gnu::always_inline]] CALM_HD trace<V> forward(index_t i) const {
        auto const t = a.template forward<V>(i);
        return {Op::template value<V>(t.value), t};
    }
    template <class V> [[gnu::always_inline]] CALM_HD void backward(trace<V> const& t, index_t i, V dy) const {
        if constexpr (active) a.template backward<V>(t.a, i, Op::template back<V>(dy, t.a.value, t.value));
    }
};

// Op of two subtrees.
template <class Op, class A, class B> struct binary {
    using scalar = typename A::scalar;
    static constexpr bool active = A::active || B::active;
    static constexpr bool by_rows = A::by_rows || B::by_rows;
    static constexpr std::size_t leaves = A::leaves + B::leaves;
    A a;  // the first operand
    B b;  // the second
    template <class V> struct trace {
        V value;
        typename A::template trace<V> a;  // of the first operand
        typename B::template trace<V> b;  // of the second
    };
    template <class V> [[gnu::always_inline]] CALM_HD trace<V> forward(index_t i) const {
        auto const s = a.template forward<V>(i);
        auto const t = b.template forward<V>(i);
        return {Op::template value<V>(s.value, t.value), s, t};
    }
    template <class V> [[gnu::always_inline]] CALM_HD void backward(trace<V> const& t, index_t i, V dy) const {
        if constexpr (A::active)
            a.template backward<V>(t.a, i, Op::template back_a<V>(dy, t.a.value, t.b.value, t.value));
        if constexpr (B::active)
            b.template backward<V>(t.b, i, Op::template back_b<V>(dy, t.a.value, t.b.value, t.value));
    }
};

// The shape of a tree: (R, D) if it is by_rows; otherwise all elements form one row.
struct span {
    index_t rows;                                                            // R
    index_t columns;                                                         // D
    [[nodiscard]] constexpr index_t size() const { return rows * columns; }  // elements
    bool operator==(span const&) const = default;
};

// How a tensor is written: not at all, as a gradient, as a gradient that is added, or as values.
enum class written { never, by_gradients, adding_gradients, by_values };

// A tensor that a tree touches.
template <class T> struct leaf {
    T const* data;  // its first element
    span shape;     // its shape
    written how;    // how it is written
};

// Calls f(leaf) for every tensor that a tree of that shape touches, in the order in which they are written.
template <class T, class F> void for_each_leaf(input<T> const& t, span shape, F const& f) {
    f(leaf<T>{t.x, shape, written::never});
}
// The tensor, then its gradient.
template <class T, class F> void for_each_leaf(variable<T> const& t, span shape, F const& f) {
    f(leaf<T>{t.x, shape, written::never});
    f(leaf<T>{t.dx, shape, t.accumulates ? written::adding_gradients : written::by_gradients});
}
// A constant has no leaves.
template <class T, class F> void for_each_leaf(constant<T> const&, span, F const&) {}
// The leaves of the operand.
template <class Op, class A, class F> void for_each_leaf(unary<Op, A> const& t, span shape, F const& f) {
    for_each_leaf(t.a, shape, f);
}
// The leaves of the first operand, then of the second.
template <class Op, class A, class B, class F> void for_each_leaf(binary<Op, A, B> const& t, span shape, F const& f) {
    for_each_leaf(t.a, shape, f);
    for_each_leaf(t.b, shape, f);
}

}  // namespace calm::tree

namespace calm::detail {

// The type in which sums of T are accumulated.
template <class T> struct accumulator { using type = T; };
template <> struct accumulator<float> { using type = double; };

}  // namespace calm::detail
