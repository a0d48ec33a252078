#pragma once
/// \file
/// One patch at a temperature, from patches drawn at T = 1 (CALM, temperature from samples alone). The answer and the
/// number of counted draws follow from the sequence of draws, however many come at a time.
/// \shows{examples/10_temperature.cpp}

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/sample/detail/batch_rule.hpp"
#include "calm/sample/temperature.hpp"

namespace calm {

/// The rules; n = 1/T where that is an integer.
enum class sampling_rule {
    adaptive,  ///< n draws at a time until all n are equal; after N draws the batch rule on all of them
    batch,     ///< the batch rule on N draws
    exact,     ///< rejection sampling for any T in (0, 1]: accepts n equal draws, then coin flips for the fraction of
               ///< 1/T; the result follows P^(1/T)
    noise      // one draw with its noise scaled by sqrt(T); not P^(1/T)
};

/// Names on command lines, in the order of sampling_rule.
inline constexpr std::string_view sampling_rule_names[] = {"adaptive", "batch", "exact", "noise"};

/// A sampling rule and its temperature.
struct sampler {
    static constexpr std::int64_t default_pool = 200;             ///< N, as published
    static constexpr std::int64_t default_cap = 100'000;          ///< draws per patch by the exact rule
    static constexpr double max_temperature = 1000;               ///< for scaled noise
    static constexpr std::int64_t limit = std::int64_t{1} << 20;  ///< draws per patch, for any rule

    sampling_rule rule = sampling_rule::adaptive;  ///< kind of rule
    std::int64_t n = 2;                            ///< draws per attempt: floor(1/T)
    double fraction = 0;                           ///< 1/T - n, only for the exact rule
    std::int64_t max_draws = default_pool;         ///< most draws: the pool N, or the cap of the exact rule; 1 at T = 1
    double noise_scale = 1;                        ///< factor on the noise of the head
    double T = 0.5;                                ///< temperature

    friend bool operator==(sampler const&, sampler const&) = default;

    /// T = 1/n; throws errc::usage for another T, naming the two nearest, and unless the pool holds 1 to `limit`
    /// patches.
    static sampler adaptive(temperature T, std::int64_t pool = default_pool) {
        std::int64_t const n = integer_inverse(T);
        return {sampling_rule::adaptive, n, 0, n == 1 ? 1 : positive(pool), 1, T.value};
    }
    /// T = 1/n by the batch rule, with N = pool; throws as adaptive().
    static sampler batch(temperature T, std::int64_t pool = default_pool) {
        std::int64_t const n = integer_inverse(T);
        return {sampling_rule::batch, n, 0, n == 1 ? 1 : positive(pool), 1, T.value};
    }
    /// T = 1: the unchanged model.
    static sampler unchanged() { return adaptive({}); }
    /// 0 < T <= 1; throws errc::usage for another T. After `cap` draws the batch rule decides.
    static sampler exact(temperature T, std::int64_t cap = default_cap) {
        require(T.value > 0.0 && (T.value <= 1.0 || T.n == 1), errc::usage, [&] {
            return "temperature: the exact sampler needs T above 0 and at most 1, found " + shortest(T.value) +
                   "; for another T use the noise sampler";
        });
        double const whole = T.n > 0 ? T.inverse : std::floor(std::min(T.inverse, 0x1p53));
        return {sampling_rule::exact,
                static_cast<std::int64_t>(whole),
                T.n > 0 ? 0.0 : T.inverse - whole,
                T.n == 1 ? 1 : positive(cap),
                1,
                T.value};
    }
    /// 0 <= T <= max_temperature; throws errc::usage for another T.
    static sampler noise(temperature T) {
        require(T.value >= 0.0 && T.value <= max_temperature, errc::usage, [&] {
            return "temperature: scaled noise needs T from 0 to " + shortest(max_temperature) + ", found " +
                   shortest(T.value);
        });
        return {sampling_rule::noise, 1, 0, 1, std::sqrt(T.value), T.value};
    }
    /// Name of the rule on command lines.
    [[nodiscard]] std::string_view name() const { return sampling_rule_names[static_cast<std::size_t>(rule)]; }

    /// A sampler from the kind of its rule; `pool` is for adaptive and batch.
    static sampler of(sampling_rule rule, temperature T, std::int64_t pool = default_pool) {
        switch (rule) {
        case sampling_rule::batch:
            return batch(T, pool);
        case sampling_rule::exact:
            return exact(T);
        case sampling_rule::noise:
            return noise(T);
        case sampling_rule::adaptive:
            break;
        }
        return adaptive(T, pool);
    }

private:
    static std::int64_t positive(std::int64_t draws) {
        require(draws >= 1 && draws <= limit, errc::usage, [&] {
            return "sampler: expected a pool of at least 1 patch and at most " + std::to_string(limit) + ", found " +
                   std::to_string(draws);
        });
        return draws;
    }
};

/// Cost of sampling one patch.
struct sampling_cost {
    /// Counted draws: n for every attempt of the exact rule and N for the batch rule, even if fewer settle it.
    std::int64_t draws = 0;
    bool capped = false;  ///< the exact rule gave up and the batch rule decided
};

/// Acceptance sampler of one patch: takes draws in rounds of any size until it has decided.
class acceptance_sampler {
public:
    /// For patches of K tokens. The batch rule takes its only random number from `choice` here.
    acceptance_sampler(sampler const& rule, std::size_t K, random_sequence& choice) : rule_(rule), K_(K) {
        if (rule_.rule != sampling_rule::batch) return;
        uniform_ = choice.uniform_double();
        next_forecast_ = batch_forecast({}, rule_.n, rule_.max_draws, uniform_).draws_needed();
    }

    /// Fewest further draws that are needed; 0 once it has decided.
    [[nodiscard]] std::int64_t draws_needed() const {
        if (decided_) return 0;
        if (rule_.rule == sampling_rule::batch) return std::min(rule_.max_draws, next_forecast_) - done_.draws;
        return std::min(rule_.max_draws - done_.draws, coin_flip_ > 0 ? 1 : rule_.n - equal_);
    }
    /// Most further draws that can be used, until the batch rule decides; 0 once it has decided.
    [[nodiscard]] std::int64_t draws_left() const { return decided_ ? 0 : rule_.max_draws - done_.draws; }

    /// Takes patches (count, K) drawn at T = 1, in order. Draws after the decision are ignored and not counted. Random
    /// choices come from `choice`, the same ones for the same draws. The batch rule decides as soon as no further draw
    /// can change its choice.
    void take(std::span<token_id const> draws, random_sequence& choice) {
        for (; !decided_ && !draws.empty(); draws = draws.subspan(K_)) {
            auto const drawn = draws.first(K_);
            pool_.insert(pool_.end(), drawn.begin(), drawn.end());
            ++done_.draws;
            if (accepts(choice))
                decide(attempt_);
            else if (done_.draws == rule_.max_draws) {
                done_.capped = rule_.rule == sampling_rule::exact;
                decide(batch_choice(pool_, K_, rule_.n,
                                    rule_.rule == sampling_rule::batch ? uniform_ : choice.uniform_double()));
            }
        }
        if (rule_.rule == sampling_rule::batch && !decided_ && done_.draws >= next_forecast_) look_ahead();
    }

    /// The draws so far (draws, K); tokens that were not decoded may be filled in.
    [[nodiscard]] std::span<token_id> draws() { return pool_; }
    [[nodiscard]] bool decided() const { return decided_; }  ///< whether there is an answer
    /// Index of the chosen draw, once it has decided.
    [[nodiscard]] std::size_t chosen() const { return chosen_; }
    /// The K tokens of the answer, valid until the next take().
    [[nodiscard]] std::span<token_id const> patch() const { return std::span(pool_).subspan(chosen_ * K_, K_); }
    [[nodiscard]] sampling_cost const& result() const { return done_; }  ///< cost so far

private:
    // Checks the last draw of the pool: true if the attempt's patch is the answer.
    bool accepts(random_sequence& choice) {
        if (rule_.rule == sampling_rule::batch) return false;
        auto const last = static_cast<std::size_t>(done_.draws) - 1;
        if (coin_flip_ > 0) {  // accepts with probability P^fraction, using only draws from P
            if (equals_attempt(last)) return true;
            if (choice.uniform_double() < rule_.fraction / static_cast<double>(coin_flip_))
                begin_attempt();
            else
                ++coin_flip_;
            return false;
        }
        if (equal_ == 0) attempt_ = last;
        all_equal_ = all_equal_ && equals_attempt(last);
        if (++equal_ < rule_.n) return false;
        if (!all_equal_) {
            begin_attempt();
            return false;
        }
        coin_flip_ = rule_.fraction > 0.0 ? 1 : 0;
        return coin_flip_ == 0;
    }
    // Batch rule: decides if no further draw can change the choice, otherwise sets when to look again. Waits for at
    // least an eighth more draws, because each look counts all of them again.
    void look_ahead() {
        auto const distinct = count_patches(pool_, K_);
        batch_forecast const forecast(distinct.counts, rule_.n, rule_.max_draws - done_.draws, uniform_);
        next_forecast_ = done_.draws + std::max(forecast.draws_needed(), done_.draws / 8 + 1);
        auto const sure = forecast.choice();
        if (!sure) return;
        done_.draws = rule_.max_draws;
        decide(distinct.first[*sure]);
    }
    [[nodiscard]] bool equals_attempt(std::size_t draw) const {
        auto const patch = [&](std::size_t at) { return pool_.begin() + static_cast<std::ptrdiff_t>(at * K_); };
        return std::equal(patch(draw), patch(draw + 1), patch(attempt_));
    }
    void begin_attempt() {
        equal_ = coin_flip_ = 0;
        all_equal_ = true;
    }
    void decide(std::size_t chosen) {
        chosen_ = chosen;
        decided_ = true;
    }

    sampler rule_;
    std::size_t K_;
    std::vector<token_id> pool_;  // (draws, K)
    sampling_cost done_;
    bool decided_ = false;
    std::size_t chosen_ = 0;   // index in the pool
    std::size_t attempt_ = 0;  // first draw of the attempt, in the pool
    std::int64_t equal_ = 0;   // draws in the attempt
    bool all_equal_ = true;
    std::int64_t coin_flip_ = 0;      // number of the next coin flip for P^fraction; 0 before
    double uniform_ = 0;              // random number by which the batch rule chooses
    std::int64_t next_forecast_ = 0;  // number of draws at which the batch rule looks ahead
};

/// Draws per patch in the next round, for `wanting` patches that need `draws_needed` each and have made `drawn`. In a
/// product a few rows cost nearly as much as one, and each of many rows costs half. So rounds double up to 64 rows and
/// then grow by a quarter of the draws so far, which bounds wasted draws. The batch rule knows when it can be certain
/// and gets the draws until then, but at least a few rows or an eighth of the draws so far. Among many patches one
/// could always be certain soon, and an extra round costs more. The result does not depend on the machine.
inline std::int64_t round_size(sampling_rule rule, std::int64_t draws_needed, std::int64_t drawn,
                               std::int64_t wanting) {
    constexpr std::int64_t few = 8;
    constexpr std::int64_t many = 64;
    std::int64_t const among = std::max<std::int64_t>(1, wanting);
    if (rule == sampling_rule::batch) return std::max({draws_needed, many / 4 / among, drawn / 8 + 1});
    return std::max({draws_needed, few / among, std::min(drawn, many / among), std::min(drawn / 4, many)});
}

/// A source of patches: draw(out) fills `out`, K tokens per patch, with fresh independent patches for one position.
template <class Draw>
concept patch_source = std::invocable<Draw&, std::span<token_id>>;

/// Samples `patch` (K) by the rule, from a source called in rounds of `round` draws; 0 is automatic. Equal sources and
/// choices give the same patch and cost for rounds of any size.
template <patch_source Draw>
sampling_cost sample_patch(sampler const& rule, Draw&& draw, std::span<token_id> patch, random_sequence& choice,
                           std::int64_t round = 0) {
    acceptance_sampler at_work(rule, patch.size(), choice);
    std::vector<token_id> fresh;
    while (!at_work.decided()) {
        std::int64_t const wanted =
            round > 0 ? round : round_size(rule.rule, at_work.draws_needed(), at_work.result().draws, 1);
        fresh.resize(static_cast<std::size_t>(std::min(wanted, at_work.draws_left())) * patch.size());
        draw(std::span<token_id>(fresh));
        at_work.take(fresh, choice);
    }
    std::copy(at_work.patch().begin(), at_work.patch().end(), patch.begin());
    return at_work.result();
}

}  // namespace calm
