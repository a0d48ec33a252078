#pragma once
// Which patch of a pool answers at T = 1/n (CALM, batch rule). Sizes: N patches in the pool, K tokens a patch.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
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

// The batch rule of T = 1/n on a pool (N, K): the index, in the pool, of the patch it chooses. Draws two words from
// `random`, whatever the pool.
inline std::size_t batch_choice(std::span<token_id const> pool, std::size_t K, std::int64_t n,
                                random_sequence& random) {
    auto const distinct = count_patches(pool, K);
    auto const odds = batch_odds(distinct.counts, n);
    return distinct.first[detail::pick(odds, detail::uniform53(random))];
}

}  // namespace calm
