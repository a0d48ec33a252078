// Uses calm::calm alone: headers, Eigen and threads.
#include <calm/tensor/expr/expr.hpp>
#include <calm/version.hpp>

#include <Eigen/Core>

static_assert(calm::version >= calm::version_number{0, 1, 0});

int main() {
    using shape = calm::extents<calm::dyn>;
    calm::context<> ctx(0, 2);
    calm::tensor<float, shape> x(shape(3)), y(shape(3));
    evaluate(ctx, x, x + 2.0F);
    evaluate(ctx, y, x * x + 1.0F);
    return y[2] == 5.0F ? 0 : 1;
}
