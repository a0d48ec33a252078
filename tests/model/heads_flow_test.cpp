#include <boost/mpl/transform.hpp>

#include <set>

#include "calm/model/calm.hpp"
#include "calm/model/heads/flow.hpp"
#include "support/heads.hpp"
#include "support/statistics.hpp"

using namespace calm;
using namespace calm::test;

namespace {

template <class Variant> struct flow_variant {
    static constexpr configuration<flow> value =
        with_head(Variant::value, flow{.num_mlp_layers = Variant::value.head.num_mlp_layers});
    static char const* name() { return variant_name<Variant::value>(); }
    using backend = typename Variant::backend;
};
using flow_variants = boost::mpl::transform<variants_on_devices, flow_variant<boost::mpl::_1>>::type;

constexpr configuration<flow> small_flow = with_head(uneven, flow{.num_mlp_layers = 2});
template <class T> using checked_flow = flow_head<small_flow, space<cpu, T>>;
template <class On> using flow_on = flow_head<small_flow, space<typename On::backend, typename On::scalar>>;

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(the_flow_head_agrees_with_the_reference, variant, flow_variants) {
    using backend = typename variant::backend;
    using head = flow_head<variant::value, space<backend>>;
    constexpr index_t D = head::D, L = head::L;
    fixture const f(variant::name(), "head_flow");
    context<backend> ctx(1, 2);
    arena<backend> values("values");
    arena<backend> gradients("gradients");
    head model;
    allocate(model, values, &gradients);
    load_parameters(parameters_of(model), f);

    auto const hidden = placed<backend>(f.floats("in/hidden"));
    auto const start = placed<backend>(f.floats("in/start"));
    own_noise<float, L, backend> const noise{numbers<float, backend>(start.size()), start, f.floats("in/t")};
    check_training(ctx, model, f, noise);

    for (auto const& [sampling, name] : {std::pair<flow_sampling, char const*>{{}, "out/midpoint_10"},
                                         {{.steps = 4, .order = 2}, "out/midpoint_4"},
                                         {{.steps = 20, .order = 1}, "out/euler_20"}}) {
        model.sampling = sampling;
        auto z = start;
        model.follow(ctx, out_rows<backend, L>(z), in_rows<backend, D>(hidden));
        BOOST_TEST(close(copied(z), f.floats(name), kind::output), name);
    }
}

BOOST_AUTO_TEST_CASE(the_gradients_of_flow_matching_by_the_complex_step) {
    constexpr index_t L = checked_flow<double>::L, R = 2, N = 3;
    check_head_by_complex_step<checked_flow>(
        R, N, [](auto& ctx, auto& head, auto const& hidden, auto const& mean, auto const& log_std, auto const& noise) {
            std::vector<complex> x, wanted;
            std::vector<std::int32_t> steps;
            for (index_t i = 0; i < R * N * L; ++i) {
                index_t const of = i / L / N * L + i % L;
                complex const t = noise.times[i / L];
                complex const target = mean[of] + std::exp(log_std[of]) * noise.targets[i];
                x.push_back((1.0 - t) * noise.samples[i] + t * target);
                wanted.push_back(target - noise.samples[i]);
                if (i % L == 0) steps.push_back(static_cast<std::int32_t>(static_cast<float>(t.real()) * 1000.0F));
            }
            auto const v = head.net.forward(ctx, in_rows<cpu, L>(x), {steps.data(), extents<dyn>(R * N)}, hidden).y[0];
            complex loss{};
            for (index_t i = 0; i < R * N * L; ++i)
                loss += (v[i] - wanted[static_cast<std::size_t>(i)]) * (v[i] - wanted[static_cast<std::size_t>(i)]) /
                        static_cast<double>(N * L);
            return loss;
        });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(flow_matching_trains_on_the_noise_of_its_positions, on, test_devices) {
    check_keyed_training<flow_on<on>>(300, 8);
}

BOOST_AUTO_TEST_CASE(threads_change_no_bit_of_flow_matching_and_a_dry_run_takes_its_memory) {
    check_step_laws<checked_flow<float>>(300, 8);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(paths_begin_in_the_noise_of_their_places, on, test_devices) {
    using head = flow_on<on>;
    check_draws_by_place<head>({}, block_backend<typename on::backend>);
    // A zero network leaves every path at its start: the normals of the sample's number, scaled.
    using T = typename on::scalar;
    prepared<head, T, typename on::backend> p({}, 2);
    initialise(p.ctx, p.model);
    std::vector<row_rng> const rngs{{{17, stream::generation, 5}, 2}, {{18, stream::evaluation, 6}, 0}};
    constexpr index_t N = 3, L = head::L;
    for (double const scale : {1.0, 0.25}) {
        auto const z = sampled_at<head>(p, draws<T>(2 * head::D, 1), N, rngs, scale);
        std::vector<double> want;
        for (auto const& [draws_of, first] : rngs)
            for (index_t i = 0; i < N * L; ++i)
                want.push_back(scale * normal<double>(draws_of, static_cast<std::uint64_t>(first * L + i)));
        BOOST_TEST(close(z, want, kind::output));
    }
}

// Compared with the integration rules in double, one row at a time, with the network as in training.
BOOST_AUTO_TEST_CASE(paths_are_followed_in_any_number_of_steps) {
    using head = checked_flow<double>;
    constexpr index_t R = 2, N = 3, D = head::D, L = head::L;
    prepared<head, double> p({}, 1, 0.3);
    auto const hidden = draws<double>(R * D, 1);
    auto const start = draws<double>(R * N * L, 2);
    auto const velocity = [&](std::vector<double> const& x, float time) {
        arena_scope const scope(p.ctx.saved);
        std::vector<std::int32_t> const steps(R * N, static_cast<std::int32_t>(time * 1000.0F));
        return copied(
            p.model.net.forward(p.ctx, in_rows<cpu, L>(x), {steps.data(), extents<dyn>(R * N)}, in_rows<cpu, D>(hidden))
                .y[0]);
    };
    auto const plus = [](std::vector<double> x, std::vector<double> const& v, double span) {
        for (std::size_t i = 0; i < x.size(); ++i) x[i] += span * v[i];
        return x;
    };
    for (index_t const steps : {1, 3, 7})
        for (index_t const order : {1, 2}) {
            auto want = start;
            double const dt = 1.0 / static_cast<double>(steps);
            for (index_t i = 0; i < steps; ++i) {
                auto const time = static_cast<float>(static_cast<double>(i) / static_cast<double>(steps));
                auto v = velocity(want, time);
                if (order == 2) v = velocity(plus(want, v, dt / 2), time + static_cast<float>(dt / 2));
                want = plus(want, v, dt);
            }
            p.model.sampling = {.steps = steps, .order = order};
            auto z = start;
            p.model.follow(p.ctx, out_rows<cpu, L>(z), in_rows<cpu, D>(hidden));
            BOOST_TEST(close_to(std::span<double const>(z), std::span<double const>(want), 1e-12, 1e-12));
        }
    auto z = start;
    p.model.sampling.order = 3;
    BOOST_CHECK_EXCEPTION(p.model.follow(p.ctx, out_rows<cpu, L>(z), in_rows<cpu, D>(hidden)), error,
                          says(errc::usage, "expected order 1", "found 3"));
    p.model.sampling.steps = 0;
    BOOST_CHECK_EXCEPTION(p.model.follow(p.ctx, out_rows<cpu, L>(z), in_rows<cpu, D>(hidden)), error,
                          says(errc::usage, "at least one step", "found 0"));
}

// In fp32 arithmetic. In fp64 every thousandth would be its own step, and every midpoint the step below it.
BOOST_AUTO_TEST_CASE(steps_of_times_are_rounded_as_published) {
    std::set<int> below;  // thousandths that fp32 rounds to the previous step
    for (int i = 0; i < 1000; ++i) {
        int const step = path_step(static_cast<float>(i / 1000.0));
        BOOST_TEST((step == i || step == i - 1));
        if (step != i) below.insert(i);
    }
    BOOST_TEST((below == std::set<int>{251, 253, 502, 506, 511}));
    auto const middle = [](int i, int steps) {
        return path_step(static_cast<float>(static_cast<double>(i) / steps) + static_cast<float>(0.5 / steps));
    };
    for (auto const& [i, step] : {std::pair{3, 175}, {13, 674}, {14, 724}, {18, 924}, {19, 974}})
        BOOST_TEST(middle(i, 20) == step);
    for (auto const& [i, step] : {std::pair{2, 99}, {3, 140}, {4, 179}, {5, 220}}) BOOST_TEST(middle(i, 25) == step);
}

// Linear layers use Xavier-uniform initialisation, the time embedding normal(0, 0.02); modulation and output are 0,
// gains 1, biases 0. A correct generator fails for one in a million seeds and parameters; the seed is fixed.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_flow_head_starts_as_published, on, test_devices) {
    using T = typename on::scalar;
    using backend = typename on::backend;
    flow_on<on> model;
    arena<backend> values("values");
    allocate(model, values, static_cast<arena<backend>*>(nullptr));
    context<backend> ctx(5, 2);
    initialise(ctx, model);
    int uniform_ones = 0, normal_ones = 0, zero_ones = 0;
    for (auto const& p : parameters_of(model)) {
        auto const has = [&](char const* part) { return p.name.find(part) != std::string::npos; };
        auto const value = copied(p.value);
        auto const is = [&](T want) { return std::count(value.begin(), value.end(), want) == std::ssize(value); };
        std::vector<double> const x(value.begin(), value.end());
        if (has(".bias")) {
            BOOST_TEST(is(T(0)), p.name);
        } else if (has("in_ln")) {
            BOOST_TEST(is(T(1)), p.name);
        } else if (has("adaLN_modulation") || has("final_layer")) {
            BOOST_TEST(is(T(0)), p.name);
            ++zero_ones;
        } else if (has("time_embed")) {
            BOOST_TEST(smirnov_p_value(x, [](double v) { return normal_cdf(v / 0.02); }) > 1e-6, p.name);
            ++normal_ones;
        } else {
            double const bound = std::sqrt(6.0 / static_cast<double>(p.shape[0] + p.shape[1]));
            BOOST_TEST(*std::max_element(x.begin(), x.end()) <= bound * (1 + 1e-6));
            BOOST_TEST(*std::min_element(x.begin(), x.end()) >= -bound * (1 + 1e-6));
            BOOST_TEST(smirnov_p_value(x, [&](double v) { return (v / bound + 1) / 2; }) > 1e-6, p.name);
            ++uniform_ones;
        }
    }
    BOOST_TEST(uniform_ones == 6);  // condition, input, two per block
    BOOST_TEST(normal_ones == 2);
    BOOST_TEST(zero_ones == 4);  // one per block, two in the last layer
}

// All matrix products for each sample are counted: the expected FLOPs follow from the network's parameters.
BOOST_AUTO_TEST_CASE(the_flops_of_a_flow_head_follow_from_its_matrices) {
    checked_flow<float> head;
    double shared = 0, sample = 0, first = 0;
    for (auto const& p : parameters_of(head)) {
        double const work = 2.0 * static_cast<double>(p.value.size());
        if (p.shape.size() == 2) (p.name == "net.cond_embed.weight" ? shared : sample) += work;
        if (p.name == "net.time_embed.mlp.0.weight" || p.name == "net.input_proj.weight") first += work;
    }
    auto const counted = small_flow.head.flops({head.D, head.L});
    BOOST_TEST(counted.shared == shared);
    BOOST_TEST(counted.trained == sample - first / 3);  // the inputs get no gradients
    BOOST_TEST(counted.drawn == 20 * sample);
}

// A whole language model with the head, used as in sessions.
BOOST_AUTO_TEST_CASE(a_language_model_trains_and_samples_with_a_flow_head) {
    owned_model<calm_model<small_flow>> own(13);
    context<> ctx(3, 2);
    initialise(ctx, own.model);
    initialise(ctx, own.model.ae_model);
    std::vector<token_id> const tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    double const loss = own.model.loss_and_gradient(ctx, as_vector(tokens), 3, {.samples = 4});
    BOOST_TEST(std::isfinite(loss));
    for (auto const& p : parameters_of(own.model)) BOOST_TEST(*p.received_gradients > 0, p.name);
    std::vector<token_id> drawn(6);
    auto const hidden = draws<float>(12, 1);
    row_rng const place{{17, stream::generation, 0}, 0};
    own.model.sample_patches(ctx, {drawn.data(), extents<dyn>(6)}, in_rows<cpu, 12>(hidden), 3, std::span(&place, 1));
    for (auto const id : drawn) BOOST_TEST((id >= 0 && id < 13));
}
