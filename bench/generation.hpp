#pragma once
// Generates texts with random weights, patch by patch after a prompt.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "calm/model/calm.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/sample/detail/sample_next.hpp"
#include "calm/sample/generation_session.hpp"

namespace bench {

using calm::index_t;

// Bytes of the weights that one patch multiplies: all except the embeddings of the encoder and the backbone, of which
// only rows are read.
template <class Model> std::size_t bytes_of_a_patch(Model& model) {
    std::size_t bytes = 0;
    auto const add = [&](auto const& parameters, auto const& is_read) {
        for (auto const& p : parameters)
            if (is_read(p.name))
                calm::with_values(
                    p, [&](auto const& x) { bytes += static_cast<std::size_t>(x.size()) * sizeof(*x.data()); });
    };
    add(calm::parameters_of(model),
        [](std::string const& name) { return name.find("embed_tokens") == std::string::npos; });
    add(calm::parameters_of(model.ae_model), [](std::string const& name) {
        return name.starts_with("decoder.") || name.find("embed_tokens") != std::string::npos;  // of the vocabulary
    });
    return bytes;
}

// Texts that are generated in parallel.
template <class Model, class Backend = calm::cpu> class writing {
public:
    writing(calm::context<Backend>& ctx, Model const& model, index_t texts, index_t draws, index_t patches,
            index_t prompt_patches = 16) :
        ctx_(ctx),
        model_(model),
        rule_(draws == 1 ? calm::sampler::unchanged() : calm::sampler::batch(calm::parse_temperature("1/2"), draws)),
        session_(ctx, model, texts, prompt_patches + patches), sampler_state_(ctx, model),
        tokens_(static_cast<std::size_t>(texts * Model::K)) {
        calm::random_sequence ids(calm::key{1, calm::stream::story, 0});
        std::vector<calm::token_id> prompt(static_cast<std::size_t>(prompt_patches * Model::K));
        for (index_t row = 0; row < texts; ++row) {
            for (auto& id : prompt)
                id = static_cast<calm::token_id>(ids.below(static_cast<std::uint32_t>(model.ae_model.vocabulary())));
            session_.begin(row, prompt);
            rows_.push_back(row);
        }
    }

    // Generates one more patch of every text.
    void patch() {
        rngs_.clear();
        for (index_t const row : rows_)
            rngs_.push_back({row, {{1, calm::stream::generation, static_cast<std::uint32_t>(row)}, written_}});
        calm::sample_next(ctx_, model_, std::span(tokens_), session_.hidden(), rule_, std::span(std::as_const(rngs_)),
                          0, &sampler_state_);
        session_.append(rows_, tokens_);
        ++written_;
    }

    // The last patch of every text: (texts, K).
    [[nodiscard]] std::vector<calm::token_id> const& last() const { return tokens_; }

private:
    calm::context<Backend>& ctx_;
    Model const& model_;
    calm::sampler rule_;
    calm::generation_session<Model, Backend> session_;
    calm::sampler_cache<Backend> sampler_state_;
    std::vector<calm::token_id> tokens_;
    std::vector<index_t> rows_;
    std::vector<calm::patch_rng> rngs_;
    index_t written_ = 0;
};

// Weights that training initialises to zero would give the same patch every time; fills them with random numbers.
template <class Model, class Backend> void fill_zeros(calm::context<Backend> const& ctx, Model& model) {
    std::uint32_t number = 0;
    std::vector<float> room;
    for (auto const& p : calm::parameters_of(model)) {
        auto const values = calm::to_host(ctx, p.value, room);
        if (!std::all_of(values.begin(), values.end(), [](float x) { return x == 0.0F; })) continue;
        calm::fill_normal(ctx, p.value, calm::key{1, calm::stream::initialise, ++number});
        calm::evaluate(ctx, p.value, p.value * 0.05F);
    }
}

}  // namespace bench
