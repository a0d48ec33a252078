#pragma once
// Compiles the training of a configuration. It instantiates all templates of training, so only the source files in
// configs/ and plug-ins include it.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/io/describe_model.hpp"
#include "calm/io/detail/stored_parameters.hpp"
#include "calm/io/load_model.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/model/flops.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/train/detail/peak.hpp"
#include "calm/train/loop.hpp"
#include "compiled_functions.hpp"
#include "compiled_loading.hpp"
#include "model_in_training.hpp"

#ifdef CALM_HAS_NCCL
#include "calm/ranks/nccl.hpp"
#endif

namespace calm::apps {

// Constant-initialised, because source files register configurations during dynamic initialisation.
template <class Space> inline constexpr char const* name_of_space = "cpu";
template <> inline constexpr char const* name_of_space<bf16_weights> = "cpu-bf16";
template <> inline constexpr char const* name_of_space<space<emulated>> = "emulated";
template <> inline constexpr char const* name_of_space<space<cuda>> = "cuda";
template <> inline constexpr char const* name_of_space<bf16_weights_on<emulated>> = "emulated-bf16";
template <> inline constexpr char const* name_of_space<bf16_weights_on<cuda>> = "cuda-bf16";

template <class Backend> context<Backend> training_context(training_placement const& placement) {
    auto ctx = context_at<Backend>(placement);
    if (placement.in_bf16) multiply_in_bf16(ctx);
    return ctx;
}

// A Model in its own context, which has what Interface asks of any kind of model.
template <class Interface, class Model> class trained_model : public Interface {
public:
    using Backend = typename space_of<Model>::backend;

    [[nodiscard]] index_t parameters() override { return count_parameters(own_.model); }
    [[nodiscard]] std::string_view device() const override { return name_of_space<space_of<Model>>; }
    [[nodiscard]] std::size_t device_memory() const override {
        if constexpr (calm::device_memory<Backend>)
            return ctx_.memory;
        else
            return 0;
    }
    [[nodiscard]] unsupported_work unsupported() const override { return unsupported_by(ctx_); }
    [[nodiscard]] double machine_peak() override { return measure_peak(ctx_); }
    [[nodiscard]] std::unique_ptr<device_transport> devices([[maybe_unused]] process_group* ranks) override {
#ifdef CALM_HAS_NCCL
        if constexpr (std::is_same_v<Backend, cuda>)
            if (ranks != nullptr && own_device_)
                return std::make_unique<nccl_devices>(*ranks, nccl_library(ctx_.queue(), ctx_.device()));
#endif
        return nullptr;
    }

protected:
    trained_model(training_placement const& placement, index_t vocabulary) :
        ctx_(training_context<Backend>(placement)), own_device_(placement.own_device), own_(vocabulary) {}

    context<Backend> ctx_;
    [[maybe_unused]] bool own_device_;
    owned_model<Model> own_;
};

template <model_configuration auto C, class Space>
class trained_autoencoder final
    : public trained_model<autoencoder_in_training, typename calm_model<C, Space>::autoencoder_type> {
    using base = trained_model<autoencoder_in_training, typename calm_model<C, Space>::autoencoder_type>;

public:
    trained_autoencoder(training_placement const& placement, index_t vocabulary,
                        measures_of_calm<C, Space> const& measures) :
        base(placement, vocabulary),
        measures_(measures) {}

    void begin(std::optional<stored_model> const& start) override {
        initialise(this->ctx_, this->own_.model);
        if (start) load_model(this->ctx_, *start, this->own_.model);
    }
    void train(model_in_training::next_blocks const& next, autoencoder_recipe const& recipe,
               training_callbacks const& calls, process_group* ranks) override {
        calm::train_autoencoder(this->ctx_, this->own_.model, next, recipe, calls, ranks);
    }
    [[nodiscard]] double flops_per_token(autoencoder_recipe const& recipe) override {
        constexpr index_t K = C.autoencoder.patch_size;
        return flops::train_autoencoder(C.autoencoder, this->own_.model.vocabulary(),
                                        recipe.batch_tokens / recipe.accumulation / K) /
               double(K);
    }
    [[nodiscard]] model_description describe(autoencoder_objective const& loss, calm_description ours) override {
        return describe_model<C.autoencoder>(this->own_.model.vocabulary(), loss, std::move(ours));
    }
    void with_stored_weights(model_in_training::stored_tensors_function const& write) override {
        calm::with_stored(this->ctx_, parameters_of(this->own_.model), write);
    }
    [[nodiscard]] autoencoder_evaluation score(std::vector<token_id> const& tokens, token_id pad, std::uint64_t seed,
                                               process_group* ranks) override {
        return measures_.score_autoencoder(this->ctx_, this->own_.model, tokens, pad, seed, ranks);
    }

private:
    measures_of_calm<C, Space> const& measures_;
};

template <model_configuration auto C, class Space>
class trained_calm final : public trained_model<calm_in_training, calm_model<C, Space>> {
    using base = trained_model<calm_in_training, calm_model<C, Space>>;
    using objective = typename calm_model<C, Space>::objective;

public:
    trained_calm(training_placement const& placement, index_t vocabulary, measures_of_calm<C, Space> const& measures) :
        base(placement, vocabulary), measures_(measures) {}

    void begin(std::optional<stored_model> const& start, stored_model const* autoencoder) override {
        auto& model = this->own_.model;
        if (start)
            load_model(this->ctx_, *start, model);
        else
            initialise(this->ctx_, model);
        if (autoencoder != nullptr) load_model(this->ctx_, *autoencoder, model.ae_model);
    }
    void train(model_in_training::next_blocks const& next, calm_recipe<any_objective> const& recipe,
               training_callbacks const& calls, process_group* ranks) override {
        calm::train_calm(this->ctx_, this->own_.model, next, with_objective<objective>(recipe), calls, ranks);
    }
    [[nodiscard]] double flops_per_token(calm_recipe<any_objective> const& recipe) override {
        return flops::train_calm_per_token(C, this->own_.model.vocabulary(), recipe.sequences / recipe.accumulation,
                                           recipe.block_tokens, static_cast<objective>(recipe.objective).samples);
    }
    [[nodiscard]] model_description describe(any_objective const& loss, autoencoder_objective const& of_frozen,
                                             calm_description ours) override {
        return describe_model<C>(this->own_.model.vocabulary(), static_cast<objective>(loss), of_frozen,
                                 std::move(ours));
    }
    void with_stored_weights(model_in_training::stored_tensors_function const& write) override {
        calm::with_stored(this->ctx_, calm::whole_parameters(this->own_.model), write);
    }
    [[nodiscard]] std::vector<token_id> sample(special_tokens const& special,
                                               std::vector<std::vector<token_id>> const& prompts) override {
        return measures_.sample(this->ctx_, this->own_.model, special, prompts);
    }
    [[nodiscard]] evaluation score(std::span<token_id const> blocks, special_tokens const& special,
                                   bigram_table const& counts, evaluation_settings const& settings,
                                   any_objective const& loss, process_group* ranks) override {
        return measures_.score(this->ctx_, this->own_.model, blocks, special, counts, settings,
                               static_cast<objective>(loss), ranks);
    }
    [[nodiscard]] autoencoder_evaluation score_frozen(std::vector<token_id> const& tokens, token_id pad,
                                                      std::uint64_t seed, process_group* ranks) override {
        return measures_.score_autoencoder(this->ctx_, this->own_.model.ae_model, tokens, pad, seed, ranks);
    }

private:
    measures_of_calm<C, Space> const& measures_;
};

template <autoregressive_configuration C, class Space>
class trained_autoregressive final : public trained_model<autoregressive_in_training, autoregressive_model<C, Space>> {
    using base = trained_model<autoregressive_in_training, autoregressive_model<C, Space>>;

public:
    trained_autoregressive(training_placement const& placement, index_t vocabulary,
                           measures_of_autoregressive<C, Space> const& measures) :
        base(placement, vocabulary),
        measures_(measures) {}

    void begin(std::optional<stored_model> const& start) override {
        if (start)
            load_model(this->ctx_, *start, this->own_.model);
        else
            initialise(this->ctx_, this->own_.model);
    }
    void train(model_in_training::next_blocks const& next, autoregressive_recipe const& recipe,
               training_callbacks const& calls, process_group* ranks) override {
        calm::train_autoregressive(this->ctx_, this->own_.model, next, recipe, calls, ranks);
    }
    [[nodiscard]] double flops_per_token(autoregressive_recipe const& recipe) override {
        return flops::train_autoregressive(C.llama, this->own_.model.vocabulary(), recipe.block_tokens);
    }
    [[nodiscard]] model_description describe(calm_description ours) override {
        return describe_model<C>(this->own_.model.vocabulary(), std::move(ours));
    }
    void with_stored_weights(model_in_training::stored_tensors_function const& write) override {
        calm::with_stored(this->ctx_, parameters_of(this->own_.model), write);
    }
    [[nodiscard]] std::vector<token_id> sample(special_tokens const& special,
                                               std::vector<std::vector<token_id>> const& prompts) override {
        return measures_.sample(this->ctx_, this->own_.model, special, prompts);
    }
    [[nodiscard]] evaluation score(std::span<token_id const> blocks, special_tokens const& special,
                                   bigram_table const& counts, token_evaluation_settings const& settings,
                                   std::span<index_t const> bytes, process_group* ranks) override {
        return measures_.score(this->ctx_, this->own_.model, blocks, special, counts, settings, bytes, ranks);
    }

private:
    measures_of_autoregressive<C, Space> const& measures_;
};

// Of configuration C, in the space that its source file is compiled for. Empty if weights are held in bf16.
template <model_configuration auto C> static training training_of() {
    using Space = CALM_SPACE;
    training made;
    made.complete_objective = [](any_objective& loss) {
        loss = static_cast<typename calm_model<C>::objective>(std::as_const(loss));
    };
    if constexpr (is_trainable<Space>) {
        using measures = measures_of_calm<C, Space>;
        made.make_autoencoder = [](training_placement const& placement, index_t vocabulary,
                                   void const* of) -> std::unique_ptr<autoencoder_in_training> {
            return std::make_unique<trained_autoencoder<C, Space>>(placement, vocabulary,
                                                                   *static_cast<measures const*>(of));
        };
        made.make_calm = [](training_placement const& placement, index_t vocabulary,
                            void const* of) -> std::unique_ptr<calm_in_training> {
            return std::make_unique<trained_calm<C, Space>>(placement, vocabulary, *static_cast<measures const*>(of));
        };
        // The models are only measured: no weights are allocated.
        made.muon_of_autoencoder = [] {
            typename calm_model<C, Space>::autoencoder_type model(C.autoencoder.vocab_size);
            return flops::muon(parameters_of(model));
        };
        made.muon_of_model = [] {
            calm_model<C, Space> model(C.autoencoder.vocab_size);
            return flops::muon(parameters_of(model));
        };
        made.on_device = device_memory<typename Space::backend>;
    }
    return made;
}
template <autoregressive_configuration C> static training training_of() {
    using Space = CALM_SPACE;
    training made;
    if constexpr (is_trainable<Space>) {
        made.make_autoregressive = [](training_placement const& placement, index_t vocabulary,
                                      void const* of) -> std::unique_ptr<autoregressive_in_training> {
            return std::make_unique<trained_autoregressive<C, Space>>(
                placement, vocabulary, *static_cast<measures_of_autoregressive<C, Space> const*>(of));
        };
        made.muon_of_model = [] {
            autoregressive_model<C, Space> model(C.vocab_size);
            return flops::muon(parameters_of(model));
        };
        made.on_device = device_memory<typename Space::backend>;
    }
    return made;
}

}  // namespace calm::apps
