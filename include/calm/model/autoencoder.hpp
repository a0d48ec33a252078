#pragma once
/// \file
/// CALM's autoencoder (docs/mathematics/autoencoder.md; Kingma and Welling 2013). The encoder maps K tokens to the
/// posterior of one latent vector, the decoder maps a latent back to tokens. Patches are independent. Sizes: R patches
/// of K tokens, D hidden, L latent, V vocabulary.
/// \shows{tests/model/gradients_test.cpp,the_whole_autoencoder_by_central_differences}

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "calm/loss/cross_entropy.hpp"
#include "calm/loss/detail/token_screen.hpp"
#include "calm/loss/variational.hpp"
#include "calm/model/autoencoder_losses.hpp"
#include "calm/model/config.hpp"
#include "calm/model/detail/lazy_decoding.hpp"
#include "calm/model/detail/tokens.hpp"
#include "calm/nn/embedding.hpp"
#include "calm/nn/mlp.hpp"
#include "calm/nn/norm.hpp"
#include "calm/nn/repeated_layer.hpp"
#include "calm/nn/sequential.hpp"

namespace calm {

/// y = x + SwiGLU(RMSNorm(x)). The norm is visited last, as checkpoints list it.
template <index_t D, index_t Inner, class Space = space<>>
struct feed_forward_layer
    : residual<sequential<rms_norm_layer<D, Space, result_as::activations>, swiglu<D, Inner, Space>>> {
    template <class Visitor> void visit(Visitor& visitor) {
        auto& [layernorm, mlp] = this->inner.layers;
        visit_as("mlp", mlp, visitor);
        visit_as("layernorm", layernorm, visitor);
    }
};

/// CALM's autoencoder of one configuration: posterior (R K) -> (R, L), decode (R, L) -> (R K, D), and the training
/// objective. In encoder and decoder, half of the layers run on tokens (R K rows) and half on patches (R rows).
template <autoencoder_configuration C, class Space = space<>> struct autoencoder {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static_assert(check::sizes_are_allowed(C),
                  "calm::autoencoder: every size of the configuration must be positive, and within calm::limits");
    static_assert(
        check::layers_are_even(C),
        "calm::autoencoder: num_encoder_layers and num_decoder_layers must be even: half of the layers work on "
        "tokens, half on patches");
    using scalar = T;
    using backend = Backend;
    static constexpr index_t K = C.patch_size;
    static constexpr index_t D = C.hidden_size;
    static constexpr index_t L = C.latent_size;
    /// Layers in each half of the encoder.
    static constexpr std::size_t encoder_half = static_cast<std::size_t>(C.num_encoder_layers / 2);
    static constexpr std::size_t decoder_half = static_cast<std::size_t>(C.num_decoder_layers / 2);  ///< of the decoder
    /// Upper bound on the elements of memory needed to encode or decode one patch.
    static constexpr index_t numbers_per_patch =
        static_cast<index_t>(encoder_half + decoder_half) * (K + 1) * 4 * (C.intermediate_size + D) + (8 * K + 8) * D +
        8 * L;
    using layer = feed_forward_layer<D, C.intermediate_size, Space>;            ///< x + SwiGLU(RMSNorm(x))
    using encoder_tokens = repeated_layer<layer, encoder_half>;                 ///< first half of the encoder
    using encoder_patches = repeated_layer<layer, encoder_half, encoder_half>;  ///< second half of the encoder
    using decoder_patches = repeated_layer<layer, decoder_half>;                ///< first half of the decoder
    using decoder_tokens = repeated_layer<layer, decoder_half, decoder_half>;   ///< second half of the decoder
    using latents = matrix_view<T, L, Backend>;                                 ///< (R, L)
    using const_latents = matrix_view<T const, L, Backend>;                     ///< (R, L)
    using token_ids = row_ids<Backend>;                                         ///< (R K), flat

    embedding<D, Space> embed_tokens;                               ///< (V, D), tied to the decoder's output projection
    encoder_tokens encoder_token_layers;                            ///< (R K, D)
    encoder_patches encoder_patch_layers;                           ///< (R, D)
    linear<K * D, D, with_bias::yes, Space> squeeze_layer;          ///< (R, K D) to (R, D)
    rms_norm_layer<D, Space, result_as::activations> encoder_norm;  ///< (R, D)
    linear<D, 2 * L, with_bias::yes, Space> hidden_to_latent;       ///< (R, D) to (R, 2 L): mean, then log_std
    linear<L, D, with_bias::yes, Space> latent_to_hidden;           ///< (R, L) to (R, D)
    decoder_patches decoder_patch_layers;                           ///< (R, D)
    decoder_tokens decoder_token_layers;                            ///< (R K, D)
    linear<D, K * D, with_bias::yes, Space> expand_layer;           ///< (R, D) to (R, K D)
    rms_norm_layer<D, Space> decoder_norm;                          ///< (R K, D)

    /// An autoencoder for V token ids, without memory until `allocate`.
    explicit autoencoder(index_t vocabulary = C.vocab_size) : embed_tokens(vocabulary) {}
    [[nodiscard]] index_t vocabulary() const { return embed_tokens.vocabulary(); }  ///< V: valid ids are 0 .. V - 1

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

    /// Saved activations of posterior. The token half of the encoder sees one token at a time, so it runs once per
    /// unique id (U).
    struct encoded {
        unique_ids<Backend> tokens;                                                    ///< (R K): the encoder's input
        typename embedding<D, Space>::saved_activations embedded;                      ///< y: (U, D)
        typename encoder_tokens::saved_activations token_layers;                       ///< y: (U, D)
        typename encoder_patches::saved_activations patch_layers;                      ///< y: (R, D)
        typename linear<K * D, D, with_bias::yes, Space>::saved_activations squeezed;  ///< y: (R, D)
        typename decltype(encoder_norm)::saved_activations norm;                       ///< y: (R, D)
        latents mean;                                                                  ///< (R, L)
        latents log_std;                                                               ///< (R, L)
    };

    /// The posterior of every patch of tokens (R K): normal with mean `mean` and standard deviation exp(log_std).
    /// Result in ctx.saved. Throws errc::usage if the tokens are not whole patches.
    encoded posterior(context<Backend>& ctx, unique_ids<Backend> const& tokens) const {
        index_t const patches = whole_patches(tokens.ids.size());
        encoded s{};
        s.tokens = tokens;
        s.embedded = embed_tokens.forward(ctx, tokens.unique);
        s.token_layers = encoder_token_layers.forward(ctx, s.embedded.y);
        auto const every = ctx.saved.template take<T>(extents<dyn, D>(patches * K));  // (R K, D)
        gather_rows(ctx, every, s.token_layers.y, tokens.inverse);
        s.squeezed = squeeze_layer.forward(ctx, reshape(every, extents<dyn, K * D>(patches)));
        s.patch_layers = encoder_patch_layers.forward(ctx, s.squeezed.y);
        s.norm = encoder_norm.forward(ctx, s.patch_layers.y);
        s.mean = ctx.saved.template take<T>(extents<dyn, L>(patches));
        s.log_std = ctx.saved.template take<T>(extents<dyn, L>(patches));
        hidden_to_latent.template apply_part<0, L>(ctx, s.mean, s.norm.y);
        hidden_to_latent.template apply_part<L, L>(ctx, s.log_std, s.norm.y);
        return s;
    }
    /// For ids not yet made unique. Throws errc::tokenizer for an id outside the vocabulary. Waits for the device
    /// unless the ids were already validated.
    encoded posterior(context<Backend>& ctx, token_ids const& tokens) const {
        (void)whole_patches(tokens.size());
        return posterior(ctx, unique(ctx, tokens, vocabulary()));
    }

    /// Saved activations of decode, in ctx.saved; y is the result.
    struct decoded {
        typename linear<L, D, with_bias::yes, Space>::saved_activations hidden;        ///< y: (R, D)
        typename decoder_patches::saved_activations patch_layers;                      ///< y: (R, D)
        typename linear<D, K * D, with_bias::yes, Space>::saved_activations expanded;  ///< y: (R, K D)
        typename decoder_tokens::saved_activations token_layers;                       ///< y: (R K, D)
        typename rms_norm_layer<D, Space>::saved_activations norm;                     ///< y: (R K, D)
        matrix_view<T, D, Backend> y;                                                  ///< (R K, D): logits are y E^T
    };

    /// The last hidden state of every token, for latents z (R, L).
    decoded decode(context<Backend>& ctx, const_latents const& z) const {
        decoded s{};
        decode_tokens_apart(ctx, s, decode_patches(ctx, s, z));
        return s;
    }

    /// tokens (R K) = the most likely tokens of latents z (R, L); see choose_tokens(). Restores ctx.saved on return.
    void decode_tokens(context<Backend>& ctx, vector_view<token_id, dyn, Backend> const& tokens, const_latents const& z,
                       token_screen const* screen = nullptr) const {
        arena_scope const scope(ctx.saved);
        choose_tokens(ctx, tokens, decode(ctx, z).y, screen);
    }

    /// tokens (R) = the most likely token for each row of the decoder output y (R, D). For a non-finite row the host
    /// throws errc::non_finite, and a device writes `without_tokens`. `screen` is null or a screen of embed_tokens.
    void choose_tokens(context<Backend>& ctx, vector_view<token_id, dyn, Backend> const& tokens,
                       matrix_view<T const, D, Backend> const& y, token_screen const* screen = nullptr) const {
        if constexpr (host_memory<Backend>)
            detail::require_finite(ctx.is_dry_run() ? 0 : detail::real_part(sum(ctx, y * 0.0)));
        argmax_token(ctx, tokens, y, embed_tokens.weight.read(), screen);
        if constexpr (device_memory<Backend>)
            for_each(ctx, tokens.size(), detail::mark_not_finite<T>{tokens.data(), y.data(), D});
    }

    /// Lazy decoding: decodes host tokens (R K) that are still not_decoded, only while patches of a group agree so far.
    /// The decoder's patch half runs once for each patch that needs any token. Throws errc::non_finite on devices too.
    void decode_lazily(context<Backend>& ctx, std::span<token_id> tokens, const_latents const& z, lazy_groups groups,
                       token_screen const* screen = nullptr) const {
        arena_scope const scope(ctx.saved);
        index_t const R = z.extent(0);
        // Latents in the order in which their patches are started, and the output of the decoder's patch half for them.
        auto const latents_begun = ctx.saved.template take<T>(z.extents());
        auto const expanded = ctx.saved.template take<T>(extents<dyn, K * D>(R));
        detail::patches_begun begun(R);
        std::vector<token_id> room;
        for (index_t k = 0; k < K; ++k) {
            arena_scope const of_token(ctx.saved);
            arena_scope const of_places(ctx.workspace);
            auto const patches =
                undecided_patches(tokens, static_cast<std::size_t>(K), static_cast<std::size_t>(k), groups);
            index_t const count = begun.size();
            if (auto const fresh = begun.add(patches); !fresh.empty()) {
                arena_scope const of_fresh(ctx.saved);
                decoded s{};
                auto const some = rows(latents_begun, count, std::ssize(fresh));
                gather_rows(ctx, some, z, ids_to_device(ctx, fresh, R));
                decode_patches(ctx, s, some);
                copy(ctx, rows(expanded, count, std::ssize(fresh)), s.expanded.y);
            }
            index_t const end = k > 0 && patches.size() <= groups.few ? K : k + 1;
            std::vector<row_id> places;
            for (auto const patch : patches)
                for (auto i = k; i < end; ++i) places.push_back(static_cast<row_id>(begun[patch] * K + i));
            if (places.empty()) continue;
            auto const all = reshape(expanded, extents<dyn, D>(R * K));
            auto from = decode_at(ctx, room, all, places, screen).begin();
            for (auto const patch : patches)
                for (auto i = k; i < end; ++i) tokens[static_cast<std::size_t>(patch * K + i)] = *from++;
        }
    }

    /// Random draws of the training objective. `scale` is the latent dropout mask: 0 or 1 / (1 - dropout).
    struct noise {
        typename token_ids::view_type shown;  ///< (R K): the input tokens, some replaced by id 0
        const_latents eps;                    ///< (R, L)
        const_latents scale;                  ///< (R, L)
    };

    /// Draws the noise for tokens (R K) of patches first .. first + R - 1 of the step, with the dropout `rate` in [0,
    /// 1). It comes from keyed streams; result in ctx.saved. Throws errc::usage for a rate outside that range.
    noise draw(context<Backend>& ctx, token_ids const& tokens, double rate, rng_counter first = 0) const {
        require_rate(rate);
        index_t const patches = tokens.size() / K;
        auto const shown = ctx.saved.template take<token_id>(tokens.view().extents());
        for_each(ctx, tokens.size(), hiding(ctx.random(stream::token_mask), shown.data(), tokens.data(), rate, first));
        auto const [eps, scale] = draw_latents(ctx, patches, rate, first);
        return {shown, eps, scale};
    }

    /// A micro-batch prepared for the loss.
    struct batch {
        token_ids labels;           ///< (R K)
        unique_ids<Backend> shown;  ///< (R K): the input tokens, some replaced by id 0
        const_latents eps;          ///< (R, L)
        const_latents scale;        ///< (R, L)
    };

    /// Prepares host tokens (R K) with the noise that draw() gives: checks them, masks inputs, finds unique ids and
    /// uploads everything in one copy. Shapes do not depend on the ids, and nothing waits for the device. Result in
    /// ctx.saved; on a host backend the labels refer to `tokens`. Throws errc::tokenizer for an id outside the
    /// vocabulary, errc::usage for incomplete patches or a rate outside [0, 1).
    batch prepare(context<Backend>& ctx, std::span<token_id const> tokens, double rate, rng_counter first = 0) const {
        require_rate(rate);
        index_t const n = std::ssize(tokens), V = vocabulary();
        index_t const patches = whole_patches(n);
        id_upload<Backend> ids(ctx, V, n + id_upload<Backend>::room_for_unique(n, V));
        auto const labels = ids.given(tokens);
        auto const shown = ids.take(n);
        auto const hide =
            hiding(ctx.random(stream::token_mask).by_value(), shown.data(), tokens.data(), rate, first.by_value());
        if (!ctx.is_dry_run())
            for (index_t i = 0; i < n; ++i) hide(i);
        auto const input = ids.unique(shown);
        ids.send();
        auto const [eps, scale] = draw_latents(ctx, patches, rate, first);
        return {labels, input, eps, scale};
    }

    using losses_view = vector_view<autoencoder_losses, 1, Backend>;  ///< in backend memory

    /// Forward and backward of R patches: writes their mean losses and adds `weight` times the gradients to the
    /// parameter gradients (docs/mathematics/autoencoder.md). Does not wait for the device. Restores ctx.saved on
    /// return.
    void loss_and_gradient(context<Backend>& ctx, losses_view const& losses, batch const& b,
                           autoencoder_objective const& objective, double weight = 1) {
        arena_scope const saved_scope(ctx.saved);
        arena_scope const scope(ctx.workspace);
        index_t const patches = b.labels.size() / K;
        auto const count = static_cast<double>(std::max<index_t>(patches, 1));
        auto const e = posterior(ctx, b.shown);
        auto const z = ctx.saved.template take<T>(extents<dyn, L>(patches));
        evaluate(ctx, z, (e.mean + exp(e.log_std) * b.eps) * b.scale);
        auto const d = decode(ctx, z);

        auto const rows_of_loss = ctx.workspace.template take<T>(extents<dyn>(patches * K));
        auto const dy = ctx.workspace.template take<T>(extents<dyn, D>(patches * K));
        double const ce_weight = weight * static_cast<double>(K) / (count * static_cast<double>(K));
        cross_entropy(ctx, rows_of_loss, dy, embed_tokens.weight.gradient(), d.y, embed_tokens.weight.read(), b.labels,
                      ce_weight);
        auto const cross_entropy_sum = new_total(ctx), kl_sum = new_total(ctx), std_sum = new_total(ctx);
        add_sum(ctx, cross_entropy_sum, rows_of_loss);
        add_clamped_kl(ctx, kl_sum, e.mean, e.log_std, objective.kl_clamp);
        add_sum(ctx, std_sum, exp(e.log_std));
        for_each(ctx, 1,
                 detail::mean_losses{losses.data(), cross_entropy_sum.data(), kl_sum.data(), std_sum.data(),
                                     count * static_cast<double>(K), count, count * static_cast<double>(L),
                                     static_cast<double>(K), objective.kl_weight});

        auto const dz = ctx.workspace.template take<T>(extents<dyn, L>(patches));
        decode_backward(ctx, d, dy, dz);
        auto const dmean = ctx.workspace.template take<T>(extents<dyn, L>(patches));
        auto const dlog_std = ctx.workspace.template take<T>(extents<dyn, L>(patches));
        differentiate(ctx, (wrt(e.mean, dmean) + exp(wrt(e.log_std, dlog_std)) * b.eps) * b.scale, dz);
        add_clamped_kl_gradient(ctx, e.mean, e.log_std, dmean, dlog_std, objective.kl_clamp,
                                weight * objective.kl_weight / count);
        posterior_backward(ctx, e, dmean, dlog_std);
    }
    /// Returns the losses on the host, so it waits for the device.
    autoencoder_losses loss_and_gradient(context<Backend>& ctx, batch const& b, autoencoder_objective const& objective,
                                         double weight = 1) {
        arena_scope const scope(ctx.workspace);
        auto const losses = ctx.workspace.template take<autoencoder_losses>(extents<1>());
        loss_and_gradient(ctx, losses, b, objective, weight);
        return copy_to_host(ctx, losses.data());
    }
    /// For labels `tokens` (R K) and noise n of these patches that are already in backend memory; checking them waits
    /// for the device. Throws errc::tokenizer for an id outside the vocabulary.
    autoencoder_losses loss_and_gradient(context<Backend>& ctx, token_ids const& tokens, noise const& n,
                                         autoencoder_objective const& objective, double weight = 1) {
        arena_scope const saved_scope(ctx.saved);
        (void)whole_patches(n.shown.size());
        return loss_and_gradient(ctx, batch{tokens, unique(ctx, n.shown, vocabulary()), n.eps, n.scale}, objective,
                                 weight);
    }

    /// Overwrites dz (R, L), given dy (R K, D). The decoder's gradients accumulate. Consumes s.
    void decode_backward(context<Backend>& ctx, decoded const& s, matrix_view<T const, D, Backend> const& dy,
                         latents const& dz) {
        arena_scope const scope(ctx.workspace);
        index_t const tokens = dy.extent(0);
        auto const da = ctx.workspace.template take<T>(extents<dyn, D>(tokens));       // (R K, D)
        auto const dtokens = ctx.workspace.template take<T>(extents<dyn, D>(tokens));  // (R K, D)
        decoder_norm.backward(ctx, s.norm, dy, da);
        decoder_token_layers.backward(ctx, s.token_layers, da, dtokens);
        auto const dexpanded = rows(da, 0, tokens / K);                               // (R, D)
        auto const dx = ctx.workspace.template take<T>(extents<dyn, D>(tokens / K));  // (R, D)
        expand_layer.backward(ctx, s.expanded, reshape(dtokens, extents<dyn, K * D>(tokens / K)), dexpanded);
        decoder_patch_layers.backward(ctx, s.patch_layers, dexpanded, dx);
        latent_to_hidden.backward(ctx, s.hidden, dx, dz);
    }

    /// Backward of posterior, for the gradients of mean and log_std, (R, L) each. The encoder's gradients accumulate.
    /// Consumes s.
    void posterior_backward(context<Backend>& ctx, encoded const& s, const_latents const& dmean,
                            const_latents const& dlog_std) {
        arena_scope const scope(ctx.workspace);
        index_t const patches = dmean.extent(0);
        auto const da = ctx.workspace.template take<T>(extents<dyn, D>(patches));  // (R, D)
        auto const db = ctx.workspace.template take<T>(extents<dyn, D>(patches));  // (R, D)
        hidden_to_latent.template backward_part<0, L>(ctx, s.norm.y, dmean, da, into::overwrite);
        hidden_to_latent.template backward_part<L, L>(ctx, s.norm.y, dlog_std, da, into::accumulate);
        encoder_norm.backward(ctx, s.norm, da, db);
        encoder_patch_layers.backward(ctx, s.patch_layers, db, da);
        auto const wide = ctx.workspace.template take<T>(extents<dyn, K * D>(patches));
        squeeze_layer.backward(ctx, s.squeezed, da, wide);
        auto const dx = ctx.workspace.template take<T>(s.embedded.y.extents());  // (U, D)
        auto const dw = ctx.workspace.template take<T>(s.embedded.y.extents());  // (U, D)
        fill(ctx, dx, T{});
        scatter_add_rows(ctx, dx, reshape(wide, extents<dyn, D>(patches * K)), s.tokens.inverse);
        encoder_token_layers.backward(ctx, s.token_layers, dx, dw);
        embed_tokens.backward(ctx, s.embedded, dw);
    }

private:
    // Converts a number of tokens to a number of patches.
    static index_t whole_patches(index_t tokens) {
        require(tokens % K == 0, errc::usage, "calm::autoencoder: expected whole patches of ", K, " tokens, found ",
                tokens, " tokens");
        return tokens / K;
    }
    static void require_rate(double rate) {
        require(rate >= 0 && rate < 1, errc::usage, "calm::autoencoder: expected a dropout rate in [0, 1), found ",
                rate);
    }
    // Masks the input tokens of patches from `first` on.
    static detail::hide_token hiding(key draws, token_id* shown, token_id const* tokens, double rate,
                                     rng_counter first) {
        return {shown, tokens, draws, first * K, rate};
    }
    // eps and scale of the training noise, (R, L) each.
    std::pair<latents, latents> draw_latents(context<Backend>& ctx, index_t patches, double rate,
                                             rng_counter first) const {
        auto const eps = ctx.saved.template take<T>(extents<dyn, L>(patches));
        auto const scale = ctx.saved.template take<T>(extents<dyn, L>(patches));
        fill_normal(ctx, eps, ctx.random(stream::posterior), first * L);
        fill_bernoulli_keep(ctx, scale, ctx.random(stream::latent_dropout), static_cast<float>(rate),
                            static_cast<T>(1 / (1 - rate)), first * L);
        return {eps, scale};
    }

    // Decodes the rows `places` of x (R K, D), the output of the decoder's patch half. Returns their tokens on the
    // host.
    std::span<token_id const> decode_at(context<Backend>& ctx, std::vector<token_id>& room,
                                        matrix_view<T const, D, Backend> const& x, std::span<row_id const> places,
                                        token_screen const* screen) const {
        auto const some = ctx.saved.template take<T>(extents<dyn, D>(std::ssize(places)));
        auto const found = ctx.saved.template take<token_id>(extents<dyn>(std::ssize(places)));
        auto const named = ids_to_device(ctx, places, x.extent(0));
        decoded s{};
        gather_rows(ctx, some, x, named);
        decode_tokens_apart(ctx, s, some);
        choose_tokens(ctx, found, s.y, screen);
        auto const on_the_host = to_host(ctx, found, room);
        detail::require_tokens(on_the_host);
        return on_the_host;
    }

    // The decoder's patch half: z (R, L) to the input of the token half, one row per token (R K, D).
    matrix_view<T, D, Backend> decode_patches(context<Backend>& ctx, decoded& s, const_latents const& z) const {
        s.hidden = latent_to_hidden.forward(ctx, z);
        s.patch_layers = decoder_patch_layers.forward(ctx, s.hidden.y);
        s.expanded = expand_layer.forward(ctx, s.patch_layers.y);
        return reshape(s.expanded.y, extents<dyn, D>(z.extent(0) * K));
    }
    // The decoder's token half, on any subset of these rows.
    void decode_tokens_apart(context<Backend>& ctx, decoded& s, matrix_view<T, D, Backend> const& x) const {
        s.token_layers = decoder_token_layers.forward(ctx, x);
        s.norm = decoder_norm.forward(ctx, s.token_layers.y);
        s.y = s.norm.y;
    }
};

}  // namespace calm
