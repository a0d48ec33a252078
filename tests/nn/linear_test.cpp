#include "calm/nn/linear.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {

template <class T> using biased = linear<5, 7, with_bias::yes, space<cpu, T>>;
template <class T> using plain = linear<9, 3, with_bias::no, space<cpu, T>>;
template <class T> using wide = linear<33, 130, with_bias::yes, space<cpu, T>>;

// Outputs 2 to 5 of seven: y = W[2:5] x + b[2:5], through apply_part and backward_part.
template <class T> struct part {
    using space_type = space<cpu, T>;
    static constexpr index_t inputs = 5;
    static constexpr index_t outputs = 3;
    linear<5, 7, with_bias::yes, space<cpu, T>> whole;
    struct saved_activations {
        matrix_view<T const, 5> x;
        matrix_view<T, 3> y;
    };
    saved_activations forward(context<>& ctx, matrix_view<T const, 5> const& x) const {
        saved_activations const s{x, ctx.saved.template take<T>(extents<dyn, 3>(x.extent(0)))};
        whole.template apply_part<2, 3>(ctx, s.y, x);
        return s;
    }
    void backward(context<>& ctx, saved_activations const& s, matrix_view<T const, 3> const& dy,
                  matrix_view<T, 5> const& dx) {
        whole.template backward_part<2, 3>(ctx, s.x, dy, dx, into::overwrite);
    }
    template <class Visitor> void visit(Visitor& visitor) { whole.visit(visitor); }
};

template <class T, class B> using biased_on = linear<5, 7, with_bias::yes, space<B, T>>;
template <class T, class B> using plain_on = linear<9, 3, with_bias::no, space<B, T>>;
template <class T, class B> using wide_on = linear<33, 130, with_bias::yes, space<B, T>>;

}  // namespace

BOOST_AUTO_TEST_CASE(gradients_by_the_complex_step) {
    for (index_t const rows : {0, 1, 3, 17}) check_layer<biased>(rows);
    check_layer<plain>(6);
    check_layer<part>(6);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(on_every_device, on, test_devices) {
    for (index_t const rows : {0, 1, 3, 17}) check_device<on, biased_on>(rows);
    check_device<on, plain_on>(300);
    check_device<on, wide_on>(137);
}

BOOST_AUTO_TEST_CASE(laws) {
    check_layer_laws<wide>(137);
    check_rows_alone<wide>(37);
}

BOOST_AUTO_TEST_CASE(parts_make_the_whole) {
    prepared<biased<double>, double> p;
    auto const x = draws<double>(4 * 5, 1);
    matrix_view<double const, 5> const in(x.data(), extents<dyn, 5>(4));
    auto const y = p.model.forward(p.ctx, in).y;
    auto const low = p.ctx.saved.take<double>(extents<dyn, 3>(4));
    auto const high = p.ctx.saved.take<double>(extents<dyn, 4>(4));
    p.model.apply_part<0, 3>(p.ctx, low, in);
    p.model.apply_part<3, 4>(p.ctx, high, in);
    for (index_t r = 0; r < 4; ++r)
        for (index_t j = 0; j < 7; ++j)
            BOOST_TEST(near(j < 3 ? low[r * 3 + j] : high[r * 4 + j - 3], y[r * 7 + j], 1e-14));

    // Gradients too; the second part accumulates into dx.
    auto const dy = draws<double>(4 * 7, 2);
    std::vector<double> dx(4 * 5), dx_of_parts(4 * 5);
    matrix_view<double, 5> const out(dx.data(), extents<dyn, 5>(4));
    matrix_view<double, 5> const parts(dx_of_parts.data(), extents<dyn, 5>(4));
    p.model.backward(p.ctx, {in, y}, matrix_view<double const, 7>(dy.data(), extents<dyn, 7>(4)), out);
    auto const weight = copied(p.model.weight.grad);
    auto const bias = copied(p.model.bias.grad);
    p.clear_gradients();
    for (index_t r = 0; r < 4; ++r)
        for (index_t j = 0; j < 7; ++j)
            (j < 3 ? low[r * 3 + j] : high[r * 4 + j - 3]) = dy[static_cast<std::size_t>(r * 7 + j)];
    p.model.backward_part<0, 3>(p.ctx, in, low, parts, into::overwrite);
    p.model.backward_part<3, 4>(p.ctx, in, high, parts, into::accumulate);
    auto const same = [](auto const& a, auto const& b) {
        for (std::size_t i = 0; i < a.size(); ++i)
            if (!near(a[i], b[i], 1e-13)) return false;
        return true;
    };
    BOOST_TEST(same(dx_of_parts, dx));
    BOOST_TEST(same(copied(p.model.weight.grad), weight));
    BOOST_TEST(same(copied(p.model.bias.grad), bias));
}

BOOST_AUTO_TEST_CASE(only_the_parameters) {
    prepared<biased<double>, double> p;
    auto const x = draws<double>(3 * 5, 1);
    auto const dy = draws<double>(3 * 7, 2);
    auto const s = p.model.forward(p.ctx, matrix_view<double const, 5>(x.data(), extents<dyn, 5>(3)));
    p.model.backward(p.ctx, s, matrix_view<double const, 7>(dy.data(), extents<dyn, 7>(3)), no_gradient{});
    for (index_t j = 0; j < 7; ++j) {
        double want = 0;
        for (index_t r = 0; r < 3; ++r) want += dy[static_cast<std::size_t>(r * 7 + j)];
        BOOST_TEST(near(p.model.bias.grad[j], want, 1e-14));
    }
}

BOOST_AUTO_TEST_CASE(parameters_and_their_names) {
    biased<float> with;
    plain<float> without;
    BOOST_TEST(count_parameters(with) == 5 * 7 + 7);
    BOOST_TEST(count_parameters(without) == 27);
    auto const names = parameters<float>(with);
    BOOST_TEST(names[0].name == "weight");
    BOOST_TEST(names[1].name == "bias");
}
