// A custom element-wise operation with its derivative; it fuses with all others.
#include <cmath>
#include <cstdio>

#include "calm/tensor/expr/expr.hpp"

// softplus(a) = log(1 + exp(a)), in a form that does not overflow. V is a float, a SIMD vector of floats, a double or a
// complex number. `back` takes dy, the operand and the value, and returns the operand's gradient.
struct softplus {
    template <class V> static V value(V a) {
        V const magnitude = calm::math::abs(a);
        return calm::math::max(a, a - a) + calm::math::log(calm::math::exp(-magnitude) + calm::splat<V>(1.0));
    }
    template <class V> static V back(V dy, V a, V) { return dy * calm::math::sigmoid(a); }
};

int main() {
    using shape = calm::extents<calm::dyn>;
    calm::context<> ctx;
    calm::tensor<double, shape> x(shape(7)), y(shape(7)), dx(shape(7)), dy(shape(7));
    for (int i = 0; i < 7; ++i) x[i] = 5.0 * i - 15.0;

    evaluate(ctx, y, calm::apply<softplus>(x) * 2.0);
    evaluate(ctx, dy, dy + 1.0);
    differentiate(ctx, calm::apply<softplus>(wrt(x, dx)) * 2.0, dy);
    for (int i = 0; i < 7; ++i) std::printf("x %3.0f   2 softplus(x) %12.6e   slope %12.6e\n", x[i], y[i], dx[i]);

    // Test by complex step: an imaginary perturbation, which causes no cancellation, must give the same derivative.
    for (double const a : {-3.0, 0.5, 40.0}) {
        double const seen = softplus::value(std::complex<double>(a, 1e-30)).imag() / 1e-30;
        std::printf("slope at %4.1f: %.16f, by complex step %.16f\n", a, softplus::back(1.0, a, 0.0), seen);
    }
}
