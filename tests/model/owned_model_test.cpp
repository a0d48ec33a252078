#include "calm/model/owned_model.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>

#include "calm/model/calm.hpp"

#include "support/small.hpp"

using namespace calm;
using calm::test::small;
using calm::test::weights_of;

namespace {

using autoencoder_type = autoencoder<small.autoencoder>;

}  // namespace

BOOST_AUTO_TEST_CASE(a_model_has_its_memory_wherever_it_moves) {
    owned_model<autoencoder_type> first(13);
    BOOST_TEST(first.model.vocabulary() == 13);
    initialise(context<>(3, 1), first.model);
    auto const before = weights_of(first.model);
    auto const moved = std::make_unique<owned_model<autoencoder_type>>(std::move(first));
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
    owned_model<calm_model<small>> reader(13, model_mode::inference);
    BOOST_TEST(reader.gradients.used() == 0U);
    BOOST_TEST(gradients_of(reader.model) == 0U);
    BOOST_TEST(gradients_of(reader.model.ae_model) == 0U);

    owned_model<calm_model<small>> trained(13);
    BOOST_TEST(gradients_of(trained.model) == parameters_of(trained.model).size());
    BOOST_TEST(gradients_of(trained.model.ae_model) == 0U);
}
