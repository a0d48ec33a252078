#include <boost/test/unit_test.hpp>

#include <cstring>

#include "calm/model/owned_model.hpp"
#include "calm/train/loop.hpp"

#include "support/small.hpp"

using namespace calm;
using calm::test::small;
using calm::test::weights_of;

namespace {

using model_type = calm_model<small>;
using autoencoder_type = model_type::autoencoder_type;

// Counts up modulo the vocabulary: easy to learn, and independent of the micro-batch size.
struct counting_source {
    token_id next = 0;
    void operator()(std::span<token_id> tokens) {
        for (auto& t : tokens) t = std::exchange(next, (next + 1) % 11);
    }
};

// A model with random parameters, including a frozen autoencoder.
template <class Model> owned_model<Model> drawn(std::uint64_t seed) {
    owned_model<Model> own(small.autoencoder.vocab_size);
    context<> const ctx(seed, 1);
    initialise(ctx, own.model);
    if constexpr (requires { own.model.ae_model; }) initialise(ctx, own.model.ae_model);
    return own;
}

autoencoder_recipe autoencoder_steps(index_t steps, index_t accumulation = 1) {
    autoencoder_recipe r;
    r.steps = steps;
    r.accumulation = accumulation;
    r.batch_tokens = 64;
    r.learning_rate = 3e-3;
    r.warmup = 5;
    return r;
}

calm_recipe<energy_objective> calm_steps(index_t steps, index_t accumulation = 1) {
    calm_recipe<energy_objective> r;
    r.steps = steps;
    r.accumulation = accumulation;
    r.sequences = 4;
    r.block_tokens = 16;
    r.learning_rate = 1e-3;
    r.optimizer.muon = 0;
    r.objective = {.samples = 3, .targets = 4};
    return r;
}

std::vector<float> autoencoder_after(autoencoder_recipe const& r, int threads,
                                     training_callbacks const& callbacks = {}) {
    auto own = drawn<autoencoder_type>(3);
    context<> ctx(3, threads);
    train_autoencoder(ctx, own.model, counting_source{}, r, callbacks);
    return weights_of(own.model);
}

std::vector<float> calm_after(calm_recipe<energy_objective> const& r, int threads,
                              training_callbacks const& callbacks = {}) {
    auto own = drawn<model_type>(3);
    context<> ctx(3, threads);
    train_calm(ctx, own.model, counting_source{}, r, callbacks);
    return weights_of(own.model);
}

bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double largest_difference(std::vector<float> const& a, std::vector<float> const& b) {
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, static_cast<double>(std::abs(a[i] - b[i])));
    return most;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_threads_change_no_bit) {
    auto ae = autoencoder_steps(4);
    ae.random_patches = 0.3;
    BOOST_TEST(same_bits(autoencoder_after(ae, 1), autoencoder_after(ae, 3)));
    BOOST_TEST(same_bits(calm_after(calm_steps(4), 1), calm_after(calm_steps(4), 3)));
}

BOOST_AUTO_TEST_CASE(accumulated_micro_batches_are_one_large_batch) {
    auto whole = autoencoder_steps(1);
    auto parts = autoencoder_steps(1, 4);
    for (auto* const r : {&whole, &parts}) r->optimizer.eps = 1e-3;  // makes the step follow the gradient's size
    whole.random_patches = parts.random_patches = 0.3;
    BOOST_TEST(largest_difference(autoencoder_after(whole, 2), autoencoder_after(parts, 2)) < 1e-6);

    auto one = calm_steps(1);
    auto two = calm_steps(1, 2);
    one.optimizer.eps = two.optimizer.eps = 1e-3;
    BOOST_TEST(largest_difference(calm_after(one, 2), calm_after(two, 2)) < 1e-6);
}

BOOST_AUTO_TEST_CASE(losses_fall_and_every_step_is_reported) {
    std::vector<progress> told;
    training_callbacks callbacks;
    callbacks.step = [&](progress const& now) { told.push_back(now); };
    auto r = autoencoder_steps(150);
    r.objective.dropout = 0;
    r.machine_peak = 1e15;
    autoencoder_after(r, 2, callbacks);
    BOOST_TEST(told.size() == 150U);
    BOOST_TEST(told.front().step == 0);
    BOOST_TEST(told.back().step == 149);
    BOOST_TEST(told.back().cross_entropy < 0.5 * told.front().cross_entropy);
    BOOST_TEST(told.back().loss == 2 * told.back().cross_entropy + 1e-3 * told.back().kl,
               boost::test_tools::tolerance(1e-6));
    BOOST_TEST(told.back().posterior_std > 0);
    BOOST_TEST(told.back().gradient_norm > 0);
    BOOST_TEST(told.front().learning_rate == 3e-3 / 5, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(told.back().learning_rate == 3e-3);
    BOOST_TEST(told.back().tokens_per_second > 0);
    BOOST_TEST(told.back().share_of_peak > 0);
    BOOST_TEST(told.back().seconds_left == 0);
    BOOST_TEST(told.back().done == 1);

    told.clear();
    auto quick = calm_steps(60);
    quick.learning_rate = 3e-3;
    quick.warmup = 5;
    calm_after(quick, 2, callbacks);
    BOOST_TEST(told.back().loss < 0.9 * told.front().loss);
    BOOST_TEST(std::isnan(told.back().kl));
}

BOOST_AUTO_TEST_CASE(the_plan_comes_first_and_a_step_stays_within_it) {
    auto own = drawn<model_type>(1);
    context<> ctx(1, 2);
    memory_plan plan;
    std::size_t most = 0;
    training_callbacks callbacks;
    callbacks.start = [&](memory_plan const& p) {
        BOOST_TEST(most == 0U);
        plan = p;
    };
    callbacks.step = [&](progress const& now) { most = std::max(most, now.memory); };
    train_calm(ctx, own.model, counting_source{}, calm_steps(3), callbacks);
    BOOST_TEST(plan.parts.size() == 5U);
    for (auto const& part : plan.parts) BOOST_TEST(part.bytes > 0U, part.name);
    BOOST_TEST(plan.parts[2].bytes == 2 * plan.parts[1].bytes);
    BOOST_TEST(most == plan.total());
}

BOOST_AUTO_TEST_CASE(intervals_a_fifth_and_stopping) {
    std::vector<index_t> evaluated;
    std::vector<index_t> saved;
    index_t steps = 0;
    training_callbacks callbacks;
    callbacks.step = [&](progress const&) { ++steps; };
    callbacks.evaluate = [&](progress const& now) { evaluated.push_back(now.step + 1); };
    callbacks.save = [&](progress const& now) { saved.push_back(now.step + 1); };
    auto r = calm_steps(20);
    r.evaluate_every = 7;
    calm_after(r, 2, callbacks);
    BOOST_TEST(evaluated == (std::vector<index_t>{4, 7, 14}));
    BOOST_TEST(saved == (std::vector<index_t>{2, 4, 6, 8, 10, 12, 14, 16, 18}));
    steps = 0;
    callbacks.stop = [&] { return steps == 3; };
    calm_after(r, 2, callbacks);
    BOOST_TEST(steps == 3);

    steps = 0;
    callbacks.stop = nullptr;
    r.steps = 0;
    r.seconds = 0.1;
    calm_after(r, 2, callbacks);
    BOOST_TEST(steps > 0);
}

// The learning rate follows the progress before each step, also after resuming.
BOOST_AUTO_TEST_CASE(a_cosine_without_steps_falls_over_the_time) {
    auto r = calm_steps(0);
    r.warmup = 2;
    r.schedule = learning_rate_schedule::cosine;
    auto const rate = schedule::cosine_of_time(r.learning_rate, r.warmup);
    std::vector<progress> told;
    training_callbacks callbacks;
    callbacks.step = [&](progress const& now) { told.push_back(now); };
    // Long enough on this machine for some steps after the warm-up.
    for (r.seconds = 0.2; told.size() <= 4; r.seconds *= 2) {
        told.clear();
        calm_after(r, 1, callbacks);
    }
    double done = 0;
    for (std::size_t i = 0; i < told.size(); ++i) {
        BOOST_TEST(told[i].learning_rate == rate(told[i].step, done));
        if (i > 2) BOOST_TEST(told[i].learning_rate < told[i - 1].learning_rate);
        done = told[i].done;
    }
    BOOST_TEST(done >= 1);

    told.clear();
    callbacks.resume = [&](training_state& state) {
        state.step = state.updates = 7;
        state.seconds = r.seconds / 2;
    };
    callbacks.stop = [] { return true; };
    calm_after(r, 1, callbacks);
    BOOST_TEST_REQUIRE(!told.empty());
    BOOST_TEST(told.front().learning_rate == rate(7, 0.5));
}

BOOST_AUTO_TEST_CASE(random_patches_are_keyed_and_have_the_given_rate) {
    context<> ctx(5, 1);
    std::vector<token_id> all(4000, 7);
    detail::put_random_patches(ctx.random(stream::random_patches), all, 2, 1000, 0.25, 0);
    auto const changed = 4000 - std::count(all.begin(), all.end(), 7);
    BOOST_TEST(changed > 850);
    BOOST_TEST(changed < 1150);
    std::vector<token_id> second(2000, 7);
    detail::put_random_patches(ctx.random(stream::random_patches), second, 2, 1000, 0.25, 1000);
    BOOST_TEST(std::equal(second.begin(), second.end(), all.begin() + 2000));
}

BOOST_AUTO_TEST_CASE(recipes_that_cannot_be_are_refused) {
    auto const refused = [](auto&& change) {
        auto r = calm_steps(2);
        change(r);
        BOOST_CHECK_EXCEPTION(calm_after(r, 1), error, [](error const& e) { return e.code() == errc::usage; });
    };
    refused([](auto& r) { r.steps = 0; });
    refused([](auto& r) { r.schedule = learning_rate_schedule::cosine, r.warmup = 2; });
    refused([](auto& r) { r.accumulation = 3; });
    refused([](auto& r) { r.accumulation = 0; });
    refused([](auto& r) { r.block_tokens = 17; });
    refused([](auto& r) { r.block_tokens = 2; });
    refused([](auto& r) { r.learning_rate = 0; });
}

BOOST_AUTO_TEST_CASE(a_loss_that_is_not_finite_stops_before_the_update) {
    auto own = drawn<autoencoder_type>(3);
    own.model.hidden_to_latent.bias.value[8] = 1000;  // a log_std whose exp is infinite
    auto const before = weights_of(own.model);
    context<> ctx(3, 1);
    BOOST_CHECK_EXCEPTION(
        train_autoencoder(ctx, own.model, counting_source{}, autoencoder_steps(2)), error, [](error const& e) {
            return e.code() == errc::non_finite && std::string(e.what()).find("step 0") != std::string::npos;
        });
    BOOST_TEST(same_bits(weights_of(own.model), before));
}

BOOST_AUTO_TEST_CASE(sizes_that_overflow_are_refused) {
    constexpr index_t most = std::numeric_limits<index_t>::max();
    auto const refused = [](auto&& change) {
        auto r = calm_steps(2);
        change(r);
        try {
            calm_after(r, 1);
        } catch (error const& e) {
            BOOST_TEST((e.code() == errc::usage || e.code() == errc::memory));
            return std::string(e.what());
        }
        return std::string();
    };
    auto const says = [](std::string const& text, char const* part) {
        BOOST_TEST(text.find(part) != std::string::npos, text << " lacks " << part);
    };
    says(refused([](auto& r) { r.sequences = most; }), "a step of at most 2147483647 tokens");
    says(refused([](auto& r) { r.sequences = index_t{1} << 55; }), "a step of at most 2147483647 tokens");
    says(refused([](auto& r) { r.block_tokens = most - 1; }), "a step of at most 2147483647 tokens");
    says(refused([](auto& r) { r.accumulation = most; }),
         "as many sequences as memory can hold, found 9223372036854775807 x 1");
    says(refused([](auto& r) { r.objective.samples = most; }), "at most 4096 samples");
    says(refused([](auto& r) { r.objective.targets = most; }), "10000 targets");
    says(refused([](auto& r) { r.steps = most; }), "at most 4294967295 steps");
    says(refused([](auto& r) { r.seconds = std::numeric_limits<double>::infinity(); }), "a finite time");
    auto a = autoencoder_steps(2);
    a.accumulation = most;
    BOOST_CHECK_EXCEPTION(autoencoder_after(a, 1), error, [](error const& e) { return e.code() == errc::memory; });
    a.accumulation = 1;
    a.batch_tokens = most / 2 * 2;
    BOOST_CHECK_EXCEPTION(autoencoder_after(a, 1), error, [](error const& e) { return e.code() == errc::usage; });
}
