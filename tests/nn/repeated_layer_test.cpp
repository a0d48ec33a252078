#include "calm/nn/repeated_layer.hpp"

#include "calm/nn/linear.hpp"
#include "calm/nn/norm.hpp"
#include "calm/nn/sequential.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {
template <class T, class B = cpu>
using layer_of = residual<sequential<layer_norm_layer<6, space<B, T>>, linear<6, 6, with_bias::yes, space<B, T>>>>;
template <class T> using one = repeated_layer<layer_of<T>, 1>;
template <class T> using two = repeated_layer<layer_of<T>, 2>;
template <class T> using three = repeated_layer<layer_of<T>, 3>;
template <class T> using four = repeated_layer<layer_of<T>, 4>;
template <class T> using written_out = sequential<layer_of<T>, layer_of<T>, layer_of<T>>;
template <class T, class B> using three_on = repeated_layer<layer_of<T, B>, 3>;
}  // namespace

BOOST_AUTO_TEST_CASE(gradients_by_the_complex_step) {
    check_layer<one>(5);
    check_layer<two>(5);
    for (index_t const rows : {0, 1, 5}) check_layer<three>(rows);
    check_layer<four>(3);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(on_every_device, on, test_devices) {
    for (index_t const rows : {0, 1, 5, 200}) check_device<on, three_on>(rows);
}

BOOST_AUTO_TEST_CASE(laws) {
    check_layer_laws<three>(200);
    check_rows_alone<three>(20);
}

// Both draw their parameters in the order of visit, so these are equal.
BOOST_AUTO_TEST_CASE(a_sequential_equals_its_layers_bit_for_bit) {
    prepared<three<float>, float> a;
    prepared<written_out<float>, float> b;
    auto const x = draws<float>(7 * 6, 1);
    auto const dy = draws<float>(7 * 6, 2);
    std::vector<float> dx_a(dy.size()), dx_b(dy.size());
    auto const run = [&](auto& p, std::vector<float>& dx) {
        extents<dyn, 6> const shape(7);
        auto const s = p.model.forward(p.ctx, matrix_view<float const, 6>(x.data(), shape));
        auto y = copied(s.y);
        p.model.backward(p.ctx, s, matrix_view<float const, 6>(dy.data(), shape),
                         matrix_view<float, 6>(dx.data(), shape));
        return y;
    };
    BOOST_CHECK((run(a, dx_a) == run(b, dx_b)));
    BOOST_CHECK((dx_a == dx_b));
    for (std::size_t i = 0; i < a.params.size(); ++i)
        BOOST_CHECK(std::equal(a.params[i].grad, a.params[i].grad + a.params[i].size, b.params[i].grad));
}

BOOST_AUTO_TEST_CASE(layers_are_numbered_from_the_first) {
    repeated_layer<linear<2, 2>, 2, 3> layers;
    std::string names;
    for (auto const& p : parameters<float>(layers)) names += p.name + " ";
    BOOST_TEST(names == "3.weight 3.bias 4.weight 4.bias ");
}
