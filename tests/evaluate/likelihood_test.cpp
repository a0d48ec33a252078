// Scores of an autoregressive model compared with sums over all possible continuations.
#include <cmath>

#include "calm/evaluate/evaluate.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/train/session.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr autoregressive_configuration C{.llama = {.hidden_size = 8,
                                                   .intermediate_size = 12,
                                                   .num_hidden_layers = 1,
                                                   .num_attention_heads = 2,
                                                   .num_key_value_heads = 1}};
constexpr index_t V = 5, P = 9;
constexpr special_tokens special{.bos = -1, .eos = -1, .pad = 4};
using model_type = autoregressive_model<C>;

// Weights large enough to prefer some tokens.
struct random_model {
    owned_model<model_type> own{V, model_mode::inference};
    random_model() {
        context<> ctx(11, 1);
        initialise(ctx, own.model);
        for (auto const& p : parameters_of(own.model))
            if (p.decays) evaluate(ctx, p.value, p.value * 40.0);
    }
};

std::vector<token_id> random_text(index_t n, std::uint64_t seed) {
    random_sequence random({seed, stream::markov_text, 0});
    std::vector<token_id> tokens;
    for (index_t i = 0; i < n; ++i) tokens.push_back(static_cast<token_id>(random.below(4)));  // no PAD
    return tokens;
}

// Probabilities of the token after a text, by a full forward pass.
std::vector<double> after(model_type& model, std::vector<token_id> const& text) {
    context<> ctx(1, 1);
    auto const n = static_cast<index_t>(text.size());
    auto const hidden = model.forward(ctx, {text.data(), extents<dyn>(n)}, n).y;
    std::vector<float> logits(static_cast<std::size_t>(V));
    model.logits(ctx, {logits.data(), extents<dyn, dyn>(1, V)},
                 matrix_view<float const, model_type::D>(rows(hidden, n - 1, 1)));
    double total = 0;
    std::vector<double> p;
    for (float const z : logits) total += p.emplace_back(std::exp(static_cast<double>(z)));
    for (auto& one : p) one /= total;
    return p;
}

// The sum of P(x_1 .. x_n)^2 after a text.
double collisions(model_type& model, std::vector<token_id>& text, int n) {
    auto const p = after(model, text);
    double sum = 0;
    for (token_id x = 0; x < V; ++x) {
        double rest = 1;
        if (n > 1) {
            text.push_back(x);
            rest = collisions(model, text, n - 1);
            text.pop_back();
        }
        auto const own = p[static_cast<std::size_t>(x)];
        sum += own * own * rest;
    }
    return sum;
}

// Brier-1..4 of one scored position.
brier_scores enumerated(model_type& model, std::vector<token_id> const& block, std::size_t position) {
    std::vector<token_id> text(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(position) + 1);
    brier_scores scores{};
    double probability = 1;
    auto before = text;
    for (int n = 1; n <= 4; ++n) {
        auto const next = block[position + static_cast<std::size_t>(n)];
        probability *= after(model, before)[static_cast<std::size_t>(next)];
        before.push_back(next);
        scores[static_cast<std::size_t>(n) - 1] = 2 * probability - collisions(model, text, n);
    }
    return scores;
}

token_evaluation_settings settings_of(std::uint64_t seed, index_t samples = 4) {
    return {.block_tokens = P, .samples = samples, .seed = seed};
}

}  // namespace

// In a block of 9 tokens, predictions 0 .. 4 have four tokens after them. Brier-1 is exact. For Brier-2..4 the mean
// over 400 seeds is within five standard errors of the sum over all texts.
BOOST_AUTO_TEST_CASE(scores_are_unbiased) {
    random_model m;
    auto const text = random_text(P, 3);
    brier_scores want{};
    for (std::size_t p = 0; p < 5; ++p) {
        auto const one = enumerated(m.own.model, text, p);
        for (std::size_t n = 0; n < brier_orders; ++n) want[n] += one[n] / 5;
    }
    constexpr int seeds = 400;
    brier_scores mean{}, squares{};
    for (int seed = 0; seed < seeds; ++seed) {
        context<> ctx(1, 1);
        auto const e = evaluate_model(ctx, m.own.model, std::span<token_id const>(text), special, nullptr,
                                      settings_of(static_cast<std::uint64_t>(seed)));
        BOOST_REQUIRE_EQUAL(e.positions, 5);
        for (std::size_t n = 0; n < brier_orders; ++n) {
            mean[n] += (*e.brier)[n] / seeds;
            squares[n] += (*e.brier)[n] * (*e.brier)[n] / seeds;
        }
    }
    BOOST_TEST(std::abs(mean[0] - want[0]) < 1e-6);
    for (std::size_t n = 1; n < brier_orders; ++n) {
        double const error = std::sqrt((squares[n] - mean[n] * mean[n]) / seeds);
        BOOST_TEST(error > 0);
        BOOST_TEST(std::abs(mean[n] - want[n]) < 5 * error + 1e-6,
                   "Brier-" << n + 1 << ": " << mean[n] << " +- " << error << ", expected " << want[n]);
    }
}

BOOST_AUTO_TEST_CASE(cross_entropy_matches_training_and_bits_are_of_the_bytes) {
    random_model m;
    auto const text = random_text(3 * P, 5);
    context<> ctx(1, 2);
    std::vector<index_t> const bytes{1, 2, 3, 4, 0};
    auto const e = evaluate_model(ctx, m.own.model, std::span<token_id const>(text), special, nullptr, settings_of(1),
                                  std::span(bytes));
    owned_model<model_type> twin(V);
    copy_parameters(context<>(), twin.model, m.own.model);
    double const loss = twin.model.loss_and_gradient(ctx, {text.data(), extents<dyn>(3 * P)}, P);
    BOOST_TEST(*e.cross_entropy == loss, boost::test_tools::tolerance(1e-6));
    BOOST_TEST(*e.perplexity == std::exp(loss), boost::test_tools::tolerance(1e-5));
    index_t all = 0;
    for (std::size_t i = 0; i < text.size(); ++i)
        if (i % P > 0) all += bytes[static_cast<std::size_t>(text[i])];
    BOOST_TEST(*e.bits_per_byte == loss * 3 * (P - 1) / std::log(2.0) / static_cast<double>(all),
               boost::test_tools::tolerance(1e-6));
    BOOST_TEST(*e.bits_per_byte_se > 0);
    BOOST_TEST(!e.head_loss.has_value());
    auto const without =
        evaluate_model(ctx, m.own.model, std::span<token_id const>(text), special, nullptr, settings_of(1));
    BOOST_TEST(!without.bits_per_byte.has_value());
}

// With zero weights every token is equally likely.
BOOST_AUTO_TEST_CASE(a_model_that_knows_nothing_has_the_closed_forms) {
    owned_model<model_type> own(V, model_mode::inference);
    auto const text = random_text(40 * P, 9);
    context<> ctx(1, 1);
    auto const e =
        evaluate_model(ctx, own.model, std::span<token_id const>(text), special, nullptr, settings_of(1, 64));
    BOOST_TEST(*e.perplexity == V, boost::test_tools::tolerance(1e-6));
    for (std::size_t n = 0; n < brier_orders; ++n) {
        double const want = std::pow(V, -static_cast<double>(n) - 1);
        double const error = n == 0 ? 0 : (*e.brier_se)[n];
        BOOST_TEST(std::abs((*e.brier)[n] - want) <= 5 * error + 1e-7, "Brier-" << n + 1);
    }
}

// A sampling rule changes the distribution that is scored, but not the cross-entropy.
BOOST_AUTO_TEST_CASE(a_rule_is_scored_by_its_own_distribution) {
    random_model m;
    auto const text = random_text(4 * P, 6);
    context<> ctx(1, 1);
    auto settings = settings_of(1);
    auto const usual = evaluate_model(ctx, m.own.model, std::span<token_id const>(text), special, nullptr, settings);
    settings.sampler = {.T = 0};
    auto const greedy = evaluate_model(ctx, m.own.model, std::span<token_id const>(text), special, nullptr, settings);
    BOOST_TEST(*greedy.cross_entropy == *usual.cross_entropy);
    // For a deterministic distribution: 2 [hit] - 1, with the fraction of most likely tokens that are right.
    index_t hits = 0, count = 0;
    for (index_t b = 0; b < 4; ++b)
        for (index_t p = 0; p < 5; ++p) {
            auto const begin = text.begin() + b * P;
            auto const law = after(m.own.model, {begin, begin + p + 1});
            hits += std::max_element(law.begin(), law.end()) - law.begin() == begin[p + 1] ? 1 : 0;
            ++count;
        }
    BOOST_TEST((*greedy.brier)[0] == 2 * static_cast<double>(hits) / static_cast<double>(count) - 1,
               boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(a_subset_of_positions_has_the_scores_it_has_among_all) {
    random_model m;
    auto const text = random_text(6 * P, 8);
    context<> ctx(1, 1);
    auto settings = settings_of(2);
    auto const all = evaluate_model(ctx, m.own.model, std::span<token_id const>(text), special, nullptr, settings);
    settings.positions = 30;  // all positions
    auto const same = evaluate_model(ctx, m.own.model, std::span<token_id const>(text), special, nullptr, settings);
    BOOST_TEST(same.positions == 30);
    for (std::size_t n = 0; n < brier_orders; ++n) BOOST_TEST((*same.brier)[n] == (*all.brier)[n]);
    settings.positions = 7;
    auto const some = evaluate_model(ctx, m.own.model, std::span<token_id const>(text), special, nullptr, settings);
    BOOST_TEST(some.positions == 7);
}

BOOST_AUTO_TEST_CASE(invalid_evaluations_are_refused) {
    random_model m;
    context<> ctx(1, 1);
    auto text = random_text(P, 8);
    text[3] = V;
    BOOST_CHECK_EXCEPTION(
        evaluate_model(ctx, m.own.model, std::span<token_id const>(text), special, nullptr, settings_of(1)), error,
        says(errc::tokenizer, "5 is outside"));
    text[3] = 0;
    std::vector<index_t> const bytes(3, 1);
    BOOST_CHECK_EXCEPTION(
        evaluate_model(ctx, m.own.model, std::span<token_id const>(text), special, nullptr, settings_of(1),
                       std::span(bytes)),
        error,
        says(errc::usage, "expected the bytes of every token of the vocabulary of 5, found the bytes of 3 tokens"));
    std::vector<token_id> const only_pad(static_cast<std::size_t>(P), special.pad);
    BOOST_CHECK_EXCEPTION(
        evaluate_model(ctx, m.own.model, std::span<token_id const>(only_pad), special, nullptr, settings_of(1)), error,
        says(errc::data, "no position was counted"));
}
