#include "calm/model/resident.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>

#include "calm/model/calm.hpp"

using namespace calm;

namespace {

constexpr configuration small{
    .autoencoder = {.vocab_size = 11, .patch_size = 2, .hidden_size = 16, .intermediate_size = 24, .latent_size = 8},
    .hidden_size = 16,
    .intermediate_size = 24,
    .num_hidden_layers = 1,
    .num_attention_heads = 2,
    .num_key_value_heads = 1,
    .num_mlp_layers = 1,
    .noise_size = 8};
using autoencoder_type = autoencoder<small.autoencoder>;

std::vector<float> weights_of(autoencoder_type& model) {
    std::vector<float> all;
    for (auto const& p : parameters_of(model)) all.insert(all.end(), p.value.begin(), p.value.end());
    return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_model_has_its_memory_wherever_it_moves) {
    resident<autoencoder_type> first(13);
    BOOST_TEST(first.model.vocabulary() == 13);
    initialise(context<>(3, 1), first.model);
    auto const before = weights_of(first.model);
    auto const moved = std::make_unique<resident<autoencoder_type>>(std::move(first));
    BOOST_TEST(weights_of(moved->model) == before);
    BOOST_TEST(moved->gradients.used() > 0U);
}

BOOST_AUTO_TEST_CASE(a_model_for_use_has_no_gradients_and_a_frozen_part_never_has) {
    auto const gradients_of = [](auto& model) {
        std::size_t with = 0;
        for (auto const& p : parameters_of(model)) {
            BOOST_TEST(p.value.data() != nullptr, p.name);
            with += p.grad.data() != nullptr ? 1U : 0U;
        }
        return with;
    };
    resident<calm_model<small>> reader(13, held_for::use);
    BOOST_TEST(reader.gradients.used() == 0U);
    BOOST_TEST(gradients_of(reader.model) == 0U);
    BOOST_TEST(gradients_of(reader.model.ae_model) == 0U);

    resident<calm_model<small>> trained(13);
    BOOST_TEST(gradients_of(trained.model) == parameters_of(trained.model).size());
    BOOST_TEST(gradients_of(trained.model.ae_model) == 0U);
}
