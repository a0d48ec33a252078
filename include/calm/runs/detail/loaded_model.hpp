#pragma once
// A stored model of any sizes behind virtual functions, loaded for evaluation and generation. load_evaluator.hpp makes
// one.

#include <functional>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "calm/evaluate/evaluation.hpp"
#include "calm/evaluate/evaluation_settings.hpp"
#include "calm/model/head.hpp"
#include "calm/ranks/process_group.hpp"
#include "calm/runs/detail/model_placement.hpp"
#include "calm/runs/detail/unsupported_work.hpp"
#include "calm/sample/generate.hpp"
#include "calm/text/bigram.hpp"
#include "calm/text/detail/block_source.hpp"

namespace calm {

// The sampler of a CALM or of an autoregressive model.
using any_sampler = std::variant<sampler, token_sampler>;
using any_generation_settings = settings_of_generation<any_sampler>;
using any_evaluation_settings = settings_of_evaluation<any_sampler>;

// Texts of a loaded model that are generated together, as calm::text_batch, with the sampler of the model's kind. Not
// thread-safe.
class loaded_text_batch {
public:
    using on_patch = std::function<bool(index_t text, generated_patch const&)>;  // false ends the text

    loaded_text_batch() = default;
    loaded_text_batch(loaded_text_batch const&) = delete;
    loaded_text_batch& operator=(loaded_text_batch const&) = delete;
    virtual ~loaded_text_batch() = default;

    [[nodiscard]] virtual index_t free_slots() const = 0;
    [[nodiscard]] virtual bool empty() const = 0;
    virtual index_t begin(std::span<token_id const> prompt, any_generation_settings const& settings) = 0;
    virtual void end(index_t slot) = 0;
    virtual generation_result& result(index_t slot) = 0;
    virtual void step(on_patch const& report) = 0;
};

// A loaded model. Not thread-safe.
class loaded_model {
public:
    using on_tokens = std::function<bool(std::size_t prompt, std::span<token_id const> fresh)>;  // false ends the text

    loaded_model() = default;
    loaded_model(loaded_model const&) = delete;
    loaded_model& operator=(loaded_model const&) = delete;
    virtual ~loaded_model() = default;

    // As calm::generate, with the sampler of the model's kind. Throws errc::usage for an autoencoder.
    virtual std::vector<generation_result> generate(std::span<std::vector<token_id> const> prompts,
                                                    any_generation_settings const& settings,
                                                    on_tokens const& report) = 0;
    // Room for this many texts at a time, each of `capacity` patches with its prompt. The model outlives it. Throws
    // errc::usage for an autoencoder.
    virtual std::unique_ptr<loaded_text_batch> text_batch(index_t texts, index_t capacity,
                                                          step_limits const& limits) = 0;
    // As calm::evaluate_model, with the objective of config.json and the sampler of the model's kind (of an
    // autoencoder, a CALM's). `counts` may be null; `bytes` has the bytes of every token, or is empty.
    virtual evaluation evaluate(block_source const& blocks, bigram_table const* counts, std::span<index_t const> bytes,
                                any_evaluation_settings const& settings, process_group* ranks) = 0;
    // The latent vectors of consecutive patches (P, L): means of the autoencoder's posterior. PAD fills the last patch.
    // Throws errc::usage for an autoregressive model, and errc::tokenizer for an id outside of the vocabulary.
    virtual std::vector<float> latents(std::span<token_id const> ids) = 0;
    // Lets `change` alter how a head that samples in several steps does so; other heads have nothing to alter.
    virtual void change_sampling(std::function<void(field_values&)> const& change) = 0;
    // So far.
    [[nodiscard]] virtual unsupported_work unsupported() const = 0;
};

}  // namespace calm
