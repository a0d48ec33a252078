// What calm::open refuses before it compiles anything; examples/14_open and 15_serve open models.

#include <boost/test/unit_test.hpp>

#include "calm/open.hpp"
#include "support/sentences.hpp"

using calm::test::has;

namespace {

// The message of the error with which calm::open ends.
std::string refusal(std::string const& directory, calm::open_options const& o) {
    try {
        static_cast<void>(calm::open(directory, o));
    } catch (calm::error const& e) {
        BOOST_TEST((e.code() == calm::errc::usage || e.code() == calm::errc::model_file), e.what());
        return e.what();
    }
    return "";
}

}  // namespace

BOOST_AUTO_TEST_CASE(only_the_cpu_opens_a_model_in_int8) {
    auto const said = refusal("model", {.device = "emulated", .int8 = true});
    BOOST_TEST(has(said, "expected the device cpu"), said);
    BOOST_TEST(has(said, "found 'emulated'"), said);
}

BOOST_AUTO_TEST_CASE(a_directory_without_a_model_is_named) {
    for (bool const int8 : {false, true}) {
        auto const said = refusal("no-such-model", {.int8 = int8});
        BOOST_TEST(has(said, "no-such-model"), said);
    }
}
