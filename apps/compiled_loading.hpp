#pragma once
// Compiles how a program loads models of a configuration, to generate and to evaluate, and what its training calls to
// score and to sample. A plug-in compiles it apart from training.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "calm/runs/detail/load_evaluator.hpp"
#include "compiled_generating.hpp"

namespace calm::apps {

// Tokens of the first of `prompts`, at T = 1/2 for either kind of model. They draw from the streams of generation, so
// training is unaffected.
template <class Model, class Backend>
std::vector<token_id> sampled_text(context<Backend>& ctx, Model const& model, special_tokens const& special,
                                   std::vector<std::vector<token_id>> const& prompts) {
    rule_of<Model> half;
    half.T = 0.5;
    return calm::generate(ctx, model, std::span(prompts), special, {.sampler = half, .max_tokens = 32}).front().tokens;
}

// These are pointers because a plug-in compiles training apart from the functions.
template <model_configuration auto C, class Space> struct measures_of_calm {
    using model_type = calm_model<C, Space>;
    using autoencoder_type = typename model_type::autoencoder_type;
    using context_type = context<typename Space::backend>;

    evaluation (*score)(context_type&, model_type&, std::span<token_id const> blocks, special_tokens const&,
                        bigram_table const&, evaluation_settings const&, typename model_type::objective const&,
                        process_group*);
    autoencoder_evaluation (*score_autoencoder)(context_type&, autoencoder_type const&,
                                                std::vector<token_id> const& tokens, token_id pad, std::uint64_t seed,
                                                process_group*);
    std::vector<token_id> (*sample)(context_type&, model_type const&, special_tokens const&,
                                    std::vector<std::vector<token_id>> const& prompts);
};
template <autoregressive_configuration C, class Space> struct measures_of_autoregressive {
    using model_type = autoregressive_model<C, Space>;
    using context_type = context<typename Space::backend>;

    evaluation (*score)(context_type&, model_type&, std::span<token_id const> blocks, special_tokens const&,
                        bigram_table const&, token_evaluation_settings const&, std::span<index_t const> bytes_of_tokens,
                        process_group*);
    std::vector<token_id> (*sample)(context_type&, model_type const&, special_tokens const&,
                                    std::vector<std::vector<token_id>> const& prompts);
};

template <model_configuration auto C, class Space>
constexpr measures_of_calm<C, Space> compiled_measures_of_calm{
    [](auto& ctx, auto& model, auto blocks, auto const& special, auto const& counts, auto const& settings,
       auto const& loss, process_group* ranks) {
        return calm::evaluate_model(ctx, model, blocks, special, &counts, settings, loss, ranks);
    },
    [](auto& ctx, auto const& model, auto const& tokens, token_id pad, std::uint64_t seed, process_group* ranks) {
        return evaluate_autoencoder(ctx, model, tokens, pad, seed, ranks);
    },
    [](auto& ctx, auto const& model, auto const& special, auto const& prompts) {
        return sampled_text(ctx, model, special, prompts);
    }};
template <autoregressive_configuration C, class Space>
constexpr measures_of_autoregressive<C, Space> compiled_measures_of_autoregressive{
    [](auto& ctx, auto& model, auto blocks, auto const& special, auto const& counts, auto const& settings, auto bytes,
       process_group* ranks) {
        return calm::evaluate_model(ctx, model, blocks, special, &counts, settings, bytes, ranks);
    },
    [](auto& ctx, auto const& model, auto const& special, auto const& prompts) {
        return sampled_text(ctx, model, special, prompts);
    }};

// Of configuration C, in the space that its source file is compiled for.
template <model_configuration auto C> static loading loading_of() {
    return {&calm::loaded<C, CALM_SPACE>, obstacle_to<typename CALM_SPACE::backend>,
            &compiled_measures_of_calm<C, CALM_SPACE>};
}
template <autoregressive_configuration C> static loading loading_of() {
    return {&calm::loaded<C, CALM_SPACE>, obstacle_to<typename CALM_SPACE::backend>,
            &compiled_measures_of_autoregressive<C, CALM_SPACE>};
}

}  // namespace calm::apps
