#include <boost/test/unit_test.hpp>

#include "run/run_record.hpp"

#include <simdjson.h>

#include <filesystem>

#include "calm/version.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::apps;
using calm::test::has;
using calm::test::temporary_folder;

BOOST_AUTO_TEST_CASE(every_call_is_kept) {
    temporary_folder const folder;
    write_record(folder.path(""), {.options = "seed = 1  # flag\n", .words = {"train", "calm", "--x", "a \"b\" \xff"}},
                 0);
    write_record(folder.path(""), {.options = "seed = 2  # flag\n", .words = {"train", "calm"}}, 40);
    BOOST_TEST(folder.content("options.toml") == "seed = 2  # flag\n");
    simdjson::dom::parser parser;
    simdjson::dom::array calls;
    auto const text = folder.content("run.json");
    BOOST_REQUIRE(!parser.parse(text)["calls"].get(calls));
    BOOST_REQUIRE(calls.size() == 2U);
    BOOST_TEST(calls.at(0)["command"].at(3).get_string().value() == "a \"b\" \xef\xbf\xbd");
    BOOST_TEST(calls.at(1)["after_step"].get_int64().value() == 40);
    BOOST_TEST(calls.at(1)["date"].get_string().value().size() == 20U);
    BOOST_TEST(has(calls.at(1)["version"].get_string().value(), std::to_string(version.minor) + "."));
    // A file in another format is replaced.
    static_cast<void>(folder.with("run.json", "{\"calls\": [1], \"calls\""));
    write_record(folder.path(""), {}, 1);
    BOOST_TEST(has(folder.content("run.json"), "\"after_step\": 1"));
    BOOST_TEST(folder.content("options.toml") == "seed = 2  # flag\n");
}

BOOST_AUTO_TEST_CASE(recorded_options_replace_defaults) {
    std::string const options = "# train calm --config-file THIS does the same\nwarmup = 20  # default\n"
                                "accumulation = 1  # flag\nrate = 0.1  # default\n";
    BOOST_TEST(with_defaults(options, {{"warmup", "3"}, {"accumulation", "2"}}) ==
               "# train calm --config-file THIS does the same\nwarmup = 3  # as begun\n"
               "accumulation = 1  # flag\nrate = 0.1  # default\n");
    BOOST_TEST(with_defaults("", {{"warmup", "3"}}) == "");
}

// Records can always be read back, however long a command was and however often it was given.
BOOST_AUTO_TEST_CASE(records_stay_as_long_as_they_are_read) {
    temporary_folder const folder;
    std::vector<std::string> paths;
    for (int i = 0; i < 5000; ++i) paths.push_back(std::string(210, 'x') + std::to_string(i));
    auto const some = recorded(paths);
    BOOST_REQUIRE(some.size() < 500U);
    BOOST_TEST(some.front() == paths.front());
    BOOST_TEST(has(some.back(), "... 5000 in all, SHA-256 "));
    auto others = paths;
    others.back() += "y";
    BOOST_TEST(recorded(others).back() != some.back());
    BOOST_TEST(recorded({"a", "b"}) == (std::vector<std::string>{"a", "b"}));

    for (int call = 0; call < 12; ++call) write_record(folder.path(""), {.options = "", .words = paths}, call);
    auto const text = folder.content("run.json");
    BOOST_TEST(text.size() <= 1'000'000U);
    BOOST_TEST(has(text, "\"after_step\": 11"));
    BOOST_TEST(has(text, "\"after_step\": 10"));
    write_record(folder.path(""), {.options = "seed = 1\n", .words = {}}, 0);
    write_record(folder.path(""), {.options = std::string(1'000'001, '#'), .words = {}}, 0);
    BOOST_TEST(!std::filesystem::exists(folder.path("options.toml")));
}

BOOST_AUTO_TEST_CASE(samples_are_appended_when_a_run_resumes) {
    temporary_folder const folder;
    {
        samples_log log(folder.path(""), 0);
        log.add(10, 1.5, "Mia", " was \"a\"\n");
        log.add(20, 3, "Mia", "\xff");
        log.add(30, 4.5, "Mia", "late");
    }
    static_cast<void>(folder.with("samples.jsonl", folder.content("samples.jsonl") + "{\"step\":40,\"sec"));
    samples_log log(folder.path(""), 20);
    log.add(30, 5, "", "again");
    BOOST_TEST(folder.content("samples.jsonl") ==
               "{\"step\":10,\"seconds\":1.5,\"prompt\":\"Mia\",\"text\":\" was \\\"a\\\"\\u000a\"}\n"
               "{\"step\":20,\"seconds\":3,\"prompt\":\"Mia\",\"text\":\"\xef\xbf\xbd\"}\n"
               "{\"step\":30,\"seconds\":5,\"prompt\":\"\",\"text\":\"again\"}\n");
}
