#pragma once
// Loads a stored model of a configuration to generate text and to evaluate it. Programs and calm::open compile this
// for a configuration, and nothing else of its use.

#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "calm/evaluate/evaluate.hpp"
#include "calm/runs/detail/load_generator.hpp"

namespace calm {

namespace detail {

template <class Rule> settings_of_evaluation<Rule> with_rule(any_evaluation_settings const& s) {
    return {s.block_tokens, s.samples, s.seed, s.positions, s.batch, std::get<Rule>(s.sampler)};
}

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
        load_model(this->ctx_, stored, this->own_.model);
    }
    evaluation evaluate(block_source const& blocks, bigram_table const* counts, std::span<index_t const>,
                        any_evaluation_settings const& settings, process_group* ranks) override {
        return evaluate_model(this->ctx_, this->own_.model, blocks, this->special_, counts,
                              detail::with_rule<sampler>(settings), static_cast<typename model_type::objective>(loss_),
                              ranks);
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
        load_model(this->ctx_, stored, this->own_.model);
    }
    std::vector<generation_result> generate(std::span<std::vector<token_id> const>, any_generation_settings const&,
                                            loaded_model::on_tokens const&) override {
        refuse();
    }
    std::unique_ptr<loaded_text_batch> text_batch(index_t, index_t, step_limits const&) override { refuse(); }
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
        load_model(this->ctx_, stored, this->own_.model);
    }
    evaluation evaluate(block_source const& blocks, bigram_table const* counts, std::span<index_t const> bytes,
                        any_evaluation_settings const& settings, process_group* ranks) override {
        return evaluate_model(this->ctx_, this->own_.model, blocks, this->special_, counts,
                              detail::with_rule<token_sampler>(settings), bytes, ranks);
    }
};

// Loads a stored model of a configuration. Throws as load_model.
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
