#pragma once
// How a command line is read, for command_line.cpp alone.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/train/metrics.hpp"
#include "suggest.hpp"

namespace calm::apps {

enum class needed { no, yes };

// One command: options are declared with the place they go to, then read() fills the places. CLI11 keeps the options
// and prints the help; what is wrong is collected here, because it would stop at the first problem.
class command {
public:
    command(std::string name, std::string const& description) : app_(description, std::move(name)) {
        app_.get_formatter()->column_width(34);
    }

    void text(std::string const& option, std::string& to, std::string const& type, std::string const& help,
              needed need = needed::no) {
        add(option, type, help, need, [&to](std::string const& value) { to = value; });
    }
    template <class To, class Value = double>
    void number(std::string const& option, To& to, std::string const& type, std::string const& help, Value least,
                Value most = std::numeric_limits<Value>::max(), needed need = needed::no) {
        add(option, type, help, need, [this, &to, option, least, most](std::string const& text) {
            Value value{};
            auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (code == std::errc{} && end == text.data() + text.size() && value >= least && value <= most)
                to = value;
            else
                problem(option + ": expected " + range(least, most) + ", found '" + text + "'");
        });
    }
    // A value that some callable turns into a place's, throwing calm::error where it cannot.
    void parsed(std::string const& option, std::string const& type, std::string const& help,
                std::function<void(std::string const&)> take) {
        add(option, type, help, needed::no, std::move(take));
    }
    void list(std::string const& option, std::vector<std::string>& to, std::string const& type,
              std::string const& help) {
        add(option, type, help, needed::yes, [&to](std::string const& value) { to.push_back(value); })->expected(1, -1);
    }
    // An option that can be given several times, with one value each.
    void repeated(std::string const& option, std::vector<std::string>& to, std::string const& type,
                  std::string const& help) {
        add(option, type, help, needed::no, [&to](std::string const& value) { to.push_back(value); });
        options_.back().repeats = true;
    }
    // A question to the options as a whole, asked after they are read.
    void check(std::function<void()> question) { checks_.push_back(std::move(question)); }
    void problem(std::string sentence) { problems_.push_back(std::move(sentence)); }
    void footer(std::string const& text) { app_.footer(text); }

    // False where --help was asked for and printed. Throws errc::usage with every problem.
    bool read(int argc, char const* const* argv) {
        std::vector<std::string> words = understood({argv, argv + argc});
        if (asks_for_help_) {
            std::fputs(app_.help().c_str(), stdout);
            return false;
        }
        std::reverse(words.begin(), words.end());  // as CLI11 takes them
        try {
            app_.parse(words);
        } catch (CLI::ParseError const& wrong) {
            problem(wrong.what());
        }
        for (auto const& one : options_) {
            auto const values = one.option->results();
            if (one.need == needed::yes && values.empty() && !stated_without_value(one.name))
                problem(one.name + " is needed: " + one.help);
            if (values.size() > 1 && one.option->get_items_expected_max() == 1 && !one.repeats)
                problem(one.name + " is given " + std::to_string(values.size()) + " times; give it once");
            for (auto const& value : values) guarded([&] { one.take(value); });
        }
        for (auto const& question : checks_) guarded(question);
        if (problems_.empty()) return true;
        std::string all = problems_.size() == 1 ? "" : std::to_string(problems_.size()) + " problems";
        for (auto const& one : problems_) all += (problems_.size() == 1 ? "" : "\n  - ") + one;
        throw error(errc::usage, all + "\n(" + app_.get_name() + " --help shows every option)");
    }

private:
    struct declared {
        std::string name;
        std::string help;
        needed need;
        CLI::Option* option;
        std::function<void(std::string const&)> take;
        bool repeats = false;
    };

    CLI::Option* add(std::string const& name, std::string const& type, std::string const& help, needed need,
                     std::function<void(std::string const&)> take) {
        auto* const option = app_.add_option(name, need == needed::yes ? help + " (needed)" : help)
                                 ->type_name(type)
                                 ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
        options_.push_back({name, help, need, option, std::move(take), false});
        return option;
    }

    template <class Value> static std::string range(Value least, Value most) {
        std::string const kind = std::is_integral_v<Value> ? "a whole number" : "a number";
        bool const open =
            std::is_floating_point_v<Value> && least == std::numeric_limits<Value>::min();  // above 0, below most
        if (open)
            return kind + " above 0" +
                   (most < std::numeric_limits<Value>::max() ? " and below " + detail::six_digits(double(most)) : "");
        if (most < std::numeric_limits<Value>::max())
            return kind + " from " + detail::shortest(double(least)) + " to " + detail::shortest(double(most));
        return kind + " of at least " + detail::shortest(double(least));
    }

    void guarded(std::function<void()> const& f) {
        try {
            f();
        } catch (error const& wrong) {
            problem(wrong.what());
        }
    }

    [[nodiscard]] bool stated_without_value(std::string const& name) const {
        return std::find(without_value_.begin(), without_value_.end(), name) != without_value_.end();
    }

    // The words that CLI11 can take; the others are problems.
    std::vector<std::string> understood(std::vector<std::string> const& words) {
        std::vector<std::string> names{"--help"};
        for (auto const& one : options_) names.push_back(one.name);
        auto const is_option = [](std::string const& word) { return word.starts_with("--") && word.size() > 2; };
        std::vector<std::string> taken;
        for (std::size_t i = 0; i < words.size(); ++i) {
            auto const& word = words[i];
            if (word == "-h" || word == "--help") {
                asks_for_help_ = true;
                continue;
            }
            if (!is_option(word)) {
                problem("unexpected '" + word + "': values follow the name of their option");
                continue;
            }
            std::string const name = word.substr(0, word.find('='));
            std::vector<std::string> values;
            if (name.size() < word.size())
                values.push_back(word.substr(name.size() + 1));
            else
                while (i + 1 < words.size() && !is_option(words[i + 1]) && words[i + 1] != "-h")
                    values.push_back(words[++i]);
            auto const known =
                std::find_if(options_.begin(), options_.end(), [&](declared const& one) { return one.name == name; });
            if (known == options_.end()) {
                problem("there is no option " + name + did_you_mean(name, names));
            } else if (values.empty()) {
                without_value_.push_back(name);
                problem(name + " needs a value: " + known->help);
            } else if (values.size() > 1 && known->option->get_items_expected_max() == 1) {
                problem(name + ": expected one value, found " + listed(values) + "; put a text with spaces in quotes");
            } else {
                for (auto const& value : values) taken.insert(taken.end(), {name, value});
            }
        }
        return taken;
    }

    CLI::App app_;
    std::vector<declared> options_;
    std::vector<std::function<void()>> checks_;
    std::vector<std::string> problems_;
    std::vector<std::string> without_value_;
    bool asks_for_help_ = false;
};

}  // namespace calm::apps
