// Tensors: shapes, elements, views, random numbers, printing.
#include <iostream>

#include "calm/tensor.hpp"

int main() {
    // Rows are known at run time, columns at compile time. A tensor owns its memory and begins with zeros.
    using shape = calm::extents<calm::dyn, 3>;
    calm::tensor<float, shape> x(shape(2));
    for (calm::index_t i = 0; i < x.extent(0); ++i)
        for (calm::index_t j = 0; j < x.extent(1); ++j) x(i, j) = static_cast<float>(10 * i + j);
    std::cout << "x, of shape " << to_string(x.extents()) << ":\n" << x << "\n";

    // A view refers to the elements of a tensor: here the second row, and all elements under another shape.
    auto const second = rows(x.view(), 1, 1);
    second(0, 2) = 99;
    std::cout << "with another last element: " << reshape(x.view(), calm::extents<6>()) << "\n";

    // A context has the threads and the seed. Random numbers depend on the seed alone, not on the threads.
    calm::context<> ctx(7);
    calm::tensor<float, calm::extents<1000, 100>> noise;
    fill_normal(ctx, noise.view(), ctx.random(calm::stream::initialise));
    auto const n = static_cast<double>(noise.size());
    std::cout << "mean " << sum(ctx, noise) / n << ", mean square " << sum(ctx, square(noise)) / n << "\n"
              << noise << "\n";

    // Mistakes are errors that say what was expected.
    try {
        x(1, 3) = 0;
    } catch (calm::error const& e) {
        std::cout << e.what() << "\n";
    }
}
