// Expressions: one loop over memory without temporaries, broadcasting, and reductions of rows.
#include <cstdio>

#include "calm/tensor.hpp"

int main() {
    using shape = calm::extents<calm::dyn, 8>;  // rows known at run time, columns at compile time
    calm::context<> ctx(7);                     // seed 7, all threads
    calm::tensor<float, shape> gate(shape(1000)), up(shape(1000)), y(shape(1000));
    fill_normal(ctx, gate.view(), ctx.random(calm::stream::initialise));
    fill_normal(ctx, up.view(), ctx.random(calm::stream::posterior));  // another stream, so other numbers

    // One pass over memory. An expression is not a value: it is computed where it is assigned.
    evaluate(ctx, y, silu(gate) * exp(up));
    std::printf("mean of y %.6f\n", sum(ctx, y) / static_cast<double>(y.size()));

    // A row (8) and a column (1000, 1) broadcast to (1000, 8), and rows reduce to a column: here a softmax with a gain.
    calm::tensor<float, calm::extents<8>> gain;
    fill(ctx, gain.view(), 2.0F);
    evaluate(ctx, y, exp(gate - max_axis1(gate)) / sum_axis1(exp(gate - max_axis1(gate))) * gain);
    std::printf("a row of it adds up to %.6f\n", sum(ctx, rows(y.view(), 1, 1)));

    // Small expressions need no context.
    calm::tensor<float, calm::extents<3>> a, b;
    a = a + 2.0F;
    b = square(a) - a;
    std::printf("b = %s\n", to_string(b).c_str());

    // Invalid shapes give a clear error: at compile time for static sizes, else at run time as here.
    calm::tensor<float, shape> other(shape(3));
    try {
        evaluate(ctx, y, gate + other);
    } catch (calm::error const& e) {
        std::printf("%s\n", e.what());
    }
}
