// Uses calm::cuda: its headers, nvcc's flags and the libraries. Without a device it says so and succeeds.
#include <cstdio>

#include "calm/cuda.hpp"
#include "calm/tensor/expr/expr.hpp"

int main() {
    if (auto const reason = calm::no_device_reason(); !reason.empty()) {
        std::puts(reason.c_str());
        return 0;
    }
    using shape = calm::extents<calm::dyn>;
    calm::context<calm::cuda> ctx;
    calm::tensor<float, shape, calm::cuda> x(shape(3));
    fill(ctx, x.view(), 1.0F);
    evaluate(ctx, x.view(), x + 2.0F);
    return 0;
}
