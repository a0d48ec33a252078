#pragma once
// The matrix products of a step: ten shapes of a configuration.

#include "configurations.hpp"

namespace bench {

// Calls f(what, rows, in, out): `rows` rows of `in` features to `out` features. `with_vocabulary` rows of the
// autoencoder are multiplied by the vocabulary table at once.
template <class F>
void for_product_shapes(calm::configuration<> const& c, batch const& b, calm::index_t with_vocabulary, F const& f) {
    auto const& a = c.autoencoder;
    calm::index_t const patches = b.autoencoder_tokens / a.patch_size;
    calm::index_t const positions = b.sequences * (b.patches - 1);
    calm::index_t const samples = positions * b.objective.samples;
    f("autoencoder_gate", b.autoencoder_tokens, a.hidden_size, a.intermediate_size);
    f("autoencoder_down", b.autoencoder_tokens, a.intermediate_size, a.hidden_size);
    f("squeeze", patches, a.patch_size * a.hidden_size, a.hidden_size);
    f("expand", patches, a.hidden_size, a.patch_size * a.hidden_size);
    f("vocabulary", with_vocabulary, a.hidden_size, a.vocab_size);
    f("projection", positions, a.patch_size * c.hidden_size, 2 * c.hidden_size);
    f("attention", positions, c.hidden_size, c.hidden_size);
    f("backbone_gate", positions, c.hidden_size, c.intermediate_size);
    f("head", samples, c.hidden_size, c.hidden_size);
    f("head_latent", samples, c.hidden_size, a.latent_size);
}

}  // namespace bench
