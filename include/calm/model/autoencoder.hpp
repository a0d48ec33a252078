#pragma once
// CALM's autoencoder (Autoencoder in docs/mathematics.md; Kingma and Welling 2013): K tokens to the posterior of one
// latent vector, and back. Patches are independent. Sizes: R patches, K tokens a patch, D hidden, L latent, V
// vocabulary.

#include <optional>

#include "calm/loss/cross_entropy.hpp"
#include "calm/loss/variational.hpp"
#include "calm/model/alike.hpp"
#include "calm/model/config.hpp"
#include "calm/model/tokens.hpp"
#include "calm/nn/chain.hpp"
#include "calm/nn/embedding.hpp"
#include "calm/nn/mlp.hpp"
#include "calm/nn/norm.hpp"
#include "calm/nn/stack.hpp"

namespace calm {

// y = x + SwiGLU(RMSNorm(x)). Checkpoints have the norm last.
template <index_t D, index_t Inner, class Space = space<>>
struct feed_forward_layer
    : residual<chain<named<"layernorm", rms_norm_layer<D, Space>, 1>, named<"mlp", swiglu<D, Inner, Space>>>> {};

// Run-time settings of the training objective.
struct autoencoder_objective {
    double dropout = 0.15;    // of input tokens (they become id 0) and of the latent
    double kl_clamp = 0.5;    // a dimension's divergence below it is not pushed further
    double kl_weight = 1e-3;  // of the divergence in the loss; the reconstruction has K
};

// Means over a batch, in nats where they are likelihoods.
struct autoencoder_losses {
    double loss = 0;           // K * cross_entropy + kl_weight * kl
    double cross_entropy = 0;  // mean over tokens
    double kl = 0;             // mean over patches
    double posterior_std = 0;  // mean of exp(log_std)
};

// CALM's autoencoder of one configuration: posterior (R K) -> (R, L), decode (R, L) -> (R K, D), and the training
// objective. Half of the layers of each side work on tokens (rows of R K), half on patches (rows of R).
template <autoencoder_configuration C, class Space = space<>> struct autoencoder {
    using space_type = Space;
    using T = typename Space::storage;
    using Backend = typename Space::backend;
    static_assert(check::sizes_are_positive(C), "calm::autoencoder: every size of the configuration must be positive");
    static_assert(
        check::layers_are_even(C),
        "calm::autoencoder: num_encoder_layers and num_decoder_layers must be even: half of the layers work on "
        "tokens, half on patches");
    using scalar = T;
    using backend = Backend;
    static constexpr index_t K = C.patch_size;
    static constexpr index_t D = C.hidden_size;
    static constexpr index_t L = C.latent_size;
    // Layers of either half of the encoder, and below of the decoder.
    static constexpr std::size_t encoder_half = static_cast<std::size_t>(C.num_encoder_layers / 2);
    static constexpr std::size_t decoder_half = static_cast<std::size_t>(C.num_decoder_layers / 2);  // see above
    using layer = feed_forward_layer<D, C.intermediate_size, Space>;   // x + SwiGLU(RMSNorm(x))
    using encoder_tokens = stack<layer, encoder_half>;                 // layers 0 .. of the encoder
    using encoder_patches = stack<layer, encoder_half, encoder_half>;  // and those behind them
    using decoder_patches = stack<layer, decoder_half>;                // layers 0 .. of the decoder
    using decoder_tokens = stack<layer, decoder_half, decoder_half>;   // and those behind them
    using latents = matrix_view<T, L, Backend>;                        // (R, L)
    using const_latents = matrix_view<T const, L, Backend>;            // (R, L)
    using token_view = vector_view<token_id const, dyn, Backend>;      // (R K), flat
    using row_view = vector_view<row_id const, dyn, Backend>;          // rows to gather

    embedding<D, Space> embed_tokens;                          // (V, D), tied with the decoder's projection
    encoder_tokens encoder_token_layers;                       // (R K, D)
    encoder_patches encoder_patch_layers;                      // (R, D)
    linear<K * D, D, with_bias::yes, Space> squeeze_layer;     // (R, K D) to (R, D)
    rms_norm_layer<D, Space> encoder_norm;                     // (R, D)
    linear<D, 2 * L, with_bias::yes, Space> hidden_to_latent;  // (R, D) to mean and log_std side by side
    linear<L, D, with_bias::yes, Space> latent_to_hidden;      // (R, L) to (R, D)
    decoder_patches decoder_patch_layers;                      // (R, D)
    decoder_tokens decoder_token_layers;                       // (R K, D)
    linear<D, K * D, with_bias::yes, Space> expand_layer;      // (R, D) to (R, K D)
    rms_norm_layer<D, Space> decoder_norm;                     // (R K, D)

    // For a vocabulary of V ids, without memory until `allocate` gives it some.
    explicit autoencoder(index_t vocabulary = C.vocab_size) : embed_tokens(vocabulary) {}
    [[nodiscard]] index_t vocabulary() const { return embed_tokens.vocabulary(); }  // V: ids are 0 .. V - 1

    template <class Visitor> void visit(Visitor& visitor) {
        visit_as("encoder.embed_tokens", embed_tokens, visitor);
        visit_as("encoder.encoder_layers", encoder_token_layers, visitor);
        visit_as("encoder.encoder_layers", encoder_patch_layers, visitor);
        visit_as("encoder.squeeze_layer", squeeze_layer, visitor);
        visit_as("encoder.norm", encoder_norm, visitor);
        visit_as("encoder.hidden_to_latent", hidden_to_latent, visitor);
        visit_as("decoder.latent_to_hidden", latent_to_hidden, visitor);
        visit_as("decoder.decoder_layers", decoder_patch_layers, visitor);
        visit_as("decoder.decoder_layers", decoder_token_layers, visitor);
        visit_as("decoder.expand_layer", expand_layer, visitor);
        visit_as("decoder.norm", decoder_norm, visitor);
    }

    // The first half of the encoder sees one token at a time, so it runs once for every distinct id: U of them.
    struct encoded {
        token_view tokens;                             // (R K): what it is the posterior of
        vector_view<row_id, dyn, Backend> places;      // (R K): which of the distinct ids stands there
        typename embedding<D, Space>::saved embedded;  // y: (U, D)
        typename encoder_tokens::saved token_layers;   // y: (U, D)
        typename encoder_patches::saved patch_layers;  // y: (R, D)
        typename linear<K * D, D, with_bias::yes, Space>::saved squeezed;  // y: (R, D)
        typename rms_norm_layer<D, Space>::saved norm;                     // y: (R, D)
        latents mean;                                                      // (R, L)
        latents log_std;                                                   // (R, L)
    };

    // tokens (R * K) to the posterior of every patch, normal with diagonal exp(log_std)^2; in ctx.saved. Throws
    // errc::usage where tokens are no whole patches and errc::tokenizer for an id outside the vocabulary.
    encoded posterior(context<Backend>& ctx, token_view const& tokens) const {
        require(tokens.size() % K == 0, errc::usage, "calm::autoencoder: expected whole patches of ", K,
                " tokens, found ", tokens.size(), " tokens");
        index_t const patches = tokens.size() / K;
        encoded s{};
        s.tokens = tokens;
        s.places = ctx.saved.template take<row_id>(tokens.extents());
        s.embedded = embed_tokens.forward(ctx, distinct_rows(ctx, tokens, vocabulary(), s.places));
        s.token_layers = encoder_token_layers.forward(ctx, s.embedded.y);
        auto const every = ctx.saved.template take<T>(extents<dyn, D>(tokens.size()));  // (R K, D)
        gather_rows(ctx, every, matrix_view<T const, D, Backend>(s.token_layers.y), row_view(s.places));
        s.squeezed = squeeze_layer.forward(ctx, reshape(every, extents<dyn, K * D>(patches)));
        s.patch_layers = encoder_patch_layers.forward(ctx, s.squeezed.y);
        s.norm = encoder_norm.forward(ctx, s.patch_layers.y);
        s.mean = ctx.saved.template take<T>(extents<dyn, L>(patches));
        s.log_std = ctx.saved.template take<T>(extents<dyn, L>(patches));
        hidden_to_latent.template apply_part<0, L>(ctx, s.mean, s.norm.y);
        hidden_to_latent.template apply_part<L, L>(ctx, s.log_std, s.norm.y);
        return s;
    }

    // What decode_backward needs, the result in y; views of ctx.saved's memory.
    struct decoded {
        typename linear<L, D, with_bias::yes, Space>::saved hidden;        // y: (R, D)
        typename decoder_patches::saved patch_layers;                      // y: (R, D)
        typename linear<D, K * D, with_bias::yes, Space>::saved expanded;  // y: (R, K D)
        typename decoder_tokens::saved token_layers;                       // y: (R K, D)
        typename rms_norm_layer<D, Space>::saved norm;                     // y: (R K, D)
        matrix_view<T, D, Backend> y;                                      // (R K, D): logits are y E^T
    };

    // z (R, L) to the last hidden state of every token.
    decoded decode(context<Backend>& ctx, const_latents const& z) const {
        decoded s{};
        decode_tokens_apart(ctx, s, decode_patches(ctx, s, z));
        return s;
    }

    // tokens (R * K) = the most likely ones of z (R, L). What it needs of ctx.saved is given back.
    void decode_tokens(context<Backend>& ctx, vector_view<token_id, dyn, Backend> const& tokens,
                       const_latents const& z) const {
        arena_scope const scope(ctx.saved);
        argmax_token(ctx, tokens, matrix_view<T const, D, Backend>(decode(ctx, z).y), embed_tokens.weight.read());
    }

    // The same for those of the host's tokens (R * K) that are not_decoded yet, as long as patches are alike. What is
    // alike costs the token's half of the decoder, what is not only the patch's.
    void decode_alike(context<Backend>& ctx, std::span<token_id> tokens, const_latents const& z,
                      alike_groups groups) const {
        arena_scope const scope(ctx.saved);
        decoded s{};
        auto const all = decode_patches(ctx, s, z);
        std::vector<token_id> room;
        for (index_t k = 0; k < K; ++k) {
            arena_scope const of_token(ctx.saved);
            arena_scope const of_places(ctx.scratch);
            auto places = alike_so_far(tokens, static_cast<std::size_t>(K), static_cast<std::size_t>(k), groups);
            if (places.empty()) continue;
            for (auto& place : places) place = place * static_cast<row_id>(K) + static_cast<row_id>(k);
            extents<dyn> const count(static_cast<index_t>(places.size()));
            auto const x = ctx.saved.template take<T>(extents<dyn, D>(count.size()));
            auto const found = ctx.saved.template take<token_id>(count);
            gather_rows(ctx, x, matrix_view<T const, D, Backend>(all), upload(ctx, std::span<row_id const>(places)));
            decode_tokens_apart(ctx, s, x);
            argmax_token(ctx, found, matrix_view<T const, D, Backend>(s.y), embed_tokens.weight.read());
            auto const decoded_here = on_host(ctx, found, room);
            for (std::size_t i = 0; i < places.size(); ++i)
                tokens[static_cast<std::size_t>(places[i])] = decoded_here[i];
        }
    }

    // What the training objective draws. `scale` is 0 or 1 / (1 - dropout).
    struct noise {
        token_view shown;     // (R K): the input tokens, some replaced by id 0
        const_latents eps;    // (R, L)
        const_latents scale;  // (R, L)
    };

    // Noise of patches first .. first + R of the step, tokens (R K) with the dropout `rate` in [0, 1); all from keyed
    // streams, in ctx.saved. Throws errc::usage for another rate.
    noise draw(context<Backend>& ctx, token_view const& tokens, double rate, index_t first = 0) const {
        require(rate >= 0 && rate < 1, errc::usage, "calm::autoencoder: expected a rate of dropout in [0, 1), found ",
                rate);
        index_t const patches = tokens.size() / K;
        auto const shown = ctx.saved.template take<token_id>(tokens.extents());
        auto const eps = ctx.saved.template take<T>(extents<dyn, L>(patches));
        auto const scale = ctx.saved.template take<T>(extents<dyn, L>(patches));
        hide_tokens(ctx, shown, tokens, ctx.random(stream::token_mask), static_cast<std::uint64_t>(first * K), rate);
        fill_normal(ctx, eps, ctx.random(stream::posterior), static_cast<std::uint64_t>(first * L));
        fill_bernoulli_keep(ctx, scale, ctx.random(stream::latent_dropout), static_cast<float>(rate),
                            static_cast<T>(1 / (1 - rate)), static_cast<std::uint64_t>(first * L));
        return {shown, eps, scale};
    }

    // The losses of one batch of R patches; gradients times `weight` are added to the parameters' (Reconstruction,
    // variational term and autoencoder in docs/mathematics.md). tokens (R K) are the labels, n the noise of the same
    // patches. Uses ctx.saved and gives it back.
    autoencoder_losses loss_and_gradient(context<Backend>& ctx, token_view const& tokens, noise const& n,
                                         autoencoder_objective const& objective, double weight = 1) {
        arena_scope const saved_scope(ctx.saved);
        arena_scope const scope(ctx.scratch);
        index_t const patches = tokens.size() / K;
        auto const count = static_cast<double>(std::max<index_t>(patches, 1));
        auto const e = posterior(ctx, n.shown);
        auto const z = ctx.saved.template take<T>(extents<dyn, L>(patches));
        evaluate(ctx, z, (e.mean + exp(e.log_std) * n.eps) * n.scale);
        auto const d = decode(ctx, z);

        auto const rows_of_loss = ctx.scratch.template take<T>(extents<dyn>(patches * K));
        auto const dy = ctx.scratch.template take<T>(extents<dyn, D>(patches * K));
        double const ce_weight = weight * static_cast<double>(K) / (count * static_cast<double>(K));
        cross_entropy(ctx, rows_of_loss, dy, embed_tokens.weight.gradient(), matrix_view<T const, D, Backend>(d.y),
                      embed_tokens.weight.read(), tokens, ce_weight);
        autoencoder_losses losses;
        losses.cross_entropy = detail::real_part(sum(ctx, rows_of_loss)) / (count * static_cast<double>(K));
        losses.kl = detail::real_part(clamped_kl_sum(ctx, e.mean, e.log_std, objective.kl_clamp)) / count;
        losses.posterior_std = detail::real_part(sum(ctx, exp(e.log_std))) / (count * static_cast<double>(L));
        losses.loss = static_cast<double>(K) * losses.cross_entropy + objective.kl_weight * losses.kl;

        auto const dz = ctx.scratch.template take<T>(extents<dyn, L>(patches));
        decode_backward(ctx, d, dy, dz);
        auto const dmean = ctx.scratch.template take<T>(extents<dyn, L>(patches));
        auto const dlog_std = ctx.scratch.template take<T>(extents<dyn, L>(patches));
        differentiate(ctx, (wrt(e.mean, dmean) + exp(wrt(e.log_std, dlog_std)) * n.eps) * n.scale, dz);
        add_clamped_kl_gradient(ctx, e.mean, e.log_std, dmean, dlog_std, objective.kl_clamp,
                                weight * objective.kl_weight / count);
        posterior_backward(ctx, e, dmean, dlog_std);
        return losses;
    }

    // From dy (R K, D): dz (R, L) is overwritten, the decoder's gradients accumulate. Consumes what was saved.
    void decode_backward(context<Backend>& ctx, decoded const& s, matrix_view<T const, D, Backend> const& dy,
                         latents const& dz) {
        arena_scope const scope(ctx.scratch);
        index_t const tokens = dy.extent(0);
        auto const da = ctx.scratch.template take<T>(extents<dyn, D>(tokens));       // (R K, D)
        auto const dtokens = ctx.scratch.template take<T>(extents<dyn, D>(tokens));  // (R K, D)
        decoder_norm.backward(ctx, s.norm, dy, da);
        decoder_token_layers.backward(ctx, s.token_layers, da, dtokens);
        auto const dexpanded = rows(da, 0, tokens / K);                             // (R, D)
        auto const dx = ctx.scratch.template take<T>(extents<dyn, D>(tokens / K));  // (R, D)
        expand_layer.backward(ctx, s.expanded, reshape(dtokens, extents<dyn, K * D>(tokens / K)), dexpanded);
        decoder_patch_layers.backward(ctx, s.patch_layers, dexpanded, dx);
        latent_to_hidden.backward(ctx, s.hidden, dx, dz);
    }

    // From the gradients of mean and log_std, both (R, L): the encoder's accumulate. Consumes what was saved.
    void posterior_backward(context<Backend>& ctx, encoded const& s, const_latents const& dmean,
                            const_latents const& dlog_std) {
        arena_scope const scope(ctx.scratch);
        index_t const patches = dmean.extent(0);
        auto const da = ctx.scratch.template take<T>(extents<dyn, D>(patches));  // (R, D)
        auto const db = ctx.scratch.template take<T>(extents<dyn, D>(patches));  // (R, D)
        hidden_to_latent.template backward_part<0, L>(ctx, s.norm.y, dmean, da, into::overwrite);
        hidden_to_latent.template backward_part<L, L>(ctx, s.norm.y, dlog_std, da, into::accumulate);
        encoder_norm.backward(ctx, s.norm, da, db);
        encoder_patch_layers.backward(ctx, s.patch_layers, db, da);
        auto const wide = ctx.scratch.template take<T>(extents<dyn, K * D>(patches));
        squeeze_layer.backward(ctx, s.squeezed, da, wide);
        auto const dx = ctx.scratch.template take<T>(s.embedded.y.extents());  // (U, D)
        auto const dw = ctx.scratch.template take<T>(s.embedded.y.extents());  // (U, D)
        fill(ctx, dx, T{});
        scatter_add_rows(ctx, dx, matrix_view<T const, D, Backend>(reshape(wide, extents<dyn, D>(patches * K))),
                         row_view(s.places));
        encoder_token_layers.backward(ctx, s.token_layers, dx, dw);
        embed_tokens.backward(ctx, s.embedded, dw);
    }

private:
    // The half of the decoder that works on patches: z (R, L) to what the other half reads, a row a token (R K, D).
    matrix_view<T, D, Backend> decode_patches(context<Backend>& ctx, decoded& s, const_latents const& z) const {
        s.hidden = latent_to_hidden.forward(ctx, z);
        s.patch_layers = decoder_patch_layers.forward(ctx, s.hidden.y);
        s.expanded = expand_layer.forward(ctx, s.patch_layers.y);
        return reshape(s.expanded.y, extents<dyn, D>(z.extent(0) * K));
    }
    // The half that works on tokens, of any of these rows.
    void decode_tokens_apart(context<Backend>& ctx, decoded& s, matrix_view<T, D, Backend> const& x) const {
        s.token_layers = decoder_token_layers.forward(ctx, x);
        s.norm = decoder_norm.forward(ctx, s.token_layers.y);
        s.y = s.norm.y;
    }
};

}  // namespace calm
