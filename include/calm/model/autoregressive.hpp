#pragma once
/// \file
/// The autoregressive baseline for CALM (docs/mathematics/autoregressive.md): the backbone's Llama stack on tokens,
/// with a softmax over the vocabulary for the next token. Sizes: B sequences, P positions, K tokens per position, R =
/// B (P - 1) predictions, V vocabulary.
/// \shows{tests/model/autoregressive_fixture_test.cpp,a_tied_table_has_the_gradients_of_both_places}

#include <span>

#include "calm/loss/cross_entropy.hpp"
#include "calm/model/config.hpp"
#include "calm/model/detail/tokens.hpp"
#include "calm/model/llama.hpp"
#include "calm/nn/embedding.hpp"
#include "calm/tensor/ops/repeat.hpp"
#include "calm/tensor/ops/total.hpp"

namespace calm {

/// A Llama language model of one configuration; parameters are named as in LlamaForCausalLM.
template <autoregressive_configuration C, class Space = space<>> struct autoregressive_model {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static_assert(
        check::sizes_are_allowed(C.llama),
        "calm::autoregressive_model: every size of the configuration must be positive, and within calm::limits");
    static_assert(check::numbers_are_allowed(C.llama),
                  "calm::autoregressive_model: rope_theta and factor must be positive, rms_norm_eps must not be "
                  "negative, and high_freq_factor must be above low_freq_factor");
    static_assert(check::heads_divide_width(C.llama),
                  "calm::autoregressive_model: num_attention_heads must divide hidden_size");
    static_assert(check::key_value_heads_divide_heads(C.llama),
                  "calm::autoregressive_model: num_key_value_heads must divide num_attention_heads");
    static_assert(check::head_size_is_even(C.llama),
                  "calm::autoregressive_model: rotary embeddings need an even head_dim");
    using scalar = T;
    using backend = Backend;
    static constexpr index_t K = 1;  ///< tokens per position in generation and evaluation
    static constexpr index_t D = C.llama.hidden_size;
    static constexpr bool is_tied = C.tie_word_embeddings;  ///< whether embeddings and logits share a table
    using llama_type = llama_stack<C.llama, Space>;         ///< over positions
    using cache = typename llama_type::cache;               ///< for B sequences
    using token_ids = row_ids<Backend>;                     ///< flat
    using hidden_view = matrix_view<T, D, Backend>;         ///< (R, D)

    embedding<D, Space> embed_tokens;  ///< (V, D)
    llama_type llama;                  ///< over positions
    embedding<D, Space> lm_head;       ///< (V, D), one row per logit; no memory if tied

    /// A model for V token ids, without memory until `allocate`.
    explicit autoregressive_model(index_t vocabulary = C.vocab_size) : embed_tokens(vocabulary), lm_head(vocabulary) {}
    [[nodiscard]] index_t vocabulary() const { return embed_tokens.vocabulary(); }  ///< V: valid ids are 0 .. V - 1

    /// Saved activations, in ctx.saved.
    struct saved_activations {
        typename embedding<D, Space>::saved_activations embedded;  ///< y: (R K, D)
        typename llama_type::saved_activations llama;              ///< y: (R, D), the result
        hidden_view y;                                             ///< (R, D): position p depends on positions 0 .. p
    };

    /// Hidden states for tokens (B, P, K), flat. Each position reads the mean embedding of its K tokens. Throws
    /// errc::usage if the tokens are not whole sequences, errc::tokenizer for an id outside the vocabulary.
    saved_activations forward(context<Backend>& ctx, token_ids const& tokens, index_t positions,
                              index_t patch = K) const {
        require(tokens.size() % patch == 0, errc::usage, "calm::autoregressive_model: expected whole positions of ",
                patch, " tokens, found ", tokens.size(), " tokens");
        saved_activations s{};
        s.embedded = embed_tokens.forward(ctx, tokens);
        auto x = s.embedded.y;
        if (patch > 1) {
            x = ctx.saved.template take<T>(extents<dyn, D>(tokens.size() / patch));
            segment_sum(ctx, x, s.embedded.y);
            evaluate(ctx, x, x * (1.0 / static_cast<double>(patch)));
        }
        s.llama = llama.forward(ctx, x, positions);
        s.y = s.llama.y;
        return s;
    }

    /// Backward for dy (R, D). Parameter gradients accumulate. Consumes s.
    void backward(context<Backend>& ctx, saved_activations const& s, matrix_view<T const, D, Backend> const& dy) {
        arena_scope const scope(ctx.workspace);
        auto dx = ctx.workspace.template take<T>(dy.extents());
        llama.backward(ctx, s.llama, dy, dx);
        if (index_t const count = s.embedded.y.extent(0); count > dx.extent(0)) {
            evaluate(ctx, dx, dx * (static_cast<double>(dx.extent(0)) / static_cast<double>(count)));
            auto const each = ctx.workspace.template take<T>(s.embedded.y.extents());
            repeat_interleave(ctx, each, dx);
            dx = each;
        }
        embed_tokens.backward(ctx, s.embedded, dx);
    }

    /// A micro-batch prepared for the loss.
    struct batch {
        shifted_tokens<Backend> tokens;  ///< (R K) each: inputs and labels
        index_t positions;               ///< P - 1, per sequence
        index_t patch;                   ///< K
    };

    /// Prepares host tokens (B, P, K): checks them and uploads them to ctx.saved in one copy, without waiting for the
    /// device. Throws errc::usage unless the tokens are whole sequences of at least 2 positions, errc::tokenizer for an
    /// id outside the vocabulary.
    batch prepare(context<Backend>& ctx, std::span<token_id const> tokens, index_t positions, index_t patch = K) const {
        index_t const n = detail::shifted_size(std::ssize(tokens), positions, patch);
        id_upload<Backend> ids(ctx, vocabulary(), 2 * n);
        shifted_on_host<Backend> const t(ctx, ids, tokens, positions, patch);
        batch const b{{ids.checked(t.inputs), ids.checked(t.labels)}, positions - 1, patch};
        ids.send();
        return b;
    }

    /// Forward and backward of one micro-batch. loss = the mean cross-entropy, in nats, of the predictions from the
    /// first P - 1 positions of tokens (B, P, K). Adds weight times its gradient to the parameter gradients. K > 1 is
    /// phase 1 of patch-level training (Shao et al. 2024): one softmax per position, scored against each of the next
    /// position's K tokens. Does not wait for the device. Restores ctx.saved on return.
    void loss_and_gradient(context<Backend>& ctx, total_view<Backend> const& loss, batch const& b, double weight = 1) {
        arena_scope const saved_scope(ctx.saved);
        arena_scope const scope(ctx.workspace);
        auto const s = forward(ctx, b.tokens.inputs, b.positions, b.patch);
        auto const dhidden = ctx.workspace.template take<T>(s.y.extents());
        auto const total = new_total(ctx);
        add_losses(ctx, total, s.y, b.tokens.labels, dhidden, weight);
        backward(ctx, s, dhidden);
        put_mean(ctx, loss, total, s.y.extent(0));
    }
    /// Returns the loss on the host, so it waits for the device.
    double loss_and_gradient(context<Backend>& ctx, batch const& b, double weight = 1) {
        return total_of(ctx, [&](auto const& loss) { loss_and_gradient(ctx, loss, b, weight); });
    }
    /// For tokens (B, P, K) already in backend memory; checking them waits for the device. Throws as `prepare` does.
    double loss_and_gradient(context<Backend>& ctx, token_ids const& tokens, index_t positions, index_t patch = K,
                             double weight = 1) {
        arena_scope const saved_scope(ctx.saved);
        return loss_and_gradient(ctx, batch{shift_tokens(ctx, tokens, positions, patch), positions - 1, patch}, weight);
    }

    /// Adds to total, for each of the hidden states (R, D), the mean cross-entropy of its K `labels` (R K). If dhidden
    /// (R, D) is not null, it is overwritten with weight times the gradient of the mean over rows, and the output
    /// table's gradient accumulates likewise.
    void add_losses(context<Backend>& ctx, total_view<Backend> const& total,
                    matrix_view<T const, D, Backend> const& hidden, token_ids const& labels,
                    hidden_view const& dhidden = {nullptr, extents<dyn, D>(0)}, double weight = 1) {
        arena_scope const scope(ctx.workspace);
        auto const losses = ctx.workspace.template take<T>(extents<dyn>(hidden.extent(0)));
        bool const trains = dhidden.data() != nullptr;
        cross_entropy(ctx, losses, dhidden,
                      trains ? output().weight.gradient() : hidden_view(nullptr, extents<dyn, D>(0)), hidden,
                      output().weight.read(), labels, weight / static_cast<double>(hidden.extent(0)));
        add_sum(ctx, total, losses);
    }

    /// y (R, V) = next-token logits of hidden states (R, D).
    void logits(context<Backend>& ctx, matrix_view<T, dyn, Backend> const& y,
                matrix_view<T const, D, Backend> const& hidden) const {
        matmul(ctx, y, hidden, transposed(output().weight.read()));
    }

    /// An empty cache for B sequences of at most `capacity` tokens.
    [[nodiscard]] static cache make_cache(index_t sequences, index_t capacity) {
        return llama_type::make_cache(sequences, capacity);
    }
    /// Decoding: hidden states (S T, D) of new tokens (S, T), flat, which follow the cached tokens of S distinct
    /// sequences. Result in ctx.saved.
    hidden_view extend(context<Backend>& ctx, token_ids const& tokens, cache& c,
                       std::span<index_t const> sequences) const {
        return llama.extend(ctx, embed_tokens.forward(ctx, tokens).y, c, sequences);
    }
    /// For host tokens, which are checked on the host: does not wait for the device.
    template <span_of_tokens Tokens>
    hidden_view extend(context<Backend>& ctx, Tokens tokens, cache& c, std::span<index_t const> sequences) const {
        return extend(ctx, ids_to_device(ctx, tokens, vocabulary()), c, sequences);
    }

    /// Parameter names as in LlamaForCausalLM.
    template <class Visitor> void visit(Visitor& visitor) {
        visit_as("model.embed_tokens", embed_tokens, visitor);
        visit_as("model", llama, visitor);
        if constexpr (!is_tied) visit_as("lm_head", lm_head, visitor);
    }

private:
    // The table that gives the logits.
    embedding<D, Space>& output() {
        if constexpr (is_tied)
            return embed_tokens;
        else
            return lm_head;
    }
    [[nodiscard]] embedding<D, Space> const& output() const {
        if constexpr (is_tied)
            return embed_tokens;
        else
            return lm_head;
    }
};

}  // namespace calm
