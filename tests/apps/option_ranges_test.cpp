// Every numeric option is accepted at its limits, and refused beyond them with a usage error.

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "calm/io/detail/config_json.hpp"
#include "command/command_line.hpp"
#include "command/completion.hpp"
#include "registry.hpp"
#include "support/compiled_configuration.hpp"
#include "support/config_file.hpp"
#include "support/programs.hpp"
#include "support/sentences.hpp"

using namespace calm::apps;
using calm::test::compiled_configuration;
using calm::test::has;
using calm::test::temporary_folder;

namespace {

// The required options of each command, so that it reports nothing else.
class workshop {
public:
    workshop() {
        auto const text = " --data stories:100";
        static_cast<void>(folder.with("words", "x"));
        std::filesystem::create_directory(folder.path("model"));
        std::filesystem::create_directory(folder.path("llama"));  // accepts every option of generate
        auto llama = calm::model_description::of(calm::model_kind::autoregressive);
        llama.vocab_size = 8;
        calm::test::write_config_json(folder.path("llama/config.json"), llama);
        for (auto const* const head : {"flow", "diffusion"}) {  // together they take every sampling option of heads
            std::filesystem::create_directory(folder.path(head));
            auto description = calm::model_description::of(calm::model_kind::calm, head);
            description.vocab_size = 8;
            calm::test::write_config_json(folder.path(std::string(head) + "/config.json"), description);
        }
        needed_["text"] = "--minutes 1 --out new" + std::string(text);
        needed_["tokenizer"] = "--vocabulary 300 --out new" + std::string(text);
        needed_["autoencoder"] = "--tokenizer words --out new --config " + compiled_configuration() + text;
        needed_["calm"] = "--autoencoder model --out new --config " + compiled_configuration() + text;
        needed_["ar"] = "--tokenizer words --out new --config " + compiled_configuration(true) + text;
        needed_["evaluate"] = "--model model" + std::string(text);
        needed_["sweep"] = "--tokenizer words --out new --minutes 1 --autoencoder-minutes 1 --configs " +
                           compiled_configuration() + text;
        needed_["generate"] = "--model llama";
        needed_["serve"] = "--model llama";
        needed_["convert"] = "--model model --out new";
        needed_["inspect"] = "--model model";
        needed_["tokenize"] = "--tokenizer words --out new" + std::string(text);
        needed_["plot"] = "";
    }
    bool knows(std::string const& command) const { return readers_.contains(command); }

    // The error of a command for an option with a value; empty if it is accepted.
    std::string refusal(std::string const& command, std::string const& option, std::string const& value) const {
        std::vector<std::string> words{"program"};
        if (command == "text" || command == "tokenizer" || command == "autoencoder" || command == "calm" ||
            command == "ar")
            words.push_back(command);
        std::string last;
        for (std::string rest = needed_.at(command) + " "; !rest.empty(); rest.erase(0, rest.find(' ') + 1)) {
            auto word = rest.substr(0, rest.find(' '));
            if (word.starts_with("--")) last = word;
            if (last == "--model" && word != last) {
                if (option.starts_with("--head-")) word = option == "--head-start" ? "diffusion" : "flow";
                if (option == "--temperature") word = "llama";
            }
            static std::set<std::string> const paths{"words", "model", "llama", "flow", "diffusion", "new"};
            bool const path = paths.contains(word);
            // Omits the required option that excludes the tested one.
            bool const other = last == option ||
                               ((option == "--tokens" || option == "--teraflops") && last == "--minutes") ||
                               (option == "--autoencoder-tokens" && last == "--autoencoder-minutes");
            if (!word.empty() && !other) words.push_back(path ? folder.path(word) : word);
        }
        words.push_back(option + "=" + value);
        std::vector<char const*> argv;
        for (auto const& word : words) argv.push_back(word.c_str());
        try {
            readers_.at(command)(static_cast<int>(argv.size()), argv.data());
        } catch (calm::error const& e) {
            BOOST_TEST((e.code() == calm::errc::usage), e.what());
            return e.what();
        }
        return "";
    }

    temporary_folder folder;

private:
    using reader = std::function<void(int, char const* const*)>;
    template <auto Read> static void call(int argc, char const* const* argv) { static_cast<void>(Read(argc, argv)); }

    std::map<std::string, std::string> needed_;
    std::map<std::string, reader> const readers_{{"text", call<read_train>},
                                                 {"tokenizer", call<read_train>},
                                                 {"autoencoder", call<read_train>},
                                                 {"calm", call<read_train>},
                                                 {"ar", call<read_train>},
                                                 {"evaluate", call<read_options<evaluate_options>>},
                                                 {"sweep", call<read_options<sweep_options>>},
                                                 {"generate", call<read_options<generate_options>>},
                                                 {"serve", call<read_options<serve_options>>},
                                                 {"convert", call<read_options<convert_options>>},
                                                 {"inspect", call<read_options<inspect_options>>},
                                                 {"tokenize", call<read_options<tokenize_options>>},
                                                 {"plot", call<read_options<plot_options>>}};
};

// The next whole number above a string of digits.
std::string plus_one(std::string digits) {
    auto at = digits.size();
    while (at > 0 && digits[at - 1] == '9') digits[--at] = '0';
    if (at == 0) return "1" + digits;
    ++digits[at - 1];
    return digits;
}

bool is_whole(declared_option const& option) {
    return option.least.find_first_not_of("0123456789") == std::string::npos &&
           option.most.find_first_not_of("0123456789") == std::string::npos;
}

double number(std::string const& text) {
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_number_of_every_command_has_ends_that_hold) {
    workshop const shop;
    std::size_t numbers = 0;
    for (auto const& command : every_command()) {
        BOOST_REQUIRE_MESSAGE(shop.knows(command.word), "add the command " << command.word << " to the workshop");
        for (auto const& option : command.options) {
            if (option.most.empty()) continue;
            ++numbers;
            auto const who = command.word + " " + option.name;
            auto const says = [&](std::string const& value) { return shop.refusal(command.word, option.name, value); };
            auto const refused = [&](std::string const& value) {
                auto const said = says(value);
                BOOST_TEST(has(said, option.name + ": expected a "), who << " " << value << ": '" << said << "'");
                BOOST_TEST(has(said, "found '" + value + "'"), who << " " << value << ": '" << said << "'");
            };
            // An option that the configuration's head does not have is refused with any value.
            bool const trains = command.word == "calm" || command.word == "text" || command.word == "sweep";
            bool const of_another_head =
                trains && option.name.starts_with("--head-") &&
                calm_named(compiled_configuration()).calm().head.facts->objective.find_option(option.name.substr(7)) ==
                    nullptr;
            auto const taken = [&](std::string const& value) {
                if (!of_another_head) BOOST_TEST(says(value) == "", who << " " << value);
            };
            taken(option.least);
            taken(option.most);
            for (auto const* const no_number : {"-1", "nan", "inf", "-inf", "1e309", "0x10", "1,5", " 1", "1 ", "--"})
                refused(no_number);
            BOOST_TEST(has(says(""), option.name + ": expected " + option.type + ", found an empty text"), who);
            refused("18446744073709551616");  // 2^64
            refused("1e308");
            refused(std::string(60, '9'));
            bool const seed = option.name.ends_with("seed");
            BOOST_TEST(seed == (option.most == "18446744073709551615"), who);
            for (auto const* const large : {"9223372036854775807", "9223372036854775808", "18446744073709551615"}) {
                if (seed)
                    taken(large);
                else
                    refused(large);
            }
            if (is_whole(option)) {
                refused("1.5");
                refused(plus_one(option.most));
                if (option.least != "0") refused(std::to_string(std::stoull(option.least) - 1));
            } else {
                refused("-1e-300");
                refused("1e-400");  // smaller than any double
                if (number(option.least) > 0)
                    refused("5e-324");
                else
                    taken("5e-324");
                BOOST_TEST(number(option.most) <= 1e7, who);
                refused(std::to_string(std::nextafter(number(option.most), 1e300) * 1.001));
            }
        }
    }
    BOOST_TEST(numbers > 50U);
}

BOOST_AUTO_TEST_CASE(texts_that_hold_numbers_have_ends_too) {
    workshop const shop;
    std::vector<std::string> const large{
        "9223372036854775807", "18446744073709551615", "18446744073709551616", "1e308", "-1", std::string(60, '9')};
    for (std::string const command : {"text", "tokenizer", "autoencoder", "calm", "evaluate", "sweep"})
        for (auto const& n : large) {
            BOOST_TEST(has(shop.refusal(command, "--data", "stories:" + n), "stories:N with N > 0 tokens"), n);
            BOOST_TEST(has(shop.refusal(command, "--data", "markov:" + n), "markov:N with N > 0 tokens"), n);
            BOOST_TEST(has(shop.refusal(command, "--holdout", n + ":0"), "holdout \"" + n), n);
            BOOST_TEST(has(shop.refusal(command, "--holdout", "6:" + n), "holdout \"6:" + n), n);
        }
    for (std::string const command : {"generate", "evaluate"}) {
        for (auto const& n : large)
            if (n != "9223372036854775807")
                BOOST_TEST(has(shop.refusal(command, "--temperature", "1/" + n), "temperature: expected"), n);
        for (auto const* const T : {"-1", "nan", "inf", "1e309", "1e308", "4e-324"})
            BOOST_TEST(has(shop.refusal(command, "--temperature", T), "temperature: "), T);
        BOOST_TEST(shop.refusal(command, "--temperature", "1/9223372036854775807") == "");
    }
}
