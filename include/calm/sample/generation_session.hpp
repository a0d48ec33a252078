#pragma once
/// \file
/// Texts while they are generated. Sizes: B texts, S of them that continue, T patches each, K tokens per patch, D
/// hidden.
/// \shows{tests/sample/generate_test.cpp,a_patch_draws_its_noise_at_its_own_place}

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "calm/base/token.hpp"
#include "calm/sample/detail/independent_rows.hpp"
#include "calm/tensor/core/tensor.hpp"
#include "calm/tensor/detail/core/for_each.hpp"
#include "calm/tensor/detail/device/graph.hpp"
#include "calm/tensor/ops/rows.hpp"

namespace calm {

/// Pads a prompt with PAD to whole patches of K tokens. Throws errc::usage if that needs PAD and there is none (pad <
/// 0).
inline std::vector<token_id> padded_prompt(std::span<token_id const> prompt, index_t K, token_id pad, bool left) {
    auto const size = static_cast<std::size_t>(K);
    std::size_t const missing = (size - prompt.size() % size) % size;
    require(missing == 0 || pad >= 0, errc::usage, "the vocabulary has no PAD to fill a prompt of ", prompt.size(),
            " symbols up to whole patches: give a multiple of ", K);
    std::vector<token_id> tokens(prompt.begin(), prompt.end());
    tokens.insert(left ? tokens.begin() : tokens.end(), missing, pad);
    return tokens;
}

namespace detail {
// Row texts[i] of y (B, D) = the last of `each` rows of text i in x (S, each, D).
template <class T> struct put_last_row {
    T* y;
    T const* x;
    index_t const* texts;
    index_t each, D;
    CALM_HD void operator()(index_t i) const {
        index_t const text = i / D, column = i % D;
        y[texts[text] * D + column] = x[((text + 1) * each - 1) * D + column];
    }
};
}  // namespace detail

/// The key-value cache of B texts and the hidden state of each one's last patch. Texts differ in length and continue
/// independently. Model and context outlive it. Every step frees what it takes from the context's arenas, so a long
/// text needs no more memory than its cache.
template <class Model, class Backend = cpu> class generation_session {
public:
    using T = typename Model::scalar;  ///< element of a hidden state
    static constexpr index_t K = Model::K;
    static constexpr index_t D = Model::D;

    /// B empty texts of at most `capacity` patches each; memory grows with their length.
    generation_session(context<Backend>& ctx, Model const& model, index_t texts, index_t capacity) :
        ctx_(ctx), model_(model), cache_(model.make_cache(texts, capacity)), hidden_(extents<dyn, D>(texts)) {}

    /// One text that begins with at least one whole patch; `more` patches can follow. Throws errc::usage for incomplete
    /// patches, errc::tokenizer for an id outside the vocabulary.
    generation_session(context<Backend>& ctx, Model const& model, std::span<token_id const> patches, index_t more) :
        generation_session(ctx, model, 1, static_cast<index_t>(patches.size()) / K + more) {
        begin(0, patches);
    }

    /// (B, D), after all patches so far of every text; they decide the next patch.
    [[nodiscard]] matrix_view<T const, D, Backend> hidden() const { return hidden_.view(); }
    /// Number of patches in a text.
    [[nodiscard]] index_t length(index_t text) const { return cache_.length(text); }

    /// Restarts a text with at least one patch. Throws as the constructor.
    void begin(index_t text, std::span<token_id const> patches) {
        require(!patches.empty(), errc::usage, "calm::generation_session: expected a prompt of at least one patch");
        cache_.truncate(text, 0);
        append({&text, 1}, patches);
    }

    /// Empties a text and on a host gives the memory of its keys and values back.
    void end(index_t text) { cache_.release(text); }

    /// Continues texts, each named once, by the same number of whole patches: (S, T, K). Throws errc::usage for more
    /// patches than the capacity or if no text is named.
    void append(std::span<index_t const> texts, std::span<token_id const> patches) {
        require(!texts.empty() && patches.size() % (texts.size() * static_cast<std::size_t>(K)) == 0, errc::usage,
                "calm::generation_session: expected whole patches of ", K, " tokens for each of ", texts.size(),
                " texts, found ", patches.size(), " tokens");
        auto const count = static_cast<index_t>(patches.size());
        if (count == 0) return;
        auto const size = std::ssize(texts);
        index_t const each = count / (size * K);
        auto const advance = [&] {
            arena_scope const saved(ctx_.saved);
            arena_scope const workspace(ctx_.workspace);
            auto const states = model_.extend(ctx_, patches, cache_, texts);
            auto const named = to_device(ctx_, texts);
            for_each(ctx_, size * D, detail::put_last_row<T>{hidden_.data(), states.data(), named.there, each, D});
        };
        if (each > 1) return advance();
        detail::independent_rows_scope<Backend> const one_order(ctx_);
        cache_.reserve(ctx_, texts, each);
        captured_step_(ctx_, {size, cache_.room()}, advance);
    }
    /// Continues the first text.
    void append(std::span<token_id const> patches) {
        index_t const first = 0;
        append({&first, 1}, patches);
    }

private:
    context<Backend>& ctx_;
    Model const& model_;
    typename Model::cache cache_;
    tensor<T, extents<dyn, D>, Backend> hidden_;
    captured_graph<Backend> captured_step_;  // texts that continue by one patch
};

}  // namespace calm
