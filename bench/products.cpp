// Matrix products at the shapes of a step: forward (x W^T), input gradient (dy W) and weight gradient (dy^T x), and
// forward by serial Eigen.

#include "calm/eigen.hpp"
#include "calm/tensor/ops/fill.hpp"
#include "calm/tensor/ops/matmul.hpp"
#include "calm/train/detail/peak.hpp"
#include "product_shapes.hpp"
#include "program.hpp"

namespace {

using calm::index_t;
using matrix = calm::tensor<float, calm::extents<calm::dyn, calm::dyn>>;

enum class form { forward, input_gradient, weight_gradient, eigen };
constexpr std::pair<form, char const*> forms[] = {{form::forward, "forward"},
                                                  {form::input_gradient, "input_gradient"},
                                                  {form::weight_gradient, "weight_gradient"},
                                                  {form::eigen, "eigen"}};

void multiply(calm::context<>& ctx, form f, matrix& x, matrix& w, matrix& y) {
    switch (f) {
    case form::forward:
        matmul(ctx, y, x, calm::transposed(w));
        break;
    case form::input_gradient:
        matmul(ctx, x, y, w);
        break;
    case form::weight_gradient:
        matmul(ctx, w, calm::transposed(y), x);
        break;
    case form::eigen:
        calm::detail::eigen_product(calm::detail::product<float>{y.extent(0), y.extent(1), x.extent(1), y.data(),
                                                                 y.extent(1), x.data(), x.extent(1), false, w.data(),
                                                                 w.extent(1), true, false});
    }
}

// `rows` rows of `in` features to `out` features.
void add_product(int threads, double peak, std::string const& name, index_t rows, index_t in, index_t out) {
    for (auto const& [f, how] : forms)
        bench::add(name + "/" + std::to_string(rows) + "x" + std::to_string(out) + "x" + std::to_string(in) + "/" + how,
                   [=, f = f](benchmark::State& state) {
                       calm::context<> ctx(1, threads);
                       matrix x(calm::extents<calm::dyn, calm::dyn>(rows, in));
                       matrix w(calm::extents<calm::dyn, calm::dyn>(out, in));
                       matrix y(calm::extents<calm::dyn, calm::dyn>(rows, out));
                       for (matrix* const m : {&x, &w, &y}) calm::fill_normal(ctx, m->view(), calm::key{1});
                       double const seconds = bench::measure(state, [&] { multiply(ctx, f, x, w, y); });
                       bench::report_flops(state, 2.0 * static_cast<double>(rows * in * out), seconds, peak);
                   });
}

void add_configuration(int threads, double peak, std::string const& name, calm::configuration<> const& c,
                       bench::batch const& b) {
    bench::for_product_shapes(c, b, 256, [&](char const* what, index_t rows, index_t in, index_t out) {
        add_product(threads, peak, name + "/" + what, rows, in, out);
    });
}

}  // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](int threads) {
        double const peak = calm::measure_peak(calm::context<>(0, threads), 0.2);
        benchmark::AddCustomContext("peak GFLOP/s", std::to_string(peak / 1e9));
        add_configuration(threads, peak, "tiny", bench::tiny, bench::tiny_batch);
        add_configuration(threads, peak, "text", bench::text, bench::text_batch);
    });
}
