// A custom head for the programs: a network guesses the next latent, and samples scatter around the guess. This file is
// a configuration: -DCALM_CONFIGS="tiny;examples/07_head.cpp" compiles it into the programs under the name guess.
#include "compiled_configuration.hpp"

namespace {

template <calm::model_configuration auto C, class Space> struct guessing_head;

// The head's sizes, its names in command lines and files, and the settings of its loss.
struct guess {
    calm::index_t inner_size = 64;  // width of the network that guesses

    static constexpr std::string_view name = "guess";
    static constexpr std::string_view architecture = "GuessTransformer";
    struct objective {
        calm::index_t samples = 1;  // guesses per position, all equal
        template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
            visitor(
                calm::number_field{
                    .key = "num_samples", .what = "guesses a position", .least = 1, .most = 1, .option = "samples"},
                self.samples);
        }
    };
    template <calm::model_configuration auto C, class Space> using layer = guessing_head<C, Space>;

    [[nodiscard]] constexpr calm::head_flops flops(calm::head_dimensions const& at) const {
        double const all = calm::flops::product(1, at.D, inner_size) + calm::flops::product(1, inner_size, at.L);
        return {.shared = all, .trained = 0, .drawn = 0};
    }
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(calm::number_field{"inner_size", "width of the guess", 1, 4096}, self.inner_size);
    }
    friend constexpr bool operator==(guess const&, guess const&) = default;
};

template <calm::model_configuration auto C, class Space> struct guessing_head {
    using T = typename Space::storage;
    using Backend = typename Space::backend;
    static constexpr calm::index_t D = C.hidden_size, L = C.autoencoder.latent_size, H = C.head.inner_size;
    template <calm::index_t Width> using rows_of = calm::matrix_view<T const, Width, Backend>;  // (R, Width)
    template <calm::index_t In, calm::index_t Out> using linear = calm::linear<In, Out, calm::with_bias::yes, Space>;

    calm::sequential<linear<D, H>, calm::silu_layer<H, Space>, linear<H, L>> network;

    // Adds the sum of |guess - mean|^2 over R positions to `total`. Unless dhidden is null, also backpropagates scale
    // times that sum.
    void loss_and_gradient(calm::context<Backend>& ctx, calm::total_view<Backend> const& total,
                           rows_of<D> const& hidden, rows_of<L> const& mean, rows_of<L> const&,
                           calm::matrix_view<T, D, Backend> const& dhidden, guess::objective, calm::rng_counter,
                           double scale) {
        calm::arena_scope const saved(ctx.saved), workspace(ctx.workspace);
        auto const g = network.forward(ctx, hidden);
        if (dhidden.data() != nullptr) {
            auto const dg = ctx.workspace.template take<T>(g.y.extents());
            differentiate_sum(ctx, square(wrt(g.y, dg) - mean), scale);
            network.backward(ctx, g, dg, dhidden);
        }
        add_sum(ctx, total, square(g.y - mean));
    }
    // z (R N, L): N samples for each of R positions. places[r] has the RNG key and counter of position r.
    void sample(calm::context<Backend>& ctx, calm::matrix_view<T, L, Backend> const& z, rows_of<D> const& hidden,
                std::span<calm::row_rng const> places, double noise_scale = 1) const {
        calm::arena_scope const saved(ctx.saved);
        auto const y = network.forward(ctx, hidden).y;
        for (calm::index_t i = 0, N = z.extent(0) / y.extent(0); i < z.extent(0); ++i) {
            auto const& [draws, first] = places[static_cast<std::size_t>(i / N)];
            fill_normal(ctx, rows(z, i, 1), draws, static_cast<std::uint64_t>((first + i % N) * L));
            evaluate(ctx, rows(z, i, 1), rows(y, i / N, 1) + rows(z, i, 1) * (0.1 * noise_scale));
        }
    }
    template <class Visitor> void visit(Visitor& visitor) { visit_as("network", network, visitor); }
};

constexpr calm::configuration<guess> sizes{
    .autoencoder = {.vocab_size = 259, .hidden_size = 64, .intermediate_size = 160, .latent_size = 16},
    .hidden_size = 64,
    .intermediate_size = 176,
    .num_hidden_layers = 2,
    .num_attention_heads = 2,
    .num_key_value_heads = 2};

calm::apps::recipes defaults() {
    calm::apps::recipes r;
    r.autoencoder.steps = 400, r.autoencoder.rate = 3e-3, r.autoencoder.batch_tokens = 1024;
    r.calm.steps = 400, r.calm.rate = 2e-3, r.calm.sequences = 4, r.calm.block_tokens = 128;
    r.calm.objective = guess::objective();
    return r;
}

bool const registered = calm::apps::compile_configuration<sizes>("guess", defaults());

}  // namespace
