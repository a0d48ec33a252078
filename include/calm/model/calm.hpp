#pragma once
/// \file
/// CALM's language model: frozen autoencoder, backbone and the generative head that the configuration names. Sizes: B
/// sequences, P patches, K tokens per patch, R = B (P - 1) predictions.
/// \shows{examples/08_configuration.cpp,describe}

#include <span>

#include "calm/model/autoencoder.hpp"
#include "calm/model/backbone.hpp"
#include "calm/model/detail/heads/at_once.hpp"
#include "calm/model/head_network.hpp"
#include "calm/model/heads/energy.hpp"

namespace calm {

/// CALM's language model of one configuration (arXiv 2510.27688; docs/mathematics.md).
template <model_configuration auto C, class Space = space<>> struct calm_model {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static_assert(generative_head<decltype(C.head)>, "calm: the head of a configuration has to be a generative_head");
    static constexpr index_t K = C.autoencoder.patch_size;
    static constexpr index_t D = C.hidden_size;
    static constexpr index_t L = C.autoencoder.latent_size;
    using scalar = T;
    using backend = Backend;
    using autoencoder_type = autoencoder<C.autoencoder, Space>;   ///< frozen here; trained separately before
    using backbone_type = backbone<C, Space>;                     ///< patches to hidden states
    using head = decltype(C.head);                                ///< the head's sizes and names
    using head_type = typename head::template network<C, Space>;  ///< hidden states to samples of the next latent
    using objective = typename head::objective;                   ///< run-time settings of the head's loss
    using token_ids = row_ids<Backend>;                           ///< flat
    using hidden_view = matrix_view<T, D, Backend>;               ///< (R, D)
    using cache = typename backbone_type::cache;                  ///< for B sequences; its positions are patches
    static_assert(head_network<head_type, C, Space>,
                  "calm::calm_model: expected a head whose network has loss_and_gradient, sample and visit for its "
                  "objective and in this space, see calm::head_network");

    autoencoder_type ae_model;  ///< frozen
    backbone_type transformer;  ///< the backbone
    head_type generator;        ///< the head's network: samples and scores the next latent

    /// A model for V token ids, without memory until `allocate`. allocate(model, ...) leaves out the frozen
    /// autoencoder: call allocate(model.ae_model, ...) too, or use owned_model.
    explicit calm_model(index_t vocabulary = C.autoencoder.vocab_size) :
        ae_model(vocabulary), transformer(vocabulary), generator(vocabulary) {}
    [[nodiscard]] index_t vocabulary() const { return ae_model.vocabulary(); }  ///< V: valid ids are 0 .. V - 1

    /// Visits the trained parameters under their published names.
    template <class Visitor> void visit(Visitor& visitor) {
        transformer.visit(visitor);
        visit_as("mlp_generator", generator, visitor);
    }
    /// Visits the frozen autoencoder, named as in a checkpoint of the language model.
    template <class Visitor> void visit_autoencoder(Visitor& visitor) { visit_as("ae_model", ae_model, visitor); }

    /// The backbone's input for tokens (R K), whole patches. If latents are read, the posterior mean of each patch is
    /// its latent vector, in training and in generation. Result in ctx.saved.
    typename backbone_type::input backbone_input(context<Backend>& ctx, token_ids const& tokens) const {
        if constexpr (backbone_type::reads_latents)
            return {tokens, ae_model.posterior(ctx, tokens).mean};
        else
            return tokens;
    }
    /// For ids already made unique, if latents are read.
    typename backbone_type::input backbone_input(context<Backend>& ctx, unique_ids<Backend> const& tokens) const {
        if constexpr (backbone_type::reads_latents)
            return {tokens.ids, ae_model.posterior(ctx, tokens).mean};
        else
            return tokens.ids;
    }

    /// For host tokens: checks them and uploads them in one copy, without waiting for the device. On a host backend the
    /// result refers to `tokens`. Throws errc::tokenizer for an id outside the vocabulary.
    template <span_of_tokens Tokens>
    typename backbone_type::input backbone_input(context<Backend>& ctx, Tokens tokens) const {
        if constexpr (backbone_type::reads_latents)
            return backbone_input(ctx, unique_ids_to_device(ctx, tokens, vocabulary()));
        else
            return ids_to_device(ctx, tokens, vocabulary());
    }

    /// An empty cache for B sequences of at most `capacity` patches.
    [[nodiscard]] static cache make_cache(index_t sequences, index_t capacity) {
        return backbone_type::make_cache(sequences, capacity);
    }
    /// Decoding: hidden states (S T, D) of new patches, host tokens (S, T, K) flat, which follow the cached patches of
    /// S distinct sequences. Result in ctx.saved. Checks the tokens on the host and does not wait for the device.
    template <span_of_tokens Tokens>
    hidden_view extend(context<Backend>& ctx, Tokens tokens, cache& c, std::span<index_t const> sequences) const {
        return transformer.extend(ctx, backbone_input(ctx, tokens), c, sequences);
    }

    /// A micro-batch prepared for the loss.
    struct batch {
        unique_ids<Backend> inputs;  ///< (R K): backbone input; made unique if latents are read
        unique_ids<Backend> labels;  ///< (R K): patches to predict
        index_t positions;           ///< P - 1, per sequence
    };

    /// Prepares host tokens (B, P, K): checks them, finds unique ids and uploads everything in one copy to ctx.saved.
    /// Shapes do not depend on the ids, and nothing waits for the device. Throws as shift_tokens does, and
    /// errc::tokenizer for an id outside the vocabulary.
    batch prepare(context<Backend>& ctx, std::span<token_id const> tokens, index_t patches) const {
        index_t const n = detail::shifted_size(std::ssize(tokens), patches, K), V = vocabulary();
        constexpr index_t unique_sides = backbone_type::reads_latents ? 2 : 1;
        id_upload<Backend> ids(ctx, V, n + unique_sides * id_upload<Backend>::room_for_unique(n, V));
        shifted_on_host<Backend> const t(ctx, ids, tokens, patches, K);
        auto const labels = ids.unique(t.labels);
        batch b{{}, labels, patches - 1};
        if constexpr (backbone_type::reads_latents)
            b.inputs = ids.unique(t.inputs);
        else
            b.inputs.ids = ids.checked(t.inputs);
        ids.send();
        return b;
    }

    /// Forward and backward of one micro-batch. Overwrites `loss` with the mean over all R positions of the loss of the
    /// next patch. Adds `weight` times its gradient to the parameter gradients. docs/mathematics.md defines the loss of
    /// every head.
    /// `noise` is the number of positions in earlier micro-batches of the step, which determines the noise of the head,
    /// or that noise itself (energy_head::given_noise). Does not wait for the device. Restores ctx.saved on return.
    template <class Noise = rng_counter>
    void loss_and_gradient(context<Backend>& ctx, total_view<Backend> const& loss, batch const& b, objective const& o,
                           Noise const& noise = {}, double weight = 1) {
        arena_scope const saved_scope(ctx.saved);
        arena_scope const scope(ctx.workspace);
        auto const next = ae_model.posterior(ctx, b.labels);
        auto const s = transformer.forward(ctx, backbone_input(ctx, b.inputs), b.positions);
        auto const dhidden = ctx.workspace.template take<T>(s.y.extents());
        auto const total = new_total(ctx);
        generator.loss_and_gradient(ctx, total, head_inputs_of(s.y, next),
                                    {.dhidden = dhidden, .scale = weight / static_cast<double>(s.y.extent(0))}, o,
                                    noise);
        transformer.backward(ctx, s, dhidden);
        put_mean(ctx, loss, total, s.y.extent(0));
    }
    /// Returns the loss on the host, so it waits for the device.
    double loss_and_gradient(context<Backend>& ctx, batch const& b, objective const& o, rng_counter first = 0,
                             double weight = 1) {
        return total_of(ctx, [&](auto const& loss) { loss_and_gradient(ctx, loss, b, o, first, weight); });
    }
    /// For tokens (B, P, K) already on the device; checking them waits for the device. Throws as `prepare` does.
    double loss_and_gradient(context<Backend>& ctx, token_ids const& tokens, index_t patches, objective const& o,
                             rng_counter first = 0, double weight = 1) {
        arena_scope const saved_scope(ctx.saved);
        auto const t = shift_tokens(ctx, tokens, patches, K);
        batch b{{t.inputs, {}, {}}, unique(ctx, t.labels, vocabulary()), patches - 1};
        if constexpr (backbone_type::reads_latents) b.inputs = unique(ctx, t.inputs, vocabulary());
        return loss_and_gradient(ctx, b, o, first, weight);
    }

    /// The sum of the losses of the patches `labels` (R K) that follow hidden states (R, D), with the noise of the
    /// step. Returned on the host, so it waits for the device.
    double loss_sum(context<Backend>& ctx, matrix_view<T const, D, Backend> const& hidden,
                    unique_ids<Backend> const& labels, objective const& o, rng_counter first) {
        arena_scope const saved_scope(ctx.saved);
        auto const in = head_inputs_of(hidden, ae_model.posterior(ctx, labels));
        return total_of(ctx, [&](auto const& total) { generator.loss_and_gradient(ctx, total, in, {}, o, first); });
    }

    /// z (R N, L): draws N latents for every hidden state (R, D). The noise comes from `rngs` (R), one per row and is
    /// multiplied by noise_scale. Does not wait for the device.
    void sample_latents(context<Backend>& ctx, matrix_view<T, L, Backend> const& z,
                        matrix_view<T const, D, Backend> const& hidden, std::span<row_rng const> rngs,
                        double noise_scale = 1) const {
        generator.sample(ctx, z, {.hidden = hidden, .autoencoder = &ae_model}, rngs, noise_scale);
    }
    /// Chunk size: the number of hidden states sampled together, which bounds memory.
    static index_t positions_drawn_at_once(context<Backend> const& ctx, index_t samples) {
        require(samples > 0, errc::usage, "calm::calm_model: expected at least one sample per position, found ",
                samples);
        return positions_at_once<T>(ctx, samples, 64 * D + autoencoder_type::numbers_per_patch);
    }

    /// tokens (R, N, K), flat: draws N patches at T = 1 for every hidden state (R, D). The noise comes from `rngs`
    /// (R), one per row, and is multiplied by noise_scale. Throws errc::usage for no samples, and errc::non_finite if a
    /// decoder output is not finite; on a device `copy_patches_to_host` throws the latter. `screen` is null or a screen
    /// of the autoencoder's vocabulary table.
    void sample_patches(context<Backend>& ctx, vector_view<token_id, dyn, Backend> const& tokens,
                        matrix_view<T const, D, Backend> const& hidden, index_t samples, std::span<row_rng const> rngs,
                        double noise_scale = 1, token_screen const* screen = nullptr) const {
        arena_scope const scope(ctx.workspace);
        index_t const chunk = positions_drawn_at_once(ctx, samples);
        auto const z = ctx.workspace.template take<T>(extents<dyn, L>(std::min(chunk, hidden.extent(0)) * samples));
        for (index_t r0 = 0; r0 < hidden.extent(0); r0 += chunk) {
            index_t const n = std::min(chunk, hidden.extent(0) - r0);
            auto const zr = rows(z, 0, n * samples);
            sample_latents(ctx, zr, rows(hidden, r0, n),
                           rngs.subspan(static_cast<std::size_t>(r0), static_cast<std::size_t>(n)), noise_scale);
            ae_model.decode_tokens(ctx, rows(tokens, r0 * samples * K, n * samples * K), zr, screen);
        }
    }

    /// Lazy decoding, for patches that are only compared. The samples of each position form groups; tokens are decoded
    /// only while patches of a group agree, and the others stay not_decoded. Outputs: latents z (R, N, L), for
    /// autoencoder::decode_lazily, and tokens (R, N, K) in host memory.
    void sample_lazily(context<Backend>& ctx, std::span<token_id> tokens, matrix_view<T, L, Backend> const& z,
                       matrix_view<T const, D, Backend> const& hidden, index_t samples, std::span<row_rng const> rngs,
                       lazy_groups groups, token_screen const* screen = nullptr) const {
        std::fill(tokens.begin(), tokens.end(), not_decoded);
        index_t const chunk = positions_drawn_at_once(ctx, samples);
        for (index_t r0 = 0; r0 < hidden.extent(0); r0 += chunk) {
            index_t const n = std::min(chunk, hidden.extent(0) - r0);
            auto const zr = rows(z, r0 * samples, n * samples);
            sample_latents(ctx, zr, rows(hidden, r0, n),
                           rngs.subspan(static_cast<std::size_t>(r0), static_cast<std::size_t>(n)));
            auto const own =
                tokens.subspan(static_cast<std::size_t>(r0 * samples * K), static_cast<std::size_t>(n * samples * K));
            ae_model.decode_lazily(ctx, own, zr, groups, screen);
        }
    }

private:
    // What the head reads at hidden states (R, D) that the patches with posterior `next` follow.
    head_inputs<C, Space> head_inputs_of(matrix_view<T const, D, Backend> const& hidden,
                                         typename autoencoder_type::encoded const& next) const {
        return {hidden, next.mean, next.log_std, next.tokens.ids, &ae_model};
    }
};

/// Downloads the patches (R, N, K) that sample_patches left in `room` in backend memory. Throws errc::non_finite if a
/// device could not decode one of them.
template <class Backend>
void copy_patches_to_host(context<Backend> const& ctx, std::span<token_id> tokens,
                          vector_view<token_id, dyn, Backend> const& room) {
    download(ctx, tokens, room);
    if constexpr (device_memory<Backend>) detail::require_tokens(tokens);
}

}  // namespace calm
