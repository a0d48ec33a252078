#pragma once
/// \file
/// The next tokens of models with known probabilities; sample_next.hpp is for models that only draw. Sizes: R rows, D
/// hidden, V vocabulary.
/// \shows{tests/sample/generate_tokens_test.cpp,texts_follow_the_probabilities}

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/sample/detail/sample_next.hpp"
#include "calm/sample/token_sampler.hpp"
#include "calm/tensor/detail/core/working_set.hpp"

namespace calm {

/// A model with one token per position that gives its logits.
template <class Model>
concept gives_logits =
    requires(Model const& model, context<typename Model::backend>& ctx,
             matrix_view<typename Model::scalar, dyn, typename Model::backend> const& y,
             matrix_view<typename Model::scalar const, Model::D, typename Model::backend> const& hidden) {
    model.logits(ctx, y, hidden);
};

/// The sampler type of a model.
template <class Model> using rule_of = std::conditional_t<gives_logits<Model>, token_sampler, sampler>;

/// Calls f(row, logits (V)) for hidden states (R, D), in order; computes as many rows at once as suit the device.
template <gives_logits Model, class Backend, class F>
void for_each_logits(context<Backend>& ctx, Model const& model,
                     matrix_view<typename Model::scalar const, Model::D, Backend> const& hidden, F const& f) {
    using T = typename Model::scalar;
    constexpr index_t cached = index_t{1} << 22;  // logits at once, on the host
    index_t const V = model.vocabulary();
    index_t const chunk =
        std::min(hidden.extent(0), rows_at_once(ctx, cached / V, static_cast<std::size_t>(V) * sizeof(T)));
    arena_scope const scope(ctx.workspace);
    auto const logits = ctx.workspace.template take<T>(extents<dyn, dyn>(chunk, V));
    std::vector<T> room;
    for (index_t r0 = 0; r0 < hidden.extent(0); r0 += chunk) {
        index_t const n = std::min(chunk, hidden.extent(0) - r0);
        model.logits(ctx, {logits.data(), extents<dyn, dyn>(n, V)}, rows(hidden, r0, n));
        auto const found = to_host(ctx, rows(logits, 0, n), room);
        for (index_t r = 0; r < n; ++r)
            f(r0 + r, found.subspan(static_cast<std::size_t>(r * V), static_cast<std::size_t>(V)));
    }
}

/// Fills tokens (R) with the next token for each of rngs (R), by the rule, from the hidden states (any, D) of their
/// rows; one draw each. A token depends only on its row and its noise, a key and a number. Throws errc::usage unless
/// there is room for one token per element of rngs, errc::non_finite if a logit is NaN.
template <gives_logits Model, class Backend>
std::vector<sampling_cost> sample_next(context<Backend>& ctx, Model const& model, std::span<token_id> tokens,
                                       matrix_view<typename Model::scalar const, Model::D, Backend> const& hidden,
                                       token_sampler const& rule, std::span<patch_rng const> rngs, std::int64_t = 0,
                                       sampler_cache<Backend>* = nullptr) {
    require(tokens.size() == rngs.size(), errc::usage, "calm::sample_next: expected room for ", rngs.size(),
            " tokens, found room for ", tokens.size());
    arena_scope const scope(ctx.workspace);
    auto const states =
        ctx.workspace.template take<typename Model::scalar>(extents<dyn, Model::D>(static_cast<index_t>(rngs.size())));
    std::vector<row_id> named;
    for (auto const& rng : rngs) named.push_back(static_cast<row_id>(rng.row));
    arena_scope const saved(ctx.saved);
    gather_rows(ctx, states, hidden, ids_to_device(ctx, std::span<row_id const>(named), hidden.extent(0)));
    categorical_distribution distribution;
    for_each_logits(ctx, model, matrix_view<typename Model::scalar const, Model::D, Backend>(states),
                    [&](index_t row, auto logits) {
                        auto const& [draws, first] = rngs[static_cast<std::size_t>(row)].noise;
                        random_sequence choice(draws, static_cast<std::uint64_t>(first));
                        distribution.set(logits, rule);
                        tokens[static_cast<std::size_t>(row)] = distribution.draw(choice.uniform_double());
                    });
    return std::vector<sampling_cost>(rngs.size(), sampling_cost{1, false});
}

}  // namespace calm
