#pragma once
// The batch rule: which patch of a pool is the answer at T = 1/n (CALM, batch rule). Sizes: N patches in the pool, K
// tokens per patch.

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
#include "calm/model/detail/lazy_decoding.hpp"

namespace calm {

// Probabilities of the distinct patches under the batch rule: proportional to C(count, m), with m the largest of n,
// n-1, .., 1 that some count reaches. Weights are relative to the largest, so large counts do not overflow. Throws
// errc::usage for n < 1 or if all counts are 0.
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

// Index whose interval contains `point` of [0, 1) when the odds are laid end to end; never one of probability 0.
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

// The distinct patches of a pool, in order of first appearance.
struct patch_counts {
    std::vector<std::size_t> first;    // index in the pool of the first copy
    std::vector<std::int64_t> counts;  // number of copies
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

// The batch rule for T = 1/n on a pool (N, K): index in the pool of the patch on which `point` of [0, 1) falls. Not
// inlined, because g++ 12 then warns about its vectors (-Wfree-nonheap-object).
[[gnu::noinline]] inline std::size_t batch_choice(std::span<token_id const> pool, std::size_t K, std::int64_t n,
                                                  double point) {
    auto const distinct = count_patches(pool, K);
    auto const odds = batch_odds(distinct.counts, n);
    return distinct.first[detail::pick(odds, point)];
}
// Takes its point from two words of `random`, for any pool.
inline std::size_t batch_choice(std::span<token_id const> pool, std::size_t K, std::int64_t n,
                                random_sequence& random) {
    return batch_choice(pool, K, n, random.uniform_double());
}

// Predicts the choice that the batch rule will make by `point` after `left` more draws. The interval of each patch can
// move only as far as the remaining draws can move it.
class batch_forecast {
public:
    // From the counts of the distinct patches in order of first appearance. O(draws, including the remaining ones).
    batch_forecast(std::span<std::int64_t const> counts, std::int64_t n, std::int64_t left, double point) :
        counts_(counts.begin(), counts.end()), left_(left), point_(point) {
        counts_.push_back(0);  // a patch that has not appeared yet
        auto const all = std::accumulate(counts_.begin(), counts_.end(), left);
        weight_.assign(static_cast<std::size_t>(all) + 1, all < n ? 0.0 : 1.0);
        for (auto c = all; c > 0; --c)
            weight(c - 1) = weight(c) * static_cast<double>(std::max<std::int64_t>(0, c - n)) / static_cast<double>(c);
        before_.resize(counts_.size());
        after_.resize(counts_.size());
        for (std::size_t i = 1; i < counts_.size(); ++i) before_[i] = with(before_[i - 1], counts_[i - 1]);
        for (std::size_t i = counts_.size() - 1; i > 0; --i) after_[i - 1] = with(after_[i], counts_[i]);
    }

    // Index of the chosen distinct patch, if no further draw can change it.
    [[nodiscard]] std::optional<std::size_t> choice() const {
        for (std::size_t i = 0; i + 1 < counts_.size(); ++i)
            if (is_sure(i, 0)) return i;
        return std::nullopt;
    }

    // Fewest further draws after which the choice can be certain.
    [[nodiscard]] std::int64_t draws_needed() const {
        std::int64_t least = left_;
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            std::int64_t low = -1, high = least;  // is_sure is false at low and true at high, except at high = left
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
        double weight = 0;      // of all together
        std::int64_t most = 0;  // largest count
    };
    // C(count, n), up to a common factor.
    double& weight(std::int64_t count) { return weight_[static_cast<std::size_t>(count)]; }
    [[nodiscard]] double weight(std::int64_t count) const { return weight_[static_cast<std::size_t>(count)]; }
    [[nodiscard]] others with(others const& some, std::int64_t count) const {
        return {some.weight + weight(count), std::max(some.most, count)};
    }
    // Most that the others can weigh after `draws` more draws: C(count, n) is convex, so one of them gets all.
    [[nodiscard]] double at_most(others const& some, std::int64_t draws) const {
        return some.weight + (weight(some.most + draws) - weight(some.most));
    }
    // Whether patch i is chosen once it has `more` of the remaining draws, whatever the other draws are.
    [[nodiscard]] bool is_sure(std::size_t i, std::int64_t more) const {
        constexpr double rounding = 1e-9;  // allowance for the rounding of sums
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
    std::vector<others> before_, after_;  // per patch
};

}  // namespace calm
