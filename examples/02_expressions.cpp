// Expressions that run as one fused loop; their derived gradients take one more loop.
#include <cmath>
#include <cstdio>

#include "calm/tensor.hpp"

int main() {
    using shape = calm::extents<calm::dyn, 8>;  // rows known at run time, columns at compile time
    calm::context<> ctx(7);                     // seed 7, all threads
    calm::tensor<float, shape> gate(shape(1000)), up(shape(1000)), y(shape(1000)), dy(shape(1000));
    calm::tensor<float, shape> dgate(shape(1000)), dup(shape(1000));
    fill_normal(ctx, gate.view(), ctx.random(calm::stream::initialise));
    fill_normal(ctx, up.view(), ctx.random(calm::stream::posterior));
    fill(ctx, dy.view(), 1.0F);

    // One pass over memory, no temporaries.
    evaluate(ctx, y, silu(gate) * exp(up));

    // The expression with destinations for its gradients: one more pass writes both.
    differentiate(ctx, silu(wrt(gate, dgate)) * exp(wrt(up, dup)), dy);

    // Check one element against a finite difference.
    auto const f = [](double g, double u) { return g / (1 + std::exp(-g)) * std::exp(u); };
    double const g = gate[1], u = up[1], h = 1e-5;
    std::printf("dy/dgate %.6f, by differences %.6f\n", dgate[1], (f(g + h, u) - f(g - h, u)) / (2 * h));
    std::printf("dy/dup   %.6f, by differences %.6f\n", dup[1], (f(g, u + h) - f(g, u - h)) / (2 * h));
    std::printf("mean of y %.6f\n", sum(ctx, y) / static_cast<double>(y.size()));

    // A row (8) and a column (1000, 1) broadcast to (1000, 8), and rows reduce to a column: here a softmax with a gain,
    // and the gradients of both.
    calm::tensor<float, calm::extents<8>> gain, dgain;
    fill(ctx, gain.view(), 2.0F);
    evaluate(ctx, y, exp(gate - max_axis1(gate)) / sum_axis1(exp(gate - max_axis1(gate))) * gain);
    std::printf("a row of it adds up to %.6f\n", y[8] + y[9] + y[10] + y[11] + y[12] + y[13] + y[14] + y[15]);
    differentiate(ctx, exp(wrt(gate, dgate)) / sum_axis1(exp(accumulate(gate, dgate))) * wrt(gain, dgain), dy);
    std::printf("dgain adds up to %.3f, one for each row\n", sum(ctx, dgain));

    // Invalid shapes give a clear error: at compile time for static sizes, else at run time as here.
    calm::tensor<float, shape> other(shape(3));
    try {
        evaluate(ctx, y, gate + other);
    } catch (calm::error const& e) {
        std::printf("%s\n", e.what());
    }
}
