#include "run/text_record.hpp"

#include <boost/test/unit_test.hpp>

#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::apps;
using calm::test::has;
using calm::test::sentence_of;
using calm::test::temporary_folder;

BOOST_AUTO_TEST_CASE(written_data_is_read_back) {
    temporary_folder const folder;
    BOOST_TEST(!read_text_record(folder.path("")).has_value());
    text_record const record{{{"data", "a \"b\""}, {"minutes", "5"}},
                             {{"config", "tiny"}, {"minutes", "5"}},
                             {{"minutes", "as given"}},
                             {"autoencoder"}};
    write_text_record(folder.path(""), record);
    auto const bytes = folder.content("plan.json");
    BOOST_TEST_REQUIRE(read_text_record(folder.path("")).has_value());
    BOOST_CHECK(*read_text_record(folder.path("")) == record);
    // The file does not depend on the order of a record.
    auto other = record;
    std::swap(other.plan[0], other.plan[1]);
    write_text_record(folder.path(""), other);
    BOOST_TEST(folder.content("plan.json") == bytes);
}

BOOST_AUTO_TEST_CASE(a_malformed_plan_is_refused) {
    temporary_folder const folder;
    auto const refused = [&](std::string const& text) {
        static_cast<void>(folder.with("plan.json", text));
        auto said = sentence_of<error>([&] { static_cast<void>(read_text_record(folder.path(""))); });
        BOOST_TEST(has(said, "plan.json"), said);
        BOOST_TEST(has(said, "or start over with --fresh"), said);
        return said;
    };
    std::string const rest = "\"given\": {}, \"plan\": {}, \"why\": {}, \"done\": []}";
    refused("");
    refused("[1]");
    refused("{\"format\": 1, ");
    BOOST_TEST(has(refused("{" + rest), "expected a plan of format 1, found another"));
    BOOST_TEST(has(refused("{\"format\": 2, " + rest), "expected a plan of format 1, found another"));
    BOOST_TEST(has(refused("{\"format\": 1, \"given\": {}}"), "expected an object of texts"));
    BOOST_TEST(
        has(refused("{\"format\": 1, \"given\": {\"a\": 3}, " + rest.substr(13)), "expected texts in it, found 3"));
    BOOST_TEST(has(refused("{\"format\": 1, \"given\": {}, \"plan\": {}, \"why\": {}, \"done\": {}}"),
                   "expected a list of texts"));
    BOOST_TEST(has(refused("{\"format\": 1, \"format\": 1, " + rest), "appears twice"));
    BOOST_TEST(has(refused(std::string(1'000'001, ' ')), "expected JSON of at most 1000000 bytes, found more"));
}
