// expect: calm::autoencoder: num_encoder_layers and num_decoder_layers must be even
#include "calm/model/autoencoder.hpp"

#ifdef CALM_SHOULD_FAIL
constexpr calm::index_t layers = 3;
#else
constexpr calm::index_t layers = 4;
#endif
constexpr calm::autoencoder_configuration chosen{
    .hidden_size = 8, .intermediate_size = 8, .num_encoder_layers = layers, .latent_size = 4};
calm::autoencoder<chosen> model;
