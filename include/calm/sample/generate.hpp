#pragma once
// A prompt goes on: patch after patch, each from the hidden state of all before it (spec 10). Sizes: P patches, K
// tokens a patch, D hidden.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calm/model/calm.hpp"
#include "calm/sample/temperature.hpp"
#include "calm/tensor/tensor.hpp"
#include "calm/text/special_tokens.hpp"
#include "calm/text/utf8_stream.hpp"

namespace calm {

// What decides the text, beside the model and the prompt.
struct generation_settings {
    batch_sampler sampler{.n = 2, .pool = 200};  // T = 1/n, N
    index_t max_tokens = 256;                    // new tokens, exactly, unless EOS comes first
    bool pad_left = true;                        // right: as the published code does
    std::uint64_t seed = 1;
    std::uint32_t prompt_number = 0;  // decides the noise, wherever the prompt stands in a batch (design 6)
};

struct generation_result {
    std::vector<token_id> tokens;  // new ones, without EOS
    bool stopped_at_eos = false;
    index_t patches = 0;  // that were sampled
    index_t draws = 0;    // patches drawn from the head to sample them
};

// A prompt filled up with PAD to whole patches of K tokens.
inline std::vector<token_id> padded_prompt(std::span<token_id const> prompt, index_t K, token_id pad, bool left) {
    auto const size = static_cast<std::size_t>(K);
    std::size_t const missing = (size - prompt.size() % size) % size;
    std::vector<token_id> tokens(prompt.begin(), prompt.end());
    tokens.insert(left ? tokens.begin() : tokens.end(), missing, pad);
    return tokens;
}

// One sequence in the making: the cache of its patches and the hidden state of the last. Model and context outlive it.
// What a step needs of the context's arenas is given back, so a long text needs no more memory than its cache.
template <class Model, class Backend = cpu> class generation_session {
public:
    using T = typename Model::scalar;
    static constexpr index_t K = Model::K;
    static constexpr index_t D = Model::D;

    // Reads at least one whole patch; `more` patches can follow. Throws errc::usage for tokens that are no whole
    // patches, errc::tokenizer for an id outside the vocabulary.
    generation_session(context<Backend>& ctx, Model const& model, std::span<token_id const> patches, index_t more) :
        ctx_(ctx), model_(model),
        cache_(model.transformer.make_cache(1, static_cast<index_t>(patches.size()) / K + more)),
        hidden_(extents<dyn, D>(1)) {
        require(!patches.empty(), errc::usage, "calm::generation_session: expected a prompt of at least one patch");
        append(patches);
    }

    // (1, D), of all patches so far; it decides the next one.
    [[nodiscard]] matrix_view<T const, D, Backend> hidden() const { return hidden_.view(); }

    // Goes on by whole patches. Throws errc::usage where they are more than was planned for.
    void append(std::span<token_id const> patches) {
        require(patches.size() % static_cast<std::size_t>(K) == 0, errc::usage, [&] {
            return "calm::generation_session: expected whole patches of " + std::to_string(K) + " tokens, found " +
                   std::to_string(patches.size()) + " tokens";
        });
        auto const count = static_cast<index_t>(patches.size());
        if (count == 0) return;
        arena_scope const saved(ctx_.saved);
        arena_scope const scratch(ctx_.scratch);
        auto const states = model_.transformer.extend(
            ctx_, vector_view<token_id const, dyn, Backend>(patches.data(), extents<dyn>(count)), cache_);
        copy(ctx_, hidden_.view(), rows(states, count / K - 1, 1));
    }

    // Fills `tokens` (N, K) with N patches drawn at T = 1 for the next position. Draw n uses noise first N + n of
    // `draws`.
    void draw(std::span<token_id> tokens, key draws, index_t first) {
        auto const count = static_cast<index_t>(tokens.size());
        model_.sample_patches(ctx_, vector_view<token_id, dyn, Backend>(tokens.data(), extents<dyn>(count)), hidden(),
                              count / K, draws, first);
    }

private:
    context<Backend>& ctx_;
    Model const& model_;
    typename Model::backbone_type::cache cache_;
    tensor<T, extents<dyn, D>, Backend> hidden_;
};

// Continues BOS and the prompt (ids without BOS). After every patch on_tokens(new tokens) is called; if it returns a
// bool, false ends the text. The new text ends at EOS, which with the rest of its patch is dropped, or after exactly
// max_tokens. The same settings give the same tokens at any number of threads: patch p of the prompt draws its noise at
// position p of stream::generation, and its choice at position p 2^32 of stream::choice.
template <class Model, class Backend, class OnTokens>
requires std::invocable<OnTokens&, std::span<token_id const>>
    generation_result generate(context<Backend>& ctx, Model const& model, std::span<token_id const> prompt,
                               special_tokens const& special, generation_settings const& settings,
                               OnTokens&& on_tokens) {
    constexpr index_t K = Model::K;
    require(settings.max_tokens >= 0, errc::usage, [&] {
        return "calm::generate: expected max_tokens of at least 0, found " + std::to_string(settings.max_tokens);
    });
    generation_result result;
    if (settings.max_tokens == 0) return result;
    std::vector<token_id> begun{special.bos};
    begun.insert(begun.end(), prompt.begin(), prompt.end());
    index_t const steps = (settings.max_tokens + K - 1) / K;
    generation_session<Model, Backend> session(ctx, model, padded_prompt(begun, K, special.pad, settings.pad_left),
                                               steps - 1);

    std::vector<token_id> patch(static_cast<std::size_t>(K));
    for (index_t p = 0; p < steps; ++p) {
        index_t first = p;  // a further round of the same patch draws elsewhere
        auto const draw = [&](std::span<token_id> out) {
            session.draw(out, {settings.seed, stream::generation, settings.prompt_number}, first);
            first += index_t{1} << 32;
        };
        random_sequence choice({settings.seed, stream::choice, settings.prompt_number}, static_cast<std::uint64_t>(p)
                                                                                            << 32);
        result.draws += settings.sampler(draw, std::span<token_id>(patch), choice).draws;
        ++result.patches;

        auto const left = static_cast<std::size_t>(settings.max_tokens) - result.tokens.size();
        auto const wanted = std::span<token_id const>(patch).first(std::min(patch.size(), left));
        auto const eos = std::find(wanted.begin(), wanted.end(), special.eos);
        result.stopped_at_eos = eos != wanted.end();
        auto const fresh = wanted.first(static_cast<std::size_t>(eos - wanted.begin()));
        result.tokens.insert(result.tokens.end(), fresh.begin(), fresh.end());
        bool go_on = true;
        if constexpr (std::same_as<std::invoke_result_t<OnTokens&, std::span<token_id const>>, bool>)
            go_on = fresh.empty() || on_tokens(fresh);
        else if (!fresh.empty())
            on_tokens(fresh);
        if (!go_on || result.stopped_at_eos) break;
        if (p + 1 < steps) session.append(patch);
    }
    return result;
}

// The same, all at once.
template <class Model, class Backend>
generation_result generate(context<Backend>& ctx, Model const& model, std::span<token_id const> prompt,
                           special_tokens const& special, generation_settings const& settings) {
    return generate(ctx, model, prompt, special, settings, [](std::span<token_id const>) {});
}

// The text of tokens as they come, never ending within a character. The vocabulary, a tokenizer, says the bytes of a
// token (none for BOS, EOS, PAD) and outlives it.
template <class Vocabulary> class streamed_text {
public:
    explicit streamed_text(Vocabulary const& vocabulary) : vocabulary_(vocabulary) {}

    // What can be printed after these tokens.
    [[nodiscard]] std::string push(std::span<token_id const> tokens) {
        std::string bytes;
        for (token_id const id : tokens) bytes += vocabulary_.bytes(id);
        return stream_.push(bytes);
    }
    // What is left at the end: an unfinished character, as its bytes.
    [[nodiscard]] std::string flush() { return stream_.flush(); }

private:
    Vocabulary const& vocabulary_;
    utf8_stream stream_;
};

}  // namespace calm
