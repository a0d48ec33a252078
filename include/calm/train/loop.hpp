#pragma once
/// \file
/// Trains an autoencoder or a language model until the number of steps or the time is reached. Prints nothing:
/// callbacks report progress. With a step limit, equal seeds give equal weights at any number of threads. A stopped run
/// resumes bit for bit if steps limit it and model, text and state are unchanged.
///
/// Several ranks may train together (calm/ranks.hpp), each with its own identical model, source and context. The result
/// is bit-identical to one rank: each rank does 1, 2, 4, ... micro-batches per step. Callbacks are called on all ranks,
/// `checkpoint` only on rank 0; `stop` must return the same on all. `ranks` is this rank's process group, or null for
/// one rank; a call without it compiles no code for ranks.
/// \shows{examples/12_training.cpp}

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "calm/base/token.hpp"
#include "calm/model/autoregressive.hpp"
#include "calm/model/calm.hpp"
#include "calm/model/detail/limits.hpp"
#include "calm/model/flops.hpp"
#include "calm/tensor/detail/device/graph.hpp"
#include "calm/train/detail/training.hpp"
#include "calm/train/recipe.hpp"
#include "calm/train/training_callbacks.hpp"

namespace calm {

/// Fills a span with the next tokens, in whole patches or blocks: B P K or R K tokens.
template <class Source>
concept token_source = std::invocable<Source&, std::span<token_id>>;

namespace detail {

// Splits the batch into equal micro-batches and returns their size. Each element of the batch has `tokens` tokens.
inline index_t micro_size(index_t batch, index_t accumulation, index_t unit, char const* what, index_t tokens = 1) {
    index_t const part = checked_count(what, {accumulation, unit});
    require(batch > 0 && batch % part == 0, errc::usage, "training: expected a batch that is a multiple of ", part, " ",
            what, " (", accumulation, " micro-batches), found ", batch);
    require(batch <= limits::step_tokens / tokens, errc::usage, "training: expected a step of at most ",
            limits::step_tokens, " tokens, found ", batch, " ", what, tokens > 1 ? " of as many tokens as a block" : "",
            "; use a smaller batch or shorter blocks");
    return batch / accumulation;
}

// Buffer for the ids of a micro-batch; its memory is not touched before ids are read into it.
class batch_place {
public:
    explicit batch_place(index_t tokens) : ids_(memory_.take<token_id>(extents<dyn>(tokens))) {}

    [[nodiscard]] std::span<token_id> ids() const { return {ids_.data(), static_cast<std::size_t>(ids_.size())}; }

private:
    arena<> memory_{"ids of a batch"};
    vector_view<token_id> ids_;
};

// Replaces a fraction of the patches of `tokens` by random tokens below V; the first patch is number `first` of the
// step. Patch i uses words i (K + 1) .. of the key.
inline void put_random_patches(key draws, std::span<token_id> tokens, index_t K, index_t V, double fraction,
                               index_t first) {
    auto const word = [&](index_t i) { return philox(draws, static_cast<std::uint64_t>(i) / 4).v[i % 4]; };
    for (index_t p = 0; p < static_cast<index_t>(tokens.size()) / K; ++p) {
        index_t const at = (first + p) * (K + 1);
        if (uniform_from(word(at)) >= static_cast<float>(fraction)) continue;
        for (index_t k = 0; k < K; ++k)
            tokens[static_cast<std::size_t>(p * K + k)] =
                static_cast<token_id>(below(word(at + 1 + k), static_cast<std::uint32_t>(V)));
    }
}

}  // namespace detail

/// Trains an autoencoder that has memory for values and gradients (formulas: docs/mathematics/autoencoder.md). The
/// source must fill whole patches. Throws errc::usage for an invalid recipe, errc::non_finite naming tensor and step
/// before any weight changes, and the errors of source and callbacks.
template <autoencoder_configuration C, class Space, token_source Source,
          std::convertible_to<process_group*> Ranks = std::nullptr_t>
void train_autoencoder(context<typename Space::backend>& ctx, autoencoder<C, Space>& model, Source&& source,
                       autoencoder_recipe const& recipe, training_callbacks const& callbacks = {},
                       Ranks ranks = nullptr) {
    detail::check(recipe);
    constexpr index_t K = C.patch_size;
    index_t const count = detail::micro_size(recipe.batch_tokens, recipe.accumulation, K, "tokens");
    detail::batch_place const tokens(count);
    double const weight = 1.0 / static_cast<double>(recipe.accumulation);
    captured_graph<typename Space::backend> forward_and_backward;
    auto const micro = [&](progress&, auto const& losses) {
        auto const first = ctx.micro_batch_counter(count / K);  // patches of the step before this micro-batch
        if (!ctx.is_dry_run() && recipe.random_patches > 0)
            detail::put_random_patches(ctx.random(stream::random_patches).by_value(), tokens.ids(), K,
                                       model.vocabulary(), recipe.random_patches,
                                       static_cast<index_t>(first.by_value()));
        arena_scope const scope(ctx.saved);
        auto const batch = model.prepare(ctx, tokens.ids(), recipe.objective.dropout, first);
        forward_and_backward(ctx, {}, [&] { model.loss_and_gradient(ctx, losses, batch, recipe.objective, weight); });
    };
    double const work = flops::train_autoencoder(C, model.vocabulary(), count / K) *
                        static_cast<double>(recipe.batch_tokens) / static_cast<double>(K);
    detail::train(ctx, parameters_of(model), recipe, callbacks,
                  {.size = {recipe.batch_tokens, work},
                   .micro = micro,
                   .next_batch = [&](progress const&) { source(tokens.ids()); }},
                  ranks);
}

/// Trains backbone and head of a language model whose autoencoder is trained (docs/mathematics.md). The source fills
/// whole blocks of recipe.block_tokens tokens: give text_blocks the same length. Throws as train_autoencoder.
template <model_configuration auto C, class Space, token_source Source,
          std::convertible_to<process_group*> Ranks = std::nullptr_t>
void train_calm(context<typename Space::backend>& ctx, calm_model<C, Space>& model, Source&& source,
                calm_recipe<typename calm_model<C, Space>::objective> const& recipe,
                training_callbacks const& callbacks = {}, Ranks ranks = nullptr) {
    detail::check(recipe);
    constexpr index_t K = C.autoencoder.patch_size;
    require(recipe.block_tokens >= 2 * K && recipe.block_tokens % K == 0, errc::usage,
            "training: expected blocks of at least 2 whole patches of ", K, " tokens, found ", recipe.block_tokens,
            " tokens");
    index_t const sequences =
        detail::micro_size(recipe.sequences, recipe.accumulation, 1, "sequences", recipe.block_tokens);
    index_t const patches = recipe.block_tokens / K;
    detail::batch_place const tokens(sequences * recipe.block_tokens);
    double const weight = 1.0 / static_cast<double>(recipe.accumulation);
    captured_graph<typename Space::backend> forward_and_backward;
    auto const micro = [&](progress& now, auto const& losses) {
        arena_scope const scope(ctx.saved);
        auto const batch = model.prepare(ctx, tokens.ids(), patches);
        auto const first = ctx.micro_batch_counter(sequences * (patches - 1));
        forward_and_backward(ctx, {}, [&] {
            model.loss_and_gradient(ctx, detail::loss_alone(losses), batch, recipe.objective, first, weight);
        });
        now.cross_entropy = now.kl = now.posterior_std = progress::none;
    };
    double const work =
        flops::train_calm(C, model.ae_model.vocabulary(), sequences, patches - 1, recipe.objective.samples) *
        static_cast<double>(recipe.sequences * (patches - 1));
    detail::train(ctx, parameters_of(model), recipe, callbacks,
                  {.size = {recipe.sequences * recipe.block_tokens, work},
                   .frozen_bytes = detail::bytes_of_parameters(parameters_of(model.ae_model)),
                   .micro = micro,
                   .next_batch = [&](progress const&) { source(tokens.ids()); }},
                  ranks);
}

/// Trains an autoregressive model that has memory for values and gradients, at token level or first at patch level
/// (docs/mathematics/autoregressive.md). The source must fill sequences of P tokens, in the first phase of K P tokens:
/// there consecutive blocks of a text follow one another. Throws as train_autoencoder.
template <autoregressive_configuration C, class Space, token_source Source,
          std::convertible_to<process_group*> Ranks = std::nullptr_t>
void train_autoregressive(context<typename Space::backend>& ctx, autoregressive_model<C, Space>& model, Source&& source,
                          autoregressive_recipe const& given, training_callbacks const& callbacks = {},
                          Ranks ranks = nullptr) {
    auto recipe = given;
    index_t const P = recipe.block_tokens, K = recipe.level.patch;
    require(P >= 2, errc::usage, "training: expected blocks of at least 2 tokens, found ", P);
    require(K >= 1 && K <= limits::step_tokens / P && recipe.level.share >= 0 && recipe.level.share < 1, errc::usage,
            "training: expected a patch level of at least 1 token and a share of the tokens from 0 to below 1, found ",
            K, " and ", recipe.level.share);
    recipe.first_phase = recipe.level.first_phase();
    detail::check(recipe);
    bool const two_phases = recipe.first_phase > 0;
    index_t const sequences =
        detail::micro_size(recipe.sequences, recipe.accumulation, 1, "sequences", (two_phases ? K : 1) * P);
    detail::batch_place const place(sequences * (two_phases ? K : 1) * P);
    double const weight = 1.0 / static_cast<double>(recipe.accumulation);
    auto const patch_of = [&](progress const& now) { return now.first_phase ? K : 1; };
    auto const place_of = [&](progress const& now) {
        return place.ids().first(static_cast<std::size_t>(sequences * patch_of(now) * P));
    };
    captured_graph<typename Space::backend> forward_and_backward;
    auto const micro = [&](progress& now, auto const& losses) {
        arena_scope const scope(ctx.saved);
        auto const batch = model.prepare(ctx, place_of(now), P, patch_of(now));
        forward_and_backward(ctx, {patch_of(now)},
                             [&] { model.loss_and_gradient(ctx, detail::loss_alone(losses), batch, weight); });
        now.cross_entropy = now.kl = now.posterior_std = progress::none;
    };
    index_t const step = recipe.sequences * P;
    double const work = flops::train_autoregressive(C.llama, model.vocabulary(), P) * static_cast<double>(step);
    detail::train(ctx, parameters_of(model), recipe, callbacks,
                  {.size = {step, work, K * step},
                   .micro = micro,
                   .next_batch = [&](progress const& now) { source(place_of(now)); }},
                  ranks);
}

}  // namespace calm
