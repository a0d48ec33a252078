#pragma once
/// \file
/// The Llama stack (attention in docs/mathematics/layers.md; Touvron et al. 2023), shared by the backbone and the
/// autoregressive model. Each of them supplies its own input and output. Sizes: B sequences, P positions, R = B P rows.
/// \shows{tests/emulated/launches_test.cpp,a_layer_of_a_patch_is_six_launches}

#include <span>
#include <vector>

#include "calm/model/config.hpp"
#include "calm/nn/attention.hpp"
#include "calm/nn/mlp.hpp"
#include "calm/nn/norm.hpp"
#include "calm/nn/repeated_layer.hpp"
#include "calm/nn/sequential.hpp"

namespace calm {

inline constexpr double rope_theta = 10000.0;  ///< published base of CALM's rotary angles

/// a = x + attention(RMSNorm(x)), y = a + SwiGLU(RMSNorm(a)), on rows of width D with Inner hidden elements in the
/// SwiGLU. Extra arguments go to attention. Norms are visited last, as checkpoints list them.
template <index_t D, index_t Inner, index_t Heads, index_t KvHeads, class Space = space<>, index_t HeadSize = D / Heads,
          norm_eps Eps = norm_eps{}>
struct transformer_block
    : sequential<residual<sequential<rms_norm_layer<D, Space, result_as::activations, Eps>,
                                     attention<D, Heads, KvHeads, Space, HeadSize>>>,
                 residual<sequential<rms_norm_layer<D, Space, result_as::activations, Eps>, swiglu<D, Inner, Space>>>> {
    template <class Visitor> void visit(Visitor& visitor) {
        auto& [attending, feeding] = this->layers;
        auto& [input_layernorm, self_attn] = attending.inner.layers;
        auto& [post_attention_layernorm, mlp] = feeding.inner.layers;
        visit_as("self_attn", self_attn, visitor);
        visit_as("mlp", mlp, visitor);
        visit_as("input_layernorm", input_layernorm, visitor);
        visit_as("post_attention_layernorm", post_attention_layernorm, visitor);
    }
};

namespace detail {
// What the norms of a stack add under the root, as their template argument.
template <llama_sizes S> inline constexpr norm_eps eps_of{S.rms_norm_eps};
}  // namespace detail

/// Transformer blocks and a final norm: rows x (R, D) to hidden states (R, D). The hidden state of position p depends
/// on rows 0 .. p of its sequence.
template <llama_sizes S, class Space = space<>>
struct llama_stack
    : sequential<named<"layers",
                       repeated_layer<transformer_block<S.hidden_size, S.intermediate_size, S.num_attention_heads,
                                                        S.num_key_value_heads, Space, S.head_size(), detail::eps_of<S>>,
                                      static_cast<std::size_t>(S.num_hidden_layers)>>,
                 named<"norm", rms_norm_layer<S.hidden_size, Space, result_as::numbers, detail::eps_of<S>>>> {
    using parts = typename llama_stack::sequential;  ///< blocks and norm
    using typename parts::saved_activations;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static constexpr index_t D = S.hidden_size;
    static constexpr std::size_t depth = static_cast<std::size_t>(S.num_hidden_layers);  ///< number of blocks
    static constexpr rotary_angles angles{S.rope_theta, S.rope_scaling};                 ///< of its attention
    using attention_type =
        attention<D, S.num_attention_heads, S.num_key_value_heads, Space, S.head_size()>;  ///< in each block
    using rows_view = matrix_view<T const, D, Backend>;                                    ///< (R, D)
    using hidden_view = matrix_view<T, D, Backend>;                                        ///< (R, D)

    /// Keys and values of every layer, for B sequences of possibly different lengths.
    struct cache {
        std::vector<kv_cache<attention_type::kv_width, Space>> layers;  ///< one per block, in order

        [[nodiscard]] index_t sequences() const { return layers.front().sequences(); }  ///< B, the number of sequences
        /// The maximum number of positions per sequence.
        [[nodiscard]] index_t capacity() const { return layers.front().capacity(); }
        /// The number of cached positions of a sequence, 0 .. B - 1.
        [[nodiscard]] index_t length(index_t sequence) const { return layers.front().length(sequence); }
        /// The number of positions per sequence that memory, or addresses on a host, are allocated for.
        [[nodiscard]] index_t room() const { return layers.front().room(); }
        /// Allocates memory for `count` more positions of each of these sequences. Throws errc::usage if they are full,
        /// or errc::memory.
        void reserve(context<Backend> const& ctx, std::span<index_t const> sequences, index_t count) {
            auto const now = layers.front().as_now(sequences);
            for (auto& layer : layers) layer.reserve(ctx, now, count);
        }
        /// All sequence indices, 0 .. B - 1.
        [[nodiscard]] std::vector<index_t> all() const { return layers.front().all(); }
        /// Shortens one sequence to at most its first `length` positions.
        void truncate(index_t sequence, index_t length) {
            for (auto& layer : layers) layer.truncate(sequence, length);
        }
        /// Empties a sequence and on a host gives its memory back.
        void release(index_t sequence) {
            for (auto& layer : layers) layer.release(sequence);
        }
        /// Shortens every sequence to at most `length` positions.
        void truncate(index_t length) {
            for (auto& layer : layers) layer.truncate(length);
        }
    };

    /// x: P = positions rows per sequence. Throws errc::usage if the rows are not whole sequences.
    saved_activations forward(context<Backend>& ctx, rows_view const& x, index_t positions) const {
        return parts::forward(ctx, x, positions, angles);
    }

    /// Overwrites dx (R, D) with the gradient for x, given dy (R, D). Parameter gradients accumulate. Consumes s.
    void backward(context<Backend>& ctx, saved_activations const& s, rows_view const& dy, hidden_view const& dx) {
        parts::backward(ctx, s, dy, dx, angles);
    }

    /// An empty cache for B sequences of at most `capacity` positions.
    [[nodiscard]] static cache make_cache(index_t sequences, index_t capacity) {
        cache c;
        for (std::size_t i = 0; i < depth; ++i) c.layers.emplace_back(sequences, capacity);
        return c;
    }

    /// Decoding: hidden states (S T, D) of rows (S, T) that follow the cached positions of S distinct sequences. Result
    /// in ctx.saved.
    hidden_view extend(context<Backend>& ctx, rows_view const& x, cache& c, std::span<index_t const> sequences) const {
        arena_scope const scope(ctx.workspace);
        auto const now = c.layers.front().as_now(sequences);
        auto const there = to_device(ctx, std::span(now));
        return parts::extend(ctx, x, c.layers, angles, there);
    }
};

}  // namespace calm
