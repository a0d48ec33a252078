#pragma once
// Models of a configuration in training, behind virtual functions. compiled_training.hpp makes them; the jobs of
// training_jobs.hpp train them. The weights are not initialised before begin().

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/evaluate/evaluate_autoencoder.hpp"
#include "calm/evaluate/evaluation.hpp"
#include "calm/io/detail/stored_tensor.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/ranks/process_group.hpp"
#include "calm/runs/detail/loaded_model.hpp"
#include "calm/runs/detail/unsupported_work.hpp"
#include "calm/text/bigram.hpp"
#include "calm/train/recipe.hpp"
#include "calm/train/training_callbacks.hpp"

namespace calm::apps {

// Where a model is trained.
struct training_placement : model_placement {
    bool in_bf16 = false;     // products, on a device also activations
    bool own_device = false;  // each rank has its own GPU
};

// What any kind of model has in common.
class model_in_training {
public:
    using next_blocks = std::function<void(std::span<token_id>)>;  // fills a span with the next blocks
    using stored_tensors_function = std::function<void(std::span<stored_tensor const>)>;

    model_in_training() = default;
    model_in_training(model_in_training const&) = delete;
    model_in_training& operator=(model_in_training const&) = delete;
    virtual ~model_in_training() = default;

    [[nodiscard]] virtual index_t parameters() = 0;  // to train
    [[nodiscard]] virtual std::string_view device() const = 0;
    [[nodiscard]] virtual std::size_t device_memory() const = 0;  // in bytes; 0 on the cpu
    [[nodiscard]] virtual unsupported_work unsupported() const = 0;
    // Calls write(tensors) with the weights of the whole model, which are valid during the call. Throws
    // errc::non_finite.
    virtual void with_stored_weights(stored_tensors_function const& write) = 0;
    // FLOP/s of the machine, or 0 if unknown.
    [[nodiscard]] virtual double machine_peak() = 0;
    // The transport between the GPUs of several ranks if each rank has its own GPU, else null. It stays registered as
    // the process group's devices for its lifetime.
    [[nodiscard]] virtual std::unique_ptr<device_transport> devices(process_group* ranks) = 0;
};

class autoencoder_in_training : public model_in_training {
public:
    // Draws the weights, or loads them.
    virtual void begin(std::optional<stored_model> const& start) = 0;
    virtual void train(next_blocks const& next, autoencoder_recipe const& recipe, training_callbacks const& calls,
                       process_group* ranks) = 0;
    [[nodiscard]] virtual double flops_per_token(autoencoder_recipe const& recipe) = 0;
    [[nodiscard]] virtual model_description describe(autoencoder_objective const& loss, calm_description ours) = 0;
    [[nodiscard]] virtual autoencoder_evaluation score(std::vector<token_id> const& tokens, token_id pad,
                                                       std::uint64_t seed, process_group* ranks) = 0;
};

// A CALM or an autoregressive model.
class language_model_in_training : public model_in_training {
public:
    // Tokens that continue the first of `prompts`, with the current weights.
    [[nodiscard]] virtual std::vector<token_id> sample(special_tokens const& special,
                                                       std::vector<std::vector<token_id>> const& prompts) = 0;
};

class calm_in_training : public language_model_in_training {
public:
    // Draws the weights of backbone and head, or loads them. A given autoencoder replaces the one in `start`.
    virtual void begin(std::optional<stored_model> const& start, stored_model const* autoencoder) = 0;
    virtual void train(next_blocks const& next, calm_recipe<any_objective> const& recipe,
                       training_callbacks const& calls, process_group* ranks) = 0;
    [[nodiscard]] virtual double flops_per_token(calm_recipe<any_objective> const& recipe) = 0;
    [[nodiscard]] virtual model_description describe(any_objective const& loss, autoencoder_objective const& of_frozen,
                                                     calm_description ours) = 0;
    [[nodiscard]] virtual evaluation score(std::span<token_id const> blocks, special_tokens const& special,
                                           bigram_table const& counts, evaluation_settings const& settings,
                                           any_objective const& loss, process_group* ranks) = 0;
    // Of the frozen autoencoder.
    [[nodiscard]] virtual autoencoder_evaluation score_frozen(std::vector<token_id> const& tokens, token_id pad,
                                                              std::uint64_t seed, process_group* ranks) = 0;
};

class autoregressive_in_training : public language_model_in_training {
public:
    // Draws the weights, or loads them.
    virtual void begin(std::optional<stored_model> const& start) = 0;
    virtual void train(next_blocks const& next, autoregressive_recipe const& recipe, training_callbacks const& calls,
                       process_group* ranks) = 0;
    [[nodiscard]] virtual double flops_per_token(autoregressive_recipe const& recipe) = 0;
    [[nodiscard]] virtual model_description describe(calm_description ours) = 0;
    [[nodiscard]] virtual evaluation score(std::span<token_id const> blocks, special_tokens const& special,
                                           bigram_table const& counts, token_evaluation_settings const& settings,
                                           std::span<index_t const> bytes, process_group* ranks) = 0;
};

}  // namespace calm::apps
