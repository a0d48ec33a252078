// Sources of options: flags, the environment, a file, defaults.

#include <boost/test/unit_test.hpp>

#include "command/command.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "calm/version.hpp"
#include "command/command_line.hpp"
#include "command/completion.hpp"
#include "command/help.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::apps;
using calm::test::has;
using calm::test::temporary_folder;

namespace {

// Sets an environment variable until the end of the scope.
class variable {
public:
    variable(std::string name, std::string const& value) : name_(std::move(name)) {
        ::setenv(name_.c_str(), value.c_str(), 1);
    }
    variable(variable const&) = delete;
    variable& operator=(variable const&) = delete;
    ~variable() { ::unsetenv(name_.c_str()); }

private:
    std::string name_;
};

// A command `train calm` with options of every kind.
struct trial {
    double minutes = 0;
    std::uint64_t seed = 1;
    std::string name = "plain", side = "left";
    std::vector<std::string> data, prompts;
    bool plot = false, again = false;
    command c{"train calm", "A trial."};

    trial() {
        c.list("--data", data, "SPEC", "text");
        c.number<double, double>("--minutes", minutes, "X", "time", 0.5, 100);
        c.number<std::uint64_t, std::uint64_t>("--seed", seed, "S", "seed", 0, ~std::uint64_t{0});
        c.text("--run-name", name, "NAME", "a name");
        c.choice("--side", {"left", "right"}, "a side", [this](std::string const& to) { side = to; });
        c.repeated("--prompt", prompts, "TEXT", "a prompt");
        c.may_be_empty("--prompt");
        c.flag("--plot", plot, "draw");
        c.flag("--again", again, "once more");
        c.only_as_flag("--again");
    }
    trial(trial const&) = delete;
    trial& operator=(trial const&) = delete;

    bool read(std::vector<std::string> const& words) {
        std::vector<char const*> pointers;
        for (auto const& word : words) pointers.push_back(word.c_str());
        return c.read(static_cast<int>(pointers.size()), pointers.data());
    }
};

std::string refusal(std::vector<std::string> const& words) {
    trial t;
    auto said = calm::test::usage_sentence([&] { t.read(words); });
    BOOST_TEST(!said.empty());
    return said;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_flag_comes_before_a_variable_before_a_file_before_a_default) {
    temporary_folder const folder;
    auto const file = folder.with("run.toml", "data = [\"file\"]\nminutes = 3\nseed = 7\nrun-name = \"top\"\n[calm]\n"
                                              "run-name = \"table\"\nplot = true\n[generate]\nanything = 1\n");
    variable const minutes("CALM_MINUTES", "2"), seed("CALM_SEED", "5"), empty("CALM_RUN_NAME", "");
    trial t;
    BOOST_TEST(t.read({"--seed", "9", "--config-file", file}));
    BOOST_TEST(t.seed == 9U);
    BOOST_TEST(t.minutes == 2);
    BOOST_TEST(t.data == std::vector<std::string>{"file"});
    BOOST_TEST(t.name == "table");
    BOOST_TEST(t.plot);
    BOOST_TEST(t.side == "left");

    // The file itself may come from a variable, and a flag overrides the file.
    variable const path("CALM_CONFIG_FILE", file);
    trial u;
    BOOST_TEST(u.read({"--plot=false", "--data", "a", "b"}));
    BOOST_TEST(!u.plot);
    BOOST_TEST(u.seed == 5U);
    BOOST_TEST(u.data == (std::vector<std::string>{"a", "b"}));
}

BOOST_AUTO_TEST_CASE(variables_hold_lists_and_are_left_alone_where_they_are_others) {
    variable const data("CALM_DATA", "[\"a b.txt\", \"c\"]"), prompt("CALM_PROMPT", "one only");
    variable const others("CALM_AT_ONCE", "3"), again("CALM_AGAIN", "true"), fixtures("CALM_FIXTURES", "x");
    variable const level("CALM_INSTRUCTIONS", "x86-64"), check("CALM_CUDA_CHECK", "1");
    variable const python("CALM_PYTHON", "python3");
    trial t;
    BOOST_CHECK(has(refusal({}), "CALM_AGAIN"));  // not an option of any program; here it is only a flag
    ::unsetenv("CALM_AGAIN");
    BOOST_TEST(t.read({}));
    BOOST_TEST(t.data == (std::vector<std::string>{"a b.txt", "c"}));
    BOOST_TEST(t.prompts == std::vector<std::string>{"one only"});
    BOOST_TEST(!t.again);
}

// A truncated list is one problem, reported for the variable.
BOOST_AUTO_TEST_CASE(a_variable_that_cannot_be_read_is_named) {
    variable const data("CALM_DATA", "[\"a\",");
    auto const said = refusal({});
    BOOST_TEST(said.starts_with("CALM_DATA: expected one value, or several as a list"), said);
    BOOST_TEST(!has(said, "is needed"), said);
    BOOST_TEST(!has(said, "exception"), said);
}

// Whole numbers are accepted from every source, in any notation.
BOOST_AUTO_TEST_CASE(whole_numbers_may_be_decimals_everywhere) {
    temporary_folder const folder;
    auto const seed = [&](std::vector<std::string> words) {
        trial t;
        words.insert(words.end(), {"--data", "a"});
        BOOST_TEST(t.read(words));
        return t.seed;
    };
    for (std::string const text : {"1e3", "1000", "1000.0", "10E2"}) {
        BOOST_TEST(seed({"--seed", text}) == 1000U);
        BOOST_TEST(seed({"--config-file", folder.with("a.toml", "seed = \"" + text + "\"\n")}) == 1000U);
        variable const environment("CALM_SEED", text);
        BOOST_TEST(seed({}) == 1000U);
    }
    BOOST_TEST(seed({"--config-file", folder.with("a.toml", "seed = 1e3\n")}) == 1000U);
    BOOST_TEST(seed({"--config-file", folder.with("a.json", "{\"seed\": 1e3}")}) == 1000U);
    for (std::string const wrong : {"1.5", "1e-3", "1e30", "-1e3", "0x10", "1e3 "})
        BOOST_TEST(has(refusal({"--data", "a", "--seed", wrong}), "found '" + wrong + "'"));
}

BOOST_AUTO_TEST_CASE(a_problem_is_reported_once) {
    trial t;
    for (int i = 0; i < 2; ++i) t.c.check([] { throw error(errc::usage, "the same"); });
    auto const said = calm::test::usage_sentence([&] { t.read({"--data", "a"}); });
    BOOST_TEST(said.starts_with("the same\n("), said);
}

BOOST_AUTO_TEST_CASE(all_problems_of_all_origins_in_one_report) {
    temporary_folder const folder;
    auto const file =
        folder.with("run.toml", "minuts = 3\nseed = -1\nagain = true\nside = [\"left\", \"right\"]\nprompt = []\n"
                                "[clam]\na = 1\nb = 2\n");
    variable const typo("CALM_SEEED", "1"), wrong("CALM_MINUTES", "soon");
    auto const said = refusal({"--config-file", file, "--sid", "left", "--plot=perhaps", "--run-name", "a", "b"});
    for (std::string const& part :
         {std::string("10 problems"), std::string("  - there is no option --sid; did you mean --side?"),
          std::string("--plot: expected true or false, found 'perhaps'"),
          std::string("  - expected an option, found 'b' after --run-name a; put a value with spaces"),
          std::string("CALM_SEEED belongs to no option; did you mean CALM_SEED?"),
          std::string("--minutes: expected a number from 0.5 to 100, found 'soon' (CALM_MINUTES)"),
          file + ", line 1: no program reads minuts from a file of options; did you mean minutes?",
          std::string("found '-1' (") + file + ", line 2)", file + ", line 3: no program reads again",
          std::string("--side: expected one value, found left and right (") + file,
          file + ", line 5: prompt: expected a value", std::string("there is no command clam; did you mean calm?")})
        BOOST_TEST((part == "10 problems" || has(said, part)), part << " is missing in " << said);
    BOOST_TEST(has(said, "--data is needed"));
}

BOOST_AUTO_TEST_CASE(options_of_an_unreadable_file_are_not_called_missing) {
    temporary_folder const folder;
    for (auto const& file : {folder.path("none.toml"), folder.with("broken.toml", "data = = 1\n")}) {
        auto const said = refusal({"--config-file", file, "--seed", "-1"});
        BOOST_TEST(said.starts_with("2 problems\n  - " + file), said);
        BOOST_TEST(has(said, "found '-1'"));
        BOOST_TEST(!has(said, "is needed"));
        BOOST_TEST(has(refusal({"--config-file", file}), file));
        BOOST_TEST(!has(refusal({"--config-file", file}), "problems"));
    }
    BOOST_TEST(!has(refusal({"--config-file"}), "--data is needed"));
    // Nor are missing options reported after refused values.
    BOOST_TEST(!has(refusal({"--config-file", folder.with("empty.toml", "data = []\n")}), "is needed"));
    // Checks of all options together are skipped too, checks of single options are not.
    bool single = false, whole = false;
    trial t;
    t.c.check([&] { single = true; });
    t.c.check_whole([&] { whole = true; });
    BOOST_TEST(!calm::test::usage_sentence([&] { t.read({"--config-file", folder.path("none.toml")}); }).empty());
    BOOST_TEST(single);
    BOOST_TEST(!whole);
    trial u;
    u.c.check_whole([&] { whole = true; });
    BOOST_TEST(u.read({"--data", "a"}));
    BOOST_TEST(whole);
}

// --vocabulary, --temperature and --threads belong to other programs.
BOOST_AUTO_TEST_CASE(one_file_serves_all_programs) {
    temporary_folder const folder;
    auto const shared = folder.with("shared.toml", "data = [\"a\"]\nvocabulary = 300\ntemperature = \"1/2\"\n"
                                                   "threads = 2\nholdout = \"6:5\"\n[calm]\nseed = 3\n");
    trial t;
    BOOST_TEST(t.read({"--config-file", shared}));
    BOOST_TEST(t.data == std::vector<std::string>{"a"});
    BOOST_TEST(t.seed == 3U);
    BOOST_TEST(!has(t.c.resolved(), "vocabulary"));
    auto const said = [&](std::string const& content) {
        return refusal({"--data", "a", "--config-file", folder.with("run.toml", content)});
    };
    BOOST_TEST(
        has(said("holdot = \"6:5\"\n"), "no program reads holdot from a file of options; did you mean holdout?"));
    BOOST_TEST(has(said("[calm]\nvocabulary = 300\n"), "line 2: [calm] has no key vocabulary\n("));
}

BOOST_AUTO_TEST_CASE(flags_are_set_by_every_usual_word) {
    temporary_folder const folder;
    for (bool const set : {true, false})
        for (std::string const& word : set ? std::vector<std::string>{"1", "true", "yes", "on"}
                                           : std::vector<std::string>{"0", "false", "no", "off"}) {
            auto const plot = [&](std::vector<std::string> words) {
                trial t;
                t.plot = !set;
                words.insert(words.end(), {"--data", "a"});
                BOOST_TEST(t.read(words));
                BOOST_TEST(has(t.c.resolved(), set ? "plot = true  # " : "plot = false  # "));
                return t.plot;
            };
            BOOST_TEST(plot({"--plot=" + word}) == set, word);
            BOOST_TEST(plot({"--config-file", folder.with("a.toml", "plot = \"" + word + "\"\n")}) == set, word);
            BOOST_TEST(plot({"--config-file", folder.with("a.json", R"({"plot": ")" + word + "\"}")}) == set, word);
            variable const environment("CALM_PLOT", word);
            BOOST_TEST(plot({}) == set, word);
        }
    variable const wrong("CALM_PLOT", "2");
    BOOST_TEST(has(refusal({"--data", "a"}), "--plot: expected true or false, found '2' (CALM_PLOT)"));
}

BOOST_AUTO_TEST_CASE(the_version_is_an_option) {
    auto const& [major, minor, patch] = calm::version;
#if defined(__AVX512VNNI__) && defined(__AVX512BF16__)
    char const* const widest = "AVX-512 with VNNI and BF16";
#elif defined(__AVX512F__)
    char const* const widest = "AVX-512";
#elif defined(__AVX2__)
    char const* const widest = "AVX2";
#else
    char const* const widest = "SSE2";
#endif
    BOOST_TEST(version_line("plot") == "plot of calm " + std::to_string(major) + "." + std::to_string(minor) + "." +
                                           std::to_string(patch) + ", compiled for " + widest + "\n");
    BOOST_TEST(!trial().read({"--version"}));
    BOOST_TEST(!trial().read({"--seed", "none", "--version"}));
    BOOST_TEST(trial().read({"--data", "a", "--version=false"}));
}

BOOST_AUTO_TEST_CASE(printed_options_read_back_to_the_same) {
    temporary_folder const folder;
    variable const minutes("CALM_MINUTES", "2.5");
    trial t;
    BOOST_TEST(t.read({"--data", "a \"b\"", "--seed", "18446744073709551615", "--prompt", "x\ny", "--prompt", ""}));
    auto const text = t.c.resolved();
    for (auto const* const line : {"data = [\"a \\\"b\\\"\"]  # flag\n", "minutes = 2.5  # environment\n",
                                   "seed = \"18446744073709551615\"  # flag\n", "run-name = \"plain\"  # default\n",
                                   "prompt = [\"x\\ny\", \"\"]  # flag\n", "plot = false  # default\n"})
        BOOST_TEST(has(text, line), line << " is missing in " << text);
    for (auto const* const word : {"side", "again", "config-file", "print-config", "completion", "version"})
        BOOST_TEST(!has(text, "\n" + std::string(word) + " ="), word);
    ::unsetenv("CALM_MINUTES");
    trial u;
    BOOST_TEST(u.read({"--config-file", folder.with("again.toml", text)}));
    BOOST_TEST(u.data == t.data);
    BOOST_TEST(u.minutes == 2.5);
    BOOST_TEST(u.seed == t.seed);
    BOOST_TEST(u.prompts == t.prompts);
    BOOST_TEST(u.plot == t.plot);
    BOOST_TEST(has(u.c.resolved(), "seed = \"18446744073709551615\"  # file\n"));
    trial v;
    BOOST_TEST(!v.read({"--data", "a", "--print-config"}));
    trial w;  // bytes that TOML cannot represent
    BOOST_TEST(w.read({"--data", "\xff"}));
    BOOST_TEST(has(w.c.resolved(), "# data has bytes"));
}

BOOST_AUTO_TEST_CASE(words_before_all_options_may_be_an_options) {
    std::vector<std::string> runs;
    command c("plot", "A trial.");
    c.list("--run", runs, "DIR", "a run");
    c.first_words_are("--run");
    char const* const words[] = {"one", "two"};
    BOOST_TEST(c.read(2, words));
    BOOST_TEST(runs == (std::vector<std::string>{"one", "two"}));
}

BOOST_AUTO_TEST_CASE(help_marks_options_without_variables) {
    auto const help = trial().c.help(true, usual_columns);
    auto const row_of = [&](std::string const& option) {
        auto const at = help.find("\n  " + option);
        return help.substr(at, std::min(help.find("\n  -", at + 1), help.find("\n\n", at)) - at);
    };
    BOOST_TEST(row_of("--again") == "\n  --again                   once more (command line only)");
    BOOST_TEST(!has(row_of("--plot"), "(command"));
    BOOST_TEST(!has(row_of("--config-file"), "(command"));
}

BOOST_AUTO_TEST_CASE(help_is_short_and_all_of_it_is_below_headings) {
    std::vector<std::string> data;
    std::string name;
    bool skip = false;
    command c("plot", "A trial, of which there is more to say than has room on one line of eighty columns.");
    c.under(heading::optimizer, seldom::yes);
    c.text("--a-name-of-more-columns", name, "NAME", "a name");
    c.under(heading::data);
    c.flag("--skip", skip, "skip what is seventy columns long, so that its last words begin a new line");
    c.under(heading::common);
    c.list("--data", data, "SPEC", "text");
    c.footer("The end.");
    c.appendix("the weather", "Weather:\n  sunny");
    std::string const begin = "A trial, of which there is more to say than has room on one line of eighty\n"
                              "columns.\n"
                              "Usage: plot [OPTIONS]\n"
                              "\n"
                              "Common options:\n"
                              "  --data SPEC ...           text (needed)\n"
                              "\n"
                              "Data:\n"
                              "  --skip                    skip what is seventy columns long, so that its last\n"
                              "                            words begin a new line\n"
                              "\n";
    BOOST_TEST(c.help(false, usual_columns) ==
               begin + "The end.\nplot --help-all shows the other 7 options and the weather.\n");
    auto const all = c.help(true, usual_columns);
    BOOST_TEST(all.starts_with(begin + "Optimizer:\n"
                                       "  --a-name-of-more-columns NAME\n"
                                       "                            a name\n"
                                       "\n"
                                       "Advanced:\n"
                                       "  -h, --help                print the options that are used most, and exit\n"
                                       "                            (command line only)\n"
                                       "  --help-all "),
               all);
    BOOST_TEST(has(all, "\n\nThe end.\nWeather:\n  sunny\nEvery other option"), all);
}

BOOST_AUTO_TEST_CASE(a_help_names_the_option_whose_values_come_first) {
    std::vector<std::string> data;
    std::string model;
    command several("train text", "A trial."), one("generate", "A trial.");
    several.list("--data", data, "SPEC", "text");
    several.first_words_are("--data");
    one.text("--model", model, "DIR", "a model");
    one.first_words_are("--model");
    BOOST_TEST(has(several.help(false, usual_columns), "\nUsage: train text [SPEC...] [OPTIONS]\n"));
    BOOST_TEST(has(one.help(false, usual_columns), "\nUsage: generate [DIR] [OPTIONS]\n"));
}

// Whatever the width of the terminal, no line of any help is wider.
BOOST_AUTO_TEST_CASE(help_fits_the_terminal) {
    auto const widest = [](std::string const& text) {
        std::size_t columns = 0;
        for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
            end = std::min(text.find('\n', at), text.size());
            columns = std::max(columns, end - at);
        }
        return columns;
    };
    for (std::size_t const columns : {40U, 60U, 80U, 100U})
        for (auto const& whole : every_command()) {
            auto const all = option_list(whole.options, help_of::all_options, columns);
            BOOST_TEST(widest(all) <= columns, whole.word << ' ' << columns << '\n' << all);
            BOOST_TEST(widest(all) > columns - 10, whole.word << ' ' << columns);
        }
    std::string const what = "seven words of a help for one option";
    BOOST_TEST(two_columns("  --option N", what, 28, 60) ==
               "  --option N                seven words of a help for one\n" + std::string(28, ' ') + "option\n");
    BOOST_TEST(two_columns("  --option N", what, 28, 50) ==
               "  --option N\n      seven words of a help for one option\n");
    BOOST_TEST(two_columns("  --an-option-with-a-long-name N", what, 28, 80) ==
               "  --an-option-with-a-long-name N\n" + std::string(28, ' ') + what + "\n");
    BOOST_TEST(wrapped("  one two three", 10, 4) == "  one two\n      three\n");
}

BOOST_AUTO_TEST_CASE(columns_of_help_come_from_the_environment) {
    for (auto const& [given, columns] : {std::pair("60", 60U), {"40", 40U}, {"200", 100U}, {"3", 20U}}) {
        variable const width("COLUMNS", given);
        BOOST_TEST(columns_of_help() == columns, given);
    }
    for (auto const* const wrong : {"", "0", "-3", "wide", "60x"}) {
        variable const width("COLUMNS", wrong);
        BOOST_TEST((columns_of_help() >= 20 && columns_of_help() <= 100), wrong);
    }
}

// One option has one place in the help of every program, and what is needed is in the short help.
BOOST_AUTO_TEST_CASE(options_of_all_programs_have_one_heading) {
    std::map<std::string, heading> places;
    for (auto const& whole : every_command()) {
        auto const few = option_list(whole.options, help_of::common_options, usual_columns);
        BOOST_TEST(std::count(few.begin(), few.end(), '\n') <= 55, whole.word << few);
        for (auto const& one : whole.options) {
            BOOST_TEST((one.need == needed::no || !one.is_seldom), whole.word << ' ' << one.name);
            if (whole.word == "convert" && one.name == "--dtype") continue;  // of a file, not of a device
            BOOST_TEST((places.try_emplace(one.name, one.under).first->second == one.under),
                       whole.word << ' ' << one.name);
        }
    }
}

BOOST_AUTO_TEST_CASE(completion_has_every_option_and_is_bash) {
    temporary_folder const folder;
    trial const t;
    completed_command const whole{"", t.c.options()};
    auto const script = bash_completion("trial", {&whole, 1});
    std::set<std::string> names;
    for (auto const& one : t.c.options()) names.insert(one.name);
    BOOST_TEST(names.contains("--print-config"));
    BOOST_TEST(names.contains("--version"));
    for (auto const& name : names) BOOST_TEST(has(script, " " + name), name);
    BOOST_TEST(std::system(("bash -n " + folder.with("complete", script)).c_str()) == 0);
    // As bash calls it: first option names, then the choices of one option.
    auto const offered = [&](std::string const& words, int at) {
        auto const call = folder.with("call", script + "COMP_WORDS=(" + words + "); COMP_CWORD=" + std::to_string(at) +
                                                  "; _calm_trial; echo \"${COMPREPLY[*]}\" >" + folder.path("offered"));
        BOOST_TEST(std::system(("bash " + call).c_str()) == 0);
        return folder.content("offered");
    };
    BOOST_TEST(offered("trial --mi", 1) == "--minutes\n");
    BOOST_TEST(offered("trial --side r", 2) == "right\n");
    BOOST_TEST(offered("trial --minutes 3", 2) == "\n");
    BOOST_TEST(has(calm::test::usage_sentence([] { require_completed_shell("fish"); }), "expected bash"));
}
