// A sequential network learns a function: parameters, gradients, AdamW.
#include <cmath>
#include <cstdio>

#include "calm/nn/linear.hpp"
#include "calm/nn/sequential.hpp"
#include "calm/train/optimizer.hpp"

using network =
    calm::sequential<calm::linear<1, 32>, calm::silu_layer<32>,
                     calm::residual<calm::sequential<calm::linear<32, 32>, calm::silu_layer<32>>>, calm::linear<32, 1>>;

int main() {
    calm::context<> ctx(1);
    calm::arena<> values("values"), gradients("gradients");
    network net;
    allocate(net, values, &gradients);
    initialise(ctx, net);
    calm::adamw optimizer(net, {.weight_decay = 0});
    std::printf("%lld parameters\n", static_cast<long long>(count_parameters(net)));

    using column = calm::extents<calm::dyn, 1>;
    int const rows = 64;
    calm::tensor<float, column> x(column{rows}), want(column{rows}), dy(column{rows}), dx(column{rows});
    for (int r = 0; r < rows; ++r) {
        x[r] = static_cast<float>(r) / 10 - 3.2F;
        want[r] = std::sin(x[r]);
    }
    for (int step = 0; step < 1000; ++step) {
        calm::arena_scope const forget(ctx.saved);  // activations saved for backward
        auto const s = net.forward(ctx, x.view());
        double const loss = sum(ctx, square(s.y - want)) / rows;
        differentiate_sum(ctx, square(wrt(s.y, dy) - want), 1.0 / rows);
        net.backward(ctx, s, dy.view(), dx.view());
        optimizer.step(ctx, 3e-3, loss);
        if (step % 250 == 249) std::printf("step %4d: mean square error %.6f\n", step, loss);
    }
    auto const y = net.forward(ctx, x.view()).y;
    for (int r = 1; r < rows; r += 15) std::printf("sin(%5.2f) = %7.4f, learned %7.4f\n", x[r], want[r], y[r]);
}
