#include <boost/test/unit_test.hpp>

#include <cmath>
#include <vector>

#include "calm/emulated.hpp"
#include "calm/tensor/ops/bf16_products.hpp"
#include "calm/text/stories.hpp"
#include "calm/train/session.hpp"

#include "support/sentences.hpp"
#include "support/small.hpp"

using namespace calm;
using calm::test::has;
using calm::test::small;

namespace {

// Bytes as ids, in patches of two.
corpus letters() {
    corpus text({256, 257, 258});
    for (auto const& story : stories(60)) {
        std::vector<token_id> ids(story.begin(), story.end());
        text.add(std::span<token_id const>(ids));
    }
    return text;
}

struct trained {
    std::vector<double> losses;
    std::vector<float> weights;
    std::size_t value_bytes = 0;  // planned
};

constexpr auto nearest = weight_rounding::nearest, stochastic = weight_rounding::stochastic;

// Trains an autoencoder with batches of 512 tokens and a fixed seed.
template <class Backend = cpu>
trained steps_of(corpus const& text, int threads, bool in_bf16, weight_rounding rounding = nearest) {
    constexpr index_t K = small.autoencoder.patch_size;
    context<Backend> ctx(3, threads);
    if (in_bf16) multiply_in_bf16(ctx);
    auto own = make_autoencoder<small>(ctx, 259);
    trained result;
    autoencoder_recipe recipe;
    recipe.steps = 120;
    recipe.learning_rate = 3e-3;
    recipe.warmup = 10;
    recipe.batch_tokens = 512;
    recipe.rounding = rounding;
    auto callbacks = every_steps(1, [&](progress const& now) { result.losses.push_back(now.loss); });
    callbacks.start = [&](memory_plan const& plan) { result.value_bytes = plan.parts.front().bytes; };
    train_autoencoder(ctx, own.model, text_blocks(text, K, K), recipe, callbacks);
    std::vector<float> room;
    for (auto const& p : parameters_of(own.model)) {
        auto const values = to_host(ctx, p.value, room);
        result.weights.insert(result.weights.end(), values.begin(), values.end());
    }
    return result;
}

// Trained on the cpu in fp32 and in bf16, once for all cases: the number of threads changes no bit.
trained const& in_fp32() {
    static auto const one = steps_of(letters(), 1, false);
    return one;
}
trained const& in_bf16() {
    static auto const one = steps_of(letters(), 1, true);
    return one;
}

double mean_of_last(std::vector<double> const& losses, std::size_t n) {
    double sum = 0;
    for (auto i = losses.size() - n; i < losses.size(); ++i) sum += losses[i];
    return sum / static_cast<double>(n);
}

}  // namespace

// Training in bf16 learns as in fp32: final losses agree within a hundredth, after falling by a fifth. First losses
// differ only by rounding. Results are bit-identical for any number of threads.
BOOST_AUTO_TEST_CASE(training_in_bf16_loses_as_in_fp32) {
    auto const text = letters();
    auto const& whole = in_fp32();
    auto const& half = in_bf16();
    BOOST_REQUIRE(whole.losses.size() == 120U);
    BOOST_REQUIRE(half.losses.size() == 120U);
    BOOST_TEST((whole.weights != half.weights));
    BOOST_TEST(std::abs(half.losses[0] / whole.losses[0] - 1) < 1e-3);
    BOOST_TEST(half.losses[0] != whole.losses[0]);
    double const expected = mean_of_last(whole.losses, 20);
    BOOST_TEST(expected < 0.8 * whole.losses[0]);
    BOOST_TEST(std::abs(mean_of_last(half.losses, 20) / expected - 1) < 0.01);
    auto const threads = steps_of(text, 3, true);
    BOOST_TEST((threads.losses == half.losses));
    BOOST_TEST((threads.weights == half.weights));
}

// On a device, which has separate rounding kernels: losses within a hundredth of the cpu's and of the device's fp32.
// The first loss equals the cpu's bf16 loss up to summation order.
BOOST_AUTO_TEST_CASE(a_device_learns_in_bf16_as_the_cpu_does) {
    auto const text = letters();
    auto const& cpu_half = in_bf16();
    auto const whole = steps_of<emulated>(text, 2, false);
    auto const half = steps_of<emulated>(text, 2, true);
    BOOST_REQUIRE(half.losses.size() == 120U);
    BOOST_TEST((whole.weights != half.weights));
    BOOST_TEST(half.losses[0] != whole.losses[0]);
    BOOST_TEST(std::abs(half.losses[0] / cpu_half.losses[0] - 1) < 1e-3);
    BOOST_TEST(std::abs(mean_of_last(half.losses, 20) / mean_of_last(whole.losses, 20) - 1) < 0.01);
    BOOST_TEST(std::abs(mean_of_last(half.losses, 20) / mean_of_last(cpu_half.losses, 20) - 1) < 0.01);
}

// Stochastic rounding of weights learns as well, and the memory plan includes the copies. Results are bit-identical for
// any number of threads.
BOOST_AUTO_TEST_CASE(training_with_weights_rounded_at_random_loses_as_in_fp32) {
    auto const text = letters();
    auto const& whole = in_fp32();
    auto const& rounded = in_bf16();
    auto const random = steps_of(text, 1, true, stochastic);
    BOOST_REQUIRE(random.losses.size() == 120U);
    BOOST_TEST(random.losses[0] != rounded.losses[0]);
    BOOST_TEST(std::abs(random.losses[0] / whole.losses[0] - 1) < 1e-3);
    BOOST_TEST(std::abs(mean_of_last(random.losses, 20) / mean_of_last(whole.losses, 20) - 1) < 0.01);
    BOOST_TEST(rounded.value_bytes == whole.value_bytes);
    BOOST_TEST(random.value_bytes > whole.value_bytes);
    BOOST_TEST(random.value_bytes <= 2 * whole.value_bytes);
    auto const threads = steps_of(text, 3, true, stochastic);
    BOOST_TEST((threads.losses == random.losses));
    BOOST_TEST((threads.weights == random.weights));
}

BOOST_AUTO_TEST_CASE(weights_of_products_in_fp32_are_not_rounded_at_random) {
    auto const text = letters();
    auto const is_usage = [](error const& e) {
        return e.code() == errc::usage && has(e.what(), "call multiply_in_bf16 for it");
    };
    BOOST_CHECK_EXCEPTION(steps_of(text, 1, false, stochastic), error, is_usage);
    BOOST_CHECK_EXCEPTION(steps_of<emulated>(text, 1, false, stochastic), error, is_usage);
}
