#pragma once
// Loads a stored model of a configuration to generate text with it. What load_evaluator.hpp adds takes as long to
// compile.

#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "calm/io/load_model.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/runs/detail/loaded_model.hpp"
#include "calm/sample/generate.hpp"
#include "calm/tensor/ops/int8_products.hpp"
#include "calm/text/special_tokens.hpp"

namespace calm {

namespace detail {

template <class Rule> settings_of_generation<Rule> with_rule(any_generation_settings const& s) {
    return {std::get<Rule>(s.sampler), s.max_tokens, s.pad_left, s.seed, s.prompt_number, s.at_once, s.round, s.ends};
}

// The autoencoder of a model that has or is one.
template <class Model> auto const& autoencoder_of(Model const& model) {
    if constexpr (requires { model.ae_model; })
        return model.ae_model;
    else
        return model;
}

// A Model that is loaded in its own context.
template <class Model> class loaded_model_of : public loaded_model {
public:
    using Backend = typename space_of<Model>::backend;

    std::vector<float> latents([[maybe_unused]] std::span<token_id const> ids) override {
        if constexpr (requires {
                          autoencoder_of(own_.model).embed_tokens;
                          autoencoder_of(own_.model).latent_to_hidden;
                      }) {
            auto const& encoder = autoencoder_of(own_.model);
            constexpr std::size_t K = std::remove_cvref_t<decltype(encoder)>::K;
            std::vector<token_id> patches(ids.begin(), ids.end());
            patches.resize((patches.size() + K - 1) / K * K, special_.pad);
            arena_scope const saved(ctx_.saved);
            auto const found = encoder.posterior(
                ctx_, unique_ids_to_device(ctx_, std::span<token_id const>(patches), encoder.vocabulary()));
            std::vector<typename space_of<Model>::scalar> room;
            auto const means = to_host(ctx_, found.mean, room);
            return {means.begin(), means.end()};
        } else {
            throw error(errc::usage, "calm::loaded_model: expected a CALM or an autoencoder, found an autoregressive "
                                     "model, which has no latent vectors");
        }
    }
    void change_sampling(std::function<void(field_values&)> const&) override {}
    [[nodiscard]] unsupported_work unsupported() const override { return unsupported_by(ctx_); }

protected:
    loaded_model_of(index_t vocabulary, special_tokens const& special, model_placement const& placement) :
        ctx_(context_at<Backend>(placement)), special_(special), own_(vocabulary, model_mode::inference) {
        if (!placement.in_int8) return;
        if constexpr (std::is_same_v<space_of<Model>, space<>>)
            use_int8_weights(ctx_, int8_);
        else
            throw error(errc::usage, "calm::load_model: expected the space<cpu> for weights in int8, found another");
    }

    context<Backend> ctx_;
    special_tokens special_;
    owned_model<Model> own_;
    int8_weights int8_;  // destroyed before the memory of own_
};

// A text_batch of Model.
template <class Model> class loaded_texts_of final : public loaded_text_batch {
    using batch_type = calm::text_batch<Model, typename space_of<Model>::backend>;

public:
    template <class... Arguments> explicit loaded_texts_of(Arguments&&... arguments) : batch_(arguments...) {}
    [[nodiscard]] index_t free_slots() const override { return batch_.free_slots(); }
    [[nodiscard]] bool empty() const override { return batch_.empty(); }
    index_t begin(std::span<token_id const> prompt, any_generation_settings const& settings) override {
        return batch_.begin(prompt, with_rule<rule_of<Model>>(settings));
    }
    void end(index_t slot) override { batch_.end(slot); }
    generation_result& result(index_t slot) override { return batch_.result(slot); }
    void step(on_patch const& report) override { batch_.step(report); }

private:
    batch_type batch_;
};

// One that generates text.
template <class Model> class loaded_language_model : public loaded_model_of<Model> {
public:
    std::vector<generation_result> generate(std::span<std::vector<token_id> const> prompts,
                                            any_generation_settings const& settings,
                                            loaded_model::on_tokens const& report) override {
        return calm::generate(this->ctx_, this->own_.model, prompts, this->special_,
                              with_rule<rule_of<Model>>(settings), report);
    }
    std::unique_ptr<loaded_text_batch> text_batch(index_t texts, index_t capacity, step_limits const& limits) override {
        return std::make_unique<loaded_texts_of<Model>>(this->ctx_, this->own_.model, this->special_, texts, capacity,
                                                        limits);
    }
    void change_sampling(std::function<void(field_values&)> const& change) override {
        if constexpr (requires { this->own_.model.generator.sampling; }) {
            auto& sampling = this->own_.model.generator.sampling;
            auto values = field_values::of(sampling);
            change(values);
            sampling = values.template as<std::remove_cvref_t<decltype(sampling)>>();
        }
    }

protected:
    using loaded_model_of<Model>::loaded_model_of;
};

// One that is not evaluated.
template <class Model> class loaded_generator_of final : public loaded_language_model<Model> {
public:
    loaded_generator_of(stored_model const& stored, index_t vocabulary, special_tokens const& special,
                        model_placement const& placement) :
        loaded_language_model<Model>(vocabulary, special, placement) {
        load_model(this->ctx_, stored, this->own_.model);
    }
    evaluation evaluate(block_source const&, bigram_table const*, std::span<index_t const>,
                        any_evaluation_settings const&, process_group*) override {
        throw error(errc::usage,
                    "calm::loaded_generator: expected calm::loaded, found a model that only generates text");
    }
};

}  // namespace detail

// Loads a stored model of a configuration that generates text and is not evaluated. Throws as
// load_model.
template <model_configuration auto C, class Space>
std::unique_ptr<loaded_model> loaded_generator(stored_model const& stored, index_t vocabulary,
                                               special_tokens const& special, model_placement const& placement) {
    return std::make_unique<detail::loaded_generator_of<calm_model<C, Space>>>(stored, vocabulary, special, placement);
}
template <autoregressive_configuration C, class Space>
std::unique_ptr<loaded_model> loaded_generator(stored_model const& stored, index_t vocabulary,
                                               special_tokens const& special, model_placement const& placement) {
    return std::make_unique<detail::loaded_generator_of<autoregressive_model<C, Space>>>(stored, vocabulary, special,
                                                                                         placement);
}

}  // namespace calm
