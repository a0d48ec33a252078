#pragma once
// Which patch of a pool answers at T = 1/n (CALM, batch rule). Sizes: N patches in the pool, K tokens a patch.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/base/random.hpp"
#include "calm/base/token.hpp"
#include "calm/model/alike.hpp"

namespace calm {

// The batch rule on counts: with m the largest of n, n-1, .., 1 that some count reaches, the probability of each of the
// distinct patches, proportional to C(count, m). Weights are relative to the largest, so no count overflows. Throws
// errc::usage for n < 1 or counts that are all 0.
inline std::vector<double> batch_odds(std::span<std::int64_t const> counts, std::int64_t n) {
    require(n >= 1, errc::usage, "calm::batch_odds: expected n of at least 1");
    std::vector<double> odds(counts.size(), 0.0);
    if (counts.empty()) return odds;
    auto const most = *std::max_element(counts.begin(), counts.end());
    require(most >= 1, errc::usage, "calm::batch_odds: expected a count of at least 1");
    auto const m = std::min(n, most);
    double sum = 0.0;
    for (std::size_t c = 0; c < counts.size(); ++c) {
        if (counts[c] < m) continue;
        double weight = 1.0;  // C(count, m) / C(most, m)
        for (std::int64_t i = 0; i < m && weight > 0.0; ++i)
            weight *= static_cast<double>(counts[c] - i) / static_cast<double>(most - i);
        odds[c] = weight;
        sum += weight;
    }
    for (double& weight : odds) weight /= sum;
    return odds;
}

namespace detail {

// A uniform number in [0, 1) of 53 bits: pools are large, and 24 bits would show.
inline double uniform53(random_sequence& random) {
    std::uint64_t const high = random.next() >> 5;
    std::uint64_t const low = random.next() >> 6;
    return static_cast<double>((high << 26) | low) * 0x1p-53;
}

// The index that a point of [0, 1) falls on; never one of probability 0.
inline std::size_t pick(std::span<double const> odds, double point) {
    std::size_t last = 0;
    for (std::size_t i = 0; i < odds.size(); ++i) {
        if (odds[i] <= 0.0) continue;
        last = i;
        if (point < odds[i]) return i;
        point -= odds[i];
    }
    return last;
}

}  // namespace detail

// The distinct patches of a pool in the order of their first appearance.
struct patch_counts {
    std::vector<std::size_t> first;    // index in the pool of each one's first copy
    std::vector<std::int64_t> counts;  // number of its copies
};

// Counts a pool (N, K). Throws errc::usage unless the pool is whole patches. O(N log N).
inline patch_counts count_patches(std::span<token_id const> pool, std::size_t K) {
    require(K > 0 && !pool.empty() && pool.size() % K == 0, errc::usage,
            "calm::count_patches: expected a pool of at least one patch of K tokens");
    std::size_t const N = pool.size() / K;
    std::vector<std::size_t> order(N);
    std::iota(order.begin(), order.end(), std::size_t{0});
    by_tokens const whole{pool, K, K};
    std::sort(order.begin(), order.end(), whole);
    std::vector<std::int64_t> copies(N, 0);  // at the first copy of each
    for (std::size_t from = 0, to = 0; from < N; from = to) {
        while (to < N && whole.compare(order[from], order[to]) == 0) ++to;
        copies[order[from]] = static_cast<std::int64_t>(to - from);
    }
    patch_counts distinct;
    for (std::size_t i = 0; i < N; ++i) {
        if (copies[i] == 0) continue;
        distinct.first.push_back(i);
        distinct.counts.push_back(copies[i]);
    }
    return distinct;
}

// The batch rule of T = 1/n on a pool (N, K): the index, in the pool, of the patch on which `point` of [0, 1) falls.
// Not inlined: there g++ 12 warns of the memory of its vectors (-Wfree-nonheap-object).
[[gnu::noinline]] inline std::size_t batch_choice(std::span<token_id const> pool, std::size_t K, std::int64_t n,
                                                  double point) {
    auto const distinct = count_patches(pool, K);
    auto const odds = batch_odds(distinct.counts, n);
    return distinct.first[detail::pick(odds, point)];
}
// The same by two words of `random`, whatever the pool.
inline std::size_t batch_choice(std::span<token_id const> pool, std::size_t K, std::int64_t n,
                                random_sequence& random) {
    return batch_choice(pool, K, n, detail::uniform53(random));
}

// What the draws so far say of the choice by a point that the batch rule will make when `left` more have come: where a
// patch stands among all moves only as far as those draws can move it.
class batch_forecast {
public:
    // Of the counts of the distinct patches in the order of their first appearance. O(draws, with those to come).
    batch_forecast(std::span<std::int64_t const> counts, std::int64_t n, std::int64_t left, double point) :
        counts_(counts.begin(), counts.end()), left_(left), point_(point) {
        counts_.push_back(0);  // whatever comes first among those to come
        auto const all = std::accumulate(counts_.begin(), counts_.end(), left);
        weight_.assign(static_cast<std::size_t>(all) + 1, all < n ? 0.0 : 1.0);
        for (auto c = all; c > 0; --c)
            weight(c - 1) = weight(c) * static_cast<double>(std::max<std::int64_t>(0, c - n)) / static_cast<double>(c);
        before_.resize(counts_.size());
        after_.resize(counts_.size());
        for (std::size_t i = 1; i < counts_.size(); ++i) before_[i] = with(before_[i - 1], counts_[i - 1]);
        for (std::size_t i = counts_.size() - 1; i > 0; --i) after_[i - 1] = with(after_[i], counts_[i]);
    }

    // Which of the distinct patches it is, where nothing can change that.
    [[nodiscard]] std::optional<std::size_t> choice() const {
        for (std::size_t i = 0; i + 1 < counts_.size(); ++i)
            if (is_sure(i, 0)) return i;
        return std::nullopt;
    }

    // How many of the draws to come it takes at least before there is a choice that nothing can change.
    [[nodiscard]] std::int64_t at_least() const {
        std::int64_t least = left_;
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            std::int64_t low = -1, high = least;  // is_sure is false and, but for high = left, true there
            while (high - low > 1) {
                std::int64_t const middle = low + (high - low) / 2;
                (is_sure(i, middle) ? high : low) = middle;
            }
            least = high;
        }
        return least;
    }

private:
    struct others {
        double weight = 0;      // together
        std::int64_t most = 0;  // the largest of their counts
    };
    // Relative, C(count, n).
    double& weight(std::int64_t count) { return weight_[static_cast<std::size_t>(count)]; }
    [[nodiscard]] double weight(std::int64_t count) const { return weight_[static_cast<std::size_t>(count)]; }
    [[nodiscard]] others with(others const& some, std::int64_t count) const {
        return {some.weight + weight(count), std::max(some.most, count)};
    }
    // What others weigh at most after so many draws: C(count, n) is convex, so one of them gets all.
    [[nodiscard]] double at_most(others const& some, std::int64_t draws) const {
        return some.weight + (weight(some.most + draws) - weight(some.most));
    }
    // Whether patch i is chosen once `more` of the draws to come are it, whatever the others are.
    [[nodiscard]] bool is_sure(std::size_t i, std::int64_t more) const {
        constexpr double rounding = 1e-9;  // of the sums here and there
        double const own = weight(counts_[i] + more), before = before_[i].weight;
        double const most_before = i == 0 ? 0.0 : at_most(before_[i], left_ - more);
        double const most_after = at_most(after_[i], left_ - more);
        return own > 0 &&
               (most_before == 0 || most_before / (most_before + own + after_[i].weight) < point_ - rounding) &&
               (before + own) / (before + own + most_after) > point_ + rounding;
    }

    std::vector<std::int64_t> counts_;
    std::int64_t left_;
    double point_;
    std::vector<double> weight_;          // by count
    std::vector<others> before_, after_;  // each patch
};

}  // namespace calm
