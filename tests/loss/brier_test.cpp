#include "calm/loss/brier.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "calm/base/random.hpp"
#include "support/fixtures.hpp"

using calm::brier_scores;
using calm::brier_sequence;
using calm::token_id;
using calm::test::fixture;

namespace {

// Calls use(indices) for every tuple of `length` indices below `choices`.
template <class Use> void each_tuple(std::size_t length, std::size_t choices, Use&& use) {
    std::vector<std::size_t> tuple(length, 0);
    for (;;) {
        use(tuple);
        std::size_t i = 0;
        while (i < length && ++tuple[i] == choices) tuple[i++] = 0;
        if (i == length) return;
    }
}

std::vector<token_id> random_tokens(std::size_t n, std::uint32_t V, calm::random_sequence& random) {
    std::vector<token_id> tokens(n);
    for (auto& token : tokens) token = static_cast<token_id>(random.below(V));
    return tokens;
}

// A distribution over binary texts: the probability that 1 follows, in 0.05 .. 0.95, depends on all earlier tokens.
double probability_of_1(std::span<token_id const> before) {
    std::uint64_t number = 1;
    for (token_id const token : before) number = 2 * number + static_cast<std::uint64_t>(token);
    return 0.05 + 0.9 * static_cast<double>(calm::uniform(calm::key{.seed = 12}, number));
}
double probability_of(std::span<token_id const> tokens) {
    double p = 1.0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        double const one = probability_of_1(tokens.first(i));
        p *= tokens[i] == 1 ? one : 1.0 - one;
    }
    return p;
}

// Enumerates all outcomes of draws from that distribution: each pass of a loop `while (draws.next())` is one outcome,
// with known probability.
class every_way {
public:
    bool next() {
        if (!begun_) return begun_ = true;
        while (!choices_.empty() && choices_.back() == 1) choices_.pop_back();
        if (choices_.empty()) return false;
        choices_.back() = 1;
        at_ = 0;
        probability_ = 1.0;
        return true;
    }
    [[nodiscard]] double probability() const { return probability_; }

    // Fills `out` (m, K) with patches that follow `before`.
    void operator()(std::span<token_id const> before, std::size_t K, std::span<token_id> out) {
        for (std::size_t i = 0; i < out.size(); i += K) {
            std::vector<token_id> text(before.begin(), before.end());
            for (std::size_t k = 0; k < K; ++k) {
                double const one = probability_of_1(text);
                if (at_ == choices_.size()) choices_.push_back(0);
                text.push_back(out[i + k] = choices_[at_++]);
                probability_ *= text.back() == 1 ? one : 1.0 - one;
            }
        }
    }

private:
    std::vector<token_id> choices_;
    std::size_t at_ = 0;
    bool begun_ = false;
    double probability_ = 1.0;
};

// The expectation of Brier-1..4 with N samples and K < 4 tokens per patch, at the beginning of the text.
brier_scores expectation(std::size_t N, std::size_t K, std::span<token_id const> target) {
    std::size_t const patches = calm::brier_patches(K);
    std::array<double, 4> hits{};
    for (every_way draw; draw.next();) {
        std::vector<token_id> positions(patches * N * K);
        for (std::size_t p = 0; p < patches; ++p)
            draw(target.first(p * K), K, std::span(positions).subspan(p * N * K, N * K));
        auto const counts = calm::count_hits(positions, K, target);
        for (std::size_t n = 0; n < 4; ++n) hits[n] += draw.probability() * static_cast<double>(counts[n]);
    }
    std::array<double, 4> same{};
    for (every_way draw; draw.next();) {
        std::vector<token_id> samples(N * K);
        draw({}, K, samples);
        auto const counts = calm::count_pairs(
            samples, K, [&](std::span<token_id const> prefix, std::span<token_id> out) { draw(prefix, K, out); });
        for (std::size_t n = 0; n < 4; ++n) same[n] += draw.probability() * static_cast<double>(counts[n]);
    }
    auto const samples = static_cast<double>(N);
    brier_scores scores{};
    for (std::size_t n = 0; n < 4; ++n) scores[n] = 2 / samples * hits[n] - 2 / (samples * (samples - 1)) * same[n];
    return scores;
}

std::string thrown_by(auto&& call) {
    try {
        call();
    } catch (calm::error const& thrown) {
        return thrown.what();
    }
    return {};
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_reference_agrees) {
    for (char const* const variant : {"base", "two"}) {
        fixture const file(variant, "brier");
        auto const N = static_cast<std::size_t>(file.size("N"));
        auto const S = static_cast<std::size_t>(file.size("S"));
        auto const R = static_cast<std::size_t>(file.size("R"));
        auto const K = static_cast<std::size_t>(file.size("K"));
        auto const samples = file.integers<token_id>("in/samples");  // (N, S, R, K)
        auto const target = file.integers<token_id>("in/target");    // (S, R, K)
        for (std::string const name : {"all", "two"}) {
            auto const used = name == "all" ? N : 2;
            std::span<token_id const> const drawn(samples.data(), used * S * R * K);
            std::vector<double> positions;
            std::vector<brier_sequence> sequences(S);
            for (std::size_t p = 0; p < S * R; ++p) {
                calm::position_samples const rows(drawn.subspan(p * K), K, S * R * K);
                BOOST_REQUIRE(rows.size() == used);
                auto const scores = calm::brier_position(rows, std::span(target).subspan(p * K, K));
                sequences[p / R].add(scores);
                positions.insert(positions.end(), scores.begin(), scores.end());
            }
            using calm::test::kind;
            BOOST_TEST(close(positions, file.floats("out/" + name + "_positions"), kind::output));
            auto const report = calm::report_brier(sequences);
            BOOST_TEST(report.positions == static_cast<std::int64_t>(S * R));
            BOOST_TEST(close(report.brier, file.floats("out/" + name + "_brier"), kind::output));
            BOOST_TEST(close(report.brier_error.value(), file.floats("out/" + name + "_brier_se"), kind::output));
            auto const lm = file.floats("out/" + name + "_brier_lm");
            BOOST_TEST(report.brier_lm_error.has_value() == (report.brier_lm > 0));
            std::array const found{report.brier_lm, report.brier_lm_error.value_or(static_cast<double>(lm[1]))};
            BOOST_TEST(close(found, lm, kind::output));
        }
    }
}

BOOST_AUTO_TEST_CASE(uniform_tokens_score_their_closed_form_on_average) {
    // All targets and all samples of V = 2, K = 4 are equally likely: the plain mean is the expectation.
    constexpr std::size_t K = 4;
    for (std::size_t const N : {2U, 3U}) {
        brier_scores mean{};
        double count = 0;
        std::vector<token_id> samples(N * K);
        std::vector<token_id> target(K);
        each_tuple(N + 1, 16, [&](std::vector<std::size_t> const& patches) {
            for (std::size_t k = 0; k < K; ++k) {
                target[k] = static_cast<token_id>(patches[N] >> k & 1U);
                for (std::size_t i = 0; i < N; ++i) samples[i * K + k] = static_cast<token_id>(patches[i] >> k & 1U);
            }
            auto const scores = calm::brier_position(samples, target);
            for (std::size_t n = 0; n < 4; ++n) mean[n] += scores[n];
            ++count;
        });
        for (std::size_t n = 0; n < 4; ++n)
            BOOST_TEST(mean[n] / count == std::pow(2.0, -static_cast<double>(n + 1)),
                       boost::test_tools::tolerance(1e-12));
        for (double& value : mean) value /= count;
        BOOST_TEST(calm::brier_lm(mean) == 100.0 * std::pow(2.0, -2.5), boost::test_tools::tolerance(1e-12));
    }
}

BOOST_AUTO_TEST_CASE(any_number_of_samples_is_unbiased) {
    // Three patches of five tokens with probabilities 1/2, 0.3, 0.2, and every outcome of N draws.
    std::vector<std::vector<token_id>> const patches{{1, 2, 3, 4, 5}, {1, 2, 9, 4, 5}, {7, 2, 3, 4, 5}};
    std::vector<double> const P{0.5, 0.3, 0.2};
    brier_scores const want{2 * 0.8 - (0.8 * 0.8 + 0.2 * 0.2), 2 * 0.8 - (0.8 * 0.8 + 0.2 * 0.2),
                            2 * 0.5 - (0.25 + 0.09 + 0.04), 2 * 0.5 - (0.25 + 0.09 + 0.04)};
    for (std::size_t const N : {2U, 3U, 4U, 7U}) {
        brier_scores mean{};
        each_tuple(N, 3, [&](std::vector<std::size_t> const& drawn) {
            double probability = 1.0;
            std::vector<token_id> samples;
            for (auto const i : drawn) {
                probability *= P[i];
                samples.insert(samples.end(), patches[i].begin(), patches[i].end());
            }
            auto const scores = calm::brier_position(samples, patches[0]);
            for (std::size_t n = 0; n < 4; ++n) mean[n] += probability * scores[n];
        });
        for (std::size_t n = 0; n < 4; ++n) BOOST_TEST(mean[n] == want[n], boost::test_tools::tolerance(1e-12));
    }
}

BOOST_AUTO_TEST_CASE(short_patches_have_the_expectation_of_whole_ones) {
    // Every text of four tokens with its probability, and the exact scores for draws of four tokens at a time.
    std::vector<std::vector<token_id>> texts;
    each_tuple(4, 2, [&](std::vector<std::size_t> const& bits) { texts.emplace_back(bits.begin(), bits.end()); });
    brier_scores squares{};
    for (std::size_t n = 1; n <= 4; ++n)
        each_tuple(n, 2, [&](std::vector<std::size_t> const& bits) {
            std::vector<token_id> const text(bits.begin(), bits.end());
            squares[n - 1] += std::pow(probability_of(text), 2);
        });
    for (auto const& target : texts) {
        brier_scores exact{};
        for (std::size_t n = 0; n < 4; ++n) exact[n] = 2 * probability_of(std::span(target).first(n + 1)) - squares[n];
        // The rule for whole patches: two samples of K = 4 in all combinations.
        brier_scores whole{};
        for (auto const& a : texts)
            for (auto const& b : texts) {
                auto samples = a;
                samples.insert(samples.end(), b.begin(), b.end());
                auto const scores = calm::brier_position(samples, target);
                for (std::size_t n = 0; n < 4; ++n) whole[n] += probability_of(a) * probability_of(b) * scores[n];
            }
        for (std::size_t n = 0; n < 4; ++n) BOOST_TEST(whole[n] == exact[n], boost::test_tools::tolerance(1e-9));
        struct how {
            std::size_t N, K;
        };
        for (auto const [N, K] : {how{2, 2}, how{3, 2}, how{2, 1}, how{3, 1}, how{2, 3}}) {
            auto const scores = expectation(N, K, target);
            for (std::size_t n = 0; n < 4; ++n) BOOST_TEST(scores[n] == exact[n], boost::test_tools::tolerance(1e-9));
        }
    }
}

BOOST_AUTO_TEST_CASE(only_equal_samples_continue) {
    struct asked {
        std::vector<token_id> prefix;
        std::size_t samples;
        bool operator==(asked const&) const = default;
    };
    std::vector<asked> all;
    // K = 2: patches (1 2) three times, (1 3), (4 4) twice. All continuations draw (7 8).
    std::vector<token_id> const samples{1, 2, 4, 4, 1, 2, 1, 3, 4, 4, 1, 2};
    auto const same = calm::count_pairs(samples, 2, [&](std::span<token_id const> prefix, std::span<token_id> out) {
        all.push_back({{prefix.begin(), prefix.end()}, out.size() / 2});
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<token_id>(7 + i % 2);
    });
    BOOST_TEST((all == std::vector<asked>{{{1, 2}, 3}, {{4, 4}, 2}}));
    BOOST_TEST((same == calm::brier_counts{6 + 1, 3 + 1, 3 + 1, 3 + 1}));
    // K = 1, all equal: one hidden state per depth.
    all.clear();
    auto const one = calm::count_pairs(std::vector<token_id>(5, 0), 1,
                                       [&](std::span<token_id const> prefix, std::span<token_id> out) {
                                           all.push_back({{prefix.begin(), prefix.end()}, out.size()});
                                           std::fill(out.begin(), out.end(), 0);
                                       });
    BOOST_TEST((all == std::vector<asked>{{{0}, 5}, {{0, 0}, 5}, {{0, 0, 0}, 5}}));
    BOOST_TEST((one == calm::brier_counts{10, 10, 10, 10}));
    // Whole patches need no continuation and count as count_pairs of position_samples does.
    calm::random_sequence random(calm::key{.seed = 8});
    for (int round = 0; round < 50; ++round) {
        auto const whole = random_tokens(6 * 4, 2, random);
        auto const counts = calm::count_pairs(whole, 4, [](auto, auto) { BOOST_ERROR("nothing continues"); });
        BOOST_TEST((counts == calm::count_pairs(calm::position_samples(whole, 4))));
    }
}

BOOST_AUTO_TEST_CASE(a_perfect_model_of_a_deterministic_text_has_100) {
    std::vector<token_id> const target{5, 6, 7, 8};
    std::vector<token_id> samples;
    for (int i = 0; i < 8; ++i) samples.insert(samples.end(), target.begin(), target.end());
    auto const scores = calm::brier_position(samples, target);
    BOOST_TEST((scores == brier_scores{1, 1, 1, 1}));
    BOOST_TEST(calm::brier_lm(scores) == 100.0);
    // Constant wrong answers: -1.
    BOOST_TEST((calm::brier_position(samples, std::vector<token_id>{4, 6, 7, 8}) == brier_scores{-1, -1, -1, -1}));
}

BOOST_AUTO_TEST_CASE(brier_lm_is_zero_as_soon_as_one_score_is_not_positive) {
    BOOST_TEST(calm::brier_lm({0.5, 0.5, -0.5, -0.5}) == 0.0);
    BOOST_TEST(calm::brier_lm({0.5, 0.5, 0.0, 0.5}) == 0.0);
    BOOST_TEST(calm::brier_lm({std::nan(""), 0.5, 0.5, 0.5}) == 0.0);
    BOOST_TEST(calm::brier_lm({1e-200, 1e-200, 1e-200, 1e-200}) == 1e-198, boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(order_and_place_of_samples_change_nothing) {
    calm::random_sequence random(calm::key{.seed = 3});
    for (int round = 0; round < 200; ++round) {
        std::size_t const N = 2 + random.below(6);
        std::size_t const K = 4 + random.below(3);
        auto const target = random_tokens(K, 2, random);
        auto const samples = random_tokens(N * K, 2, random);
        auto const scores = calm::brier_position(samples, target);
        auto turned = samples;
        std::rotate(turned.begin(), turned.begin() + static_cast<std::ptrdiff_t>(K), turned.end());
        BOOST_TEST((calm::brier_position(turned, target) == scores));
        for (std::size_t n = 1; n < 4; ++n)
            BOOST_TEST(calm::count_hits({samples, K}, target)[n] <= calm::count_hits({samples, K}, target)[n - 1]);
        // Equal to the average over all pairs of two samples.
        brier_scores mean{};
        for (std::size_t i = 0; i < N; ++i)
            for (std::size_t j = 0; j < i; ++j) {
                std::vector<token_id> pair(samples.begin() + static_cast<std::ptrdiff_t>(i * K),
                                           samples.begin() + static_cast<std::ptrdiff_t>((i + 1) * K));
                pair.insert(pair.end(), samples.begin() + static_cast<std::ptrdiff_t>(j * K),
                            samples.begin() + static_cast<std::ptrdiff_t>((j + 1) * K));
                auto const two = calm::brier_position(pair, target);
                for (std::size_t n = 0; n < 4; ++n) mean[n] += two[n] * 2.0 / static_cast<double>(N * (N - 1));
            }
        for (std::size_t n = 0; n < 4; ++n) BOOST_TEST(std::abs(mean[n] - scores[n]) < 1e-12);
    }
}

BOOST_AUTO_TEST_CASE(jackknife_with_equal_counts_is_the_error_of_the_mean) {
    calm::random_sequence random(calm::key{.seed = 4});
    constexpr std::size_t S = 9;
    std::vector<brier_sequence> sequences(S);
    std::vector<double> means(S, 0.0);
    for (std::size_t s = 0; s < S; ++s)
        for (int i = 0; i < 12; ++i) {
            double const x = static_cast<double>(random.uniform());
            sequences[s].add({x, x, x, x});
            means[s] += x / 12;
        }
    double mean = 0;
    double variance = 0;
    for (double const m : means) mean += m / S;
    for (double const m : means) variance += (m - mean) * (m - mean) / (S - 1);
    auto const report = calm::report_brier(sequences);
    BOOST_TEST(report.brier[2] == mean, boost::test_tools::tolerance(1e-12));
    BOOST_TEST(report.brier_error.value()[2] == std::sqrt(variance / S), boost::test_tools::tolerance(1e-9));
    // With four equal scores BrierLM and its error are 100 times the score and its error.
    BOOST_TEST(report.brier_lm == 100 * mean, boost::test_tools::tolerance(1e-12));
    BOOST_TEST(report.brier_lm_error.value() == 100 * report.brier_error.value()[0],
               boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(jackknife_with_unequal_counts_leaves_whole_sequences_out) {
    calm::random_sequence random(calm::key{.seed = 6});
    std::vector<std::vector<brier_scores>> scores(5);
    std::vector<brier_sequence> sequences(5);
    for (std::size_t s = 0; s < 5; ++s)
        for (std::size_t i = 0; i < 1 + 7 * s; ++i) {
            brier_scores one{};
            for (double& value : one) value = static_cast<double>(random.uniform());
            scores[s].push_back(one);
            sequences[s].add(one);
        }
    std::vector<double> without;  // Brier-2 of all positions outside one sequence
    for (std::size_t out = 0; out < 5; ++out) {
        double sum = 0;
        double count = 0;
        for (std::size_t s = 0; s < 5; ++s)
            for (auto const& one : scores[s])
                if (s != out) {
                    sum += one[1];
                    ++count;
                }
        without.push_back(sum / count);
    }
    double mean = 0;
    double variance = 0;
    for (double const w : without) mean += w / 5;
    for (double const w : without) variance += (w - mean) * (w - mean) * 4 / 5;
    auto report = calm::report_brier(sequences);
    BOOST_TEST(report.brier_error.value()[1] == std::sqrt(variance), boost::test_tools::tolerance(1e-9));
    BOOST_TEST(report.positions == 75);
    BOOST_TEST(report.sequences == 5);
    // A sequence of padding only is not an observation.
    sequences.insert(sequences.begin() + 2, brier_sequence{});
    auto const padded = calm::report_brier(sequences);
    BOOST_TEST(padded.brier_error.value()[1] == report.brier_error.value()[1]);
    BOOST_TEST(padded.sequences == 5);
}

// If any score is not positive, BrierLM is 0 whatever the other scores are, so there is no error to estimate.
BOOST_AUTO_TEST_CASE(a_brier_lm_of_0_has_no_error) {
    std::vector<brier_sequence> sequences(3);
    for (auto& one : sequences) one.add({0.5, 0.25, 0.125, 0.01});
    sequences[0].sum[3] = -0.02;
    auto const none = calm::report_brier(sequences);
    BOOST_TEST(none.brier[3] == 0.0);
    BOOST_TEST(none.brier_lm == 0.0);
    BOOST_TEST(none.brier_error.has_value());
    BOOST_TEST(!none.brier_lm_error.has_value());
    sequences[0].sum[3] = -0.01;
    BOOST_TEST(calm::report_brier(sequences).brier_lm > 0);
    BOOST_TEST(calm::report_brier(sequences).brier_lm_error.has_value());
}

BOOST_AUTO_TEST_CASE(one_sequence_has_no_error) {
    std::vector<brier_sequence> sequences(1);
    sequences[0].add({0.1, 0.2, 0.3, 0.4});
    auto const report = calm::report_brier(sequences);
    BOOST_TEST(!report.brier_error.has_value());
    BOOST_TEST(!report.brier_lm_error.has_value());
    BOOST_TEST((report.brier == brier_scores{0.1, 0.2, 0.3, 0.4}));
    sequences.emplace_back();
    BOOST_TEST(!calm::report_brier(sequences).brier_error.has_value());
    BOOST_TEST(thrown_by([] { (void)calm::report_brier({}); }).find("no position was counted") != std::string::npos);
}

// Which positions count depends on what was read, never on the target.
BOOST_AUTO_TEST_CASE(positions_between_documents_or_near_the_end_of_a_block_do_not_count) {
    constexpr token_id eos = 98, pad = 99;
    std::vector<token_id> const block{0, 1, 2, 3, eos, pad, pad, 7};
    BOOST_TEST(calm::is_counted(0, calm::brier_target(block, 1, 4), eos, pad));  // 1 2 3 EOS
    BOOST_TEST(calm::is_counted(3, calm::brier_target(block, 4, 4), eos, pad));  // EOS PAD PAD 7
    BOOST_TEST(!calm::is_counted(eos, calm::brier_target(block, 4, 4), eos, pad));
    BOOST_TEST(!calm::is_counted(pad, calm::brier_target(block, 0, 4), eos, pad));
    BOOST_TEST(!calm::is_counted(3, calm::brier_target(block, 5, 2), eos, pad));  // past the block
    BOOST_TEST(calm::brier_target(block, 4, 8).empty());
    BOOST_TEST(calm::brier_target(block, 9, 1).empty());
    BOOST_TEST(calm::brier_target(block, 1, 1).size() == 4U);
}

BOOST_AUTO_TEST_CASE(impossible_samples_are_errors) {
    std::vector<token_id> const tokens(12, 0);
    std::span<token_id const> const all(tokens);
    BOOST_TEST(thrown_by([&] {
                   (void)calm::brier_position(all.first(4), all.first(4));
               }).find("at least two samples") != std::string::npos);
    BOOST_TEST(thrown_by([&] { (void)calm::brier_position(all, all.first(3)); }).find("at least 4 tokens") !=
               std::string::npos);
    BOOST_TEST(thrown_by([&] { (void)calm::brier_position(all, all.first(5)); }).find("a multiple of K") !=
               std::string::npos);
    BOOST_TEST(thrown_by([&] { (void)calm::position_samples(all, 4, 3); }).find("do not overlap") != std::string::npos);
}
