#include "calm/nn/param.hpp"

#include "calm/nn/linear.hpp"
#include "calm/nn/norm.hpp"
#include "calm/nn/sequential.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {
using model_type = sequential<linear<40, 60>, silu_layer<60>, layer_norm_layer<60>, linear<60, 5>>;
struct owned {
    arena<> values{"values"};
    arena<> gradients{"gradients"};
};
}  // namespace

BOOST_AUTO_TEST_CASE(the_published_initialisation) {
    context<> const ctx(3, 2);
    owned m;
    model_type model;
    model.layer<3>().weight.starts = role::output;
    allocate(model, m.values, &m.gradients);
    initialise(ctx, model);
    auto const& w = model.layer<0>().weight.value;
    double mean = 0;
    double square = 0;
    for (float const v : w) mean += static_cast<double>(v), square += static_cast<double>(v) * static_cast<double>(v);
    auto const n = static_cast<double>(w.size());
    BOOST_TEST(std::abs(mean / n) < 5 * 0.02 / std::sqrt(n));
    BOOST_TEST(std::abs(std::sqrt(square / n) / 0.02 - 1) < 0.05);
    auto const all = [](auto const& v, float want) { return std::count(v.begin(), v.end(), want) == v.size(); };
    BOOST_TEST(all(model.layer<0>().bias.value, 0));
    BOOST_TEST(all(model.layer<2>().weight.value, 1));
    BOOST_TEST(all(model.layer<2>().bias.value, 0));
    BOOST_TEST(all(model.layer<3>().weight.value, 0));
    BOOST_TEST(all(model.layer<0>().weight.grad, 0));
}

BOOST_AUTO_TEST_CASE(the_seed_decides_and_the_threads_do_not) {
    std::vector<std::vector<float>> all;
    for (auto const& [seed, threads] : {std::pair(3U, 1), std::pair(3U, 3), std::pair(4U, 1)}) {
        context<> const ctx(seed, threads);
        owned m;
        model_type model;
        allocate(model, m.values, &m.gradients);
        initialise(ctx, model);
        all.push_back(copied(model.layer<0>().weight.value));
        all.push_back(copied(model.layer<3>().weight.value));
    }
    BOOST_CHECK((all[0] == all[2] && all[1] == all[3]));
    BOOST_CHECK((all[0] != all[4]));
    // parameters draw different numbers
    BOOST_CHECK((std::vector<float>(all[0].begin(), all[0].begin() + 300) != all[1]));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(every_device_initialises_a_model_equally, on, test_devices) {
    using T = typename on::scalar;
    using backend = typename on::backend;
    sequential<linear<9, 20, with_bias::yes, space<backend, T>>, layer_norm_layer<20, space<backend, T>>,
               linear<20, 7, with_bias::yes, space<backend, T>>>
        model;
    sequential<linear<9, 20, with_bias::yes, space<cpu, double>>, layer_norm_layer<20, space<cpu, double>>,
               linear<20, 7, with_bias::yes, space<cpu, double>>>
        reference;
    arena<backend> values{"values"};
    arena<> reference_values{"values"};
    model.template layer<2>().weight.starts = reference.template layer<2>().weight.starts = role::xavier;
    allocate(model, values, static_cast<arena<backend>*>(nullptr));
    allocate(reference, reference_values, static_cast<arena<>*>(nullptr));
    initialise(typename on::context(3, 2), model);
    initialise(context<>(3, 1), reference);
    auto const got = parameters_of(model);
    auto const want = parameters_of(reference);
    for (std::size_t k = 0; k < want.size(); ++k)
        for (index_t i = 0; i < want[k].value.size(); ++i)
            BOOST_TEST(std::abs(static_cast<double>(opened(got[k].value)[i]) - want[k].value[i]) <= 1e-6);
}

// Xavier-uniform initialisation (Glorot and Bengio): [-b, b) with b = sqrt(6 / (inputs + outputs)) and variance b^2 /
// 3.
BOOST_AUTO_TEST_CASE(a_matrix_may_start_uniform) {
    context<> const ctx(3, 2);
    owned m;
    model_type model;
    model.layer<0>().weight.starts = role::xavier;
    allocate(model, m.values, &m.gradients);
    initialise(ctx, model);
    double const bound = std::sqrt(6.0 / (40 + 60));
    double mean = 0, square = 0, most = 0;
    auto const& w = model.layer<0>().weight.value;
    auto const n = static_cast<double>(w.size());
    for (float const v : w) {
        auto const x = static_cast<double>(v) / bound;
        mean += x / n, square += x * x / n, most = std::max(most, std::abs(x));
    }
    BOOST_TEST(most <= 1 + 1e-6);
    BOOST_TEST(most > 0.99);
    // Within 4.9 standard deviations: variances 1/3 and 1/5 - 1/9 over n.
    BOOST_TEST(std::abs(mean) < 4.9 * std::sqrt(1.0 / 3 / n));
    BOOST_TEST(std::abs(square - 1.0 / 3) < 4.9 * std::sqrt(4.0 / 45 / n));

    model.layer<0>().bias.starts = role::xavier;
    BOOST_CHECK_EXCEPTION(initialise(ctx, model), error, says(errc::usage, "role::xavier", "found 1 dimensions"));
}

BOOST_AUTO_TEST_CASE(a_frozen_model_has_no_gradients) {
    owned m;
    model_type model;
    allocate(model, m.values, static_cast<arena<>*>(nullptr));
    BOOST_TEST(model.layer<0>().weight.grad.data() == nullptr);
    BOOST_TEST(m.gradients.peak() == 0U);
    BOOST_TEST(m.values.used() >= static_cast<std::size_t>(count_parameters(model)) * sizeof(float));
}

BOOST_AUTO_TEST_CASE(gradients_and_weight_decay_per_parameter) {
    owned m;
    model_type model;
    allocate(model, m.values, &m.gradients);
    auto& weight = model.layer<0>().weight;
    BOOST_TEST(weight.received_gradients == 0);
    BOOST_TEST(weight.gradient().data() == weight.grad.data());
    BOOST_TEST(weight.received_gradients == 1);
    static_assert(std::remove_reference_t<decltype(model.layer<0>().weight)>::decays);
    static_assert(!std::remove_reference_t<decltype(model.layer<0>().bias)>::decays);
    static_assert(!std::remove_reference_t<decltype(model.layer<2>().weight)>::decays);
}
