#pragma once
/// \file
/// CALM's backbone (Input of the backbone in docs/mathematics/autoencoder.md; Touvron et al. 2023): the K token
/// embeddings of each patch are compressed to one vector, then a Llama stack runs over patches. Sizes: B sequences, P
/// patches, R = B P rows.
/// \shows{tests/model/input_test.cpp,a_backbone_reads_a_text_at_once_or_patch_by_patch}

#include <span>

#include "calm/model/config.hpp"
#include "calm/model/llama.hpp"
#include "calm/nn/embedding.hpp"
#include "calm/nn/norm.hpp"
#include "calm/nn/sequential.hpp"

namespace calm {

/// Maps patches to hidden states (R, D). The state at position p depends on patches 0 .. p and predicts patch p + 1.
template <model_configuration auto C, class Space = space<>> struct backbone {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static_assert(check::sizes_are_allowed(C),
                  "calm::backbone: every size of the configuration must be positive, and within calm::limits");
    static_assert(check::heads_divide_width(C), "calm::backbone: num_attention_heads must divide hidden_size");
    static_assert(check::key_value_heads_divide_heads(C),
                  "calm::backbone: num_key_value_heads must divide num_attention_heads");
    static_assert(check::head_size_is_even(C),
                  "calm::backbone: rotary embeddings need an even hidden_size / num_attention_heads");
    using scalar = T;
    using backend = Backend;
    static constexpr index_t K = C.autoencoder.patch_size;
    static constexpr index_t D = C.hidden_size;
    static constexpr index_t L = C.autoencoder.latent_size;
    using llama_type = llama_stack<llama_sizes_of(C), Space>;             ///< over patches
    static constexpr bool reads_tokens = C.input != input_kind::latents;  ///< whether the input has token embeddings
    static constexpr bool reads_latents = C.input != input_kind::tokens;  ///< whether the input has latent vectors
    /// LN(W_2 silu(W_1 e)) on rows of width Width, with 2 D hidden elements.
    template <index_t Width>
    using projection_of = sequential<linear<Width, 2 * D, with_bias::yes, Space, result_as::activations>,
                                     silu_layer<2 * D, Space, result_as::activations>,
                                     linear<2 * D, D, with_bias::yes, Space>, layer_norm_layer<D, Space>>;
    using projection = projection_of<K * D>;         ///< for the K embeddings of each patch
    using latent_projection = projection_of<L>;      ///< for the latent vector of each patch
    using token_ids = row_ids<Backend>;              ///< (R K), flat
    using hidden_view = matrix_view<T, D, Backend>;  ///< (R, D)

    /// Input: tokens (R K) and, if the backbone reads latents, the latent vectors (R, L) of their patches.
    struct input {
        token_ids tokens;  ///< (R K)
        /// (R, L); null if latents are not read.
        matrix_view<T const, L, Backend> latents{nullptr, extents<dyn, L>(0)};
        /// Tokens only.
        input(token_ids const& t) requires(!reads_latents) : tokens(t) {}
        /// Throws errc::usage unless z has one row per patch of t.
        input(token_ids const& t, matrix_view<T const, L, Backend> const& z) : tokens(t), latents(z) {
            require(t.size() == z.extent(0) * K, errc::usage, "calm::backbone: expected one latent vector per patch");
        }
    };

    using cache = typename llama_type::cache;  ///< for B sequences; its positions are patches

    embedding<D, Space> embed_tokens;  ///< (V, D)
    projection embed_proj;             ///< (R, K D) to (R, D)
    latent_projection latent_proj;     ///< (R, L) to (R, D); added to the projected tokens if both are read
    llama_type llama;                  ///< over patches

    /// A backbone for V token ids, without memory until `allocate`.
    explicit backbone(index_t vocabulary) : embed_tokens(vocabulary) {}

    /// Saved activations, in ctx.saved.
    struct saved_activations {
        typename embedding<D, Space>::saved_activations embedded;  ///< y: (R K, D)
        typename projection::saved_activations projected;          ///< y: (R, D)
        typename latent_projection::saved_activations latents;     ///< y: (R, D)
        typename llama_type::saved_activations llama;              ///< y: (R, D), the result
        hidden_view y;                                             ///< (R, D): position p depends on patches 0 .. p
    };

    /// Reads tokens (B, P, K), flat, and latents (B, P, L), with P = positions. Throws errc::usage for incomplete
    /// patches or sequences, errc::tokenizer for an id outside the vocabulary.
    saved_activations forward(context<Backend>& ctx, input const& read, index_t positions) const {
        saved_activations s{};
        s.llama = llama.forward(ctx, project(ctx, read, s), positions);
        s.y = s.llama.y;
        return s;
    }

    /// Reads tokens only.
    saved_activations forward(context<Backend>& ctx, token_ids const& tokens, index_t positions) const
        requires(!reads_latents) {
        return forward(ctx, input(tokens), positions);
    }

    /// Backward for dy (R, D). Parameter gradients accumulate. Consumes s. The inputs get no gradient: tokens are ids,
    /// and latents come from the frozen autoencoder.
    void backward(context<Backend>& ctx, saved_activations const& s, matrix_view<T const, D, Backend> const& dy) {
        arena_scope const scope(ctx.workspace);
        auto const da = ctx.workspace.template take<T>(dy.extents());
        llama.backward(ctx, s.llama, dy, da);
        if constexpr (reads_tokens) {
            auto const dembedded = ctx.workspace.template take<T>(extents<dyn, K * D>(dy.extent(0)));
            embed_proj.backward(ctx, s.projected, da, dembedded);
            embed_tokens.backward(ctx, s.embedded, reshape(dembedded, extents<dyn, D>(dy.extent(0) * K)));
        }
        if constexpr (reads_latents) {  // the autoencoder is frozen: dlatents is unused
            auto const dlatents = ctx.workspace.template take<T>(extents<dyn, L>(dy.extent(0)));
            latent_proj.backward(ctx, s.latents, da, dlatents);
        }
    }

    /// An empty cache for B sequences of at most `capacity` patches.
    [[nodiscard]] static cache make_cache(index_t sequences, index_t capacity) {
        return llama_type::make_cache(sequences, capacity);
    }

    /// Decoding: hidden states (S T, D) of new patches, given as tokens (S, T, K), flat, and their latents. They follow
    /// the cached patches of S distinct sequences. Result in ctx.saved.
    hidden_view extend(context<Backend>& ctx, input const& read, cache& c, std::span<index_t const> sequences) const {
        saved_activations s{};
        return llama.extend(ctx, project(ctx, read, s), c, sequences);
    }

    /// Published names: table, blocks and norm belong to `transformer`; embed_proj and, if used, latent_proj are
    /// separate.
    template <class Visitor> void visit(Visitor& visitor) {
        if constexpr (reads_tokens) visit_as("transformer.embed_tokens", embed_tokens, visitor);
        visit_as("transformer", llama, visitor);
        if constexpr (reads_tokens) visit_as("embed_proj", embed_proj, visitor);
        if constexpr (reads_latents) visit_as("latent_proj", latent_proj, visitor);
    }

private:
    // The input of the first block, (R, D).
    hidden_view project(context<Backend>& ctx, input const& read, saved_activations& s) const {
        if constexpr (reads_tokens) {
            s.embedded = embed_tokens.forward(ctx, read.tokens);
            s.projected = embed_proj.forward(ctx, patches(s.embedded.y));
        }
        if constexpr (reads_latents) s.latents = latent_proj.forward(ctx, read.latents);
        if constexpr (!reads_tokens) return s.latents.y;
        if constexpr (reads_tokens && reads_latents) evaluate(ctx, s.projected.y, s.projected.y + s.latents.y);
        return s.projected.y;
    }

    static matrix_view<T const, K * D, Backend> patches(hidden_view const& embedded) {
        require(embedded.extent(0) % K == 0, errc::usage, "calm::backbone: expected whole patches of ", K,
                " tokens, found ", embedded.extent(0), " tokens");
        return reshape(embedded, extents<dyn, K * D>(embedded.extent(0) / K));
    }
};

}  // namespace calm
