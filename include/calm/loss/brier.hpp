#pragma once
/// \file
/// BrierLM: the quality of a language model, estimated from samples alone (arXiv 2510.27688; Brier-n, BrierLM and its
/// error in docs/mathematics/scores.md). Host code on token ids.
/// \shows{tests/loss/brier_test.cpp,a_perfect_model_of_a_deterministic_text_has_100}

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/base/token.hpp"

namespace calm {

/// Brier-1 to Brier-4: Brier-n scores the first n tokens as one event, n = 1..4.
inline constexpr std::size_t brier_orders = 4;
/// Brier-1 .. Brier-4; in [-1, 1] for exact probabilities.
using brier_scores = std::array<double, brier_orders>;
using brier_counts = std::array<std::int64_t, brier_orders>;  ///< how often the first 1 .. 4 tokens agree

/// How many patches of K tokens cover the first four tokens; more than one if K < 4. Throws errc::usage for K = 0.
constexpr std::size_t brier_patches(std::size_t K) {
    if (K == 0) throw error(errc::usage, "calm::brier_patches: expected patches of at least one token, found K = 0");
    return (brier_orders + K - 1) / K;
}

/// Whether to score a prediction after the token `before`: its target, the next max(K, 4) tokens, must be complete, and
/// a document must continue there. This depends on what the model has read, never on the target: else the score would
/// not be proper.
inline bool is_counted(token_id before, std::span<token_id const> target, token_id eos, token_id pad) {
    return target.size() >= brier_orders && before != eos && before != pad;
}

/// The target for predictions from token `first` of a block: the next max(K, 4) tokens, or empty if they run past the
/// block.
inline std::span<token_id const> brier_target(std::span<token_id const> block, std::size_t first, std::size_t K) {
    auto const length = std::max(K, brier_orders);
    if (first > block.size() || block.size() - first < length) return {};
    return block.subspan(first, length);
}

/// N samples for one position, each of K >= 4 tokens, starting `stride` tokens apart. Row r of samples (N, R, K) is
/// {samples.subspan(r * K), K, R * K}. Throws errc::usage for fewer than 4 tokens or no sample.
class position_samples {
public:
    /// A view: the caller owns the tokens. Consecutive samples start `stride` >= K tokens apart.
    position_samples(std::span<token_id const> tokens, std::size_t K, std::size_t stride) :
        tokens_(tokens), stride_(stride) {
        require(K >= brier_orders, errc::usage, "calm::position_samples: Brier-4 needs samples of at least 4 tokens");
        require(stride >= K && tokens.size() >= K, errc::usage,
                "calm::position_samples: expected samples of K tokens that do not overlap");
        count_ = (tokens.size() - K) / stride + 1;
    }
    /// Contiguous samples (N, K). Throws errc::usage also if the number of tokens is not a multiple of K.
    position_samples(std::span<token_id const> tokens, std::size_t K) : position_samples(tokens, K, K) {
        require(tokens.size() % K == 0, errc::usage, "calm::position_samples: expected a multiple of K tokens");
    }

    [[nodiscard]] std::size_t size() const noexcept { return count_; }  ///< N, the number of samples
    /// The first four tokens of a sample.
    [[nodiscard]] std::span<token_id const, brier_orders> operator[](std::size_t i) const {
        return tokens_.subspan(i * stride_).template first<brier_orders>();
    }

private:
    std::span<token_id const> tokens_;
    std::size_t stride_;
    std::size_t count_ = 0;
};

namespace detail {

// Increments the count of every order n for which the first n tokens agree.
inline void count_agreement(std::span<token_id const, brier_orders> a, std::span<token_id const, brier_orders> b,
                            brier_counts& counts) {
    for (std::size_t n = 0; n < brier_orders && a[n] == b[n]; ++n) ++counts[n];
}

}  // namespace detail

/// For each order n, how many samples agree with the first n tokens of the target. Throws errc::usage if the target has
/// fewer than 4 tokens.
inline brier_counts count_hits(position_samples samples, std::span<token_id const> target) {
    require(target.size() >= brier_orders, errc::usage, "calm::count_hits: a target has at least 4 tokens");
    brier_counts hits{};
    for (std::size_t i = 0; i < samples.size(); ++i)
        detail::count_agreement(samples[i], target.first<brier_orders>(), hits);
    return hits;
}

/// For each order n, how many of the N (N - 1) / 2 sample pairs agree in their first n tokens.
inline brier_counts count_pairs(position_samples samples) {
    brier_counts same{};
    for (std::size_t i = 1; i < samples.size(); ++i)
        for (std::size_t j = 0; j < i; ++j) detail::count_agreement(samples[i], samples[j], same);
    return same;
}

/// Hits for K < 4. `positions` holds the samples of ceil(4/K) consecutive positions, (N, K) each; every position is
/// sampled given the true text before it. Sample i hits the first n tokens if its patches match at all these positions,
/// which has the model's probability of these n tokens. Throws errc::usage for any other size.
inline brier_counts count_hits(std::span<token_id const> positions, std::size_t K, std::span<token_id const> target) {
    std::size_t const patches = brier_patches(K);
    require(positions.size() % (patches * K) == 0 && !positions.empty(), errc::usage,
            "calm::count_hits: expected samples of ceil(4/K) positions");
    std::size_t const N = positions.size() / (patches * K);
    std::vector<token_id> joined;
    for (std::size_t i = 0; i < N; ++i)
        for (std::size_t p = 0; p < patches; ++p) {
            auto const patch = positions.subspan((p * N + i) * K, K);
            joined.insert(joined.end(), patch.begin(), patch.end());
        }
    return count_hits(position_samples(joined, patches * K), target);
}

namespace detail {

// Counts agreeing pairs among `patches` (m, K), which all follow `prefix`, and recursively among the continuations of
// equal patches.
template <class Draw>
void count_branching_pairs(std::vector<token_id>& prefix, std::span<token_id const> patches, std::size_t K, Draw& draw,
                           brier_counts& same) {
    std::size_t const m = patches.size() / K;
    std::size_t const begun = prefix.size();
    auto const agreement = [&](std::size_t i, std::size_t j) {
        std::size_t n = 0;
        while (n < K && patches[i * K + n] == patches[j * K + n]) ++n;
        return n;
    };
    std::vector<bool> taken(m, false);
    for (std::size_t i = 0; i < m; ++i) {
        std::size_t equal = 1;
        for (std::size_t j = i + 1; j < m; ++j) {
            std::size_t const n = agreement(i, j);
            for (std::size_t k = 0; k < n && begun + k < brier_orders; ++k) ++same[begun + k];
            if (n < K || taken[i]) continue;
            taken[j] = true;
            ++equal;
        }
        if (equal < 2 || begun + K >= brier_orders) continue;
        auto const patch = patches.subspan(i * K, K);
        prefix.insert(prefix.end(), patch.begin(), patch.end());
        std::vector<token_id> next(equal * K);
        draw(std::span<token_id const>(prefix), std::span<token_id>(next));
        count_branching_pairs(prefix, next, K, draw, same);
        prefix.resize(begun);
    }
}

}  // namespace detail

/// Pair counts for K < 4, from the samples (N, K) of one position; every sample is continued along its own tokens.
/// `draw(prefix, out)` fills out (m, K) with independent patches that follow the text before the position plus
/// `prefix`, a whole number of sampled patches. It is called only while at least two samples are still equal, in
/// depth-first order: each prefix comes right after its parent or after a sibling. Throws errc::usage unless samples
/// have K tokens each.
template <class Draw>
requires std::invocable<Draw&, std::span<token_id const>, std::span<token_id>>
    brier_counts count_pairs(std::span<token_id const> samples, std::size_t K, Draw&& draw) {
    require(K > 0 && samples.size() % K == 0, errc::usage, "calm::count_pairs: expected samples of K tokens");
    brier_counts same{};
    std::vector<token_id> prefix;
    detail::count_branching_pairs(prefix, samples, K, draw, same);
    return same;
}

/// The U-statistic 2/N hits - 2/(N (N - 1)) same for N >= 2 samples. It is unbiased for 2 P(y) - sum P^2 and equals the
/// published estimator for N = 2. Hits and pairs may come from different continuations (K < 4). Throws errc::usage for
/// N < 2.
inline brier_scores brier_of(brier_counts const& hits, brier_counts const& same, std::size_t N) {
    require(N >= 2, errc::usage, "calm::brier_of: an unbiased estimate needs at least two samples per position");
    auto const samples = static_cast<double>(N);
    brier_scores scores{};
    for (std::size_t n = 0; n < brier_orders; ++n)
        scores[n] = 2.0 / samples * static_cast<double>(hits[n]) -
                    2.0 / (samples * (samples - 1.0)) * static_cast<double>(same[n]);
    return scores;
}

/// Brier-1..4 of one position from samples of K >= 4 tokens. O(N^2).
inline brier_scores brier_position(position_samples samples, std::span<token_id const> target) {
    return brier_of(count_hits(samples, target), count_pairs(samples), samples.size());
}

/// For contiguous samples (N, K) with K = target.size().
inline brier_scores brier_position(std::span<token_id const> samples, std::span<token_id const> target) {
    return brier_position(position_samples(samples, target.size()), target);
}

/// 100 times the geometric mean; 0 if any score is not positive or is NaN.
inline double brier_lm(brier_scores const& scores) {
    double logs = 0.0;
    for (double const score : scores) {
        if (!(score > 0.0)) return 0.0;
        logs += std::log(score);
    }
    return 100.0 * std::exp(logs / static_cast<double>(brier_orders));
}

/// Sums over the counted positions of one sequence (block).
struct brier_sequence {
    brier_scores sum{};      ///< of Brier-1 .. Brier-4
    std::int64_t count = 0;  ///< positions in the sum

    /// Adds one counted position.
    void add(brier_scores const& position) {
        for (std::size_t n = 0; n < brier_orders; ++n) sum[n] += position[n];
        ++count;
    }
};

/// Brier-n = sum over counted positions / count, BrierLM, and their standard errors.
struct brier_report {
    brier_scores brier{};                     ///< Brier-1 .. Brier-4
    double brier_lm = 0.0;                    ///< in 0 .. 100, higher is better
    std::optional<brier_scores> brier_error;  ///< standard errors; empty for a single sequence
    /// Standard error; empty for a single sequence, or if any score is not positive, since BrierLM is then 0 and the
    /// jackknife says nothing about it.
    std::optional<double> brier_lm_error;
    std::int64_t positions = 0;  ///< counted positions
    std::int64_t sequences = 0;  ///< sequences with a counted position
};

/// Scores with delete-one-sequence jackknife standard errors, sqrt((S-1)/S sum_s (theta_(-s) - mean)^2). theta_(-s) is
/// the estimate without sequence s; it is a ratio of sums, so sequences may have different numbers of counted
/// positions. Sequences without a counted position are ignored. Throws errc::data if no position is counted.
inline brier_report report_brier(std::span<brier_sequence const> sequences) {
    brier_sequence total;
    brier_report report;
    for (auto const& one : sequences) {
        if (one.count == 0) continue;
        for (std::size_t n = 0; n < brier_orders; ++n) total.sum[n] += one.sum[n];
        total.count += one.count;
        ++report.sequences;
    }
    require(total.count > 0, errc::data,
            "BrierLM: no position was counted, because no document continues in a block for a whole target; use longer "
            "blocks");
    auto const without = [&](brier_sequence const& left_out) {
        brier_scores mean{};
        auto const count = static_cast<double>(total.count - left_out.count);
        for (std::size_t n = 0; n < brier_orders; ++n) mean[n] = (total.sum[n] - left_out.sum[n]) / count;
        return mean;
    };
    report.positions = total.count;
    report.brier = without({});
    report.brier_lm = brier_lm(report.brier);
    if (report.sequences < 2) return report;

    // The four scores and BrierLM for each left-out sequence.
    using estimates = std::array<double, brier_orders + 1>;
    auto const each_left_out = [&](auto&& use) {
        for (auto const& one : sequences) {
            if (one.count == 0) continue;
            auto const scores = without(one);
            estimates five{};
            std::copy(scores.begin(), scores.end(), five.begin());
            five.back() = brier_lm(scores);
            use(five);
        }
    };
    auto const S = static_cast<double>(report.sequences);
    estimates mean{};
    estimates squares{};
    each_left_out([&](estimates const& five) {
        for (std::size_t n = 0; n < five.size(); ++n) mean[n] += five[n] / S;
    });
    each_left_out([&](estimates const& five) {
        for (std::size_t n = 0; n < five.size(); ++n) squares[n] += (five[n] - mean[n]) * (five[n] - mean[n]);
    });
    auto const error = [&](std::size_t n) { return std::sqrt((S - 1.0) / S * squares[n]); };
    report.brier_error = brier_scores{error(0), error(1), error(2), error(3)};
    if (report.brier_lm > 0) report.brier_lm_error = error(brier_orders);
    return report;
}

}  // namespace calm
