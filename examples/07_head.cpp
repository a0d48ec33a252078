// A custom head for the programs, with the network of 07_head.hpp. This file is a configuration:
// -DCALM_CONFIGS="tiny;examples/07_head.cpp" compiles it into the programs under the name guess.
#include "07_head.hpp"
#include "compiled_configuration.hpp"

namespace {

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
                    .key = "num_samples", .what = "guesses per position", .least = 1, .most = 1, .option = "samples"},
                self.samples);
        }
    };
    template <calm::model_configuration auto C, class Space> using network = guessing_head<C, Space>;

    [[nodiscard]] constexpr calm::head_flops flops(calm::head_dimensions const& at) const {
        double const all = calm::flops::product(1, at.D, inner_size) + calm::flops::product(1, inner_size, at.L);
        return {.shared = all, .trained = 0, .drawn = 0};
    }
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(calm::number_field{.key = "inner_size", .what = "width of the guess", .least = 1, .most = 4096},
                self.inner_size);
    }
    friend constexpr bool operator==(guess const&, guess const&) = default;
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
    r.autoencoder.steps = 400, r.autoencoder.learning_rate = 3e-3, r.autoencoder.batch_tokens = 1024;
    r.calm.steps = 400, r.calm.learning_rate = 2e-3, r.calm.sequences = 4, r.calm.block_tokens = 128;
    r.calm.objective = guess::objective();
    return r;
}

bool const registered = calm::apps::compile_configuration<sizes>("guess", defaults());

}  // namespace
