#include "calm/model/heads/energy.hpp"
#include "support/typed.hpp"

using namespace calm;

namespace {
constexpr configuration<> with(configuration<> c, auto const& change) {
    change(c);
    return c;
}
constexpr configuration<> good;
template <model_configuration auto C> struct holding {};
}  // namespace

BOOST_AUTO_TEST_CASE(a_configuration_is_a_template_argument_and_equality_is_by_value) {
    static_assert(std::is_same_v<holding<good>, holding<configuration<>{}>>);
    static_assert(!std::is_same_v<holding<good>, holding<with(good, [](auto& c) { c.head.noise_size = 32; })>>);
    static_assert(good == configuration<>{} && good != with(good, [](auto& c) { c.autoencoder.latent_size = 64; }));
    BOOST_TEST((good == configuration<>{}));
}

BOOST_AUTO_TEST_CASE(the_published_defaults_pass_every_check) {
    static_assert(check::layers_are_even(good.autoencoder) && check::sizes_are_allowed(good) &&
                  check::heads_divide_width(good) && check::key_value_heads_divide_heads(good) &&
                  check::head_size_is_even(good));
    BOOST_TEST(check::sizes_are_allowed(good.autoencoder));
}

BOOST_AUTO_TEST_CASE(each_check_detects_its_own_fault) {
    BOOST_TEST(!check::layers_are_even(with(good, [](auto& c) { c.autoencoder.num_encoder_layers = 3; }).autoencoder));
    BOOST_TEST(!check::layers_are_even(with(good, [](auto& c) { c.autoencoder.num_decoder_layers = 1; }).autoencoder));
    BOOST_TEST(!check::heads_divide_width(with(good, [](auto& c) { c.num_attention_heads = 7; })));
    BOOST_TEST(!check::key_value_heads_divide_heads(with(good, [](auto& c) { c.num_key_value_heads = 5; })));
    BOOST_TEST(!check::head_size_is_even(with(good, [](auto& c) { c.hidden_size = 36; })));  // 12 heads of 3
    for (index_t configuration<>::*const size :
         {&configuration<>::hidden_size, &configuration<>::intermediate_size, &configuration<>::num_hidden_layers,
          &configuration<>::num_attention_heads, &configuration<>::num_key_value_heads})
        for (index_t const bad : {index_t{0}, index_t{-1}, limits::width + 1})
            BOOST_TEST(!check::sizes_are_allowed(with(good, [&](auto& c) { c.*size = bad; })));
    for (index_t energy::*const size : {&energy::num_mlp_layers, &energy::noise_size})
        for (index_t const bad : {0, -1})
            BOOST_TEST(!check::sizes_are_allowed(with(good, [&](auto& c) { c.head.*size = bad; })));
    for (index_t autoencoder_configuration::*const size :
         {&autoencoder_configuration::patch_size, &autoencoder_configuration::hidden_size,
          &autoencoder_configuration::intermediate_size, &autoencoder_configuration::num_encoder_layers,
          &autoencoder_configuration::num_decoder_layers, &autoencoder_configuration::latent_size})
        for (index_t const bad : {index_t{0}, limits::width + 1})
            BOOST_TEST(!check::sizes_are_allowed(with(good, [&](auto& c) { c.autoencoder.*size = bad; })));
}
