// Gradients of expressions, in one more loop; a custom operation with its derivative, and two tests of derivatives.
#include <cmath>
#include <complex>
#include <cstdio>

#include "calm/tensor.hpp"

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
    using shape = calm::extents<calm::dyn, 8>;
    calm::context<> ctx(7);
    calm::tensor<float, shape> gate(shape(1000)), up(shape(1000)), dgate(shape(1000)), dup(shape(1000)),
        dy(shape(1000));
    fill_normal(ctx, gate.view(), ctx.random(calm::stream::initialise));
    fill_normal(ctx, up.view(), ctx.random(calm::stream::posterior));  // another stream, so other numbers
    fill(ctx, dy.view(), 1.0F);

    // The expression with destinations for its gradients: one pass writes both.
    differentiate(ctx, silu(wrt(gate, dgate)) * exp(wrt(up, dup)), dy);

    // Check one element against a finite difference.
    auto const f = [](double g, double u) { return g / (1 + std::exp(-g)) * std::exp(u); };
    double const g = gate(0, 1), u = up(0, 1), h = 1e-5;
    std::printf("dy/dgate %.6f, by differences %.6f\n", dgate(0, 1), (f(g + h, u) - f(g - h, u)) / (2 * h));
    std::printf("dy/dup   %.6f, by differences %.6f\n", dup(0, 1), (f(g, u + h) - f(g, u - h)) / (2 * h));

    // The gradient of a row that was broadcast is a sum over all rows.
    calm::tensor<float, calm::extents<8>> gain, dgain;
    fill(ctx, gain.view(), 2.0F);
    // gate occurs twice: the first occurrence overwrites dgate, the later one adds to it. Two wrt would throw.
    differentiate(ctx, exp(wrt(gate, dgate)) / sum_axis1(exp(accumulate(gate, dgate))) * wrt(gain, dgain), dy);
    std::printf("dgain adds up to %.3f, one for each row\n", sum(ctx, dgain));

    // A custom operation fuses with all others.
    calm::tensor<double, calm::extents<7>> x, dx, y, dz;
    for (int i = 0; i < 7; ++i) x(i) = 5.0 * i - 15.0;
    evaluate(ctx, y, calm::apply<softplus>(x) * 2.0);
    evaluate(ctx, dz, dz + 1.0);  // a tensor begins with zeros, so dz = 1
    differentiate(ctx, calm::apply<softplus>(wrt(x, dx)) * 2.0, dz);
    for (int i = 0; i < 7; i += 3) std::printf("x %3.0f   2 softplus(x) %12.6e   slope %12.6e\n", x(i), y(i), dx(i));

    // Test by complex step: an imaginary perturbation, which causes no cancellation, must give the same derivative.
    double const seen = softplus::value(std::complex<double>(0.5, 1e-30)).imag() / 1e-30;
    std::printf("slope at 0.5: %.16f, by complex step %.16f\n", softplus::back(1.0, 0.5, 0.0), seen);
}
