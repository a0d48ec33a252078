#pragma once
// Patches that are only compared need few of their tokens: where two begin differently, what follows says no more.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "calm/text/token.hpp"

namespace calm {

// In the place of a token that was not decoded.
inline constexpr token_id not_decoded = -1;

// How long patches, in groups of neighbours, are decoded: as long as `least` of a group have the same tokens so far.
// With a group of n and least n, where only n that are all equal matter; with least 2 where those of a group are
// counted; with 1 to the end. The last group may be smaller.
struct alike_groups {
    std::size_t size;
    std::size_t least;
};

// The patches (R, K) whose token k is to be decoded, where it is not yet: those of which the k tokens before are
// decoded, and the same for groups.least or more of the group. O(R log size).
inline std::vector<token_id> alike_so_far(std::span<token_id const> patches, std::size_t K, std::size_t k,
                                          alike_groups groups) {
    std::size_t const R = patches.size() / K;
    auto const begins = [&](std::size_t r) { return patches.subspan(r * K, k); };
    auto const before = [&](std::size_t a, std::size_t b) {
        return std::ranges::lexicographical_compare(begins(a), begins(b));
    };
    std::vector<token_id> alike;
    std::vector<std::size_t> order;  // of a group, by the tokens so far
    for (std::size_t first = 0; first < R; first += groups.size) {
        order.clear();
        for (std::size_t r = first; r < std::min(R, first + groups.size); ++r)
            if (k == 0 || patches[r * K + k - 1] != not_decoded) order.push_back(r);
        std::sort(order.begin(), order.end(), before);
        for (auto from = order.begin(); from != order.end();) {
            auto const to = std::upper_bound(from, order.end(), *from, before);
            if (static_cast<std::size_t>(to - from) >= groups.least)
                for (auto one = from; one != to; ++one)
                    if (patches[*one * K + k] == not_decoded) alike.push_back(static_cast<token_id>(*one));
            from = to;
        }
    }
    return alike;
}

}  // namespace calm
