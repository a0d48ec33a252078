#pragma once
/// \file
/// The drafted head (ours, not the paper's; Drafted head in docs/mathematics/heads.md): softmaxes on the hidden state
/// draw K draft tokens, whose latent is part of the energy head's noise. The choice among tokens is thus learned by
/// cross-entropy. The energy score trains the rest: which tokens of a patch go together. Sizes: R positions, N samples
/// per position, K tokens per patch, S noise size, W width of the logit table's rows, V vocabulary. Sample n of
/// position r is row r N + n.
/// \shows{tests/model/heads_drafted_test.cpp,a_language_model_trains_and_samples_with_a_drafted_head}

#include <algorithm>
#include <span>
#include <string_view>

#include "calm/model/autoencoder.hpp"
#include "calm/model/detail/heads/draft.hpp"
#include "calm/model/heads/energy.hpp"

namespace calm {

/// Run-time settings of the loss.
struct drafted_objective {
    index_t samples = 8;      ///< N, at least 2 and at most limits::samples
    index_t targets = 100;    ///< M, at least 1 and at most limits::targets
    double beta = 1;          ///< in (0, 2)
    double draft_weight = 1;  ///< weight of each token's cross-entropy relative to the energy score

    /// The settings of the energy score.
    [[nodiscard]] constexpr energy_objective energy() const {
        return {.samples = samples, .targets = targets, .beta = beta};
    }

    /// Visits every field.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        energy_objective::visit_fields(self, visitor);
        visitor(number_field{.key = "draft_weight",
                             .what = "weight of a drafted token's cross-entropy",
                             .least = 0,
                             .most = limits::weight,
                             .option = "draft-weight"},
                self.draft_weight);
    }
};

/// Throws errc::usage if the objective exceeds the limits.
inline void require_allowed(drafted_objective const& o) {
    require_allowed(o.energy());
}

template <model_configuration auto C, class Space> struct drafted_head;

/// The drafted head: its sizes and names.
struct drafted {
    index_t num_mlp_layers = 4;  ///< blocks of the energy network
    index_t noise_size = 64;     ///< S, noise elements per sample besides the draft
    index_t looks_back = 1;      ///< 1: causal, each draft token sees the earlier ones of its patch; 0: independent
    index_t own_table = 1;       ///< 1: a separate logit table (V, D); 0: the frozen autoencoder's (V, its D)

    static constexpr std::string_view name = "drafted";                     ///< on command lines and in files
    static constexpr std::string_view architecture = "DraftedTransformer";  ///< in files
    static constexpr std::string_view type = "calm::drafted";               ///< C++ type name
    using objective = drafted_objective;                                    ///< N, M, beta, weight of the drafts
    /// The head's network.
    template <model_configuration auto C, class Space> using network = drafted_head<C, Space>;

    /// The energy head that maps noise and draft to a sample.
    [[nodiscard]] constexpr calm::energy inner_head(index_t L) const {
        return {.num_mlp_layers = num_mlp_layers, .noise_size = noise_size + L};
    }

    /// FLOPs of the products. Forward-only parts, drafts and their latents, count as a third in training.
    [[nodiscard]] constexpr head_flops flops(head_dimensions const& at) const {
        index_t const W = own_table != 0 ? at.D : at.table_width;
        bool const looks = looks_back != 0 && at.K > 1;
        auto const sample = inner_head(at.L).flops(at);
        double const embd = flops::product(1, at.D, at.K * W);
        double const token = flops::product(looks ? at.K : 1, W, W) + flops::product(1, W, at.V);
        auto const K = static_cast<double>(at.K);
        double const together = looks ? 1 : K;  // tokens whose logits all drafts of one position share
        double const apart = (K - together) * token;
        return {.shared = sample.shared + embd + together * token,
                .trained = sample.trained + (at.encoding_at_once + apart) / 3,
                .drawn = sample.drawn + at.encoding + apart,
                .scored = embd / 3 + (K - together * 2 / 3) * token};
    }
    /// Tensors of the network.
    void tensors(head_dimensions const& at, tensor_shapes& to) const {
        index_t const W = own_table != 0 ? at.D : at.table_width;
        to.linear("draft.hidden_embd", at.D, at.K * W);
        if (looks_back != 0 && at.K > 1) {
            to.add("draft.context_table.weight", {at.V + 1, W});
            to.matrix("draft.context_embd", (at.K - 1) * W, W);
        }
        to.linear("draft.output_embd.1", W, W);
        if (own_table != 0) to.add("draft_table.weight", {at.V, W});
        to.add("gate", {at.L});
        to.inside("network", [&] { inner_head(at.L).tensors(at, to); });
    }
    /// Visits every size.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        calm::energy::visit_fields(self, visitor);
        visitor(number_field{.key = "looks_back", .what = "drafted tokens see the earlier ones", .least = 0, .most = 1},
                self.looks_back);
        visitor(number_field{.key = "own_table", .what = "separate table of logits", .least = 0, .most = 1},
                self.own_table);
    }
    friend constexpr bool operator==(drafted const&, drafted const&) = default;
};

namespace detail {
// Concatenates rows: row i of y (R, A + B) = row i of a (R, A), then row i of b (R, B).
template <class T> struct put_beside {
    T* y;
    T const* a;
    T const* b;
    index_t A;
    index_t B;
    CALM_HD void operator()(index_t i) const {
        index_t const row = i / (A + B), column = i % (A + B);
        y[i] = column < A ? a[row * A + column] : b[row * B + column - A];
    }
};
}  // namespace detail

/// Draws N samples of the next latent for each of R hidden states: f(h, [u; x_0]) + g x_0, where x_0 is the posterior
/// mean of a drafted patch. The energy head f is initialised to zero and g to one, so at first each sample equals its
/// draft.
template <model_configuration auto C, class Space = space<>>
struct drafted_head : detail::head_network_base<C, Space, drafted_head<C, Space>> {
    using base = detail::head_network_base<C, Space, drafted_head>;  ///< types of the interface, loss in chunks
    using base::D, base::L, base::loss_and_gradient;
    using typename base::T, typename base::Backend, typename base::inputs_type, typename base::gradients_type,
        typename base::objective, typename base::hidden_view, typename base::latents, typename base::const_latents;
    static constexpr index_t K = C.autoencoder.patch_size;
    static constexpr index_t S = C.head.noise_size;                          ///< noise elements per sample
    static constexpr bool has_table = C.head.own_table != 0;                 ///< whether the logit table is separate
    static constexpr index_t W = has_table ? D : C.autoencoder.hidden_size;  ///< width of the table's rows
    static constexpr double sharpest = 1e6;                                  ///< upper limit on the scaling of logits
    /// Elements of memory per sample, or per draft token if there are more of them, during training (saved and
    /// scratch).
    static constexpr index_t numbers_per_sample =
        energy_head<with_head(C, C.head.inner_head(L)), Space>::numbers_per_sample +
        autoencoder<C.autoencoder, Space>::numbers_per_patch + 16 * K * W + 4 * L;
    using autoencoder_type = autoencoder<C.autoencoder, Space>;                        ///< frozen
    using draft_type = detail::draft_network<K, D, W, C.head.looks_back != 0, Space>;  ///< softmaxes over tokens
    using network_type = energy_head<with_head(C, C.head.inner_head(L)), Space>;       ///< f
    /// Noise of the loss; Targets are drawn_targets or given_targets.
    template <class Targets> struct noise_type {
        matrix_view<T const, S, Backend> samples;  ///< (R N, S), uniform in [-1/2, 1/2)
        const_latents drafts;                      ///< (R N, L), the latents of the drafts
        Targets targets;                           ///< of R positions
    };
    using given_noise = noise_type<given_targets<T, Backend>>;  ///< from the caller

    draft_type draft;                 ///< draws the draft tokens
    embedding<W, Space> draft_table;  ///< (V, W); no memory if the autoencoder's table is used
    param<extents<L>, Space> gate = make_param<extents<L>, Space>(role::gain);  ///< g
    network_type network;                                                       ///< f

    /// For V token ids, without memory until `allocate`.
    explicit drafted_head(index_t vocabulary) : draft(vocabulary), draft_table(vocabulary) {}

    /// Saved activations, in ctx.saved.
    struct saved_activations {
        typename network_type::saved_activations network;  ///< y: (R N, L)
        const_latents draft;                               ///< x_0: (R N, L)
        latents y;                                         ///< (R N, L)
    };

    /// Samples for hidden states (R, D), from noise u (R N, S) uniform in [-1/2, 1/2) and draft latents (R N, L).
    saved_activations forward(context<Backend>& ctx, hidden_view const& hidden,
                              matrix_view<T const, S, Backend> const& u, const_latents const& x0) const {
        auto const both = ctx.saved.template take<T>(extents<dyn, S + L>(u.extent(0)));
        for_each(ctx, both.size(), detail::put_beside<T>{both.data(), u.data(), x0.data(), S, L});
        auto const s = network.forward(ctx, hidden, both);
        auto const y = ctx.saved.template take<T>(x0.extents());
        evaluate(ctx, y, s.y + gate.read() * x0);
        return {s, x0, y};
    }

    /// Backward for dy (R N, L): overwrites dhidden (R, D). Parameter gradients accumulate. Consumes s.
    void backward(context<Backend>& ctx, saved_activations const& s, const_latents const& dy,
                  matrix_view<T, D, Backend> const& dhidden) {
        differentiate(ctx, accumulate(gate.read(), gate.gradient()) * s.draft, dy);
        network.backward(ctx, s.network, dy, dhidden);
    }

    /// z (R N, L): draws N samples for every hidden state (R, D), with noise from `rngs` (R), one per row. Sample i of
    /// a key uses elements i S .. for the noise u and, in a separate substream, elements i K .. for its draft.
    /// `scale` is the square root of a temperature: it multiplies u, and its square divides the draft logits, up to the
    /// factor `sharpest`. Restores ctx.saved on return.
    void sample(context<Backend>& ctx, latents const& z, inputs_type const& in, std::span<row_rng const> rngs,
                double scale = 1) const {
        arena_scope const scope(ctx.saved);
        auto const u = ctx.saved.template take<T>(extents<dyn, S>(z.extent(0)));
        auto const draws = ctx.saved.template take<T>(extents<dyn, K>(z.extent(0)));
        arena_scope const of_places(ctx.workspace);
        auto const there = to_device(ctx, rngs);
        fill_uniform(ctx, u, there, static_cast<T>(-0.5));
        fill_uniform(ctx, draws, there, T{}, rng_substream::step(0));
        if (scale != 1) evaluate(ctx, u, u * scale);
        double const sharpness = std::min(1 / (scale * scale), sharpest);
        copy(ctx, z, forward(ctx, in.hidden, u, drafted_latents(ctx, in, draws, sharpness)).y);
    }

    /// A position has N samples and K tokens.
    static index_t rows_per_position(objective const& o) { return std::max(o.samples, K); }

    /// The noise of R positions, of which position r has index first + r in the step. Result in ctx.saved.
    noise_type<drawn_targets> draw_noise(context<Backend>& ctx, inputs_type const& in, objective const& o,
                                         rng_counter first) const {
        key const noise_key = ctx.random(stream::head_noise);
        index_t const count = in.hidden.extent(0) * o.samples;
        auto const number = first * o.samples;
        auto const u = ctx.saved.template take<T>(extents<dyn, S>(count));
        auto const draws = ctx.saved.template take<T>(extents<dyn, K>(count));
        fill_uniform(ctx, u, noise_key, number * S, static_cast<T>(-0.5));
        fill_uniform(ctx, draws, substream_key(noise_key, 0), number * K, T{});
        return {u, drafted_latents(ctx, in, draws), {ctx.random(stream::target), first}};
    }

    /// With given noise. Each loss is the energy score's plus draft_weight times the cross-entropy of the K tokens of
    /// the next patch.
    template <class Targets>
    void loss_and_gradient(context<Backend>& ctx, total_view<Backend> const& total, inputs_type const& in,
                           gradients_type const& out, objective const& o, noise_type<Targets> const& noise) {
        arena_scope const scope(ctx.saved);
        arena_scope const of_sum(ctx.workspace);
        auto const both = new_total(ctx);
        auto const s = forward(ctx, in.hidden, noise.samples, noise.drafts);
        add_energy_loss(ctx, both, s.y, in, out, o.energy(), noise.targets,
                        [&](const_latents const& dy) { backward(ctx, s, dy, out.dhidden); });
        add_loss_of_drafts(ctx, both, in, out, o.draft_weight);
        add_total(ctx, total, both);
    }

    template <class Visitor> void visit(Visitor& visitor) {
        visit_as("draft", draft, visitor);
        if constexpr (has_table) visit_as("draft_table", draft_table, visitor);
        visitor("gate", gate);
        visit_as("network", network, visitor);
    }

private:
    static autoencoder_type const& frozen(inputs_type const& in) {
        require(in.autoencoder != nullptr, errc::usage,
                "calm::drafted_head: expected the frozen autoencoder in head_inputs, found none");
        return *in.autoencoder;
    }
    [[nodiscard]] matrix_view<typename Space::weights const, W, Backend> table(inputs_type const& in) const {
        if constexpr (has_table)
            return draft_table.weight.read();
        else
            return frozen(in).embed_tokens.weight.read();
    }

    // Draws drafts for hidden states (R, D) and encodes them: latents (R N, L), in ctx.saved.
    const_latents drafted_latents(context<Backend>& ctx, inputs_type const& in,
                                  matrix_view<T const, K, Backend> const& uniforms, double sharpness = 1) const {
        auto const z = ctx.saved.template take<T>(extents<dyn, L>(uniforms.extent(0)));
        arena_scope const scope(ctx.saved);
        auto const tokens = ctx.saved.template take<token_id>(extents<dyn>(uniforms.size()));
        draft.draw(ctx, tokens, in.hidden, table(in), uniforms, sharpness);
        copy(ctx, z, frozen(in).posterior(ctx, row_ids<Backend>::validated(tokens, table(in).extent(0))).mean);
        return z;
    }

    // Adds to out.dhidden (R, D), if gradients are wanted.
    void add_loss_of_drafts(context<Backend>& ctx, total_view<Backend> const& total, inputs_type const& in,
                            gradients_type const& out, double weight) {
        arena_scope const scope(ctx.workspace);
        auto const x = draft.forward(ctx, in.hidden, in.labels);
        auto const losses = ctx.workspace.template take<T>(extents<dyn>(in.labels.size()));
        matrix_view<T, W, Backend> dx(nullptr, x.y.extents());
        matrix_view<T, W, Backend> dtable(nullptr, extents<dyn, W>(0));
        if (out.wanted()) {
            dx = ctx.workspace.template take<T>(dx.extents());
            if constexpr (has_table) dtable = draft_table.weight.gradient();
        }
        cross_entropy(ctx, losses, dx, dtable, x.y, table(in), in.labels, out.scale * weight);
        if (out.wanted()) {
            auto const dh = ctx.workspace.template take<T>(out.dhidden.extents());
            draft.backward(ctx, x, dx, dh);
            evaluate(ctx, out.dhidden, out.dhidden + dh);
        }
        add_sum(ctx, total, losses, weight);
    }
};

}  // namespace calm
