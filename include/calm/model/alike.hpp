#pragma once
// Patches that are only compared need few of their tokens: where two begin differently, what follows says no more.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/base/token.hpp"
#include "calm/tensor/extents.hpp"

namespace calm {

// In the place of a token that was not decoded.
inline constexpr token_id not_decoded = -1;

// In the place of a token whose row of the decoder is not finite, where a device made it: it has none.
inline constexpr token_id without_tokens = -2;

namespace detail {
inline constexpr char rows_not_finite[] =
    "calm::autoencoder: expected a decoder whose numbers are finite, found one that is not: the weights or the "
    "temperature are too large";

// tokens[i], of row i of y (R, D), where that is not finite: a norm made it, and so its first number is not either.
template <class T> struct mark_not_finite {
    token_id* tokens;
    T const* y;
    index_t D;
    CALM_HD void operator()(index_t i) const {
        if (!(y[i * D] * T{} == T{})) tokens[i] = without_tokens;
    }
};

// 0 times all numbers that tokens are chosen by is 0.
inline void require_finite(double nothing) {
    require(std::isfinite(nothing), errc::non_finite, rows_not_finite);
}
// Of a device's tokens, on the host.
inline void require_tokens(std::span<token_id const> tokens) {
    require(std::find(tokens.begin(), tokens.end(), without_tokens) == tokens.end(), errc::non_finite, rows_not_finite);
}
}  // namespace detail

// How long patches, in groups of neighbours, are decoded: as long as `least` of a group have the same tokens so far.
// With a group of n and least n, where only n that are all equal matter; with least 2 where those of a group are
// counted; with 1 to the end. The last group may be smaller.
struct alike_groups {
    std::size_t size;   // patches of a group, at least 1
    std::size_t least;  // how many of them must agree so far
    // Where so many or fewer patches of all groups go on behind their first token, they go on to their end: each token
    // by itself reads the whole vocabulary, which costs as much as a few tokens more.
    std::size_t few = 0;
};

// Orders patches (R, K), given by their numbers, by their first k tokens, and equal ones by number.
struct by_tokens {
    std::span<token_id const> patches;  // (R, K)
    std::size_t K;                      // tokens a patch
    std::size_t k;                      // how many of them count, at most K

    // Below, at or above 0, as a's tokens come before, are, or come after b's.
    [[nodiscard]] int compare(std::size_t a, std::size_t b) const {
        token_id const* x = patches.data() + a * K;
        token_id const* y = patches.data() + b * K;
        for (std::size_t i = 0; i < k; ++i)
            if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
        return 0;
    }
    // Whether patch a comes before patch b, for std::sort.
    bool operator()(std::size_t a, std::size_t b) const {
        int const c = compare(a, b);
        return c != 0 ? c < 0 : a < b;
    }
};

// The patches (R, K) whose token k is to be decoded, where it is not yet: those of which the k tokens before are
// decoded, and the same for groups.least or more of the group. O(R log size). Throws errc::usage for groups of 0.
inline std::vector<row_id> alike_so_far(std::span<token_id const> patches, std::size_t K, std::size_t k,
                                        alike_groups groups) {
    require(groups.size > 0, errc::usage, "calm::alike_so_far: expected groups of at least one patch, found size 0");
    std::size_t const R = patches.size() / K;
    by_tokens const so_far{patches, K, k};
    std::vector<row_id> alike;
    std::vector<std::size_t> order;  // of a group, by the tokens so far
    for (std::size_t first = 0; first < R; first += groups.size) {
        order.clear();
        for (std::size_t r = first; r < std::min(R, first + groups.size); ++r)
            if (k == 0 || patches[r * K + k - 1] != not_decoded) order.push_back(r);
        std::sort(order.begin(), order.end(), so_far);
        for (std::size_t from = 0, to = 0; from < order.size(); from = to) {
            while (to < order.size() && so_far.compare(order[from], order[to]) == 0) ++to;
            for (std::size_t i = from; i < to && to - from >= groups.least; ++i)
                if (patches[order[i] * K + k] == not_decoded) alike.push_back(static_cast<row_id>(order[i]));
        }
    }
    return alike;
}

namespace detail {

// Which of R patches were begun, and in which order.
class patches_begun {
public:
    explicit patches_begun(index_t R) : number_(static_cast<std::size_t>(R), none) {}

    // Numbers those of `patches` that were not begun yet, from size() on, and returns them: valid until the next call.
    std::span<row_id const> add(std::span<row_id const> patches) {
        fresh_.clear();
        for (auto const patch : patches) {
            auto& number = number_[static_cast<std::size_t>(patch)];
            if (number != none) continue;
            number = size_++;
            fresh_.push_back(patch);
        }
        return fresh_;
    }
    [[nodiscard]] index_t size() const { return size_; }
    [[nodiscard]] index_t operator[](row_id patch) const { return number_[static_cast<std::size_t>(patch)]; }

private:
    static constexpr index_t none = -1;
    std::vector<index_t> number_;  // of each patch
    std::vector<row_id> fresh_;
    index_t size_ = 0;
};

}  // namespace detail

}  // namespace calm
