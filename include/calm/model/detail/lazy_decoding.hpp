#pragma once
// Lazy decoding: patches that are only compared with each other need no tokens after the first difference.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/base/token.hpp"
#include "calm/tensor/core/extents.hpp"

namespace calm {

// Placeholder for tokens that have not been decoded.
inline constexpr token_id not_decoded = -1;

// Placeholder for tokens that a device could not decode because their decoder rows are not finite.
inline constexpr token_id without_tokens = -2;

namespace detail {
inline constexpr char rows_not_finite[] = "calm::autoencoder: expected finite numbers in the decoder, found NaN or "
                                          "infinity: the weights or the temperature are too large";

// Marks tokens[i] if row i of y (R, D) is not finite. The rows come from a norm, so it suffices to test the first
// element.
template <class T> struct mark_not_finite {
    token_id* tokens;
    T const* y;
    index_t D;
    CALM_HD void operator()(index_t i) const {
        if (!(y[i * D] * T{} == T{})) tokens[i] = without_tokens;
    }
};

// Expects 0 * (sum of all decoder outputs), which is finite only if every output is.
inline void require_finite(double nothing) {
    require(std::isfinite(nothing), errc::non_finite, rows_not_finite);
}
// For a device's tokens, downloaded to the host.
inline void require_tokens(std::span<token_id const> tokens) {
    require(std::find(tokens.begin(), tokens.end(), without_tokens) == tokens.end(), errc::non_finite, rows_not_finite);
}
}  // namespace detail

// When to decode further tokens of patches, in groups of consecutive patches: only while at least `least` patches of
// the group share their tokens so far. With least = size only a fully equal group matters; with 2, equal patches are
// counted; with 1, everything is decoded. The last group may be smaller.
struct lazy_groups {
    std::size_t size;   // patches per group, at least 1
    std::size_t least;  // patches that must agree so far
    // If at most this many patches, of all groups, remain after the first token, they are decoded to the end. Each
    // decoding pass reads the whole vocabulary table, which costs as much as a few extra tokens.
    std::size_t few = 0;
};

// Orders patches (R, K), given by index, by their first k tokens; equal ones by index.
struct by_tokens {
    std::span<token_id const> patches;  // (R, K)
    std::size_t K;                      // tokens per patch
    std::size_t k;                      // number of tokens compared, at most K

    // Negative, zero or positive as the tokens of a are less than, equal to or greater than the tokens of b.
    [[nodiscard]] int compare(std::size_t a, std::size_t b) const {
        token_id const* x = patches.data() + a * K;
        token_id const* y = patches.data() + b * K;
        for (std::size_t i = 0; i < k; ++i)
            if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
        return 0;
    }
    // Strict order for std::sort.
    bool operator()(std::size_t a, std::size_t b) const {
        int const c = compare(a, b);
        return c != 0 ? c < 0 : a < b;
    }
};

// The patches (R, K) whose token k must be decoded now: it is undecided, the k tokens before it are decoded, and at
// least groups.least patches of the group share them. O(R log size). Throws errc::usage for a group size of 0.
inline std::vector<row_id> undecided_patches(std::span<token_id const> patches, std::size_t K, std::size_t k,
                                             lazy_groups groups) {
    require(groups.size > 0, errc::usage,
            "calm::undecided_patches: expected groups of at least one patch, found size 0");
    std::size_t const R = patches.size() / K;
    by_tokens const so_far{patches, K, k};
    std::vector<row_id> undecided;
    std::vector<std::size_t> order;  // indices of one group, sorted by the tokens so far
    for (std::size_t first = 0; first < R; first += groups.size) {
        order.clear();
        for (std::size_t r = first; r < std::min(R, first + groups.size); ++r)
            if (k == 0 || patches[r * K + k - 1] != not_decoded) order.push_back(r);
        std::sort(order.begin(), order.end(), so_far);
        for (std::size_t from = 0, to = 0; from < order.size(); from = to) {
            while (to < order.size() && so_far.compare(order[from], order[to]) == 0) ++to;
            for (std::size_t i = from; i < to && to - from >= groups.least; ++i)
                if (patches[order[i] * K + k] == not_decoded) undecided.push_back(static_cast<row_id>(order[i]));
        }
    }
    return undecided;
}

namespace detail {

// Records which of R patches have been started, and in which order.
class patches_begun {
public:
    explicit patches_begun(index_t R) : number_(static_cast<std::size_t>(R), none) {}

    // Numbers the patches that are new, from size() on, and returns them. The result is valid until the next call.
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
    std::vector<index_t> number_;  // per patch
    std::vector<row_id> fresh_;
    index_t size_ = 0;
};

}  // namespace detail

}  // namespace calm
