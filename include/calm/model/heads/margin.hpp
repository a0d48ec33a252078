#pragma once
// The margin head (Margin head in docs/mathematics.md), a control: samples lie around one guess a position, as far
// apart whatever the hidden state says. Sizes: R positions, N samples a position; samples of one position are
// neighbours: row r N + n.

#include <span>
#include <string_view>

#include "calm/model/config.hpp"
#include "calm/model/flops.hpp"
#include "calm/model/heads/paired.hpp"
#include "calm/model/tensor_shapes.hpp"
#include "calm/nn/chain.hpp"
#include "calm/nn/linear.hpp"
#include "calm/tensor/fill_places.hpp"

namespace calm {

template <model_configuration auto C, class Space> struct margin_head;

// The margin head: it has no sizes of its own; and its names.
struct margin {
    static constexpr std::string_view name = "margin";                     // on command lines and in files
    static constexpr std::string_view architecture = "MarginTransformer";  // in files
    static constexpr std::string_view type = "calm::margin";               // what C++ calls it
    using objective = paired_objective;                                    // N
    // The network.
    template <model_configuration auto C, class Space> using layer = margin_head<C, Space>;

    // Of the products: the samples of a position have one guess.
    [[nodiscard]] constexpr head_flops flops(head_surroundings const& at) const {
        return {.shared = flops::product(1, at.D, at.D) + flops::product(1, at.D, at.L), .trained = 0, .drawn = 0};
    }
    // Of the network.
    void tensors(head_surroundings const& at, tensor_shapes& to) const {
        to.linear("linears.0", at.D, at.D);
        to.linear("linears.2", at.D, at.L);
    }
    // Names every size: none.
    template <class Self, class Visitor> static constexpr void visit_fields(Self&, Visitor&&) {}
    friend constexpr bool operator==(margin const&, margin const&) = default;
};

// N samples of the next latent of each of R hidden states, normal around a guess, and a loss that wants targets nearer
// to the guess than samples.
template <model_configuration auto C, class Space = space<>> struct margin_head {
    using space_type = Space;
    using T = typename Space::storage;
    using Backend = typename Space::backend;
    using scalar = T;
    using backend = Backend;
    static constexpr index_t D = C.hidden_size;
    static constexpr index_t L = C.autoencoder.latent_size;
    // What a sample takes while it trains: of saved and of scratch.
    static constexpr index_t numbers_per_sample = 12 * L + 8 * D;
    static constexpr double spread = 1;                      // s, of samples around the guess
    static constexpr double ahead = 1;                       // by which a target should be nearer, in squared distances
    static constexpr double pull = 0.1;                      // what the mean squared error of the guess counts
    using objective = paired_objective;                      // N
    using hidden_view = matrix_view<T const, D, Backend>;    // (R, D)
    using const_latents = matrix_view<T const, L, Backend>;  // (R, L) or (R N, L)
    using latents = matrix_view<T, L, Backend>;              // (R N, L)
    using noise_type = paired_noise<T, L, Backend>;          // of R N samples

    chain<linear<D, D, with_bias::yes, Space>, relu_layer<D, Space, result_as::activations>,
          linear<D, L, with_bias::yes, Space>>
        linears;  // the guess f

    // z (R N, L): N samples of every hidden state (R, D), f + spread * noise at their places (R), times `scale`: number
    // i of a key is its normals i L .. i L + L - 1. What it needs of ctx.saved is given back.
    void sample(context<Backend>& ctx, latents const& z, hidden_view const& hidden, std::span<noise_place const> places,
                double scale = 1) const {
        arena_scope const scope(ctx.saved);
        auto const f = ctx.saved.template take<T>(z.extents());  // (R N, L)
        repeat_rows(ctx, f, linears.forward(ctx, hidden).y);
        arena_scope const of_places(ctx.scratch);
        fill_normal(ctx, z, bring(ctx, places));
        evaluate(ctx, z, f + z * (spread * scale));
    }

    // total += the losses of R positions, with keyed noise: position r draws as position first + r of the step.
    // Gradients of scale * sum: dhidden (R, D) is overwritten, the parameters' accumulate; an empty dhidden asks for
    // none. Works in chunks of positions that stay in the cache, and gives back what it takes of ctx.saved.
    void loss_and_gradient(context<Backend>& ctx, total_view<Backend> const& total, hidden_view const& hidden,
                           const_latents const& mean, const_latents const& log_std,
                           matrix_view<T, D, Backend> const& dhidden, objective const& o, draw_number first,
                           double scale) {
        train_paired(ctx, total, *this, hidden, mean, log_std, dhidden, o, first, scale);
    }

    // The same with given noise. The loss of a sample x = f + spread * noise, which is held fixed, and its target y is
    // max(0, |f - y|^2 - |f - x|^2 + ahead) + pull * the mean over L of (f - y)^2.
    void loss_and_gradient(context<Backend>& ctx, total_view<Backend> const& total, hidden_view const& hidden,
                           const_latents const& mean, const_latents const& log_std,
                           matrix_view<T, D, Backend> const& dhidden, noise_type const& noise, double scale) {
        arena_scope const scope(ctx.saved);
        auto const take = [&] { return ctx.saved.template take<T>(noise.samples.extents()); };
        auto const y = paired_targets(ctx, mean, log_std, noise.targets);
        auto const s = linears.forward(ctx, hidden);
        auto const f = take();
        auto const x = take();
        auto const nearer = take();
        repeat_rows(ctx, f, s.y);
        evaluate(ctx, x, f + noise.samples * spread);
        evaluate(ctx, nearer, square(f - y) - square(f - x));
        auto const elements = reshape(nearer, extents<dyn, 1>(nearer.size()));          // (R N L, 1)
        auto const apart = ctx.saved.template take<T>(extents<dyn, 1>(noise.count()));  // (R N, 1)
        sum_repeated_rows(ctx, apart, elements);
        double const of_element = noise.weight(hidden.extent(0));
        double const of_sample = of_element * static_cast<double>(L);
        {
            arena_scope const of_sum(ctx.scratch);
            auto const both = new_total(ctx);
            add_sum(ctx, both, maximum(0.0, apart + ahead), of_sample);
            add_sum(ctx, both, square(f - y), of_element * pull);
            add_total(ctx, total, both);
        }
        if (dhidden.data() != nullptr) {
            differentiate_sum(ctx, maximum(0.0, wrt(apart, apart) + ahead), scale * of_sample);
            repeat_rows(ctx, elements, apart);  // what every difference of squares counts
            auto const df = take();
            differentiate(ctx, square(wrt(f, df) - y) - square(accumulate(f, df) - x), nearer);
            differentiate_sum(ctx, square(accumulate(f, df) - y), scale * of_element * pull);
            auto const dguess = ctx.saved.template take<T>(s.y.extents());  // (R, L)
            sum_repeated_rows(ctx, dguess, df);
            linears.backward(ctx, s, dguess, dhidden);
        }
    }

    template <class Visitor> void visit(Visitor& visitor) { visit_as("linears", linears, visitor); }
};

}  // namespace calm
