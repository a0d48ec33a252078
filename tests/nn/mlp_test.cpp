#include "calm/nn/mlp.hpp"

#include "calm/emulated.hpp"
#include "calm/nn/norm.hpp"
#include "calm/nn/sequential.hpp"
#include "calm/train/optimizer.hpp"
#include "support/gradient_check.hpp"
#include "support/rows.hpp"

using namespace calm;
using namespace calm::test;

namespace {
template <class T> using small = swiglu<5, 11, space<cpu, T>>;
template <class T> using wide = swiglu<40, 96, space<cpu, T>>;
template <class T, class B> using small_on = swiglu<5, 11, space<B, T>>;
template <class T, class B> using wide_on = swiglu<40, 96, space<B, T>>;
}  // namespace

// SwiGLU multiplies two linear functions of its input, so it learns a product of inputs. No linear layer can.
BOOST_AUTO_TEST_CASE(it_learns_a_product_of_its_inputs) {
    constexpr int rows = 64;
    context<> ctx(1);  // seed
    arena<> values("values"), gradients("gradients");
    swiglu<2, 16> layer;  // 2 inputs and outputs, 16 hidden elements
    allocate(layer, values, &gradients);
    initialise(ctx, layer);
    adamw optimizer(layer, {.weight_decay = 0});

    using matrix = tensor<float, extents<rows, 2>>;
    matrix x, dx, want, dy;
    fill_normal(ctx, x.view(), key{1});
    for (index_t r = 0; r < rows; ++r) want(r, 0) = x(r, 0) * x(r, 1);  // and the second output is 0
    auto const step = [&] {
        arena_scope const forget(ctx.saved);  // activations saved for backward
        auto const s = layer.forward(ctx, x);
        double const loss = sum(ctx, square(s.y - want)) / rows;
        differentiate_sum(ctx, square(wrt(s.y, dy) - want), 1.0 / rows);
        layer.backward(ctx, s, dy, dx);  // overwrites dx, adds to the parameters' gradients
        optimizer.step(ctx, 0.01, loss);
        return loss;
    };
    double const first = step();
    for (int i = 0; i < 400; ++i) step();
    BOOST_TEST(first > 0.5);
    BOOST_TEST(step() < 0.001);
}

BOOST_AUTO_TEST_CASE(gradients_by_the_complex_step) {
    for (index_t const rows : {0, 1, 7}) check_layer<small>(rows);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(on_every_device, on, test_devices) {
    for (index_t const rows : {0, 1, 7}) check_device<on, small_on>(rows);
    check_device<on, wide_on>(100);
}

BOOST_AUTO_TEST_CASE(laws) {
    check_layer_laws<wide>(150);
    check_rows_alone<wide>(20);
}

BOOST_AUTO_TEST_CASE(names_as_published) {
    small<float> layer;
    auto const names = parameters<float>(layer);
    BOOST_TEST(names[0].name == "gate_proj.weight");
    BOOST_TEST(names[1].name == "up_proj.weight");
    BOOST_TEST(names[2].name == "down_proj.weight");
    BOOST_TEST(count_parameters(layer) == 3 * 5 * 11);
}

BOOST_AUTO_TEST_CASE(memory_of_forward_and_backward) {
    prepared<small<float>, float> p;
    auto const x = draws<float>(4 * 5, 1);
    std::vector<float> dx(20);
    auto const s = p.model.forward(p.ctx, matrix_view<float const, 5>(x.data(), extents<dyn, 5>(4)));
    std::size_t const taken = p.ctx.saved.used();
    p.model.backward(p.ctx, s, matrix_view<float const, 5>(x.data(), extents<dyn, 5>(4)),
                     {dx.data(), extents<dyn, 5>(4)});
    BOOST_TEST(p.ctx.saved.used() == taken);
    BOOST_TEST(p.ctx.workspace.used() == 0U);
}

namespace {

// Compares `extend` with `forward`: bit-identical for many rows and on the cpu, otherwise equal up to summation order
// (40 and 96 terms).
template <class T, class Backend> void check_that_it_extends_as_forward() {
    using layer = residual<
        sequential<rms_norm_layer<40, space<Backend, T>, result_as::activations>, swiglu<40, 96, space<Backend, T>>>>;
    for (index_t const rows : {0, 1, 3, 9, 16, 17, 70}) {
        context<Backend> ctx(1, 2);
        arena<Backend> values("values");
        layer model;
        allocate(model, values, static_cast<arena<Backend>*>(nullptr));
        std::uint64_t seed = 100;
        for (auto const& p : parameters_of(model)) fill_normal(ctx, p.value, key{seed++});
        matrix_view<T const, 40, Backend> const x = drawn_rows<40, T>(ctx, rows, 1);
        auto const found = values_of(ctx, model.extend(ctx, x)), want = values_of(ctx, model.forward(ctx, x).y);
        if (rows > 16 || std::is_same_v<Backend, cpu>) {
            BOOST_TEST(found == want, boost::test_tools::per_element());
            continue;
        }
        BOOST_TEST((rows == 0 || found != want));
        double most = 0, worst = 0;
        for (std::size_t i = 0; i < found.size(); ++i) {
            most = std::max(most, std::abs(static_cast<double>(want[i])));
            worst = std::max(worst, std::abs(static_cast<double>(found[i]) - static_cast<double>(want[i])));
        }
        BOOST_TEST(worst <= 32 * static_cast<double>(std::numeric_limits<T>::epsilon()) * most);
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(normalised_rows_extend_as_they_go_forward) {
    check_that_it_extends_as_forward<float, cpu>();
    check_that_it_extends_as_forward<float, emulated>();
    check_that_it_extends_as_forward<double, emulated>();
}
