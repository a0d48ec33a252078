// A head of your own in a language model: a network guesses the next latent, and samples lie around the guess.
#include <cstdio>

#include "calm/train/session.hpp"

template <calm::configuration C> struct guessing_head {
    static constexpr calm::index_t D = C.hidden_size, L = C.autoencoder.latent_size;
    template <calm::index_t Width> using rows_of = calm::matrix_view<float const, Width>;  // (R, Width)
    struct objective {
        calm::index_t samples = 1;
    };  // guesses a position

    calm::chain<calm::linear<D, D>, calm::silu_layer<D>, calm::linear<D, L>> guess;

    // The sum of |guess - mean|^2 over R positions; gradients of scale times it, those of hidden where they are wanted.
    double loss_and_gradient(calm::context<>& ctx, rows_of<D> const& hidden, rows_of<L> const& mean, rows_of<L> const&,
                             calm::matrix_view<float, D> const& dhidden, objective, calm::index_t, double scale) {
        calm::arena_scope const saved(ctx.saved), scratch(ctx.scratch);
        auto const g = guess.forward(ctx, hidden);
        if (dhidden.data() != nullptr) {
            auto const dg = ctx.scratch.take<float>(g.y.extents());
            differentiate_sum(ctx, square(wrt(g.y, dg) - mean), scale);
            guess.backward(ctx, g, dg, dhidden);
        }
        return sum(ctx, square(g.y - mean));
    }
    // z (R N, L): N samples of each of R positions; the noise of a row has its place.
    void sample(calm::context<>& ctx, calm::matrix_view<float, L> const& z, rows_of<D> const& hidden,
                std::span<calm::noise_place const> places, double noise_scale = 1) const {
        calm::arena_scope const saved(ctx.saved);
        auto const y = guess.forward(ctx, hidden).y;
        for (calm::index_t i = 0, N = z.extent(0) / y.extent(0); i < z.extent(0); ++i) {
            auto const& [draws, first] = places[static_cast<std::size_t>(i / N)];
            fill_normal(ctx, rows(z, i, 1), draws, static_cast<std::uint64_t>((first + i % N) * L));
            evaluate(ctx, rows(z, i, 1), rows(y, i / N, 1) + rows(z, i, 1) * (0.1 * noise_scale));
        }
    }
    template <class Visitor> void visit(Visitor& visitor) { visit_as("guess", guess, visitor); }
};

constexpr calm::configuration small{.autoencoder = {.hidden_size = 32, .intermediate_size = 64, .latent_size = 16},
                                    .hidden_size = 48,
                                    .intermediate_size = 96,
                                    .num_hidden_layers = 2};

int main() {
    auto count = [random = calm::random_sequence({})](std::span<calm::token_id> tokens) mutable {
        for (std::uint32_t i = 0, at = 0, step = 0; i < tokens.size(); ++i) {
            if (i % 64 == 0) at = random.below(16), step = 1 + 2 * random.below(2);  // by 1 or by 3
            tokens[i] = static_cast<calm::token_id>((at += step) % 16);
        }
    };
    calm::context<> ctx(1);
    auto ae = calm::make_autoencoder<small>(ctx, 16);  // V
    calm::autoencoder_recipe first;
    first.steps = 1000, first.rate = 3e-3, first.batch_tokens = 512;
    train_autoencoder(ctx, ae.model, count, first);
    calm::resident<calm::calm_model<small, float, calm::cpu, guessing_head<small>>> lm(16);
    copy_parameters(lm.model.ae_model, ae.model);
    initialise(ctx, lm.model);
    calm::calm_recipe<guessing_head<small>::objective> then;
    then.steps = 800, then.rate = 3e-3, then.sequences = 8, then.block_tokens = 64;
    train_calm(ctx, lm.model, count, then);
    calm::token_id told[] = {0, 3, 6, 9, 12, 15, 2, 5}, next[4];
    auto const hidden = lm.model.transformer.forward(ctx, {told, calm::extents<calm::dyn>(8)}, 2).y;  // (2, D)
    lm.model.sample_patches(ctx, {next, calm::extents<calm::dyn>(4)}, rows(hidden, 1, 1), 1, {.seed = 1}, 0);
    std::printf("0 3 6 9 12 15 2 5, and on: %d %d %d %d\n", next[0], next[1], next[2], next[3]);
}
