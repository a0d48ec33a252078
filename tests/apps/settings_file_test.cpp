#include <boost/test/unit_test.hpp>

#include "command/settings_file.hpp"

#include <sys/stat.h>

#include "calm/base/error.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::apps;
using calm::test::has;
using calm::test::temporary_folder;

namespace {

// "table.key=a,b" for every setting.
std::vector<std::string> shown(settings_file const& file) {
    std::vector<std::string> all;
    for (auto const& each : file.settings) {
        std::string text = each.table + "." + each.key + "=";
        for (auto const& value : each.values) text += (text.back() == '=' ? "" : ",") + value;
        all.push_back(text);
    }
    std::sort(all.begin(), all.end());
    return all;
}

settings_file of(std::string const& name, std::string const& content) {
    temporary_folder const folder;
    return read_settings_file(folder.with(name, content));
}

}  // namespace

BOOST_AUTO_TEST_CASE(toml_and_json_say_the_same) {
    auto const toml =
        of("a.toml", "data = [\"a b.txt\", 'stories:5']\nminutes = 0.5\nsteps = 1_000\n[calm]\nplot = true\n"
                     "learning-rate = 1e-3\n");
    BOOST_TEST(toml.problems.empty());
    BOOST_TEST(shown(toml) == (std::vector<std::string>{".data=a b.txt,stories:5", ".minutes=0.5", ".steps=1000",
                                                        "calm.learning-rate=0.001", "calm.plot=true"}));
    auto const strings = of("b.toml", "a = \"" + std::string(100, '.') + "\\\"" + std::string(100, '[') +
                                          "\" # \"'\nb = '''\n...' " + std::string(100, '.') + "'''''\n[c]\n");
    BOOST_TEST(strings.problems.empty());
    BOOST_TEST(strings.settings.size() == 2U);
    auto const json = of("a.json",
                         R"({"data": ["a b.txt", "stories:5"], "minutes": 0.5, "steps": 1000,
                             "calm": {"plot": true, "learning-rate": 1e-3}})");
    BOOST_TEST(json.problems.empty());
    BOOST_TEST(shown(json) == shown(toml));
    BOOST_TEST(of("b.json", R"({"seed": 18446744073709551615, "x": -3})").settings[0].values[0] ==
               "18446744073709551615");
}

BOOST_AUTO_TEST_CASE(places_are_lines) {
    auto const file = of("a.toml", "\nseed = 1\n\n[calm]\nrate = 2\n");
    BOOST_REQUIRE(file.settings.size() == 2U);
    for (auto const& each : file.settings)
        BOOST_TEST(each.place.ends_with(each.key == "seed" ? "a.toml, line 2" : "a.toml, line 5"));
}

BOOST_AUTO_TEST_CASE(a_malformed_options_file_is_a_problem) {
    auto const only = [](std::string const& name, std::string const& content) {
        auto const file = of(name, content);
        BOOST_TEST(file.problems.size() == 1U, content);
        return file.problems.empty() ? std::string() : file.problems.front();
    };
    BOOST_TEST(has(only("a.toml", "a = 1\nb = = 2\n"), "line 2: invalid TOML"));
    BOOST_TEST(has(only("a.toml", "a = 1\na = 2\n"), "line 2"));
    BOOST_TEST(has(only("a.toml", "when = 2020-01-01\n"), "expected a string, a number"));
    BOOST_TEST(has(only("a.toml", "[a]\n[a.b]\nc = 1\n"), "expected a string, a number"));
    BOOST_TEST(has(only("a.toml", "a = [[1]]\n"), "expected a string, a number"));
    BOOST_TEST(has(only("a.toml", "a = 1\nb = \"\xff\"\n"), "found byte \\xff in line 2"));
    BOOST_TEST(has(only("a.json", "{\"a\": 1,}"), "invalid JSON"));
    BOOST_TEST(has(only("a.json", "[1]"), "one JSON object"));
    BOOST_TEST(has(only("a.json", "{\"a\": null}"), "expected a string, a number"));
    BOOST_TEST(has(only("a.json", "{\"a\": 1, \"a\": 2}"), "twice"));
    BOOST_TEST(has(only("a.json", std::string(100'000, '[')), "at most 64 deep"));
    BOOST_TEST(has(only("a.toml", "a = " + std::string(100'000, '[')), "TOML"));
    BOOST_TEST(has(only("a.toml", std::string(1'000'001, '#')), "at most 1 MB"));
    // The parsers recurse as deeply as a file is nested.
    std::string dots, objects;
    for (int i = 0; i < 200'000; ++i) dots += "a.";
    for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
    for (auto const& text : {"[" + dots + "a]\n", dots + "a = 1\n", "b = {" + dots + "a = 1}\n",
                             "c = \"\"\"x\"\"\"\"\n[" + dots + "a]\n", "c = ''\n[" + dots + "a]\n"})
        BOOST_TEST(has(only("a.toml", text), "expected TOML with at most"), text.substr(0, 20));
    BOOST_TEST(has(only("a.json", objects), "at most 64 deep"));
    // Input on which toml++ 3.3 would reach code that it assumes unreachable.
    for (auto const* const text : {"[a.a\xcf\x9e.a]\n", "a = 1 \xc3\xa9\n", "\xc3\xa9 = 1\n", "a = [\xe3\x80\x81]\n"})
        BOOST_TEST(has(only("a.toml", text), "letters beyond ASCII"), text);
    for (auto const* const text : {"[+a.a.aY[[[1]", "[+a]\n"})
        BOOST_TEST(has(only("a.toml", text), "invalid TOML"), text);
    for (auto const* const text : {"a = 7'\xc4\xac'\n", "a = 1.'\xc3\xa9'\n", "a = \"x\" '\xcf\x9e'\n",
                                   "a = \"\"\"x\\\xc3\xa9\"\"\"\n", "[a]'\xc3\xa9'\n", "\"\xc3\xa9\" '\xc3\xa9' = 1\n"})
        BOOST_TEST(has(only("a.toml", text), "line 1: invalid TOML"), text);
    BOOST_TEST(has(only("a.toml", "a = 1\nb = \"\\U000f00c3\"\n"), "private characters"));
    BOOST_TEST(shown(of("a.toml", "a = \"\"\"x\\\n\xc3\xa9\\u00e9\xf3\xb0\x83\x83\"\"\"\n")) ==
               std::vector<std::string>{".a=x\xc3\xa9\xc3\xa9\xf3\xb0\x83\x83"});
    BOOST_TEST(of("a.toml", "\xef\xbb\xbf# \xc3\xa9\n\"\xc3\xa9\" = '\xcf\x9e'\n").problems.empty());
}

// Other kinds of files are named in the error.
BOOST_AUTO_TEST_CASE(only_a_file_is_read) {
    calm::test::temporary_folder const folder;
    auto const said = [](std::string const& path) {
        auto const problems = read_settings_file(path).problems;
        BOOST_REQUIRE(problems.size() == 1U);
        return problems.front();
    };
    BOOST_TEST(said("/nowhere/x.toml") == "/nowhere/x.toml: cannot be opened: No such file or directory");
    auto const pipe = folder.path("pipe.toml");
    BOOST_REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    BOOST_TEST(said(pipe) == pipe + ": expected a file, found a pipe");
    BOOST_TEST(said(folder.path("")) == folder.path("") + ": expected a file, found a folder");
    BOOST_TEST(said("/dev/null") == "/dev/null: expected a file, found a device");
    BOOST_TEST(read_settings_file(folder.with("a.toml", "a = 1\n")).settings.at(0).values.at(0) == "1");
    BOOST_TEST(read_settings_file(folder.with("empty.toml", "")).problems.empty());
    BOOST_TEST(has(said(folder.with("large.toml", std::string(1'000'001, '#'))), "at most 1 MB"));
}

// Quoting and reading restores every text.
BOOST_AUTO_TEST_CASE(quotes_follow_toml) {
    std::string all;
    for (int c = 1; c < 128; ++c) all += static_cast<char>(c);
    for (std::string const& text :
         {all, std::string("\\ \"quoted\" \\u0041"), std::string("na\xc3\xafve \xf0\x9f\x98\x80")})
        BOOST_TEST(of("a.toml", "a = " + toml_string(text) + "\n").settings.at(0).values.at(0) == text);
}

BOOST_AUTO_TEST_CASE(a_variable_has_one_value_or_a_list) {
    using list = std::vector<std::string>;
    BOOST_TEST(listed_values("a b.txt") == list{"a b.txt"});
    BOOST_TEST(listed_values("[\"a\", 2, true]") == (list{"a", "2", "true"}));
    BOOST_TEST(has(calm::test::usage_sentence([] { listed_values("[a"); }), "several as a list"));
}
