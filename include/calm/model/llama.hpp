#pragma once
// The Llama stack (attention in docs/mathematics.md; Touvron et al. 2023), of the backbone and of the autoregressive
// model: what it reads, and what is made of its hidden states, is theirs. Sizes: B sequences, P positions, R = B P
// rows.

#include <span>
#include <vector>

#include "calm/model/config.hpp"
#include "calm/nn/attention.hpp"
#include "calm/nn/chain.hpp"
#include "calm/nn/mlp.hpp"
#include "calm/nn/norm.hpp"
#include "calm/nn/stack.hpp"

namespace calm {

inline constexpr double rope_theta = 10000.0;  // base of a CALM's rotary angles, as published

// a = x + attention(RMSNorm(x)), y = a + SwiGLU(RMSNorm(a)), on rows of D with Inner numbers in the SwiGLU. Besides
// the rows it takes what attention does. Checkpoints have the norms last.
template <index_t D, index_t Inner, index_t Heads, index_t KvHeads, class Space = space<>>
struct transformer_block
    : chain<named<"", residual<chain<named<"input_layernorm", rms_norm_layer<D, Space, result_as::activations>, 1>,
                                     named<"self_attn", attention<D, Heads, KvHeads, Space>>>>>,
            named<"",
                  residual<chain<named<"post_attention_layernorm", rms_norm_layer<D, Space, result_as::activations>, 1>,
                                 named<"mlp", swiglu<D, Inner, Space>>>>>> {};

// Blocks and the norm behind them: rows x (R, D) to hidden states (R, D); that of position p has seen rows 0 .. p of
// its sequence.
template <llama_sizes S, class Space = space<>>
struct llama_stack : chain<named<"layers", stack<transformer_block<S.hidden_size, S.intermediate_size,
                                                                   S.num_attention_heads, S.num_key_value_heads, Space>,
                                                 static_cast<std::size_t>(S.num_hidden_layers)>>,
                           named<"norm", rms_norm_layer<S.hidden_size, Space>>> {
    using parts = typename llama_stack::chain;  // layers and norm
    using typename parts::saved;
    using T = typename Space::storage;
    using Backend = typename Space::backend;
    static constexpr index_t D = S.hidden_size;
    static constexpr std::size_t depth = static_cast<std::size_t>(S.num_hidden_layers);  // blocks
    static constexpr auto theta = static_cast<double>(S.rope_theta);                     // base of the rotary angles
    using attention_type = attention<D, S.num_attention_heads, S.num_key_value_heads, Space>;  // of a block
    using rows_view = matrix_view<T const, D, Backend>;                                        // (R, D)
    using hidden_view = matrix_view<T, D, Backend>;                                            // (R, D)

    // Keys and values of every layer, of B sequences that may differ in length.
    struct cache {
        std::vector<kv_cache<attention_type::kv_width, Space>> layers;  // of each block, in order

        [[nodiscard]] index_t sequences() const { return layers.front().sequences(); }  // B, how many it has room for
        // Positions that each sequence may have.
        [[nodiscard]] index_t capacity() const { return layers.front().capacity(); }
        // Positions read of one of 0 .. B - 1.
        [[nodiscard]] index_t length(index_t sequence) const { return layers.front().length(sequence); }
        // Positions that each sequence has memory for now.
        [[nodiscard]] index_t room() const { return layers.front().room(); }
        // Memory for so many more of each of these sequences. Throws errc::usage where they are full, errc::memory.
        void reserve(context<Backend> const& ctx, std::span<index_t const> sequences, index_t count) {
            auto const now = layers.front().as_now(sequences);
            for (auto& layer : layers) layer.reserve(ctx, now, count);
        }
        // 0 .. B - 1.
        [[nodiscard]] std::vector<index_t> all() const { return layers.front().all(); }
        // Keeps at most the first `length` positions of one sequence, or of each.
        void truncate(index_t sequence, index_t length) {
            for (auto& layer : layers) layer.truncate(sequence, length);
        }
        // Keeps at most the first `length` positions of every sequence.
        void truncate(index_t length) {
            for (auto& layer : layers) layer.truncate(length);
        }
    };

    // Of P positions a sequence. Throws errc::usage where rows are no whole sequences.
    saved forward(context<Backend>& ctx, rows_view const& x, index_t positions) const {
        return parts::forward(ctx, x, positions, theta);
    }

    // Overwrites dx (R, D) with the gradient that dy (R, D) gives x; the parameters' accumulate. Consumes what was
    // saved.
    void backward(context<Backend>& ctx, saved const& s, rows_view const& dy, hidden_view const& dx) {
        parts::backward(ctx, s, dy, dx, theta);
    }

    // An empty cache for B sequences of at most `capacity` positions.
    [[nodiscard]] static cache make_cache(index_t sequences, index_t capacity) {
        cache c;
        for (std::size_t i = 0; i < depth; ++i) c.layers.emplace_back(sequences, capacity);
        return c;
    }

    // Hidden states (S T, D) of rows (S, T) that follow those of S sequences in the cache, named once each. In
    // ctx.saved.
    hidden_view extend(context<Backend>& ctx, rows_view const& x, cache& c, std::span<index_t const> sequences) const {
        arena_scope const scope(ctx.scratch);
        auto const now = c.layers.front().as_now(sequences);
        auto const there = bring(ctx, std::span(now));
        return parts::extend(ctx, x, c.layers, theta, there);
    }
};

}  // namespace calm
