#pragma once
// One command of a program: its options with the places they go to. What is set comes from flags, else from the
// environment (CALM_MINUTES is --minutes), else from a file of options, else it is a default.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/ranks/setting.hpp"
#include "calm/sample/temperature.hpp"
#include "command/number_within.hpp"

namespace calm::apps {

enum class needed { no, yes };

// An option as it was declared, and what it was given.
struct declared_option {
    enum class value_count { none, one, one_each_time, several };

    std::string name;  // with its dashes
    std::string type;  // of its values, as the help shows it
    std::string help;
    value_count count = value_count::one;
    needed need = needed::no;
    std::function<void(std::string const&)> take;
    std::function<std::string()> otherwise = {};  // its default, empty where it has none
    std::vector<std::string> choices = {};
    std::string least = {}, most = {};                             // of a number
    bool is_kept = true;                                           // belongs to what --print-config prints
    bool may_be_empty = false;                                     // an empty text is a value of it
    std::function<std::string(std::string const&)> compared = {};  // what of a value all ranks have; empty: all of it
    std::vector<std::string> given = {};                           // by one origin
    std::string origin = {};                                       // flag, environment, file or empty
    std::string place = {};                                        // where exactly, for sentences
};

// "generate of calm 0.1.0, compiled for AVX-512", a line.
std::string version_line(std::string const& program);

// Options are declared, then read() fills their places. CLI11 keeps the help; what is wrong is collected here, because
// it would stop at the first problem.
class command {
public:
    command(std::string name, std::string const& description);

    void text(std::string const& option, std::string& to, std::string const& type, std::string const& help,
              needed need = needed::no) {
        auto& one = add(option, type, help, need, [&to](std::string const& value) { to = value; });
        if (!to.empty()) one.otherwise = [standard = to] { return standard; };
    }
    // A number from `least` to `most`; what the place holds is the default where it lies between. A number whose least
    // is the smallest positive one is told as one above 0.
    template <class To, class Value = double>
    void number(std::string const& option, To& to, std::string const& type, std::string const& help, Value least,
                Value most, needed need = needed::no) {
        auto& one = add(option, type, help, need, [this, &to, option, least, most](std::string const& text) {
            if (auto const value = option_number(text, least, most))
                to = *value;
            else
                problem(option + ": expected " + range(least, most) + ", found '" + text + "'");
        });
        one.least = text_of(least);
        one.most = text_of(most);
        if constexpr (std::is_integral_v<To>) {
            if (need == needed::no && std::cmp_greater_equal(to, least))
                one.otherwise = [standard = to] { return std::to_string(standard); };
        }
    }
    // A value that some callable turns into a place's, throwing calm::error where it cannot.
    void parsed(std::string const& option, std::string const& type, std::string const& help,
                std::function<void(std::string const&)> take) {
        add(option, type, help, needed::no, std::move(take));
    }
    // One of some names; `take` gets one of them.
    void choice(std::string const& option, std::vector<std::string> const& names, std::string const& help,
                std::function<void(std::string const&)> take);
    void list(std::string const& option, std::vector<std::string>& to, std::string const& type,
              std::string const& help) {
        add(
            option, type, help, needed::yes, [&to](std::string const& value) { to.push_back(value); },
            declared_option::value_count::several);
    }
    // An option that can be given several times, with one value each.
    void repeated(std::string const& option, std::vector<std::string>& to, std::string const& type,
                  std::string const& help, needed required = needed::no) {
        add(
            option, type, help, required, [&to](std::string const& value) { to.push_back(value); },
            declared_option::value_count::one_each_time);
    }
    // An option without a value, or with =true or =false (1 or 0, yes or no, on or off).
    void flag(std::string const& option, bool& to, std::string const& help);
    // The option is for this one call: no variable, no file and no --print-config has it.
    void only_as_flag(std::string const& option) { named(option).is_kept = false; }
    // What of a value all ranks of a job have to have alike, where it is not all of it; "": nothing.
    void compare(std::string const& option, std::function<std::string(std::string const&)> of) {
        named(option).compared = std::move(of);
    }
    // An empty text is a value of the option. Of every other option it is refused: it is what a shell makes of a
    // variable that is not set.
    void may_be_empty(std::string const& option) { named(option).may_be_empty = true; }
    // What holds where the option is not set, asked for after all is read; empty where nothing does.
    void otherwise(std::string const& option, std::function<std::string()> standard) {
        named(option).otherwise = std::move(standard);
    }
    // Names that a value may have, for completion.
    void suggest(std::string const& option, std::vector<std::string> names) {
        named(option).choices = std::move(names);
    }
    // Words before all options are values of this one.
    void first_words_are(std::string const& option) { positional_ = option; }
    // What a word that belongs to no option may have been meant for, for sentences.
    void stray_words_are(std::string hint) { hint_of_stray_words_ = std::move(hint); }

    // A question to what is set, asked after all is read.
    void check(std::function<void()> question) { checks_.push_back(std::move(question)); }
    // One that misses an option, or compares several: asked only where a file that may have set them could be read.
    void check_whole(std::function<void()> question) {
        check([this, question = std::move(question)] {
            if (is_whole_) question();
        });
    }
    // A problem is told once, however many checks find it.
    void problem(std::string sentence) {
        if (std::find(problems_.begin(), problems_.end(), sentence) == problems_.end())
            problems_.push_back(std::move(sentence));
    }
    void footer(std::string const& text) { footer_ = text; }

    // Reads the words of a command line, the environment and the file of options. False where all is done: --help,
    // --version, --print-config or --completion was asked for and printed. Throws errc::usage with every problem.
    bool read(int argc, char const* const* argv);

    [[nodiscard]] std::string const& name() const { return name_; }
    [[nodiscard]] std::string help() const;
    [[nodiscard]] std::vector<declared_option> const& options() const { return options_; }
    // What is set, as a file that --config-file reads to the same, with the origin of each in a comment.
    [[nodiscard]] std::string resolved() const;
    // What all ranks of a job have to have alike: the program, the command, and every option but what compare() leaves
    // out.
    [[nodiscard]] std::vector<setting> settings() const;

private:
    declared_option& add(std::string const& name, std::string const& type, std::string const& help, needed need,
                         std::function<void(std::string const&)> take,
                         declared_option::value_count count = declared_option::value_count::one);
    declared_option* find(std::string const& name);
    declared_option& named(std::string const& option);
    [[nodiscard]] std::vector<std::string> names() const;
    // The last word of its name: its table in a file.
    [[nodiscard]] std::string table() const { return name_.substr(name_.rfind(' ') + 1); }

    template <class Value> static std::string text_of(Value value) {
        if constexpr (std::is_integral_v<Value>)
            return std::to_string(value);
        else
            return shortest(value);
    }
    template <class Value> static std::string range(Value least, Value most) {
        if constexpr (std::is_integral_v<Value>)
            return "a whole number from " + text_of(least) + " to " + text_of(most);
        else if (least == std::numeric_limits<Value>::min())
            return "a number above 0 and " + upper(most);
        else
            return "a number from " + text_of(least) + " to " + text_of(most);
    }
    // The largest number below 2 is "below 2".
    static std::string upper(double most) {
        auto const digits = six_digits(most);
        return (std::stod(digits) > most ? "below " : "at most ") + digits;
    }

    void guarded(std::function<void()> const& f);
    void take_words(std::vector<std::string> const& words);
    void take_word_values(std::string const& name, std::vector<std::string> values);
    void refuse_words(std::span<std::string const> words, std::string const& after);
    void take_environment();
    void take_file(std::string const& path);
    void give(declared_option& option, std::vector<std::string> values, std::string const& origin,
              std::string const& place);
    void use_values();

    std::string name_;
    std::string description_;
    std::string footer_;
    std::string positional_;
    std::string hint_of_stray_words_;
    std::vector<declared_option> options_;
    std::vector<std::function<void()>> checks_;
    std::vector<std::string> problems_;
    std::vector<std::string> told_of_;  // options that are there, and are not set for a problem that was told
    std::string options_file_;
    std::string completion_;
    bool asks_for_help_ = false;
    bool asks_for_resolved_ = false;
    bool asks_for_version_ = false;
    bool is_whole_ = true;  // every origin could be read
};

}  // namespace calm::apps
