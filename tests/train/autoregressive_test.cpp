// Training of an autoregressive model, at token level and with patch-level training first.
#include <numeric>

#include "calm/model/owned_model.hpp"
#include "calm/train/loop.hpp"
#include "support/small.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr autoregressive_configuration C{.llama = llama_sizes_of(small)};
constexpr index_t V = 11;
using model_type = autoregressive_model<C>;

autoregressive_recipe steps(index_t n) {
    autoregressive_recipe r;
    r.steps = n;
    r.warmup = 4;
    r.learning_rate = 3e-3;
    r.optimizer.muon = 0;
    r.sequences = 4;
    r.block_tokens = 12;
    return r;
}

// 0 1 2 .. 10 0 1 ..: every token determines the next.
struct counting {
    index_t next = 0;
    void operator()(std::span<token_id> tokens) {
        for (auto& token : tokens) token = static_cast<token_id>(next++ % V);
    }
};

struct run_of {
    owned_model<model_type> own{V};
    std::vector<progress> told;
    training_state last;
    std::vector<std::vector<std::byte>> optimizer_state;

    explicit run_of(autoregressive_recipe const& r, index_t stop_after = -1, run_of const* from = nullptr,
                    int threads = 1) {
        context<> ctx(5, threads);
        initialise(ctx, own.model);
        if (from != nullptr) copy(*from);
        training_callbacks callbacks;
        counting text;
        callbacks.resume = [&](training_state& state) {
            if (from == nullptr) return;
            text.next = from->told.back().tokens;
            auto const mine = state.optimizer_state;
            state = from->last;
            state.optimizer_state = mine;
            for (std::size_t i = 0; i < mine.size(); ++i)
                std::ranges::copy(from->optimizer_state[i], mine[i].bytes.begin());
        };
        callbacks.step = [&](progress const& now) { told.push_back(now); };
        callbacks.checkpoint = [&](training_state const& state, state_after) {
            last = state;
            optimizer_state.clear();
            for (auto const& one : state.optimizer_state)
                optimizer_state.emplace_back(one.bytes.begin(), one.bytes.end());
        };
        callbacks.stop = [&] { return static_cast<index_t>(told.size()) == stop_after; };
        train_autoregressive(ctx, own.model, text, r, callbacks);
    }
    void copy(run_of const& from) {
        auto const theirs = parameters_of(const_cast<run_of&>(from).own.model);
        auto const mine = parameters_of(own.model);
        for (std::size_t i = 0; i < mine.size(); ++i)
            std::copy_n(theirs[i].value.data(), mine[i].value.size(), mine[i].value.data());
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_deterministic_text_is_learned) {
    run_of const run(steps(150));
    BOOST_TEST(run.told.front().loss == std::log(double(V)), boost::test_tools::tolerance(0.02));
    BOOST_TEST(run.told.back().loss < 0.1);
    BOOST_TEST(run.told.back().tokens == 150 * 4 * 12);
    BOOST_TEST(!run.told.front().first_phase);
    BOOST_TEST(std::isnan(run.told.back().kl));
}

BOOST_AUTO_TEST_CASE(micro_batches_and_threads_change_only_rounding) {
    auto r = steps(3);
    r.optimizer.eps = 1e-3;
    run_of whole(r);
    r.accumulation = 4;
    run_of parts(r);
    auto const a = weights_of(whole.own.model), b = weights_of(parts.own.model);
    for (std::size_t i = 0; i < a.size(); ++i) BOOST_REQUIRE_SMALL(a[i] - b[i], 1e-6F);
    r.accumulation = 1;
    run_of threads(r, -1, nullptr, 3);
    BOOST_TEST((weights_of(threads.own.model) == a));
}

// lambda = 2/3 of the tokens at K = 4 costs half and takes a third of the steps: (2/3 / 4) / (1/2).
BOOST_AUTO_TEST_CASE(costs_and_shares_of_patch_level_training) {
    patch_level const two_thirds{.patch = 4, .share = 2.0 / 3};
    BOOST_TEST(two_thirds.cost() == 0.5, boost::test_tools::tolerance(1e-12));
    BOOST_TEST(two_thirds.first_phase() == 1.0 / 3, boost::test_tools::tolerance(1e-12));
    BOOST_TEST(patch_level{}.cost() == 1);
    BOOST_TEST(patch_level{}.first_phase() == 0);
    auto r = steps(30);
    r.level = two_thirds;
    run_of const run(r);
    // Ten steps with 4 x 12 positions of 4 tokens, then twenty with single tokens: two thirds of all tokens.
    BOOST_REQUIRE_EQUAL(run.told.size(), 30U);
    for (std::size_t i = 0; i < 30; ++i) BOOST_TEST(run.told[i].first_phase == (i < 10), i);
    BOOST_TEST(run.told[9].tokens == 10 * 4 * 4 * 12);
    BOOST_TEST(run.told[29].tokens == (10 * 4 + 20) * 4 * 12);
    BOOST_TEST(static_cast<double>(run.told[9].tokens) / static_cast<double>(run.told[29].tokens) == 2.0 / 3,
               boost::test_tools::tolerance(1e-12));
    BOOST_TEST(run.last.first_phase_steps == 10);
}

// Each phase has its own warm-up and decay.
BOOST_AUTO_TEST_CASE(each_phase_has_its_own_rate) {
    auto r = steps(30);
    r.level = {.patch = 4, .share = 2.0 / 3};
    r.schedule = learning_rate_schedule::cosine;
    run_of const run(r);
    auto const first = schedule::cosine(r.learning_rate, r.warmup, 10),
               second = schedule::cosine(r.learning_rate, r.warmup, 20);
    for (index_t i = 0; i < 30; ++i)
        BOOST_TEST(run.told[static_cast<std::size_t>(i)].learning_rate == (i < 10 ? first(i) : second(i - 10)), i);
}

// Resumed after a stop in the first phase, at its end and in the second, a run reaches the weights of an uninterrupted
// run.
BOOST_AUTO_TEST_CASE(a_run_of_two_phases_resumes_bit_for_bit) {
    auto r = steps(12);
    r.level = {.patch = 2, .share = 0.5};
    run_of undisturbed(r);
    auto const want = weights_of(undisturbed.own.model);
    for (index_t const at : {2, 4, 5, 9}) {
        run_of const begun(r, at);
        run_of gone_on(r, -1, &begun);
        BOOST_TEST((weights_of(gone_on.own.model) == want), at);
        BOOST_TEST(gone_on.told.back().tokens == undisturbed.told.back().tokens);
    }
}

BOOST_AUTO_TEST_CASE(the_second_phase_begins_with_the_weights_of_the_first) {
    auto r = steps(80);
    r.level = {.patch = 4, .share = 0.8};
    run_of const run(r);
    auto const second = std::ranges::find_if(run.told, [](auto const& now) { return !now.first_phase; });
    BOOST_REQUIRE(second != run.told.end());
    run_of first(r, second->step);
    BOOST_TEST(first.told.back().loss < 0.8 * first.told.front().loss);
    counting text{first.told.back().tokens};
    std::vector<token_id> tokens(4 * 12);
    text(tokens);
    context<> ctx(5, 1);
    double const loss = first.own.model.loss_and_gradient(ctx, {tokens.data(), extents<dyn>(4 * 12)}, 12);
    BOOST_TEST(loss == second->loss);
}

BOOST_AUTO_TEST_CASE(recipes_that_cannot_be_are_refused) {
    auto const refused = [](autoregressive_recipe const& r, char const* sentence) {
        BOOST_CHECK_EXCEPTION(run_of{r}, error, says(errc::usage, sentence));
    };
    auto r = steps(3);
    r.block_tokens = 1;
    refused(r, "expected blocks of at least 2 tokens, found 1");
    r = steps(3);
    r.level = {.patch = 0, .share = 0.5};
    refused(r,
            "expected a patch level of at least 1 token and a share of the tokens from 0 to below 1, found 0 and 0.5");
    r.level = {.patch = 4, .share = 1};
    refused(r, "from 0 to below 1, found 4 and 1");
    r = steps(10);
    r.level = {.patch = 4, .share = 0.5};
    r.schedule = learning_rate_schedule::cosine;
    r.warmup = 4;
    refused(r, "expected more steps in total than the 4 of warm-up, found 2");
    r = steps(3);
    r.sequences = 3;
    r.accumulation = 2;
    refused(r, "expected a batch that is a multiple of 2 sequences");
}
