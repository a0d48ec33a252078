#include "calm/nn/linear.hpp"
#include "calm/nn/norm.hpp"
#include "calm/nn/sequential.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {
template <class T> using activation = silu_layer<9, space<cpu, T>>;
template <class T> using rectifier = relu_layer<9, space<cpu, T>>;
template <class T>
using three = sequential<linear<4, 9, with_bias::yes, space<cpu, T>>, silu_layer<9, space<cpu, T>>,
                         linear<9, 3, with_bias::yes, space<cpu, T>>>;
template <class T>
using block = residual<sequential<layer_norm_layer<6, space<cpu, T>>, linear<6, 10, with_bias::yes, space<cpu, T>>,
                                  silu_layer<10, space<cpu, T>>, linear<10, 6, with_bias::no, space<cpu, T>>>>;
template <class T> using stack = sequential<linear<4, 6, with_bias::yes, space<cpu, T>>, block<T>, block<T>>;
template <class T> using around_silu = residual<silu_layer<9, space<cpu, T>>>;
template <class T> using single = sequential<linear<4, 9, with_bias::yes, space<cpu, T>>>;
template <class T, class B>
using block_on = residual<sequential<layer_norm_layer<6, space<B, T>>, linear<6, 10, with_bias::yes, space<B, T>>,
                                     silu_layer<10, space<B, T>>, linear<10, 6, with_bias::no, space<B, T>>>>;
template <class T, class B>
using stack_on = sequential<linear<4, 6, with_bias::yes, space<B, T>>, block_on<T, B>, block_on<T, B>>;
}  // namespace

BOOST_AUTO_TEST_CASE(gradients_by_the_complex_step) {
    check_layer<activation>(5);
    check_layer<rectifier>(5);
    check_layer<single>(3);
    for (index_t const rows : {0, 1, 5}) check_layer<three>(rows);
    check_layer<around_silu>(4);
    check_layer<stack>(5);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(on_every_device, on, test_devices) {
    for (index_t const rows : {0, 1, 5, 200}) check_device<on, stack_on>(rows);
}

BOOST_AUTO_TEST_CASE(laws) {
    check_layer_laws<stack>(200);
    check_rows_alone<stack>(20);
}

BOOST_AUTO_TEST_CASE(a_residual_without_influence_is_the_identity) {
    prepared<block<float>, float> p;
    for (auto& q : p.params) std::fill_n(q.value, q.size, 0.0F);
    auto const x = draws<float>(3 * 6, 1);
    auto const y = copied(p.model.forward(p.ctx, matrix_view<float const, 6>(x.data(), extents<dyn, 6>(3))).y);
    BOOST_CHECK((y == x));
}

BOOST_AUTO_TEST_CASE(a_child_is_found_by_its_name) {
    using inner = linear<4, 4, with_bias::yes, space<cpu, float>>;
    sequential<inner, named<"up", inner>, named<"upper", inner>> layers;
    BOOST_TEST(&layers.child<"up">() == &layers.layer<1>());
    BOOST_TEST(&layers.child<"upper">() == &layers.layer<2>());
}

BOOST_AUTO_TEST_CASE(layers_are_named_by_their_place) {
    stack<float> layer;
    std::string names;
    for (auto const& p : parameters<float>(layer)) names += p.name + " ";
    BOOST_TEST(names ==
               "0.weight 0.bias 1.0.weight 1.0.bias 1.1.weight 1.1.bias 1.3.weight 2.0.weight 2.0.bias 2.1.weight "
               "2.1.bias 2.3.weight ");
    static_assert(stack<float>::inputs == 4 && stack<float>::outputs == 6 && stack<float>::depth == 3);
}

BOOST_AUTO_TEST_CASE(a_rectifier_is_flat_at_zero) {
    prepared<rectifier<double>, double> p{};
    std::vector<double> const x{-2, -1, 0, 1, 2, 0, -3, 4, 0}, dy(9, 1.0);
    std::vector<double> dx(9, 777.0);
    extents<dyn, 9> const row(1);
    auto const s = p.model.forward(p.ctx, {x.data(), row});
    BOOST_TEST((copied(s.y) == std::vector<double>{0, 0, 0, 1, 2, 0, 0, 4, 0}));
    p.model.backward(p.ctx, s, {dy.data(), row}, {dx.data(), row});
    BOOST_TEST((dx == std::vector<double>{0, 0, 0, 1, 1, 0, 0, 1, 0}));
}

// Skipping dx does not change the parameter gradients.
BOOST_AUTO_TEST_CASE(a_chain_gives_only_the_gradients_of_its_parameters) {
    prepared<three<double>, double> whole{}, alone{};
    auto const x = draws<double>(5 * 4, 1), dy = draws<double>(5 * 3, 2);
    std::vector<double> dx(x.size());
    matrix_view<double const, 4> const in(x.data(), extents<dyn, 4>(5));
    matrix_view<double const, 3> const out(dy.data(), extents<dyn, 3>(5));
    whole.model.backward(whole.ctx, whole.model.forward(whole.ctx, in), out,
                         matrix_view<double, 4>(dx.data(), extents<dyn, 4>(5)));
    alone.model.backward(alone.ctx, alone.model.forward(alone.ctx, in), out, no_gradient{});
    for (std::size_t k = 0; k < whole.params.size(); ++k)
        BOOST_TEST(
            (copied(whole.params[k].grad, whole.params[k].size) == copied(alone.params[k].grad, alone.params[k].size)),
            whole.params[k].name);
    BOOST_TEST(alone.ctx.workspace.used() == 0U);
}

BOOST_AUTO_TEST_CASE(children_are_visited_by_name) {
    using half = residual<sequential<named<"norm", layer_norm_layer<4>>, named<"map", linear<4, 4>>>>;
    sequential<named<"", half>, linear<4, 2, with_bias::no>, named<"last", linear<2, 3, with_bias::no>>> net;
    std::vector<std::string> names;
    auto const collect = [&](std::string const& name, auto&) { names.push_back(name); };
    auto visitor = collect;
    net.visit(visitor);
    std::vector<std::string> const want{"norm.weight", "norm.bias", "map.weight",
                                        "map.bias",    "1.weight",  "last.weight"};
    BOOST_TEST(names == want, boost::test_tools::per_element());
}
