// Texts of an autoregressive model: which settings affect the tokens, and which do not.
#include <algorithm>

#include "calm/model/autoregressive.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/sample/generate.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr autoregressive_configuration C{.llama = {.hidden_size = 16,
                                                   .intermediate_size = 24,
                                                   .num_hidden_layers = 2,
                                                   .num_attention_heads = 2,
                                                   .num_key_value_heads = 1}};
constexpr index_t V = 9;
constexpr special_tokens special{.bos = 6, .eos = 7, .pad = 8};
using model_type = autoregressive_model<C>;

struct random_model {
    owned_model<model_type> own{V, model_mode::inference};
    random_model() {
        context<> ctx(11, 1);
        initialise(ctx, own.model);
        for (auto const& p : parameters_of(own.model))
            if (p.decays) evaluate(ctx, p.value, p.value * 20.0);
    }
};

std::vector<std::vector<token_id>> some_prompts() {
    return {{0, 1, 2}, {}, {3, 3, 3, 3, 3, 3}, {5}, {1, 0, 4, 2, 5, 3, 0, 1}};
}

// The most likely token after a text, by a full forward pass.
token_id likeliest(model_type const& model, std::vector<token_id> const& text) {
    context<> ctx(1, 1);
    auto const n = static_cast<index_t>(text.size());
    auto const hidden = model.forward(ctx, {text.data(), extents<dyn>(n)}, n).y;
    std::vector<float> logits(static_cast<std::size_t>(V));
    model.logits(ctx, {logits.data(), extents<dyn, dyn>(1, V)},
                 matrix_view<float const, model_type::D>(rows(hidden, n - 1, 1)));
    return static_cast<token_id>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

BOOST_AUTO_TEST_CASE(prompts_begin_with_bos_if_the_tokenizer_adds_it) {
    std::vector<token_id> const prompt{1, 2}, none;
    using tokens = std::vector<token_id>;
    special_tokens without = special;
    without.bos_first = false;
    BOOST_TEST(after_bos(special, prompt) == (tokens{special.bos, 1, 2}));
    BOOST_TEST(after_bos(without, prompt) == prompt);
    BOOST_TEST(after_bos(without, none) == (tokens{special.bos}));
    BOOST_TEST(after_bos({-1, -1, -1}, none).empty());
}

BOOST_AUTO_TEST_CASE(greedy_texts_take_the_likeliest_token_each_time) {
    random_model m;
    context<> ctx(1, 2);
    auto const prompts = some_prompts();
    auto const made = generate(ctx, m.own.model, std::span(prompts), special, {.sampler = {.T = 0}, .max_tokens = 12});
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        auto text = after_bos(special, prompts[i]);
        std::vector<token_id> want;
        while (want.size() < 12) {
            token_id const next = likeliest(m.own.model, text);
            if (next == special.eos) break;
            want.push_back(next);
            text.push_back(next);
        }
        BOOST_TEST(made[i].tokens == want);
        BOOST_TEST(made[i].stopped_at_eos == (want.size() < 12));
        BOOST_TEST(made[i].draws == made[i].patches);
    }
}

// Any of the ends ends a text, and EOS only if it is one of them.
BOOST_AUTO_TEST_CASE(a_text_ends_at_each_of_its_ends) {
    random_model m;
    context<> ctx(1, 2);
    std::vector<token_id> const prompt{0, 1, 2};
    auto const text_until = [&](std::vector<token_id> ends) {
        return generate(ctx, m.own.model, prompt, special_tokens{.bos = 6, .eos = -1, .pad = 8},
                        {.sampler = {.T = 0.9}, .max_tokens = 30, .seed = 5, .ends = std::move(ends)});
    };
    auto const whole = text_until({}).tokens;
    BOOST_TEST(whole.size() == 30U);
    auto const first = [&](token_id id) { return std::find(whole.begin(), whole.end(), id); };
    token_id const early = whole[3], late = *std::find_if(whole.begin() + 4, whole.end(),
                                                          [&](token_id id) { return first(id) > whole.begin() + 4; });
    for (auto const& ends : {std::vector{early, late}, std::vector{late, early}, std::vector{late}}) {
        auto const end = std::min(first(ends.front()), first(ends.back()));
        auto const made = text_until(ends);
        BOOST_TEST(made.stopped_at_eos);
        BOOST_TEST(made.tokens == std::vector<token_id>(whole.begin(), end), boost::test_tools::per_element());
    }
    // The vocabulary's EOS is not among them.
    auto const made = generate(ctx, m.own.model, prompt, special_tokens{.bos = 6, .eos = early, .pad = 8},
                               {.sampler = {.T = 0.9}, .max_tokens = 30, .seed = 5, .ends = {late}});
    BOOST_TEST(made.tokens == std::vector<token_id>(whole.begin(), first(late)), boost::test_tools::per_element());
}

// First tokens of many texts follow the model's distribution: every frequency within five standard errors.
BOOST_AUTO_TEST_CASE(texts_follow_the_probabilities) {
    random_model m;
    context<> ctx(1, 2);
    std::vector<token_id> const prompt{0, 1, 2};
    auto const text = after_bos(special, prompt);
    auto const n = static_cast<index_t>(text.size());
    auto const hidden = m.own.model.forward(ctx, {text.data(), extents<dyn>(n)}, n).y;
    categorical_distribution distribution;
    for_each_logits(ctx, m.own.model, matrix_view<float const, model_type::D>(rows(hidden, n - 1, 1)),
                    [&](index_t, auto logits) { distribution.set(logits, {.T = 0.5}); });
    constexpr int texts = 20'000;
    std::vector<std::vector<token_id>> const prompts(texts, prompt);
    auto const made = generate(ctx, m.own.model, std::span(prompts), special,
                               {.sampler = {.T = 0.5}, .max_tokens = 1, .seed = 5, .at_once = 64});
    std::vector<int> counts(static_cast<std::size_t>(V));
    for (auto const& one : made) ++counts[static_cast<std::size_t>(one.stopped_at_eos ? special.eos : one.tokens[0])];
    for (token_id id = 0; id < V; ++id) {
        double const p = distribution.probability(id);
        double const error = std::sqrt(p * (1 - p) / texts);
        BOOST_TEST(std::abs(counts[static_cast<std::size_t>(id)] / double(texts) - p) <= 5 * error + 1e-12, id);
    }
}

BOOST_AUTO_TEST_CASE(a_text_depends_only_on_its_number) {
    random_model m;
    auto const prompts = some_prompts();
    token_generation_settings settings{.sampler = {.T = 0.9, .top_k = 6}, .max_tokens = 20, .seed = 3};
    auto const texts_of = [&](index_t at_once, int threads) {
        context<> ctx(1, threads);
        settings.at_once = at_once;
        std::vector<std::vector<token_id>> all;
        for (auto const& one : generate(ctx, m.own.model, std::span(prompts), special, settings))
            all.push_back(one.tokens);
        return all;
    };
    auto const want = texts_of(5, 1);
    BOOST_TEST((texts_of(1, 1) == want));
    BOOST_TEST((texts_of(2, 3) == want));
    settings.prompt_number = 3;
    context<> ctx(1, 1);
    auto const alone = generate(ctx, m.own.model, std::span<token_id const>(prompts[3]), special, settings);
    BOOST_TEST(alone.tokens == want[3]);
    settings.prompt_number = 0;
    settings.seed = 4;
    BOOST_TEST((texts_of(5, 1) != want));
}

BOOST_AUTO_TEST_CASE(tokens_come_as_they_are_made_and_a_text_can_be_ended) {
    random_model m;
    context<> ctx(1, 1);
    std::vector<token_id> const prompt{2};
    std::vector<token_id> told;
    auto const made = generate(ctx, m.own.model, std::span(prompt), special, {.sampler = {.T = 2}, .max_tokens = 30},
                               [&](std::span<token_id const> fresh) {
                                   BOOST_TEST(fresh.size() == 1);
                                   told.insert(told.end(), fresh.begin(), fresh.end());
                                   return told.size() < 4;
                               });
    BOOST_TEST(told.size() <= 4);
    BOOST_TEST(made.tokens == told);
}
