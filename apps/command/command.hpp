#pragma once
// One command of a program: its options and the variables they fill. A value comes from a flag, else from the
// environment (CALM_MINUTES is --minutes), else from a file of options, else it is the default.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/ranks/detail/setting.hpp"
#include "calm/sample/temperature.hpp"
#include "command/heading.hpp"
#include "command/number_within.hpp"

namespace calm::apps {

enum class needed { no, yes };

// A declared option and the values given for it.
struct declared_option {
    enum class value_count { none, one, one_each_time, several };

    std::string name;  // with its dashes
    std::string type;  // of its values, as shown in the help
    std::string help;
    value_count count = value_count::one;
    needed need = needed::no;
    std::function<void(std::string const&)> take;
    std::string instead = {};                     // an option that makes a needed one optional
    std::function<std::string()> otherwise = {};  // its default, empty if it has none
    std::vector<std::string> choices = {};
    std::string least = {}, most = {};                             // limits of a number
    heading under = heading::common;                               // in the help
    bool is_seldom = false;                                        // only --help-all shows it
    bool is_kept = true;                                           // part of --print-config
    bool may_be_variable = true;                                   // of the environment
    bool may_be_empty = false;                                     // an empty string is a valid value
    std::function<std::string(std::string const&)> compared = {};  // part to compare between ranks; empty: all
    std::vector<std::string> given = {};                           // from a single origin
    std::string origin = {};                                       // flag, environment, file or empty
    std::string place = {};                                        // exact origin, for messages
};

// One line such as "generate of calm 0.1.0, compiled for AVX-512", or "calm 0.1.0, compiled for AVX-512".
std::string version_line(std::string const& program);

// Declare options, then call read() to fill their variables. read() reports all problems at once.
class command {
public:
    command(std::string name, std::string const& description);

    // Places the options that are declared from here on in the help.
    void under(heading group, seldom used = seldom::no) {
        heading_ = group;
        are_seldom_ = used == seldom::yes;
    }

    void text(std::string const& option, std::string& to, std::string const& type, std::string const& help,
              needed need = needed::no) {
        auto& one = add(option, type, help, need, [&to](std::string const& value) { to = value; });
        if (!to.empty()) one.otherwise = [standard = to] { return standard; };
    }
    // A number from `least` to `most`. The current value of `to` is the default if it is in range. If `least` is the
    // smallest positive number, messages say "above 0".
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
    // A value that `take` parses; `take` throws calm::error if the value is invalid.
    void parsed(std::string const& option, std::string const& type, std::string const& help,
                std::function<void(std::string const&)> take) {
        add(option, type, help, needed::no, std::move(take));
    }
    // One of several names; `take` receives the chosen one.
    void choice(std::string const& option, std::vector<std::string> const& names, std::string const& help,
                std::function<void(std::string const&)> take);
    void list(std::string const& option, std::vector<std::string>& to, std::string const& type, std::string const& help,
              needed required = needed::yes) {
        add(
            option, type, help, required, [&to](std::string const& value) { to.push_back(value); },
            declared_option::value_count::several);
    }
    // An option that can be given several times, with one value each.
    void repeated(std::string const& option, std::vector<std::string>& to, std::string const& type,
                  std::string const& help, needed required = needed::no) {
        add(
            option, type, help, required, [&to](std::string const& value) { to.push_back(value); },
            declared_option::value_count::one_each_time);
    }
    // An option without a value, or with =true or =false (also 1 or 0, yes or no, on or off).
    void flag(std::string const& option, bool& to, std::string const& help);
    // The option applies to a single call: no environment variable, no file and no --print-config contains it.
    void only_as_flag(std::string const& option) { named(option).is_kept = named(option).may_be_variable = false; }
    // Sets the part of a value that must be equal on all ranks; "" means none. The default is the whole value.
    void compare(std::string const& option, std::function<std::string(std::string const&)> of) {
        named(option).compared = std::move(of);
    }
    // A needed option may be left out where the option `instead` is given.
    void needed_without(std::string const& option, std::string const& instead) { named(option).instead = instead; }
    // Accepts an empty string as a value. Other options refuse it, because a shell produces it for an unset variable.
    void may_be_empty(std::string const& option) { named(option).may_be_empty = true; }
    // The effective default if the option is not set, evaluated after all values are read; empty if there is none.
    void otherwise(std::string const& option, std::function<std::string()> standard) {
        named(option).otherwise = std::move(standard);
    }
    // Suggests values for completion.
    void suggest(std::string const& option, std::vector<std::string> names) {
        named(option).choices = std::move(names);
    }
    // Words before all options are values of this option.
    void first_words_are(std::string const& option) { positional_ = option; }
    // A hint for messages about words that belong to no option.
    void stray_words_are(std::string hint) { hint_of_stray_words_ = std::move(hint); }
    [[nodiscard]] std::string const& hint_of_stray_words() const { return hint_of_stray_words_; }

    // Adds a check that runs after all values are read.
    void check(std::function<void()> question) { checks_.push_back(std::move(question)); }
    // Adds a check for a missing option or across several options. It runs only if every origin could be read, since
    // the unread one may set them.
    void check_whole(std::function<void()> question) {
        check([this, question = std::move(question)] {
            if (is_whole_) question();
        });
    }
    // Reports a problem once, even if several checks find it.
    void problem(std::string sentence) {
        if (std::find(problems_.begin(), problems_.end(), sentence) == problems_.end())
            problems_.push_back(std::move(sentence));
    }
    // Logs a line before the work begins, if there is no problem.
    void note(std::string sentence) { notes_.push_back(std::move(sentence)); }
    // Ends the help.
    void footer(std::string const& text) { footer_ = text; }
    // Lines that only --help-all prints. --help says that it shows `name` too.
    void appendix(std::string name, std::string text) {
        appendix_name_ = std::move(name);
        appendix_ = std::move(text);
    }

    // Reads the command line, the environment and the file of options. Returns false if nothing is left to do: --help,
    // --help-all, --version, --print-config or --completion was printed. Throws errc::usage with all problems.
    bool read(int argc, char const* const* argv);

    [[nodiscard]] std::string const& name() const { return name_; }
    // The text of --help, or of --help-all, in lines of at most so many columns.
    [[nodiscard]] std::string help(bool all, std::size_t columns) const;
    [[nodiscard]] std::vector<declared_option> const& options() const { return options_; }
    // All values as a file that --config-file reads back, with the origin of each in a comment.
    [[nodiscard]] std::string resolved() const;
    // Values that must be equal on all ranks: the program, the command, and every option except the parts that
    // compare() excludes.
    [[nodiscard]] std::vector<setting> settings() const;

private:
    declared_option& add(std::string const& name, std::string const& type, std::string const& help, needed need,
                         std::function<void(std::string const&)> take,
                         declared_option::value_count count = declared_option::value_count::one);
    declared_option* find(std::string const& name);
    declared_option& named(std::string const& option);
    [[nodiscard]] std::vector<std::string> names() const;
    // The last word of its name, which is also its table in a file.
    [[nodiscard]] std::string table() const { return name_.substr(name_.rfind(' ') + 1); }

    // A flag that prints something instead of running the program.
    void print_flag(std::string const& option, std::string const& help);
    // Whether that flag was given.
    [[nodiscard]] bool asks_for(std::string const& option);

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
    // The largest number below 2 is shown as "below 2".
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
    std::string called_;  // the name in messages: with `calm` in front for a subcommand
    std::string description_;
    std::string footer_;
    std::string appendix_, appendix_name_;
    heading heading_ = heading::common;  // of the next option
    bool are_seldom_ = false;            // the next options
    std::string positional_;
    std::string hint_of_stray_words_;
    std::vector<declared_option> options_;
    std::vector<std::function<void()>> checks_;
    std::vector<std::string> problems_, notes_;
    std::vector<std::string> told_of_;  // given options left unset by a reported problem
    bool is_whole_ = true;              // every origin could be read
};

}  // namespace calm::apps
