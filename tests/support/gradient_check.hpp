#pragma once
// Gradient checks of layers by the complex step (Squire and Trapp 1998), with the same templates. The derivative of
// sum(dy * y) with respect to one number is:
//   Im(sum(dy * y(number + ih))) / h
// Comparisons inside a layer use the real part.
//
// A layer under test has `inputs`, `outputs`, forward(ctx, x), backward(ctx, saved, dy, dx) and visit, and is a
// template of its scalar: template <class T> using checked = linear<3, 5, with_bias::yes, space<cpu, T>>;
// check_layer<checked>(7);

#include <span>

#include "calm/eigen.hpp"
#include "calm/nn/param.hpp"
#include "support/close.hpp"
#include "support/typed.hpp"

namespace calm::test {

using complex = std::complex<double>;
inline constexpr double tiny_step = 1e-100;

// One parameter without its shape.
template <class T> struct flat_param {
    std::string name;
    T* value;
    T* grad;
    index_t size;
};

template <class T, class Model> std::vector<flat_param<T>> parameters(Model& model) {
    std::vector<flat_param<T>> all;
    auto add = [&](std::string const& name, auto& p) {
        all.push_back({name, p.value.data(), p.grad.data(), p.value.size()});
    };
    model.visit(add);
    return all;
}

// A model with memory and random parameters; the values are equal for every scalar type.
template <class Model, class T, class Backend = cpu> struct prepared {
    arena<Backend> values{"values"};
    arena<Backend> gradients{"gradients"};
    Model model;
    context<Backend> ctx;
    std::vector<flat_param<T>> params;

    explicit prepared(Model m = {}, int threads = 1, double spread = 0.5) : model(std::move(m)), ctx(1, threads) {
        allocate(model, values, &gradients);
        params = parameters<T>(model);
        std::uint64_t seed = 100;
        for (auto& p : params) draw(std::span(p.value, static_cast<std::size_t>(p.size)), seed++, spread);
    }
    void clear_gradients() {
        host_access const access;
        for (auto& p : params) std::fill_n(p.grad, p.size, T{});
    }
};

// At most `count` indices spread over n elements, including the first and the last.
inline std::vector<index_t> some(index_t n, index_t count) {
    std::vector<index_t> places;
    for (index_t i = 0; i < std::min(n, count); ++i) places.push_back(n <= count ? i : i * (n - 1) / (count - 1));
    return places;
}

// Compares gradient (n) with slope(i) at some indices: relative error 1e-10, floor 1/1000 of the largest gradient.
template <class Slope>
void check_by_differences(std::string const& name, double const* gradient, index_t n, Slope const& slope,
                          index_t count = 10, double bound = 1e-10) {
    double largest = 0;
    for (index_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(gradient[i]));
    for (index_t const i : some(n, count)) {
        double const want = slope(i);
        BOOST_TEST(std::abs(gradient[i] - want) <= bound * std::max(std::abs(want), 1e-3 * largest) + 1e-300,
                   name << "[" << i << "]: backward gives " << gradient[i] << ", the function " << want);
    }
}

// Checks gradients of `loss` with respect to some elements of every parameter by central differences: relative error
// 1e-6.
template <class F> void check_central_differences(std::vector<flat_param<double>> const& params, F const& loss) {
    std::vector<std::vector<double>> gradients;
    for (auto const& p : params) gradients.push_back(copied(p.grad, p.size));
    for (std::size_t k = 0; k < params.size(); ++k)
        check_by_differences(
            params[k].name, gradients[k].data(), params[k].size,
            [&](index_t i) {
                double& element = params[k].value[i];
                double const before = element;
                auto const at = [&](double step) {
                    element = before + step;
                    return loss();
                };
                constexpr double h = 1e-3;  // the five-point rule has error h^4
                double const slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
                element = before;
                return slope;
            },
            3, 1e-6);
}

// Im f(element + ih) / h; restores the element.
template <class F> double complex_slope(complex& element, F const& f) {
    complex const before = element;
    element += complex(0, tiny_step);
    complex const y = f();
    element = before;
    return y.imag() / tiny_step;
}

// Checks the gradients of x and of every parameter of a layer on R rows. The given layers may hold settings.
template <template <class> class Layer>
void check_layer(index_t rows, Layer<double> layer = {}, Layer<complex> complex_layer = {}, index_t count = 10) {
    using L = Layer<double>;
    prepared<L, double> real(std::move(layer));
    prepared<Layer<complex>, complex> twin(std::move(complex_layer));
    auto const x = draws<double>(rows * L::inputs, 1);
    auto const dy = draws<double>(rows * L::outputs, 2);
    std::vector<double> dx(x.size(), 777.0);  // must be overwritten
    std::vector<complex> cx(x.begin(), x.end());
    extents<dyn, L::inputs> const in(rows);

    auto const s = real.model.forward(real.ctx, matrix_view<double const, L::inputs>(x.data(), in));
    auto const y = copied(s.y);
    for (auto& p : real.params) std::fill_n(p.grad, p.size, 1.0);  // must be added to
    real.model.backward(real.ctx, s, matrix_view<double const, L::outputs>(dy.data(), extents<dyn, L::outputs>(rows)),
                        matrix_view<double, L::inputs>(dx.data(), in));
    for (auto& p : real.params)
        for (index_t i = 0; i < p.size; ++i) p.grad[i] -= 1.0;

    auto const f = [&] {
        arena_scope const scope(twin.ctx.saved);
        auto const t = twin.model.forward(twin.ctx, matrix_view<complex const, L::inputs>(cx.data(), in));
        complex total{};
        for (index_t i = 0; i < t.y.size(); ++i) total += dy[static_cast<std::size_t>(i)] * t.y[i];
        return total;
    };
    double value = 0;
    for (std::size_t i = 0; i < y.size(); ++i) value += y[i] * dy[i];
    BOOST_TEST(near(value, f().real(), 1e-11));
    check_by_differences(
        "x", dx.data(), static_cast<index_t>(dx.size()),
        [&](index_t i) { return complex_slope(cx[static_cast<std::size_t>(i)], f); }, count);
    BOOST_REQUIRE(real.params.size() == twin.params.size());
    for (std::size_t k = 0; k < real.params.size(); ++k)
        check_by_differences(
            real.params[k].name, real.params[k].grad, real.params[k].size,
            [&](index_t i) { return complex_slope(twin.params[k].value[i], f); }, count);
}

// Everything that a layer computes on R rows of random x and the given cotangent: y, dx, parameter gradients.
template <class Backend = cpu, class Layer>
auto outcome(Layer layer, index_t rows, int threads, auto const& dy, thread_order order = thread_order::ascending) {
    using T = std::remove_cvref_t<decltype(dy[0])>;
    prepared<Layer, T, Backend> p(std::move(layer), threads, 0.25);
    p.ctx.order = order;
    auto const x = draws<T, Backend>(rows * Layer::inputs, 1);
    numbers<T, Backend> dx(x.size());
    auto const s = p.model.forward(p.ctx, in_rows<Backend, Layer::inputs>(x));
    std::vector<std::vector<T>> all{copied(s.y)};
    p.model.backward(p.ctx, s, in_rows<Backend, Layer::outputs>(dy), out_rows<Backend, Layer::inputs>(dx));
    all.push_back(copied(dx));
    for (auto const& q : p.params) all.push_back(copied(q.grad, q.size));
    return all;
}

// A layer on a device: results are bit-identical with 1, 2 and 3 threads and in every order of a block's threads, and
// agree with the cpu in double within the fp32 tolerances. The given layers may hold settings.
// template <class T, class Backend> using checked = linear<3, 5, with_bias::yes, space<Backend, T>>;
template <class On, template <class, class> class Layer>
void check_device(index_t rows, Layer<typename On::scalar, typename On::backend> const& layer = {},
                  Layer<double, cpu> const& reference = {}) {
    using T = typename On::scalar;
    using backend = typename On::backend;
    auto const dy = draws<double>(rows * Layer<double, cpu>::outputs, 2);
    numbers<T, backend> const narrow(dy.begin(), dy.end());
    auto const got = outcome<backend>(layer, rows, 1, narrow);
    for (int const threads : {2, 3})
        BOOST_TEST((got == outcome<backend>(layer, rows, threads, narrow)), threads << " threads compute other bits");
    if constexpr (block_backend<backend>)
        for (auto const order : {thread_order::descending, thread_order::permuted})
            BOOST_TEST((got == outcome<backend>(layer, rows, 1, narrow, order)), "a barrier is missing");
    auto const want = outcome(reference, rows, 2, dy);
    BOOST_REQUIRE(got.size() == want.size());
    for (std::size_t k = 0; k < got.size(); ++k)
        BOOST_TEST(close(got[k], want[k], k == 0 ? kind::output : kind::gradient), "result " << k);
}

// Results are bit-identical with 1, 2 and 3 threads, and gradients are linear in dy.
template <template <class> class Layer> void check_layer_laws(index_t rows) {
    auto const dy = draws<float>(rows * Layer<float>::outputs, 2);
    auto const one = outcome(Layer<float>{}, rows, 1, dy);
    BOOST_TEST((one == outcome(Layer<float>{}, rows, 2, dy)), "two threads compute other bits than one");
    BOOST_TEST((one == outcome(Layer<float>{}, rows, 3, dy)), "three threads compute other bits than one");

    auto const a = draws<double>(rows * Layer<double>::outputs, 3);
    auto const b = draws<double>(rows * Layer<double>::outputs, 4);
    auto c = a;
    for (std::size_t i = 0; i < c.size(); ++i) c[i] = 2 * a[i] - 3 * b[i];
    auto const ga = outcome(Layer<double>{}, rows, 2, a);
    auto const gb = outcome(Layer<double>{}, rows, 2, b);
    auto const gc = outcome(Layer<double>{}, rows, 2, c);
    double worst = 0;
    for (std::size_t k = 1; k < gc.size(); ++k) {
        double largest = 1;
        for (double const g : gc[k]) largest = std::max(largest, std::abs(g));
        for (std::size_t i = 0; i < gc[k].size(); ++i)
            worst = std::max(worst, std::abs(gc[k][i] - 2 * ga[k][i] + 3 * gb[k][i]) / largest);
    }
    BOOST_TEST(worst <= 1e-12, "backward is not linear in dy: " << worst);
}

// Rows computed together equal rows computed alone, within 1e-5.
template <template <class> class Layer> void check_rows_alone(index_t rows) {
    using L = Layer<float>;
    prepared<L, float> p;
    auto const x = draws<float>(rows * L::inputs, 1);
    auto const all =
        copied(p.model.forward(p.ctx, matrix_view<float const, L::inputs>(x.data(), extents<dyn, L::inputs>(rows))).y);
    double worst = 0;
    double largest = 1;
    for (float const v : all) largest = std::max(largest, std::abs(static_cast<double>(v)));
    for (index_t r = 0; r < rows; ++r) {
        auto const y = p.model
                           .forward(p.ctx, matrix_view<float const, L::inputs>(x.data() + r * L::inputs,
                                                                               extents<dyn, L::inputs>(1)))
                           .y;
        for (index_t i = 0; i < L::outputs; ++i) {
            double const want = all[static_cast<std::size_t>(r * L::outputs + i)];
            worst = std::max(worst, std::abs(static_cast<double>(y[i]) - want) / largest);
        }
    }
    BOOST_TEST(worst <= 1e-5, "a row alone differs by " << worst);
}

}  // namespace calm::test
