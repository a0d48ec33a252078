#pragma once
/// \file
/// What a training program needs: initialised models, endless text, short recipes.
/// \shows{examples/12_training.cpp}

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "calm/model/calm.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/text/block_reader.hpp"
#include "calm/train/loop.hpp"

namespace calm {

/// Copies the values of a model, and of its frozen autoencoder, to another model of its configuration, on any device.
/// Throws errc::usage if the vocabularies differ.
template <class Context, class To, class From>
requires requires(To to) {
    to.vocabulary();
}
void copy_parameters(Context const& ctx, To& to, From& from) {
    require(to.vocabulary() == from.vocabulary(), errc::usage, "calm::copy_parameters: expected a vocabulary of ",
            to.vocabulary(), ", found ", from.vocabulary(), "; make both models with the vocabulary of one tokenizer");
    copy_parameters(ctx, parameters_of(to), parameters_of(from));
    if constexpr (requires { to.ae_model; }) copy_parameters(ctx, frozen_parameters_of(to), frozen_parameters_of(from));
}

/// The autoencoder of a configuration on the context's device, initialised from the context's seed, ready for
/// train_autoencoder. Throws errc::memory.
template <model_configuration auto C, class Backend>
auto make_autoencoder(context<Backend> const& ctx, index_t vocabulary) {
    owned_model<typename calm_model<C, space<Backend>>::autoencoder_type> made(vocabulary);
    initialise(ctx, made.model);
    return made;
}

/// The language model of a configuration around a copy of its trained autoencoder, with the same vocabulary. Backbone
/// and head are initialised from the context's seed, ready for train_calm. Throws errc::memory.
template <model_configuration auto C, class Backend>
auto make_calm(context<Backend> const& ctx, typename calm_model<C, space<Backend>>::autoencoder_type& trained) {
    owned_model<calm_model<C, space<Backend>>> made(trained.vocabulary());
    copy_parameters(ctx, made.model.ae_model, trained);
    initialise(ctx, made.model);
    return made;
}

/// A token_source for training: the blocks of a packed corpus, reshuffled every epoch, without end. An autoencoder
/// trains on single patches, block_tokens = K; a language model on blocks of many.
class text_blocks {
public:
    /// The corpus outlives it. Throws errc::data if it has less than one block, errc::config if block_tokens is not a
    /// multiple of K.
    text_blocks(corpus const& text, index_t K, index_t block_tokens, std::uint64_t seed = 1,
                packing mode = packing::padded) :
        reader_(text, {mode, static_cast<std::size_t>(K), seed}, static_cast<std::size_t>(block_tokens)) {}
    text_blocks(corpus const&& text, index_t K, index_t block_tokens, std::uint64_t seed = 1,
                packing mode = packing::padded) = delete;

    /// Fills `tokens` with the next blocks. Throws errc::usage unless its size is a number of whole blocks.
    void operator()(std::span<token_id> tokens) {
        std::size_t const size = reader_.block_tokens();
        for (; tokens.size() > size; tokens = tokens.subspan(size)) reader_.next(tokens.first(size));
        if (!tokens.empty()) reader_.next(tokens);
    }

    /// Position of the next block.
    [[nodiscard]] block_position position() const { return reader_.position(); }
    /// Returns to an earlier position(): the same blocks follow as then. Throws errc::data if the epoch has no such
    /// block.
    void seek(block_position const& position) { reader_.seek(position); }

private:
    block_reader reader_;
};

/// A recipe with a time limit and otherwise defaults: train_calm(ctx, model, blocks, for_seconds{60}).
struct for_seconds {
    double seconds;            ///< of the run, above 0
    double learning_rate = 0;  ///< peak learning rate; 0: the default
    index_t tokens = 0;        ///< per step, for a language model in whole blocks; 0: the default

    /// Converts to the recipe of an autoencoder or a language model.
    template <std::derived_from<training_recipe> Recipe> operator Recipe() const {
        Recipe r;
        r.seconds = seconds;
        if (learning_rate > 0) r.learning_rate = learning_rate;
        if (tokens <= 0) return r;
        if constexpr (requires { r.batch_tokens; })
            r.batch_tokens = tokens;
        else
            r.sequences = std::max<index_t>(1, tokens / r.block_tokens);
        return r;
    }
};

/// Callbacks that call f(progress) for every n-th step and nothing else. Throws errc::usage unless n > 0.
template <std::invocable<progress const&> F> training_callbacks every_steps(index_t n, F f) {
    require(n > 0, errc::usage, "calm::every_steps: expected an interval of at least 1 step");
    training_callbacks callbacks;
    callbacks.step = [n, f = std::move(f)](progress const& now) {
        if ((now.step + 1) % n == 0) f(now);
    };
    return callbacks;
}

}  // namespace calm
