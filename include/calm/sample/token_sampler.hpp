#pragma once
/// \file
/// The next token of an autoregressive model, from exact probabilities: temperature, top-k, top-p. Sizes: V vocabulary.
/// \shows{tests/sample/token_sampler_test.cpp,draws_follow_the_distribution}

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "calm/base/token.hpp"
#include "calm/sample/detail/batch_rule.hpp"
#include "calm/sample/temperature.hpp"

namespace calm {

/// Changes the probabilities in this order: P^(1/T), only the k likeliest tokens, of these the fewest likeliest that
/// sum to p, normalisation. Of equally likely tokens the lower id comes first.
struct token_sampler {
    static constexpr double min_temperature = 1e-100;  ///< smallest T except 0
    static constexpr double max_temperature = 1000;    ///< largest T

    double T = 1;       ///< 0: always the likeliest token
    index_t top_k = 0;  ///< 0: all
    double top_p = 1;   ///< in (0, 1]; 1: all

    friend bool operator==(token_sampler const&, token_sampler const&) = default;

    /// Throws errc::usage unless T is 0 or from `min_temperature` to `max_temperature`, k is at least 0 and p is in (0,
    /// 1].
    static token_sampler of(temperature T, index_t top_k = 0, double top_p = 1) {
        require(top_k >= 0, errc::usage, "token_sampler: expected top-k of at least 1, or 0 for all tokens, found ",
                top_k);
        require(
            top_p > 0 && top_p <= 1, errc::usage,
            "token_sampler: expected top-p above 0 and at most 1, the share of the probability to draw from, found ",
            top_p);
        require(T.value == 0 || (T.value >= min_temperature && T.value <= max_temperature), errc::usage, [&] {
            return "temperature: exact probabilities need T = 0, or from " + shortest(min_temperature) + " to " +
                   shortest(max_temperature) + ", found " + shortest(T.value);
        });
        return {T.value, top_k, top_p};
    }
    /// T = 1 and all tokens: the unchanged model.
    static token_sampler unchanged() { return {}; }
    /// Name of exact probabilities on command lines.
    [[nodiscard]] static constexpr std::string_view name() { return "exact"; }
};

/// Categorical distribution over tokens from one row of logits; excluded tokens have probability 0. Reuses its memory
/// for the next row.
class categorical_distribution {
public:
    /// Sets the distribution from logits (V), by the rule. O(V), or O(V log V) with top-k or top-p. Throws
    /// errc::non_finite if a logit is NaN.
    template <class T> void set(std::span<T const> logits, token_sampler const& rule) {
        require(!logits.empty(), errc::usage, "calm::categorical_distribution: expected logits, found none");
        double const highest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
        odds_.resize(logits.size());
        double total = 0;
        for (std::size_t i = 0; i < logits.size(); ++i) {
            double const below = static_cast<double>(logits[i]) - highest;
            require(below <= 0, errc::non_finite,
                    "calm::categorical_distribution: expected finite logits, found one that is not: the weights are "
                    "too large");
            total += odds_[i] = below == 0 ? 1.0 : rule.T > 0 ? std::exp(below / rule.T) : 0.0;
        }
        bool const all =
            rule.T > 0 && rule.top_p >= 1 && (rule.top_k == 0 || rule.top_k >= static_cast<index_t>(logits.size()));
        if (!all) total = keep(rule, total);
        for (double& one : odds_) one /= total;
    }

    /// Probability under the rule; 0 for an excluded token.
    [[nodiscard]] double probability(token_id id) const { return odds_[static_cast<std::size_t>(id)]; }
    /// Sum of squared probabilities: the probability that two draws are equal.
    [[nodiscard]] double collision() const {
        return std::inner_product(odds_.begin(), odds_.end(), odds_.begin(), 0.0);
    }
    /// The token on which `point` of [0, 1) falls; never one of probability 0.
    [[nodiscard]] token_id draw(double point) const { return static_cast<token_id>(detail::pick(odds_, point)); }

private:
    // Keeps the likeliest tokens; returns the sum of their odds.
    double keep(token_sampler const& rule, double total) {
        order_.resize(odds_.size());
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        std::size_t const most = rule.T == 0      ? 1
                                 : rule.top_k > 0 ? std::min(order_.size(), static_cast<std::size_t>(rule.top_k))
                                                  : order_.size();
        auto const middle = order_.begin() + static_cast<std::ptrdiff_t>(most);
        std::partial_sort(order_.begin(), middle, order_.end(), [&](std::size_t a, std::size_t b) {
            return odds_[a] != odds_[b] ? odds_[a] > odds_[b] : a < b;
        });
        if (most < order_.size())
            total =
                std::accumulate(order_.begin(), middle, 0.0, [&](double sum, std::size_t i) { return sum + odds_[i]; });
        std::size_t kept = 0;
        double sum = 0;
        while (kept < most && (kept == 0 || sum < rule.top_p * total)) sum += odds_[order_[kept++]];
        if (rule.top_p >= 1) kept = most, sum = total;
        for (std::size_t i = kept; i < order_.size(); ++i) odds_[order_[i]] = 0;
        return sum;
    }

    std::vector<double> odds_;        // (V)
    std::vector<std::size_t> order_;  // tokens, the likeliest first
};

}  // namespace calm
