#pragma once
/// \file
/// Differentiable element-wise operations, one struct each, with the value and the derivatives as functions of the
/// values of the operands and the result. V is a scalar, a packet, a group (on a device) or std::complex. Your own
/// operation needs only a struct, used by `apply`; one of the library also gets a function in expr.hpp.
/// \shows{examples/04_gradient.cpp,softplus}

#include "calm/tensor/core/math.hpp"

/// Element-wise operations of expressions.
namespace calm::op {

/// `a + b`.
struct add {
    template <class V> CALM_HD static V value(V a, V b) { return a + b; }
    template <class V> CALM_HD static V back_a(V dy, V, V, V) { return dy; }
    template <class V> CALM_HD static V back_b(V dy, V, V, V) { return dy; }
};
/// `a - b`.
struct subtract {
    template <class V> CALM_HD static V value(V a, V b) { return a - b; }
    template <class V> CALM_HD static V back_a(V dy, V, V, V) { return dy; }
    template <class V> CALM_HD static V back_b(V dy, V, V, V) { return -dy; }
};
/// `a * b`.
struct multiply {
    template <class V> CALM_HD static V value(V a, V b) { return a * b; }
    template <class V> CALM_HD static V back_a(V dy, V, V b, V) { return dy * b; }
    template <class V> CALM_HD static V back_b(V dy, V a, V, V) { return dy * a; }
};
/// `a / b`.
struct divide {
    template <class V> CALM_HD static V value(V a, V b) { return a / b; }
    template <class V> CALM_HD static V back_a(V dy, V, V b, V) { return dy / b; }
    template <class V> CALM_HD static V back_b(V dy, V, V b, V y) { return -dy * y / b; }
};
/// The larger operand; NaN if one is NaN. If they are equal, the gradient goes to the first.
struct maximum {
    template <class V> CALM_HD static V value(V a, V b) { return math::where_greater(b, a, b, where_number(b, a)); }
    template <class V> CALM_HD static V back_a(V dy, V a, V b, V) { return math::where_greater(b, a, dy - dy, dy); }
    template <class V> CALM_HD static V back_b(V dy, V a, V b, V) { return math::where_greater(b, a, dy, dy - dy); }

private:
    // a, or b where b is NaN
    template <class V> CALM_HD static V where_number(V b, V a) {
        if constexpr (math::complex_scalar<V>)
            return b.real() == b.real() ? a : b;
        else
            return calm::select(b == b, a, b);
    }
};

/// `-a`.
struct negate {
    template <class V> CALM_HD static V value(V a) { return -a; }
    template <class V> CALM_HD static V back(V dy, V, V) { return -dy; }
};
/// `e^a`.
struct exponential {
    template <class V> CALM_HD static V value(V a) { return math::exp(a); }
    template <class V> CALM_HD static V back(V dy, V, V y) { return dy * y; }
};
/// The natural logarithm of a.
struct logarithm {
    template <class V> CALM_HD static V value(V a) { return math::log(a); }
    template <class V> CALM_HD static V back(V dy, V a, V) { return dy / a; }
};
/// The square root of a.
struct square_root {
    template <class V> CALM_HD static V value(V a) { return math::sqrt(a); }
    template <class V> CALM_HD static V back(V dy, V, V y) { return dy / (y + y); }
};
/// 1 / sqrt(a) of a mean of squares. NaN if the mean overflowed: 0 would silently turn rows that are too large into
/// zeros.
struct reciprocal_root {
    template <class V> CALM_HD static V value(V a) { return splat<V>(1) / math::sqrt(a) + (a - a); }
    template <class V> CALM_HD static V back(V dy, V a, V y) { return -(dy * y / (a + a)); }
};
/// `a^2`.
struct squared {
    template <class V> CALM_HD static V value(V a) { return a * a; }
    template <class V> CALM_HD static V back(V dy, V a, V) { return dy * (a + a); }
};
/// `1 / (1 + e^-a)`.
struct sigmoid {
    template <class V> CALM_HD static V value(V a) { return math::sigmoid(a); }
    template <class V> CALM_HD static V back(V dy, V, V y) { return dy * (y - y * y); }
};
/// `tanh a`.
struct hyperbolic_tangent {
    template <class V> CALM_HD static V value(V a) { return math::tanh(a); }
    template <class V> CALM_HD static V back(V dy, V, V y) { return dy - dy * y * y; }
};
/// `silu(a) = a sigmoid(a)`.
struct silu {
    template <class V> CALM_HD static V value(V a) { return a * math::sigmoid(a); }
    template <class V> CALM_HD static V back(V dy, V a, V y) {
        V const s = math::sigmoid(a);
        return dy * (s + y * (splat<V>(1) - s));
    }
};

}  // namespace calm::op
