#include "calm/model/presets.hpp"

#include <boost/test/unit_test.hpp>

#include "calm/model/calm.hpp"

using namespace calm;

namespace {

// Parameters without the autoencoder, in millions; no memory is allocated for them.
template <model_configuration auto C> double millions() {
    calm_model<C> model(128257);
    return static_cast<double>(count_parameters(model)) * 1e-6;
}

}  // namespace

BOOST_AUTO_TEST_CASE(published_models_have_the_published_parameters) {
    BOOST_TEST(millions<presets::calm_m>() == 371.7, boost::test_tools::tolerance(2e-4));
    BOOST_TEST(millions<presets::calm_l>() == 735.3, boost::test_tools::tolerance(2e-4));
    BOOST_TEST(millions<presets::calm_xl>() == 1829.8, boost::test_tools::tolerance(2e-4));
}
