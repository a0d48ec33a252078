#pragma once
// A language model of any sizes behind virtual functions. calm::open compiles a library of it for the sizes of a stored
// model (calm/open.hpp).

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "calm/evaluate/evaluate.hpp"
#include "calm/io/model_directory.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/sample/generate.hpp"
#include "calm/text/bigram.hpp"
#include "calm/text/special_tokens.hpp"

namespace calm {

// What decides a generated text, for either kind of model.
struct opened_generation {
    temperature T;
    sampling_rule rule;  // of a CALM
    index_t max_tokens;
    std::uint64_t seed;
};

// What decides an evaluation, for either kind of model.
struct opened_evaluation {
    index_t block_tokens;
    index_t samples;
    std::uint64_t seed;
    index_t positions;
};

// A loaded language model on the CPU.
class opened_model {
public:
    using on_tokens = std::function<bool(std::span<token_id const>)>;  // false ends the text

    opened_model() = default;
    opened_model(opened_model const&) = delete;
    opened_model& operator=(opened_model const&) = delete;
    virtual ~opened_model() = default;

    // As calm::generate. Throws errc::usage for a temperature that the rule does not support.
    virtual generation_result generate(std::span<token_id const> prompt, opened_generation const& how,
                                       on_tokens const& on) = 0;
    // As calm::evaluate_model. `bytes` has the bytes of every token.
    virtual evaluation evaluate(std::span<token_id const> blocks, bigram_table const* counts,
                                std::span<index_t const> bytes, opened_evaluation const& how) = 0;
};

// A CALM of configuration C.
template <model_configuration auto C> class opened_calm final : public opened_model {
public:
    opened_calm(stored_model const& stored, index_t vocabulary, special_tokens const& special, int threads) :
        ctx_(0, threads), special_(special), loss_(head_objective_of(stored.description)),
        own_(vocabulary, model_mode::inference) {
        load_calm(ctx_, stored, own_.model);
    }
    generation_result generate(std::span<token_id const> prompt, opened_generation const& how,
                               on_tokens const& on) override {
        return calm::generate(ctx_, own_.model, prompt, special_,
                              {.sampler = sampler::of(how.rule, how.T), .max_tokens = how.max_tokens, .seed = how.seed},
                              on);
    }
    evaluation evaluate(std::span<token_id const> blocks, bigram_table const* counts, std::span<index_t const>,
                        opened_evaluation const& how) override {
        return evaluate_model(
            ctx_, own_.model, blocks, special_, counts,
            {.block_tokens = how.block_tokens, .samples = how.samples, .seed = how.seed, .positions = how.positions},
            static_cast<typename calm_model<C>::objective>(loss_));
    }

private:
    context<> ctx_;
    special_tokens special_;
    any_objective loss_;
    owned_model<calm_model<C>> own_;
};

// An autoregressive model of configuration C.
template <autoregressive_configuration C> class opened_autoregressive final : public opened_model {
public:
    opened_autoregressive(stored_model const& stored, index_t vocabulary, special_tokens const& special, int threads) :
        ctx_(0, threads), special_(special), ends_(stored.ends), own_(vocabulary, model_mode::inference) {
        load_autoregressive(ctx_, stored, own_.model);
    }
    generation_result generate(std::span<token_id const> prompt, opened_generation const& how,
                               on_tokens const& on) override {
        return calm::generate(
            ctx_, own_.model, prompt, special_,
            {.sampler = token_sampler::of(how.T), .max_tokens = how.max_tokens, .seed = how.seed, .ends = ends_}, on);
    }
    evaluation evaluate(std::span<token_id const> blocks, bigram_table const* counts, std::span<index_t const> bytes,
                        opened_evaluation const& how) override {
        return evaluate_model(
            ctx_, own_.model, blocks, special_, counts,
            {.block_tokens = how.block_tokens, .samples = how.samples, .seed = how.seed, .positions = how.positions},
            bytes);
    }

private:
    context<> ctx_;
    special_tokens special_;
    std::vector<token_id> ends_;
    owned_model<autoregressive_model<C>> own_;
};

}  // namespace calm
