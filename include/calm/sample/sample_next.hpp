#pragma once
// The next patch of many texts at a temperature: a sampler at work on each, their draws in common rounds. Sizes: R
// patches, K tokens a patch, D hidden.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "calm/model/heads/noise.hpp"
#include "calm/sample/sampler.hpp"
#include "calm/tensor/rows.hpp"

namespace calm {

// A patch to sample: from which of the hidden states, and where its noise stands, wherever it stands in a batch. With
// noise.first the number of the patch, draw d of it is number first 2^20 + d of the key, and its choices begin at block
// first 2^20 of stream::choice under the same seed and step.
struct patch_place {
    index_t row = 0;
    noise_place noise;
};

// Fills tokens (R, K) with the patches of R places, by the rule, from the hidden states (any, D) of their rows, and
// says what each took. A patch does not depend on the others, nor on the size of the rounds; `round` 0 leaves it to the
// machine. Those that have decided leave the rounds. Throws errc::usage unless there is room for a patch a place.
template <class Model, class Backend>
std::vector<sampled> sample_next(context<Backend>& ctx, Model const& model, std::span<token_id> tokens,
                                 matrix_view<typename Model::scalar const, Model::D, Backend> const& hidden,
                                 sampler const& rule, std::span<patch_place const> places, std::int64_t round = 0) {
    constexpr auto K = static_cast<std::size_t>(Model::K);
    constexpr std::int64_t largest = 1024;           // draws of one patch at once: memory
    constexpr index_t draws_apart = sampler::limit;  // between the numbers of two patches
    require(tokens.size() == places.size() * K, errc::usage, [&] {
        return "calm::sample_next: expected room for " + std::to_string(places.size()) + " patches of " +
               std::to_string(K) + " tokens, found room for " + std::to_string(tokens.size()) + " tokens";
    });
    struct sampled_place {
        std::size_t number;
        patch_sampling at_work;
        random_sequence choice;
    };
    std::vector<sampled_place> active;
    for (std::size_t r = 0; r < places.size(); ++r) {
        auto const& [key, first] = places[r].noise;
        active.push_back(
            {r, patch_sampling(rule, K),
             random_sequence({key.seed, stream::choice, key.step}, static_cast<std::uint64_t>(first * draws_apart))});
    }
    std::vector<sampled> done(places.size());
    std::vector<token_id> drawn;  // (active, n, K)
    std::vector<noise_place> noise;
    while (!active.empty()) {
        arena_scope const scratch(ctx.scratch);
        auto const count = static_cast<index_t>(active.size());
        std::int64_t least = 0, most = 0, made = 0;
        for (auto const& one : active) {
            least = std::max(least, one.at_work.at_least());
            most = std::max(most, one.at_work.at_most());
            made = std::max(made, one.at_work.result().draws);
        }
        std::int64_t const n = std::min({round > 0 ? round : round_size(least, made, count), most, largest});
        auto const states = ctx.scratch.template take<typename Model::scalar>(extents<dyn, Model::D>(count));
        noise.clear();
        for (index_t i = 0; i < count; ++i) {
            auto const& one = active[static_cast<std::size_t>(i)];
            auto const& place = places[one.number];
            copy(ctx, rows(states, i, 1), rows(hidden, place.row, 1));
            noise.push_back({place.noise.draws, place.noise.first * draws_apart + one.at_work.result().draws});
        }
        drawn.resize(static_cast<std::size_t>(count * n) * K);
        model.sample_patches(
            ctx, vector_view<token_id, dyn, Backend>(drawn.data(), extents<dyn>(static_cast<index_t>(drawn.size()))),
            states, n, noise, rule.noise_scale);
        std::span<token_id const> rest = drawn;
        for (auto& one : active) {
            auto const own = rest.first(static_cast<std::size_t>(n) * K);
            rest = rest.subspan(own.size());
            one.at_work.take(own, one.choice);
            if (!one.at_work.decided()) continue;
            auto const patch = one.at_work.patch();
            std::copy(patch.begin(), patch.end(), tokens.begin() + static_cast<std::ptrdiff_t>(one.number * K));
            done[one.number] = one.at_work.result();
        }
        std::erase_if(active, [](sampled_place const& one) { return one.at_work.decided(); });
    }
    return done;
}

// What a sampler did for many patches.
struct sampled_together {
    index_t patches = 0;
    index_t draws = 0;
    index_t capped = 0;  // patches

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
