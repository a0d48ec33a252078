#pragma once
// How good a model is on text it has not seen: BrierLM beside its references, the energy loss, the autoencoder's
// accuracy (spec 3, 8). Sizes: B blocks, P patches a block, K tokens a patch, N samples.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "calm/loss/brier.hpp"
#include "calm/model/calm.hpp"
#include "calm/model/limits.hpp"
#include "calm/text/bigram.hpp"
#include "calm/text/special_tokens.hpp"
#include "calm/train/branches.hpp"
#include "calm/train/evaluation.hpp"

namespace calm {

struct evaluation_settings {
    index_t block_tokens = 256;                           // P K; BrierLM depends on it
    index_t samples = 8;                                  // N, at least 2
    std::uint64_t seed = 1;                               // of all noise
    index_t positions = 0;                                // score a random subset of so many positions; 0: all
    index_t batch = 8;                                    // blocks computed at once: memory, not results
    calm::sampler sampler = calm::sampler::adaptive({});  // of the samples: T = 1, the model as it is
};

namespace detail {

// The seed and step of a context, given back at the end of a scope.
template <class Backend> class reseeded {
public:
    reseeded(context<Backend>& ctx, std::uint64_t seed) : ctx_(ctx), seed_(ctx.seed), step_(ctx.step) {
        ctx.seed = seed;
        ctx.step = 0;
    }
    ~reseeded() {
        ctx_.seed = seed_;
        ctx_.step = step_;
    }
    reseeded(reseeded const&) = delete;
    reseeded& operator=(reseeded const&) = delete;

private:
    context<Backend>& ctx_;
    std::uint64_t seed_;
    std::uint32_t step_;
};

inline index_t count_blocks(std::span<token_id const> blocks, evaluation_settings const& s, index_t K) {
    require(s.block_tokens >= 2 * K && s.block_tokens % K == 0, errc::config, "calm::evaluate: a block of ",
            s.block_tokens, " tokens is no whole number of at least 2 patches of ", K, " tokens");
    auto const length = static_cast<std::size_t>(s.block_tokens);
    require(!blocks.empty() && blocks.size() % length == 0, errc::data, "calm::evaluate: expected whole blocks of ",
            length, " tokens, found ", blocks.size(), " tokens; give more text or shorter blocks");
    return static_cast<index_t>(blocks.size() / length);
}

inline void add_autoencoder(evaluation& e, autoencoder_evaluation const& a) {
    e.token_accuracy = a.token_accuracy;
    e.token_accuracy_posterior = a.token_accuracy_posterior;
    e.posterior_std = a.posterior_std;
}

// Which predictions 0 .. P - 2 of every block are scored, ascending.
struct chosen_positions {
    std::vector<std::vector<index_t>> of_block;
    index_t skipped_pad = 0;
};

// All whose target is whole and holds no PAD, or s.positions of them, every subset equally likely (stream::positions).
inline chosen_positions choose_positions(std::span<token_id const> blocks, evaluation_settings const& s, index_t K,
                                         token_id pad) {
    auto const k = static_cast<std::size_t>(K);
    auto const length = static_cast<std::size_t>(s.block_tokens);
    chosen_positions chosen{std::vector<std::vector<index_t>>(blocks.size() / length), 0};
    index_t counted = 0;
    for (std::size_t b = 0; b < chosen.of_block.size(); ++b)
        for (std::size_t at = k; at < length; at += k) {
            auto const target = brier_target(blocks.subspan(b * length, length), at, k);
            if (target.empty()) continue;
            if (!is_counted(target, pad)) {
                ++chosen.skipped_pad;
                continue;
            }
            chosen.of_block[b].push_back(static_cast<index_t>(at / k) - 1);
            ++counted;
        }
    if (s.positions == 0 || s.positions >= counted) return chosen;
    random_sequence random({s.seed, stream::positions, 0});
    index_t wanted = s.positions;
    for (auto& positions : chosen.of_block)
        std::erase_if(positions, [&](index_t) {
            bool const take = random.below(static_cast<std::uint32_t>(counted--)) < wanted;
            wanted -= take;
            return !take;
        });
    return chosen;
}

// The rows (n, P - 1) of a batch of blocks that are drawn: of every position that is scored and the patches after it
// that score it too; or all.
inline std::vector<token_id> rows_to_draw(std::span<std::vector<index_t> const> chosen, index_t P, index_t K,
                                          bool all) {
    auto const patches = static_cast<index_t>(brier_patches(static_cast<std::size_t>(K)));
    std::vector<token_id> rows;
    for (std::size_t b = 0; b < chosen.size(); ++b) {
        auto const first = static_cast<index_t>(b) * (P - 1);
        index_t next = 0;
        for (index_t const p : chosen[b])
            for (next = std::max(next, p); next < p + patches; ++next)
                rows.push_back(static_cast<token_id>(first + next));
    }
    if (all) {
        rows.resize(chosen.size() * static_cast<std::size_t>(P - 1));
        std::iota(rows.begin(), rows.end(), 0);
    }
    return rows;
}

// Sums of the references' scores at the scored positions.
struct reference_sums {
    brier_sequence unigram;
    brier_sequence bigram;

    void add(bigram_table const& table, token_id previous, std::span<token_id const> target) {
        auto const next = target.first<brier_orders>();
        unigram.add(table.unigram_brier(next));
        bigram.add(table.bigram_brier(previous, next));
    }
};

}  // namespace detail

// Tokens are whole patches. The noise of patch i of them is position i of stream::posterior. Throws errc::usage for
// incomplete patches and errc::data where there is nothing but PAD.
template <autoencoder_configuration C, class T, class Backend>
autoencoder_evaluation evaluate_autoencoder(context<Backend>& ctx, autoencoder<C, T, Backend> const& model,
                                            std::span<token_id const> tokens, token_id pad, std::uint64_t seed) {
    using model_type = autoencoder<C, T, Backend>;
    constexpr index_t K = model_type::K;
    constexpr index_t L = model_type::L;
    constexpr index_t chunk = 512;  // patches
    require(tokens.size() % static_cast<std::size_t>(K) == 0, errc::usage,
            "calm::evaluate_autoencoder: expected whole patches of ", K, " tokens, found ", tokens.size(), " tokens");
    auto const patches = static_cast<index_t>(tokens.size()) / K;
    index_t counted = 0, right = 0, right_posterior = 0;
    double std_sum = 0, loss_sum = 0;
    for (index_t p0 = 0; p0 < patches; p0 += chunk) {
        arena_scope const saved(ctx.saved);
        arena_scope const scratch(ctx.scratch);
        index_t const n = std::min(chunk, patches - p0);
        vector_view<token_id const, dyn, Backend> const want(tokens.data() + p0 * K, extents<dyn>(n * K));
        auto const posterior = model.posterior(ctx, want);
        auto const got = ctx.scratch.template take<token_id>(want.extents());
        auto const count_right = [&] {
            index_t hits = 0;
            for (index_t i = 0; i < n * K; ++i) hits += want[i] != pad && got[i] == want[i];
            return hits;
        };
        model.decode_tokens(ctx, got, posterior.mean);
        right += count_right();
        auto const z = ctx.scratch.template take<T>(extents<dyn, L>(n));
        fill_normal(ctx, z, key{seed, stream::posterior, 0}, static_cast<std::uint64_t>(p0 * L));
        evaluate(ctx, z, posterior.mean + exp(posterior.log_std) * z);
        matrix_view<T const, model_type::D, Backend> const decoded = model.decode(ctx, z).y;  // (n K, D)
        argmax_token(ctx, got, decoded, model.embed_tokens.weight.read());
        right_posterior += count_right();
        auto const losses = ctx.scratch.template take<T>(extents<dyn>(n * K));
        cross_entropy(ctx, losses, {}, {}, decoded, model.embed_tokens.weight.read(), want, 0);
        for (index_t i = 0; i < n * K; ++i) loss_sum += static_cast<double>(losses[i]);
        for (index_t i = 0; i < n * L; ++i) std_sum += std::exp(static_cast<double>(posterior.log_std[i]));
        counted += n * K - std::count(want.begin(), want.end(), pad);
    }
    require(counted > 0, errc::data,
            "calm::evaluate_autoencoder: expected a token that is not PAD, found none; give more text");
    auto const share = [](auto part, index_t whole) { return static_cast<double>(part) / static_cast<double>(whole); };
    return {share(right, counted), share(right_posterior, counted), share(std_sum, patches * L),
            share(loss_sum, patches * K)};
}

// What of an evaluation an autoencoder has, from whole blocks.
template <autoencoder_configuration C, class T, class Backend>
evaluation evaluate(context<Backend>& ctx, autoencoder<C, T, Backend> const& model, std::span<token_id const> blocks,
                    special_tokens const& special, evaluation_settings const& settings) {
    detail::count_blocks(blocks, settings, C.patch_size);
    evaluation e;
    e.block = settings.block_tokens;
    e.seed = settings.seed;
    detail::add_autoencoder(e, evaluate_autoencoder(ctx, model, blocks, special.pad, settings.seed));
    return e;
}

// Whole blocks through a language model. The P - 1 predictions of a block are drawn N times and scored, but those whose
// target, the next max(K, 4) tokens, holds PAD or runs past the block; a block is a sequence of the jackknife. With
// fewer than 4 tokens a patch every sample goes on along its own tokens (count_pairs). Prediction p of block b has
// number b (P - 1) + p in stream::evaluation, so results do not depend on the batch, nor a score on what else is
// scored; its further patches draw at step 1. The energy loss is that of the objective given, and none without one (of
// a stored model, energy_objective_of says it): the mean over all predictions that are drawn, with the noise of
// training at step 0. The references are scored at the same positions, where a table is given. Throws
// errc::config for blocks that are no whole patches, errc::data where nothing can be scored, errc::tokenizer for ids of
// another vocabulary.
template <class Model, class Backend>
evaluation evaluate(context<Backend>& ctx, Model& model, std::span<token_id const> blocks,
                    special_tokens const& special, bigram_table const* table, evaluation_settings const& settings,
                    std::optional<typename Model::objective> const& objective = {}) {
    constexpr index_t K = Model::K;
    constexpr auto k = static_cast<std::size_t>(K);
    constexpr auto patches = brier_patches(k);
    require(settings.samples >= 2 && settings.samples <= limits::samples && settings.batch >= 1 &&
                settings.positions >= 0,
            errc::usage, "calm::evaluate: expected from 2 to ", limits::samples,
            " samples a position and at least 1 block at a time, found ", settings.samples, " and ", settings.batch);
    require(table == nullptr || table->vocabulary_size() == model.vocabulary(), errc::data, [&] {
        return sentence("calm::evaluate: expected a bigram table of the model's vocabulary of ", model.vocabulary(),
                        ", found one of ", table->vocabulary_size(), "; count the model's training tokens again");
    });
    index_t const B = detail::count_blocks(blocks, settings, K);
    index_t const P = settings.block_tokens / K;
    index_t const N = settings.samples;
    auto const chosen = detail::choose_positions(blocks, settings, K, special.pad);
    std::vector<brier_sequence> sequences(static_cast<std::size_t>(B));
    detail::reference_sums references;
    branches<Model, Backend> on(ctx, model, patches > 1 ? P - 1 : 0, static_cast<index_t>(patches) - 1);
    double energy = 0;
    index_t drawn = 0;  // predictions
    sampled_together took;
    detail::reseeded const scope_of_seed(ctx, settings.seed);
    for (index_t b0 = 0; b0 < B; b0 += settings.batch) {
        index_t const n = std::min(settings.batch, B - b0);
        auto const here = std::span(chosen.of_block).subspan(static_cast<std::size_t>(b0), static_cast<std::size_t>(n));
        auto const rows = detail::rows_to_draw(here, P, K, settings.positions == 0);
        auto const R = static_cast<index_t>(rows.size());
        if (R == 0) continue;
        auto const samples = [&] {  // (R, N, K)
            arena_scope const saved(ctx.saved);
            arena_scope const scratch(ctx.scratch);
            typename Model::token_view const tokens(blocks.data() + b0 * P * K, extents<dyn>(n * P * K));
            auto const t = model.shift(ctx, tokens, P);
            auto const all = model.transformer.forward(ctx, model.read(ctx, t.inputs), P - 1).y;
            auto const hidden = ctx.saved.template take<typename Model::scalar>(extents<dyn, Model::D>(R));
            vector_view<token_id const, dyn, Backend> const ids(rows.data(), extents<dyn>(R));
            gather_rows(ctx, hidden, matrix_view<typename Model::scalar const, Model::D, Backend>(all), ids);
            auto const labels = ctx.saved.template take<token_id>(extents<dyn>(R * K));
            std::vector<noise_place> places;
            for (index_t r = 0; r < R; ++r) {
                std::copy_n(t.labels.data() + ids[r] * K, K, labels.data() + r * K);
                places.push_back({ctx.random(stream::evaluation), (b0 * (P - 1) + ids[r]) * N});
            }
            if (objective) energy += model.loss_sum(ctx, hidden, labels, *objective, drawn);
            std::vector<token_id> made(
                static_cast<std::size_t>(checked_count("sampled tokens", {R, N, K}, sizeof(token_id))));
            sample_many(ctx, model, std::span<token_id>(made),
                        matrix_view<typename Model::scalar const, Model::D, Backend>(hidden), N, settings.sampler,
                        places, took);
            return made;
        }();
        drawn += R;
        auto row = rows.size();
        for (index_t b = b0 + n; b-- > b0;) {
            auto const block = blocks.subspan(static_cast<std::size_t>(b * P * K), static_cast<std::size_t>(P * K));
            auto const& positions = here[static_cast<std::size_t>(b - b0)];
            if (patches > 1 && !positions.empty()) on.read(block.first(block.size() - k));
            for (auto at = positions.rbegin(); at != positions.rend(); ++at) {
                index_t const p = *at;
                while (rows[row - 1] != (b - b0) * (P - 1) + p) --row;
                auto const size = static_cast<std::size_t>(N) * k;
                std::span<token_id const> const own = std::span(samples).subspan((row - 1) * size, patches * size);
                auto const first = static_cast<std::size_t>(p + 1) * k;
                auto const target = brier_target(block, first, k);
                auto& sum = sequences[static_cast<std::size_t>(b)];
                if constexpr (patches > 1) {
                    noise_place place{{settings.seed, stream::evaluation, 1},
                                      (b * (P - 1) + p) * static_cast<index_t>(patches - 1) * N};
                    auto const go_on = [&](std::span<token_id const> prefix, std::span<token_id> out) {
                        on.draw(p, prefix, out, place, settings.sampler, took);
                        place.first += static_cast<index_t>(out.size()) / K;
                    };
                    sum.add(brier_of(count_hits(own, k, target), count_pairs(own.first(size), k, go_on),
                                     static_cast<std::size_t>(N)));
                } else {
                    sum.add(brier_position(own, target));
                }
                if (table != nullptr) references.add(*table, block[first - 1], target);
            }
        }
    }
    auto const report = report_brier(sequences);
    evaluation e;
    e.brier = report.brier;
    e.brier_se = report.brier_error;
    e.brier_lm = report.brier_lm;
    e.brier_lm_se = report.brier_lm_error;
    e.positions = report.positions;
    e.sequences = report.sequences;
    e.skipped_pad = chosen.skipped_pad;
    e.block = settings.block_tokens;
    e.samples = N;
    e.temperature = settings.sampler.T;
    e.sampler = settings.sampler.name();
    e.draws_a_patch = static_cast<double>(took.draws) / static_cast<double>(std::max<index_t>(1, took.patches));
    e.capped = took.capped;
    e.seed = settings.seed;
    if (objective) e.energy_loss = energy / static_cast<double>(drawn);
    if (table != nullptr) {
        e.unigram_brier = report_brier(std::span(&references.unigram, 1)).brier;
        e.bigram_brier = report_brier(std::span(&references.bigram, 1)).brier;
        e.bigram_brier_lm = brier_lm(*e.bigram_brier);
    }
    detail::add_autoencoder(e, evaluate_autoencoder(ctx, model.ae_model, blocks, special.pad, settings.seed));
    return e;
}

}  // namespace calm
