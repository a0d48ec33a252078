#pragma once
// Loads a stored model of a configuration. Programs and calm::open compile this for a configuration, and nothing else
// of its use.

#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "calm/evaluate/evaluate.hpp"
#include "calm/io/model_directory.hpp"
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
template <class Rule> settings_of_evaluation<Rule> with_rule(any_evaluation_settings const& s) {
    return {s.block_tokens, s.samples, s.seed, s.positions, s.batch, std::get<Rule>(s.sampler)};
}

// A Model that is loaded in its own context.
template <class Model> class loaded_model_of : public loaded_model {
public:
    using Backend = typename space_of<Model>::backend;

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
    std::unique_ptr<loaded_text_batch> text_batch(index_t texts, index_t capacity, index_t prompt_patches) override {
        return std::make_unique<loaded_texts_of<Model>>(this->ctx_, this->own_.model, this->special_, texts, capacity,
                                                        prompt_patches);
    }

protected:
    using loaded_model_of<Model>::loaded_model_of;
};

}  // namespace detail

// A CALM of configuration C.
template <model_configuration auto C, class Space>
class loaded_calm final : public detail::loaded_language_model<calm_model<C, Space>> {
    using model_type = calm_model<C, Space>;

public:
    loaded_calm(stored_model const& stored, index_t vocabulary, special_tokens const& special,
                model_placement const& placement) :
        detail::loaded_language_model<model_type>(vocabulary, special, placement),
        loss_(head_objective_of(stored.description)) {
        load_calm(this->ctx_, stored, this->own_.model);
    }
    evaluation evaluate(block_source const& blocks, bigram_table const* counts, std::span<index_t const>,
                        any_evaluation_settings const& settings, process_group* ranks) override {
        return evaluate_model(this->ctx_, this->own_.model, blocks, this->special_, counts,
                              detail::with_rule<sampler>(settings), static_cast<typename model_type::objective>(loss_),
                              ranks);
    }
    void change_sampling(std::function<void(field_values&)> const& change) override {
        auto& head = this->own_.model.generator;
        if constexpr (requires { head.sampling; }) {
            auto values = field_values::of(head.sampling);
            change(values);
            head.sampling = values.template as<std::remove_cvref_t<decltype(head.sampling)>>();
        }
    }

private:
    any_objective loss_;
};

// The autoencoder of configuration C.
template <model_configuration auto C, class Space>
class loaded_autoencoder final : public detail::loaded_model_of<typename calm_model<C, Space>::autoencoder_type> {
    using model_type = typename calm_model<C, Space>::autoencoder_type;

public:
    loaded_autoencoder(stored_model const& stored, index_t vocabulary, special_tokens const& special,
                       model_placement const& placement) :
        detail::loaded_model_of<model_type>(vocabulary, special, placement) {
        load_autoencoder(this->ctx_, stored, this->own_.model);
    }
    std::vector<generation_result> generate(std::span<std::vector<token_id> const>, any_generation_settings const&,
                                            loaded_model::on_tokens const&) override {
        refuse();
    }
    std::unique_ptr<loaded_text_batch> text_batch(index_t, index_t, index_t) override { refuse(); }
    evaluation evaluate(block_source const& blocks, bigram_table const*, std::span<index_t const>,
                        any_evaluation_settings const& settings, process_group* ranks) override {
        return evaluate_model(this->ctx_, this->own_.model, blocks, this->special_,
                              detail::with_rule<sampler>(settings), ranks);
    }

private:
    [[noreturn]] static void refuse() {
        throw error(errc::usage, "calm::loaded_model: expected a language model, found an autoencoder, which generates "
                                 "no text by itself");
    }
};

// An autoregressive model of configuration C.
template <autoregressive_configuration C, class Space>
class loaded_autoregressive final : public detail::loaded_language_model<autoregressive_model<C, Space>> {
public:
    loaded_autoregressive(stored_model const& stored, index_t vocabulary, special_tokens const& special,
                          model_placement const& placement) :
        detail::loaded_language_model<autoregressive_model<C, Space>>(vocabulary, special, placement) {
        load_autoregressive(this->ctx_, stored, this->own_.model);
    }
    evaluation evaluate(block_source const& blocks, bigram_table const* counts, std::span<index_t const> bytes,
                        any_evaluation_settings const& settings, process_group* ranks) override {
        return evaluate_model(this->ctx_, this->own_.model, blocks, this->special_, counts,
                              detail::with_rule<token_sampler>(settings), bytes, ranks);
    }
};

// Loads a stored model of a configuration. Throws as load_calm, load_autoencoder and load_autoregressive.
using load_function = std::unique_ptr<loaded_model>(stored_model const&, index_t vocabulary, special_tokens const&,
                                                    model_placement const&);

template <model_configuration auto C, class Space>
std::unique_ptr<loaded_model> loaded(stored_model const& stored, index_t vocabulary, special_tokens const& special,
                                     model_placement const& placement) {
    if (stored.description.kind == model_kind::autoencoder)
        return std::make_unique<loaded_autoencoder<C, Space>>(stored, vocabulary, special, placement);
    return std::make_unique<loaded_calm<C, Space>>(stored, vocabulary, special, placement);
}
template <autoregressive_configuration C, class Space>
std::unique_ptr<loaded_model> loaded(stored_model const& stored, index_t vocabulary, special_tokens const& special,
                                     model_placement const& placement) {
    return std::make_unique<loaded_autoregressive<C, Space>>(stored, vocabulary, special, placement);
}

}  // namespace calm
