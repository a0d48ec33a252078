// Default training configurations: all use the library's defaults, except the published recipes.

#include <boost/test/unit_test.hpp>

#include <set>
#include <string>
#include <utility>

#include "configs/drafted.hpp"
#include "configs/text.hpp"
#include "configs/tiny.hpp"

using namespace calm;
using namespace calm::apps;

namespace {

calm_recipe<energy_objective> const library;

void check_default(std::string const& name, recipes const& r) {
    BOOST_TEST(r.calm.optimizer.muon == library.optimizer.muon, name);
    BOOST_TEST(r.autoregressive.optimizer.muon == library.optimizer.muon, name);
    BOOST_TEST(r.autoencoder.optimizer.muon == 0, name);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_recipe_has_the_default_of_the_library) {
    BOOST_TEST(library.optimizer.muon == 2);
    BOOST_TEST(library.learning_rate == 2e-3);
    for (auto const& [name, r] : {std::pair<char const*, recipes>{"own", {}},
                                  {"tiny", tiny_recipes(4)},
                                  {"of pairs", tiny_recipes_of_pairs()},
                                  {"drafted", recipes_of_drafts(tiny_recipes(4))},
                                  {"text", text_recipes()},
                                  {"autoregressive", tiny_autoregressive_recipes()}}) {
        check_default(name, r);
        BOOST_TEST(r.calm.learning_rate == library.learning_rate, name);
    }
}

BOOST_AUTO_TEST_CASE(only_published_configurations_have_another) {
    std::set<std::string> const published{"calm-m"};
    for (auto const& one : compiled_configurations())
        if (!published.contains(one.name))
            check_default(one.name, one.defaults);
        else
            BOOST_TEST(one.defaults.calm.optimizer.muon == 0);
}
