// A custom kernel in portable block form: written as for a GPU, run on the host with its threads in any order.
#include <cstdio>

#include "calm/tensor.hpp"

// y (R) = the largest element of each row of x (R, D), one block per row.
struct row_maximum {
    static constexpr int threads = 32;
    struct shared {};
    float* y;
    float const* x;
    calm::index_t width;

    template <class Block> CALM_HD void operator()(Block& block, shared&, calm::index_t row) const {
        float const* const first = x + row * width;
        typename Block::template per_thread<float> most;
        block.phase([&](int t) {  // every thread, then a barrier
            most[t] = first[t % width];
            for (calm::index_t i = t; i < width; i += threads) most[t] = calm::math::max(most[t], first[i]);
        });
        float const largest = block.max(most);  // the same in every thread
        block.phase([&](int t) {
            if (t == 0) y[row] = largest;
        });
    }
};

int main() {
    calm::context<calm::blocks> ctx(3);
    using shape = calm::extents<calm::dyn, 100>;
    calm::tensor<float, shape, calm::blocks> x(shape(4));
    calm::tensor<float, calm::extents<4>, calm::blocks> y;
    fill_normal(ctx, x.view(), ctx.random(calm::stream::initialise));
    for (auto const order :
         {calm::thread_order::ascending, calm::thread_order::descending, calm::thread_order::permuted}) {
        ctx.order = order;  // a missing barrier would change the results
        launch(ctx, 4, row_maximum{y.data(), x.data(), 100});
        std::printf("largest of 100 normals: %.4f %.4f %.4f %.4f\n", y[0], y[1], y[2], y[3]);
    }
}
