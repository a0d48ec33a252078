#include "calm/nn/mlp.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {
template <class T> using small = swiglu<5, 11, space<cpu, T>>;
template <class T> using wide = swiglu<40, 96, space<cpu, T>>;
template <class T, class B> using small_on = swiglu<5, 11, space<B, T>>;
template <class T, class B> using wide_on = swiglu<40, 96, space<B, T>>;
}  // namespace

BOOST_AUTO_TEST_CASE(gradients_by_the_complex_step) {
    for (index_t const rows : {0, 1, 7}) check_layer<small>(rows);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(on_every_executor, on, executors) {
    for (index_t const rows : {0, 1, 7}) check_executor<on, small_on>(rows);
    check_executor<on, wide_on>(100);
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

BOOST_AUTO_TEST_CASE(what_forward_takes_and_backward_borrows) {
    prepared<small<float>, float> p;
    auto const x = draws<float>(4 * 5, 1);
    std::vector<float> dx(20);
    auto const s = p.model.forward(p.ctx, matrix_view<float const, 5>(x.data(), extents<dyn, 5>(4)));
    std::size_t const taken = p.ctx.saved.used();
    p.model.backward(p.ctx, s, matrix_view<float const, 5>(x.data(), extents<dyn, 5>(4)),
                     {dx.data(), extents<dyn, 5>(4)});
    BOOST_TEST(p.ctx.saved.used() == taken);
    BOOST_TEST(p.ctx.scratch.used() == 0U);
}
