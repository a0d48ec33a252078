#include <boost/test/unit_test.hpp>

#include "calm/model/flops.hpp"

using namespace calm;

namespace {

struct published {
    char const* name;
    index_t D, inner;
    double generation;  // FLOPs a token at one sample, contexts of 8192 tokens
};
constexpr published sizes[] = {
    {"CALM-M", 1024, 2752, 2.9e8}, {"CALM-L", 1536, 4096, 4.6e8}, {"CALM-XL", 2560, 6880, 9.4e8}};

constexpr index_t V = 128257;
constexpr index_t P = 2048;

configuration of(published const& p) {
    return {.autoencoder = {.vocab_size = V},
            .hidden_size = p.D,
            .intermediate_size = p.inner,
            .num_hidden_layers = 16,
            .num_attention_heads = 16,
            .num_key_value_heads = 16,
            .num_mlp_layers = 4};
}

}  // namespace

// Within 5 %: the paper prints two digits.
BOOST_AUTO_TEST_CASE(generation_costs_what_is_published) {
    for (auto const& p : sizes)
        BOOST_TEST(flops::generate(of(p), V, P - 1, 1) / 4 / p.generation == 1.0, boost::test_tools::tolerance(0.05));
}

BOOST_AUTO_TEST_CASE(the_parts_of_calm_m_are_those_published) {
    auto const m = of(sizes[0]);
    auto const near = boost::test_tools::tolerance(0.02);
    BOOST_TEST(flops::backbone(m, P) / 4 == 1.40e8, near);
    BOOST_TEST((flops::head_shared(m) + flops::head_sample(m)) / 4 == 0.14e8, near);
    BOOST_TEST(flops::decoder(m.autoencoder, V) / 4 == 1.37e8, near);
}

// 3.7e20 for 500e9 tokens, counted with the whole head once a sample and attention as if it were not causal.
BOOST_AUTO_TEST_CASE(training_costs_what_is_published) {
    auto const m = of(sizes[0]);
    double const token = (flops::encoder(m.autoencoder) +
                          3 * (flops::backbone(m, P) + 8 * (flops::head_shared(m) + flops::head_sample(m)))) /
                         4;
    BOOST_TEST(token * 500e9 == 3.7e20, boost::test_tools::tolerance(0.05));
    // Ours shares what the samples share and leaves out what the mask hides.
    BOOST_TEST(flops::train_calm(m, P, 8) / 4 < token);
}

// The last patch of a block is a target alone.
BOOST_AUTO_TEST_CASE(a_block_has_a_position_less_than_patches) {
    auto const m = of(sizes[0]);
    BOOST_TEST(flops::train_calm_a_token(m, 8, 8) == flops::train_calm(m, 1, 8) / 8);
    BOOST_TEST(flops::train_calm_a_token(m, 4 * P, 8) == flops::train_calm(m, P - 1, 8) / 4,
               boost::test_tools::tolerance(0.01));
}

// The token half of the encoder runs once a distinct id.
BOOST_AUTO_TEST_CASE(a_small_vocabulary_is_encoded_once) {
    autoencoder_configuration const c{.hidden_size = 128, .intermediate_size = 320, .latent_size = 32};
    BOOST_TEST(flops::train_autoencoder(c, 259, 1024) < 3 * (flops::encoder(c) + flops::decoder(c, 259)));
    BOOST_TEST(flops::train_autoencoder(c, 259, 16) == 3 * (flops::encoder(c) + flops::decoder(c, 259)));
}
