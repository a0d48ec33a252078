#pragma once
// The next patch of many texts at a temperature: a sampler at work on each, their draws in common rounds. Sizes: R
// patches, K tokens a patch, D hidden.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "calm/model/alike.hpp"
#include "calm/model/heads/noise.hpp"
#include "calm/sample/sampler.hpp"
#include "calm/sample/separate_contexts.hpp"
#include "calm/tensor/rows.hpp"

namespace calm {

namespace detail {

template <class Backend> vector_view<token_id, dyn, Backend> token_view(std::span<token_id> tokens) {
    return {tokens.data(), extents<dyn>(static_cast<index_t>(tokens.size()))};
}

}  // namespace detail

// A patch to sample: from which of the hidden states, and where its noise stands, wherever it stands in a batch. With
// noise.first the number of the patch, draw d of it is number first 2^20 + d of the key, and its choices begin at block
// first 2^20 of stream::choice under the same seed and step.
struct patch_place {
    index_t row = 0;    // of the hidden states
    noise_place noise;  // key and number of the patch
};

// Fills tokens (R, K) with the patches of R places, by the rule, from the hidden states (any, D) of their rows; returns
// what each took. Others and rounds change nothing of a patch's noise, and of its sums the last bits; `round` 0 leaves
// it to the machine. Those that have decided leave the rounds. With `separate` contexts threads share draws instead of
// products, where that is faster. Throws errc::usage unless there is room for a patch a place.
template <class Model, class Backend>
std::vector<sampled> sample_next(context<Backend>& ctx, Model const& model, std::span<token_id> tokens,
                                 matrix_view<typename Model::scalar const, Model::D, Backend> const& hidden,
                                 sampler const& rule, std::span<patch_place const> places, std::int64_t round = 0,
                                 separate_contexts<Backend>* separate = nullptr) {
    constexpr auto K = static_cast<std::size_t>(Model::K);
    constexpr std::int64_t largest = 1024;           // draws of one patch at once: memory
    constexpr index_t draws_apart = sampler::limit;  // between the numbers of two patches
    require(tokens.size() == places.size() * K, errc::usage, "calm::sample_next: expected room for ", places.size(),
            " patches of ", K, " tokens, found room for ", tokens.size(), " tokens");
    using T = typename Model::scalar;
    using latents = matrix_view<T, Model::L, Backend>;
    struct sampled_place {
        std::size_t number;
        patch_sampling at_work;
        random_sequence choice;
        std::vector<latents> drawn;  // (draws of a round, L), where tokens may be missing
    };
    std::vector<sampled_place> active;
    for (std::size_t r = 0; r < places.size(); ++r) {
        auto const& [key, first] = places[r].noise;
        active.push_back(
            {r,
             patch_sampling(rule, K),
             random_sequence({key.seed, stream::choice, key.step}, static_cast<std::uint64_t>(first * draws_apart)),
             {}});
    }
    // The adaptive rule asks only whether the draws of an attempt are equal, so rounds are whole attempts whose tokens
    // are decoded while they are alike; the latents are kept for the batch rule.
    std::int64_t const attempt = rule.rule == sampling_rule::adaptive && rule.most <= largest ? rule.n : 1;
    // Threads draw apart where the weights stay in a core's cache and products are too small to be shared.
    index_t const teams = separate != nullptr && Model::D <= 128 ? separate->size() : 1;
    arena_scope const kept(ctx.scratch);
    std::vector<sampled> done(places.size());
    std::vector<token_id> drawn;  // (active, n, K)
    std::vector<noise_place> noise;
    while (!active.empty()) {
        auto const count = static_cast<index_t>(active.size());
        std::int64_t least = 0, most = 0, made = 0;
        for (auto const& one : active) {
            least = std::max(least, one.at_work.at_least());
            most = std::max(most, one.at_work.at_most());
            made = std::max(made, one.at_work.result().draws);
        }
        std::int64_t n = round > 0 ? std::max(round, attempt) : round_size(least, made, count, teams);
        n = std::min({n, most, largest});
        if (n > attempt) n -= n % attempt;
        bool const divides = teams > 1 && count * n <= 128;
        drawn.resize(static_cast<std::size_t>(count * n) * K);
        auto const out = detail::token_view<Backend>(std::span(drawn));
        latents z{};
        if (attempt > 1) z = ctx.scratch.template take<T>(extents<dyn, Model::L>(count * n));
        arena_scope const scratch(ctx.scratch);
        auto const states = ctx.scratch.template take<T>(extents<dyn, Model::D>(count));
        noise.clear();
        for (index_t i = 0; i < count; ++i) {
            auto& one = active[static_cast<std::size_t>(i)];
            auto const& place = places[one.number];
            copy(ctx, rows(states, i, 1), rows(hidden, place.row, 1));
            noise.push_back({place.noise.draws, place.noise.first * draws_apart + one.at_work.result().draws});
            if (attempt > 1) one.drawn.push_back(rows(z, i * n, n));
        }
        // Draws begin .. end of `some` places from i.
        auto const draw = [&](context<Backend>& by, index_t i, index_t some, index_t begin, index_t end) {
            std::vector<noise_place> own(noise.begin() + i, noise.begin() + i + some);
            for (auto& place : own) place.first += begin;
            index_t const first = i * n + begin, drawing = some * (end - begin);
            auto const patches = rows(out, first * Model::K, drawing * Model::K);
            auto const of = rows(states, i, some);
            if (attempt == 1) return model.sample_patches(by, patches, of, end - begin, own, rule.noise_scale);
            auto const groups = static_cast<std::size_t>(std::min(n, attempt));
            model.sample_alike(by, patches, rows(z, first, drawing), of, end - begin, own,
                               {groups, static_cast<std::size_t>(attempt)});
        };
        if (divides)
            separate->in_parts(ctx, count > 1 ? count : n, count > 1 ? 1 : attempt,
                               [&](context<Backend>& by, index_t begin, index_t end) {
                                   count > 1 ? draw(by, begin, end - begin, 0, n) : draw(by, 0, 1, begin, end);
                               });
        else
            draw(ctx, 0, count, 0, n);
        std::span<token_id const> rest = drawn;
        for (auto& one : active) {
            auto const own = rest.first(static_cast<std::size_t>(n) * K);
            rest = rest.subspan(own.size());
            // What the batch rule counts, and what it answers.
            auto const decode = [&](std::span<token_id> patches, std::size_t first, alike_groups groups) {
                if (attempt == 1) return;
                arena_scope const of_pool(ctx.scratch);
                auto const count_of = static_cast<index_t>(patches.size() / K);
                auto const pool = ctx.scratch.template take<T>(extents<dyn, Model::L>(count_of));
                std::size_t at = 0;
                for (auto const& z_of_round : one.drawn)
                    for (index_t i = 0; i < z_of_round.extent(0); ++i, ++at)
                        if (at >= first && at < first + static_cast<std::size_t>(count_of))
                            copy(ctx, rows(pool, static_cast<index_t>(at - first), 1), rows(z_of_round, i, 1));
                model.ae_model.decode_alike(ctx, detail::token_view<Backend>(patches), pool, groups);
            };
            one.at_work.take(own, one.choice, [&](std::span<token_id> pool) { decode(pool, 0, {pool.size() / K, 2}); });
            if (!one.at_work.decided()) continue;
            auto const patch = one.at_work.patch();
            auto const answer = tokens.subspan(one.number * K, K);
            std::copy(patch.begin(), patch.end(), answer.begin());
            decode(answer, one.at_work.chosen(), {1, 1});
            done[one.number] = one.at_work.result();
        }
        std::erase_if(active, [](sampled_place const& one) { return one.at_work.decided(); });
    }
    return done;
}

// What a sampler did for many patches.
struct sampled_together {
    index_t patches = 0;  // that were sampled
    index_t draws = 0;    // patches drawn from the head for them
    index_t capped = 0;   // patches at which the exact rule gave up

    // One more patch.
    void add(sampled const& one) {
        ++patches;
        draws += one.draws;
        capped += one.capped ? 1 : 0;
    }
};

// Fills tokens (R, N, K) with N patches for every hidden state (R, D), by the rule. Sample n of row r is the patch of
// number places[r].first + n; where one draw is the answer, that is the number of its noise too.
template <class Model, class Backend>
void sample_many(context<Backend>& ctx, Model const& model, std::span<token_id> tokens,
                 matrix_view<typename Model::scalar const, Model::D, Backend> const& hidden, index_t samples,
                 sampler const& rule, std::span<noise_place const> places, sampled_together& total) {
    if (rule.most == 1) {
        vector_view<token_id, dyn, Backend> const out(tokens.data(), extents<dyn>(static_cast<index_t>(tokens.size())));
        model.sample_patches(ctx, out, hidden, samples, places, rule.noise_scale);
        total.patches += hidden.extent(0) * samples;
        total.draws += hidden.extent(0) * samples;
        return;
    }
    std::vector<patch_place> each;
    for (index_t r = 0; r < hidden.extent(0); ++r) {
        auto const& [draws, first] = places[static_cast<std::size_t>(r)];
        for (index_t n = 0; n < samples; ++n) each.push_back({r, {draws, first + n}});
    }
    for (auto const& one : sample_next(ctx, model, tokens, hidden, rule, std::span<patch_place const>(each)))
        total.add(one);
}

}  // namespace calm
