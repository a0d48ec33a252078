#pragma once
// CALM's backbone (Input of the backbone, attention in docs/mathematics.md; Touvron et al. 2023): K token embeddings a
// patch, compressed to one vector, then a Llama stack over patches. Sizes: B sequences, P patches, R = B P rows.

#include <span>

#include "calm/model/config.hpp"
#include "calm/model/llama.hpp"
#include "calm/nn/chain.hpp"
#include "calm/nn/embedding.hpp"
#include "calm/nn/norm.hpp"

namespace calm {

// Hidden states (R, D) from patches: that of position p has seen patches 0 .. p and stands for what follows them.
template <model_configuration auto C, class Space = space<>> struct backbone {
    using space_type = Space;
    using T = typename Space::storage;
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
    using llama_type = llama_stack<llama_sizes_of(C), Space>;             // over patches
    static constexpr bool reads_tokens = C.input != input_kind::latents;  // whether the input has token embeddings
    static constexpr bool reads_latents = C.input != input_kind::tokens;  // whether the input has latent vectors
    // LN(W_2 silu(W_1 e)) of rows of Width, 2 D numbers between.
    template <index_t Width>
    using projection_of =
        chain<linear<Width, 2 * D, with_bias::yes, Space>, silu_layer<2 * D, Space, result_as::activations>,
              linear<2 * D, D, with_bias::yes, Space>, layer_norm_layer<D, Space>>;
    using projection = projection_of<K * D>;         // of a patch's K embeddings
    using latent_projection = projection_of<L>;      // of a patch's latent vector
    using token_ids = row_ids<Backend>;              // (R K), flat
    using hidden_view = matrix_view<T, D, Backend>;  // (R, D)

    // What is read: tokens (R K) and, where latents are read, the latent vectors (R, L) of their patches. Tokens alone
    // are enough for a backbone that reads no latents.
    struct input {
        token_ids tokens;  // (R K)
        // (R, L), none where latents are not read.
        matrix_view<T const, L, Backend> latents{nullptr, extents<dyn, L>(0)};
        // Of tokens alone.
        input(token_ids const& t) requires(!reads_latents) : tokens(t) {}
        // Throws errc::usage where z has another number of rows than t has patches.
        input(token_ids const& t, matrix_view<T const, L, Backend> const& z) : tokens(t), latents(z) {
            require(t.size() == z.extent(0) * K, errc::usage, "calm::backbone: expected a latent vector a patch");
        }
    };

    using cache = typename llama_type::cache;  // of B sequences, its positions are patches

    embedding<D, Space> embed_tokens;  // (V, D)
    projection embed_proj;             // (R, K D) to (R, D)
    latent_projection latent_proj;     // added to the tokens' where both are read
    llama_type llama;                  // over patches

    // For a vocabulary of V ids, without memory until `allocate` gives it some.
    explicit backbone(index_t vocabulary) : embed_tokens(vocabulary) {}

    struct saved {
        typename embedding<D, Space>::saved embedded;  // y: (R K, D)
        typename projection::saved projected;          // y: (R, D)
        typename latent_projection::saved latents;     // y: (R, D)
        typename llama_type::saved llama;              // y: (R, D), the result
        hidden_view y;                                 // (R, D): position p has seen patches 0 .. p
    };

    // tokens (B, P, K), flat, and latents (B, P, L); P positions a sequence. Throws errc::usage where tokens are no
    // whole patches or patches no whole sequences, errc::tokenizer for an id outside the vocabulary.
    saved forward(context<Backend>& ctx, input const& read, index_t positions) const {
        saved s{};
        s.llama = llama.forward(ctx, project(ctx, read, s), positions);
        s.y = s.llama.y;
        return s;
    }

    // The same from tokens alone.
    saved forward(context<Backend>& ctx, token_ids const& tokens, index_t positions) const requires(!reads_latents) {
        return forward(ctx, input(tokens), positions);
    }

    // From dy (R, D): the parameters' gradients accumulate; consumes what was saved. Ids have no gradient, nor have the
    // latents: the autoencoder is frozen.
    void backward(context<Backend>& ctx, saved const& s, matrix_view<T const, D, Backend> const& dy) {
        arena_scope const scope(ctx.scratch);
        auto const da = ctx.scratch.template take<T>(dy.extents());
        llama.backward(ctx, s.llama, dy, da);
        if constexpr (reads_tokens) {
            auto const dembedded = ctx.scratch.template take<T>(extents<dyn, K * D>(dy.extent(0)));
            embed_proj.backward(ctx, s.projected, da, dembedded);
            embed_tokens.backward(ctx, s.embedded, reshape(dembedded, extents<dyn, D>(dy.extent(0) * K)));
        }
        if constexpr (reads_latents) {  // the autoencoder is frozen: its gradient is not used
            auto const dlatents = ctx.scratch.template take<T>(extents<dyn, L>(dy.extent(0)));
            latent_proj.backward(ctx, s.latents, da, dlatents);
        }
    }

    // An empty cache for B sequences of at most `capacity` patches.
    [[nodiscard]] static cache make_cache(index_t sequences, index_t capacity) {
        return llama_type::make_cache(sequences, capacity);
    }

    // Hidden states (S T, D) of new patches, tokens (S, T, K) flat and their latents, each behind those of its sequence
    // in the cache; the S sequences are named once each. In ctx.saved.
    hidden_view extend(context<Backend>& ctx, input const& read, cache& c, std::span<index_t const> sequences) const {
        saved s{};
        return llama.extend(ctx, project(ctx, read, s), c, sequences);
    }
    // The same for every sequence of the cache: tokens (B, T, K).
    hidden_view extend(context<Backend>& ctx, input const& read, cache& c) const {
        return extend(ctx, read, c, c.all());
    }

    // Published names: the table, the blocks and the norm are the transformer's, embed_proj stands beside it, and so
    // does latent_proj where it is used.
    template <class Visitor> void visit(Visitor& visitor) {
        if constexpr (reads_tokens) visit_as("transformer.embed_tokens", embed_tokens, visitor);
        visit_as("transformer", llama, visitor);
        if constexpr (reads_tokens) visit_as("embed_proj", embed_proj, visitor);
        if constexpr (reads_latents) visit_as("latent_proj", latent_proj, visitor);
    }

private:
    // (R, D): what the first block is given.
    hidden_view project(context<Backend>& ctx, input const& read, saved& s) const {
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
