#pragma once
/// \file
/// Results of an evaluation: a value, a JSON line for programs, a table for people.
/// \shows{tests/evaluate/evaluate_test.cpp,an_evaluation_is_one_json_object_and_a_table}

#include <array>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/evaluate/detail/metric.hpp"
#include "calm/loss/brier.hpp"

namespace calm {

/// Reconstruction by an autoencoder. Accuracies are fractions of tokens, 0 .. 1.
struct autoencoder_evaluation {
    double token_accuracy = 0;            ///< of the posterior's mean, without PAD
    double token_accuracy_posterior = 0;  ///< of a draw from the posterior
    double posterior_std = 0;             ///< mean of exp(log_std)
    double cross_entropy = 0;             ///< of that draw, mean over all tokens including PAD, in nats
    index_t patches = 0;                  ///< number scored
};

/// Results of an evaluation; values that do not apply are empty.
struct evaluation {
    std::optional<brier_scores> brier;               ///< Brier-1 .. Brier-4
    std::optional<brier_scores> brier_se;            ///< one standard error each; empty with a single sequence
    std::optional<double> brier_lm;                  ///< in 0 .. 100, higher is better
    std::optional<double> brier_lm_se;               ///< one standard error; empty for a BrierLM of 0
    index_t positions = 0;                           ///< scored
    index_t sequences = 0;                           ///< blocks with a scored position
    index_t skipped = 0;                             ///< positions skipped: no document continues there
    index_t block = 0;                               ///< tokens per block
    std::string mode = "padded";                     ///< how documents are packed into blocks
    index_t samples = 0;                             ///< N per position
    std::uint64_t seed = 0;                          ///< of all noise
    std::optional<brier_scores> unigram_brier;       ///< of token frequencies, if a table was given
    std::optional<brier_scores> bigram_brier;        ///< of bigram frequencies, if a table was given
    std::optional<double> bigram_brier_lm;           ///< in 0 .. 100
    std::optional<brier_scores> optimal_brier;       ///< if the source is known
    std::optional<double> optimal_brier_lm;          ///< in 0 .. 100
    std::optional<double> head_loss;                 ///< mean over all predictions, if an objective was given
    std::optional<double> cross_entropy;             ///< nats per token, of a model with next-token probabilities
    std::optional<double> perplexity;                ///< exp(cross_entropy)
    std::optional<double> bits_per_byte;             ///< if the bytes of tokens were given
    std::optional<double> bits_per_byte_se;          ///< one standard error; empty with a single sequence
    std::optional<double> token_accuracy;            ///< as autoencoder_evaluation
    std::optional<double> token_accuracy_posterior;  ///< as autoencoder_evaluation
    std::optional<double> posterior_std;             ///< as autoencoder_evaluation
    double temperature = 1;                          ///< of the samples
    std::string sampler = "adaptive";                ///< name of the rule
    std::optional<double> draws_per_patch;           ///< draws from the head per sampled patch
    index_t capped = 0;                              ///< patches at which the exact rule gave up
    index_t patches = 0;                             ///< scored by the autoencoder

    /// Adds the results of an autoencoder.
    void add(autoencoder_evaluation const& a) {
        token_accuracy = a.token_accuracy;
        token_accuracy_posterior = a.token_accuracy_posterior;
        posterior_std = a.posterior_std;
        patches = a.patches;
    }
};

/// Why BrierLM is 0, as a clause: "Brier-3 and Brier-4 are not positive"; "" if all are positive.
inline std::string not_positive(brier_scores const& scores) {
    std::string names;
    int count = 0;
    for (std::size_t n = brier_orders; n-- > 0;) {
        if (scores[n] > 0) continue;
        auto const name = "Brier-" + std::to_string(n + 1);
        names = count == 0 ? name : name + (count == 1 ? " and " : ", ") + names;
        ++count;
    }
    return count == 0 ? names : names + (count == 1 ? " is not positive" : " are not positive");
}

/// One JSON object on one line, the keys in their documented order; null for values that do not apply.
inline std::string to_json(evaluation const& e) {
    using value = decltype(metric::value);
    constexpr double null = std::numeric_limits<double>::quiet_NaN();
    auto const one = [&](std::optional<double> const& x) -> value { return x.value_or(null); };
    auto const four = [&](std::optional<brier_scores> const& x) -> value {
        return x ? value(std::vector<double>(x->begin(), x->end())) : value(null);
    };
    auto const scored = [&](index_t x) -> value { return e.brier ? value(x) : value(null); };
    std::array const metrics{metric{"brier", four(e.brier)},
                             metric{"brier_se", four(e.brier_se)},
                             metric{"brier_lm", one(e.brier_lm)},
                             metric{"brier_lm_se", one(e.brier_lm_se)},
                             metric{"positions", scored(e.positions)},
                             metric{"sequences", scored(e.sequences)},
                             metric{"skipped", scored(e.skipped)},
                             metric{"block", e.block},
                             metric{"mode", std::string_view(e.mode)},
                             metric{"samples", scored(e.samples)},
                             metric{"seed", e.seed},
                             metric{"unigram_brier", four(e.unigram_brier)},
                             metric{"bigram_brier", four(e.bigram_brier)},
                             metric{"bigram_brier_lm", one(e.bigram_brier_lm)},
                             metric{"optimal_brier", four(e.optimal_brier)},
                             metric{"optimal_brier_lm", one(e.optimal_brier_lm)},
                             metric{"head_loss", one(e.head_loss)},
                             metric{"cross_entropy", one(e.cross_entropy)},
                             metric{"perplexity", one(e.perplexity)},
                             metric{"bits_per_byte", one(e.bits_per_byte)},
                             metric{"bits_per_byte_se", one(e.bits_per_byte_se)},
                             metric{"token_accuracy", one(e.token_accuracy)},
                             metric{"token_accuracy_posterior", one(e.token_accuracy_posterior)},
                             metric{"posterior_std", one(e.posterior_std)},
                             metric{"temperature", e.brier ? value(e.temperature) : value(null)},
                             metric{"sampler", e.brier ? value(std::string_view(e.sampler)) : value(null)},
                             metric{"draws_per_patch", one(e.draws_per_patch)},
                             metric{"capped", scored(e.capped)},
                             metric{"patches", e.token_accuracy ? value(e.patches) : value(null)}};
    return to_json(std::span<metric const>(metrics));
}

/// A table for people, without a final line break.
inline std::string to_table(evaluation const& e) {
    std::string text;
    auto const print = [&text](char const* format, auto... values) {
        char line[256];
        std::snprintf(line, sizeof line, format, values...);
        text += line;
    };
    auto const scores = [&](char const* name, std::optional<brier_scores> const& x, std::optional<double> const& lm) {
        if (!x) return;
        print("%-10s %9.4f %9.4f %9.4f %9.4f", name, (*x)[0], (*x)[1], (*x)[2], (*x)[3]);
        if (lm) print(" %9.2f", *lm);
        text += '\n';
    };
    if (e.brier) {
        print("%-10s %9s %9s %9s %9s %9s\n", "", "Brier-1", "Brier-2", "Brier-3", "Brier-4", "BrierLM");
        scores("model", e.brier, e.brier_lm);
        scores("  error", e.brier_se, e.brier_lm_se);
        scores("optimum", e.optimal_brier, e.optimal_brier_lm);
        scores("bigram", e.bigram_brier, e.bigram_brier_lm);
        scores("unigram", e.unigram_brier, e.unigram_brier ? std::optional(brier_lm(*e.unigram_brier)) : std::nullopt);
        print("%lld positions of %lld blocks of %lld tokens, %lld left out between documents; %lld samples per "
              "position\n",
              static_cast<long long>(e.positions), static_cast<long long>(e.sequences), static_cast<long long>(e.block),
              static_cast<long long>(e.skipped), static_cast<long long>(e.samples));
        if (auto const why = not_positive(*e.brier); !why.empty())
            print("BrierLM is 0, without an error, because %s\n", why.c_str());
    }
    if (e.brier && e.draws_per_patch)
        print("sampled at T = %.4g by the %s rule: %.2f draws per patch, %lld capped\n", e.temperature,
              e.sampler.c_str(), *e.draws_per_patch, static_cast<long long>(e.capped));
    if (e.head_loss) print("loss of the head %.5f\n", *e.head_loss);
    if (e.cross_entropy && e.perplexity)
        print("cross-entropy %.5f nats per token, perplexity %.4g\n", *e.cross_entropy, *e.perplexity);
    if (e.bits_per_byte)
        print("%.5f bits per byte%s\n", *e.bits_per_byte,
              e.bits_per_byte_se ? (" +- " + six_digits(*e.bits_per_byte_se)).c_str() : "");
    if (e.token_accuracy && e.token_accuracy_posterior && e.posterior_std)
        print("autoencoder, %lld patches: %.3f %% of tokens right, %.3f %% with posterior noise; posterior std %.3f\n",
              static_cast<long long>(e.patches), 100 * *e.token_accuracy, 100 * *e.token_accuracy_posterior,
              *e.posterior_std);
    if (!text.empty()) text.pop_back();
    return text;
}

}  // namespace calm
