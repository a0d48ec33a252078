// Custom configurations: compile-time values, derived from each other and checked before anything runs.
#include <cstdio>

#include "calm/model/calm.hpp"

constexpr calm::configuration<> mine{
    .autoencoder = {.patch_size = 4, .hidden_size = 128, .intermediate_size = 320, .latent_size = 32},
    .hidden_size = 192,
    .intermediate_size = 512,
    .num_hidden_layers = 4,
    .num_attention_heads = 6,
    .num_key_value_heads = 6,
    .head = {.num_mlp_layers = 2}};

// A variant with twice the patch size and latent size.
constexpr calm::configuration<> longer = [] {
    auto c = mine;
    c.autoencoder.patch_size *= 2;
    c.autoencoder.latent_size *= 2;
    return c;
}();
// The paper's CALM-M, with its autoencoder.
constexpr calm::configuration<> published{.autoencoder = {},
                                          .hidden_size = 1024,
                                          .intermediate_size = 2752,
                                          .num_hidden_layers = 16,
                                          .num_attention_heads = 16,
                                          .num_key_value_heads = 16};
static_assert(calm::check::heads_divide_width(longer) && calm::check::head_size_is_even(longer));
// With .num_attention_heads = 5 the compiler reports: "calm::backbone: num_attention_heads must divide hidden_size".

template <calm::model_configuration auto C> void describe(char const* name, calm::index_t vocabulary) {
    calm::calm_model<C> model(vocabulary);  // shapes only; calm::allocate provides the memory
    auto const millions = [](auto& part) { return static_cast<double>(count_parameters(part)) * 1e-6; };
    std::printf("%-10s %3d %4d %5d %8.2f %9.2f %6.2f\n", name, static_cast<int>(C.autoencoder.patch_size),
                static_cast<int>(C.autoencoder.latent_size), static_cast<int>(C.hidden_size), millions(model.ae_model),
                millions(model.transformer), millions(model.generator));
}

int main() {
    std::puts("             K    L     D  autoenc.  backbone   head   (million parameters)");
    describe<mine>("mine", 4096);
    describe<longer>("longer", 4096);
    describe<published>("CALM-M", 128257);
}
