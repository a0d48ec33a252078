#pragma once
// Temperature from samples alone: what T is, and the batch rule (spec 9).

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/tensor/error.hpp"
#include "calm/tensor/random.hpp"
#include "calm/text/token.hpp"

namespace calm {

namespace detail {

// A number as short as it can be read back, or of six digits.
inline std::string shortest(double value) {
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, value).ptr};
}
inline std::string six_digits(double value) {
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6).ptr};
}

}  // namespace detail

// The target is P(x)^(1/T), normalised. n is 1/T where that is an integer (to 1e-6), else 0.
struct temperature {
    double value = 1.0;
    double inverse = 1.0;
    std::int64_t n = 1;

    // From a number of at least 0; throws errc::usage otherwise. T = 0 has an infinite inverse; only samplers that
    // scale the noise take it.
    static temperature of(double T) {
        require(T >= 0.0 && std::isfinite(T), errc::usage,
                [&] { return "temperature: expected a number of at least 0, or 1/n, found " + detail::shortest(T); });
        double const inverse = T == 0.0 ? std::numeric_limits<double>::infinity() : 1.0 / T;
        double const nearest = std::round(inverse);
        bool const integer = nearest >= 1.0 && nearest < 0x1p53 && std::abs(inverse - nearest) < 1e-6;
        return {T, integer ? nearest : inverse, integer ? static_cast<std::int64_t>(nearest) : 0};
    }
};

// Reads "0.5" or "1/2". Throws errc::usage for anything else.
inline temperature parse_temperature(std::string_view text) {
    auto const fail = [&](char const* why) -> temperature {
        throw error(errc::usage,
                    "temperature: expected a decimal of at least 0, such as 0.5, or 1/n with an integer n, "
                    "such as 1/2; found '" +
                        std::string(text) + "'" + why);
    };
    auto const read = [](std::string_view digits, auto& value) {
        auto const [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        return code == std::errc{} && end == digits.data() + digits.size();
    };
    if (auto const slash = text.find('/'); slash != std::string_view::npos) {
        std::int64_t n = 0;
        if (text.substr(0, slash) != "1") return fail(", whose numerator is not 1; write it as a decimal");
        if (!read(text.substr(slash + 1), n) || n < 1) return fail("");
        return {1.0 / static_cast<double>(n), static_cast<double>(n), n};
    }
    double T = 0.0;
    if (!read(text, T)) return fail("");
    if (!std::isfinite(T) || T < 0.0) return fail(", which is negative or not finite");
    return temperature::of(T);
}

// n of T = 1/n. Throws errc::usage for another T, naming the two temperatures 1/n around it.
inline std::int64_t integer_inverse(temperature T) {
    if (T.n > 0) return T.n;
    auto const name = [](double n) {
        auto const whole = std::to_string(static_cast<std::int64_t>(n));
        return "1/" + whole + " (" + detail::six_digits(1.0 / n) + ")";
    };
    std::string nearest = "a positive one";
    if (T.value > 0.0 && T.inverse < 0x1p53) {
        double const below = std::max(1.0, std::floor(T.inverse));
        nearest = name(below) + " or " + name(below + 1.0);
    }
    throw error(errc::usage, "temperature: this sampler needs T = 1/n with an integer n, found T = " +
                                 detail::shortest(T.value) + "; take " + nearest);
}

// Where patches come from: draw(out) fills out, K tokens a patch, with fresh independent patches of one position. A
// sampler asks for as many rounds as it needs.
template <class Draw>
concept patch_source = std::invocable<Draw&, std::span<token_id>>;

// What a sampler did for one patch.
struct sampled {
    std::int64_t draws = 0;  // patches drawn
    bool capped = false;     // the exact rule gave up and the batch rule answered
};

// The batch rule on counts: with m the largest of n, n-1, .., 1 that some count reaches, the probability of each of the
// distinct patches, proportional to C(count, m). Weights are relative to the largest, so no count overflows.
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
    std::vector<std::size_t> order(pool.size() / K);
    std::iota(order.begin(), order.end(), std::size_t{0});
    auto const compare = [&](std::size_t a, std::size_t b) {
        auto const x = pool.subspan(a * K, K);
        auto const y = pool.subspan(b * K, K);
        auto const [p, q] = std::mismatch(x.begin(), x.end(), y.begin());
        return p == x.end() ? 0 : *p < *q ? -1 : 1;
    };
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        int const c = compare(a, b);
        return c != 0 ? c < 0 : a < b;
    });
    std::vector<std::int64_t> copies(order.size(), 0);  // at the first copy of each
    for (std::size_t i = 0, leader = 0; i < order.size(); ++i) {
        if (compare(order[leader], order[i]) != 0) leader = i;
        ++copies[order[leader]];
    }
    patch_counts distinct;
    for (std::size_t i = 0; i < copies.size(); ++i) {
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

// Draws one patch at T = 1/n from a pool of fresh ones. Samplers are values with the temperature in them; called with
// a source, K tokens to fill and a stream for their own choices, they say what it took.
struct batch_sampler {
    std::int64_t n = 1;
    std::int64_t pool = 200;  // N

    // Throws errc::usage unless T = 1/n and the pool holds a patch.
    static batch_sampler at(temperature T, std::int64_t pool = 200) {
        require(pool >= 1, errc::usage, "batch sampler: expected a pool of at least 1 patch");
        return {integer_inverse(T), pool};
    }

    // At T = 1 one draw is the answer.
    template <patch_source Draw>
    sampled operator()(Draw&& draw, std::span<token_id> patch, random_sequence& random) const {
        if (n == 1) {
            draw(patch);
            return {1, false};
        }
        std::vector<token_id> drawn(static_cast<std::size_t>(pool) * patch.size());
        draw(std::span<token_id>(drawn));
        auto const chosen = batch_choice(drawn, patch.size(), n, random);
        std::copy_n(drawn.begin() + static_cast<std::ptrdiff_t>(chosen * patch.size()), patch.size(), patch.begin());
        return {pool, false};
    }
};

}  // namespace calm
