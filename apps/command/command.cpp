#include "command/command.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>

#include "calm/base/detail/utf8.hpp"
#include "calm/version.hpp"
#include "command/command_line.hpp"
#include "command/completion.hpp"
#include "command/help.hpp"
#include "command/settings_file.hpp"
#include "command/suggest.hpp"
#include "processor.hpp"
#include "program.hpp"
#include "text/text_output.hpp"

namespace calm::apps {

namespace {

constexpr char const* print_help = "--help";
constexpr char const* print_all_help = "--help-all";
constexpr char const* options_file = "--config-file";
constexpr char const* print_resolved = "--print-config";
constexpr char const* completion = "--completion";
constexpr char const* print_version = "--version";

constexpr std::string_view variable_prefix = "CALM_";
constexpr std::size_t most_told = 20;  // problems

// --random-patches becomes CALM_RANDOM_PATCHES.
std::string variable_of(std::string const& option) {
    std::string variable(variable_prefix);
    for (char const c : option.substr(2))
        variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return variable;
}

bool is_option(std::string const& word) {
    return (word.starts_with("--") && word.size() > 2) || word == "-h";
}

// Whether a word looks like an option of other programs: -o.
bool has_one_dash(std::string const& word) {
    return word.size() > 1 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1])) != 0 &&
           !is_option(word);
}

// The name here of an option that other programs have.
std::string usual_name(std::string const& option) {
    static constexpr std::pair<std::string_view, char const*> names[]{
        {"--lr", "--learning-rate"},     {"--rate", "--learning-rate"}, {"--batch-size", "--batch"},
        {"--epochs", "--minutes"},       {"--output", "--out"},         {"--output-dir", "--out"},
        {"--input", "--data"},           {"--dataset", "--data"},       {"--max-new-tokens", "--max-tokens"},
        {"--max-length", "--max-tokens"}};
    auto const* const found =
        std::find_if(std::begin(names), std::end(names), [&](auto const& one) { return one.first == option; });
    return found == std::end(names) ? "" : found->second;
}

// The value of a flag.
std::optional<bool> truth_of(std::string const& text) {
    for (auto const* const word : {"true", "1", "yes", "on"})
        if (text == word) return true;
    for (auto const* const word : {"false", "0", "no", "off"})
        if (text == word) return false;
    return std::nullopt;
}

bool takes_several(declared_option const& option) {
    using count = declared_option::value_count;
    return option.count == count::several || option.count == count::one_each_time;
}

// The whole text as a number, or nothing.
template <class Number> std::optional<Number> number_of(std::string const& text) {
    Number value{};
    auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    return code == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// A number as TOML writes it; whole numbers beyond TOML's range become strings.
std::string toml_number(std::string const& text) {
    if (auto const whole = number_of<std::int64_t>(text)) return std::to_string(*whole);
    bool const is_whole = text.find_first_not_of("0123456789") == std::string::npos;
    auto const number = number_of<double>(text);
    return number && !is_whole ? shortest(*number) : toml_string(text);
}

bool true_or_false(std::string const& option, std::string const& value) {
    auto const truth = truth_of(value);
    if (!truth) throw error(errc::usage, option + ": expected true or false, found '" + value + "'");
    return *truth;
}

std::string toml_value(declared_option const& option, std::string const& text) {
    if (option.count == declared_option::value_count::none) return *truth_of(text) ? "true" : "false";
    return !option.most.empty() ? toml_number(text) : toml_string(text);
}

}  // namespace

std::string version_line(std::string const& program) {
    bool const alone = program != "calm" && called(program) == program;
    return (alone ? program + " of calm " : "calm ") + std::to_string(version.major) + "." +
           std::to_string(version.minor) + "." + std::to_string(version.patch) + ", compiled for " + instructions +
           "\n";
}

command::command(std::string name, std::string const& description) :
    name_(std::move(name)), called_(called(name_)), description_(description) {
    under(heading::advanced, seldom::yes);
    print_flag(print_help, "print the options that are used most, and exit");
    print_flag(print_all_help, "print all options, and exit");
    auto const read_elsewhere = [](std::string const&) {};
    parsed(options_file, "FILE", "read options from FILE (TOML, .json): flag, environment, FILE, default",
           read_elsewhere);
    print_flag(print_resolved, "print all settings, as --config-file reads them, and exit");
    parsed(completion, "SHELL", "print the bash completion of this program's options, and exit", read_elsewhere);
    suggest(completion, {"bash"});
    print_flag(print_version, "print the version, and exit");
    for (auto const* const name_of :
         {print_help, print_all_help, options_file, print_resolved, completion, print_version}) {
        only_as_flag(name_of);
        compare(name_of, [](std::string const&) { return std::string(); });
    }
    named(options_file).may_be_variable = true;
    under(heading::common);
}

declared_option& command::add(std::string const& name, std::string const& type, std::string const& help, needed need,
                              std::function<void(std::string const&)> take, declared_option::value_count count) {
    options_.push_back({name, type, help, count, need, std::move(take)});
    options_.back().under = heading_;
    options_.back().is_seldom = are_seldom_;
    return options_.back();
}

void command::flag(std::string const& option, bool& to, std::string const& help) {
    auto& one = add(
        option, "", help, needed::no, [&to, option](std::string const& value) { to = true_or_false(option, value); },
        declared_option::value_count::none);
    one.otherwise = [standard = to] { return std::string(standard ? "true" : "false"); };
}

void command::print_flag(std::string const& option, std::string const& help) {
    add(
        option, "", help, needed::no,
        [option](std::string const& value) { static_cast<void>(true_or_false(option, value)); },
        declared_option::value_count::none);
}

void command::choice(std::string const& option, std::vector<std::string> const& names, std::string const& help,
                     std::function<void(std::string const&)> take) {
    parsed(option, "NAME", help, [option, names, take = std::move(take)](std::string const& name) {
        if (std::find(names.begin(), names.end(), name) == names.end())
            throw error(errc::usage, option + ": expected one of " + listed(names) + ", found '" + name + "'" +
                                         did_you_mean(name, names));
        take(name);
    });
    suggest(option, names);
}

declared_option* command::find(std::string const& name) {
    auto const found =
        std::find_if(options_.begin(), options_.end(), [&](declared_option const& one) { return one.name == name; });
    return found == options_.end() ? nullptr : &*found;
}

declared_option& command::named(std::string const& option) {
    auto* const found = find(option);
    if (found == nullptr) throw error(errc::usage, name_ + " has not declared " + option);
    return *found;
}

std::vector<std::string> command::names() const {
    std::vector<std::string> all;
    for (auto const& one : options_) all.push_back(one.name);
    return all;
}

std::string command::help(bool all, std::size_t columns) const {
    using count = declared_option::value_count;
    std::string words;
    for (auto const& one : options_)
        if (one.name == positional_) words = " [" + one.type + (one.count == count::one ? "]" : "...]");
    constexpr std::size_t continued = 4;
    auto text = wrapped(description_, columns) +
                wrapped("Usage: " + called_ + words + " [OPTIONS]", columns, continued) +
                option_list(options_, all ? help_of::all_options : help_of::common_options, columns) + "\n";
    if (!footer_.empty()) text += wrapped(footer_, columns);
    if (all) {
        if (!appendix_.empty()) text += wrapped(appendix_, columns, continued);
        return text + wrapped("Every other option can also be set by an environment variable: --data-seed by "
                              "CALM_DATA_SEED.",
                              columns);
    }
    auto const others = std::count_if(options_.begin(), options_.end(), [](auto const& one) { return one.is_seldom; });
    return text + wrapped(called_ + " --help-all shows the other " + std::to_string(others) + " options" +
                              (appendix_.empty() ? "" : " and " + appendix_name_) + ".",
                          columns);
}

void command::guarded(std::function<void()> const& f) {
    try {
        f();
    } catch (error const& wrong) {
        problem(wrong.what());
    }
}

void command::give(declared_option& option, std::vector<std::string> values, std::string const& origin,
                   std::string const& place) {
    if (values.size() > 1 && !takes_several(option)) {
        problem(option.name + ": expected one value, found " + listed(values) + " (" + place + ")");
        told_of_.push_back(option.name);
        return;
    }
    option.given = std::move(values);
    option.origin = origin;
    option.place = place;
}

void command::take_word_values(std::string const& name, std::vector<std::string> values) {
    auto* const option = find(name);
    if (option == nullptr) {
        auto const* const usual = find(usual_name(name));
        problem("there is no option " + name +
                (usual != nullptr ? "; did you mean " + usual->name + "?" : did_you_mean(name, names())));
        return;
    }
    if (option->count == declared_option::value_count::none && values.empty()) values = {"true"};
    if (values.empty()) {
        told_of_.push_back(name);
        problem(name + " needs a value: " + option->help);
        return;
    }
    if (values.size() > 1 && option->count != declared_option::value_count::several) {
        refuse_words(std::span(values).subspan(1), name + " " + values.front());
        values.resize(1);
    }
    option->given.insert(option->given.end(), values.begin(), values.end());
    option->origin = "flag";
}

// Reports words that belong to no option.
void command::refuse_words(std::span<std::string const> words, std::string const& after) {
    std::string all;
    for (auto const& word : words) all += (all.empty() ? "" : " ") + word;
    problem("expected an option, found '" + all + "'" + (after.empty() ? "" : " after " + after) + "; " +
            hint_of_stray_words_ + (hint_of_stray_words_.empty() ? "" : ", ") + "put a value with spaces in quotes");
}

void command::take_words(std::vector<std::string> const& words) {
    std::size_t i = 0;
    std::vector<std::string> first;
    while (!positional_.empty() && i < words.size() && !is_option(words[i]) && !has_one_dash(words[i]))
        first.push_back(words[i++]);
    if (!first.empty() && named(positional_).count == declared_option::value_count::one_each_time)
        for (auto const& word : first) take_word_values(positional_, {word});
    else if (!first.empty())
        take_word_values(positional_, first);
    for (; i < words.size(); ++i) {
        auto const word = words[i] == "-h" ? print_help : words[i];
        if (has_one_dash(word)) {
            auto const all = names();
            auto const like = std::find_if(all.begin(), all.end(),
                                           [&](auto const& name) { return name.starts_with("-" + word.substr(0, 2)); });
            problem("there is no option " + word + ": options begin with two dashes" +
                    (like == all.end() ? "" : ", as " + *like));
            while (i + 1 < words.size() && !is_option(words[i + 1])) ++i;
            continue;
        }
        if (!is_option(word)) {
            auto const first_stray = i;
            while (i + 1 < words.size() && !is_option(words[i + 1])) ++i;
            refuse_words(std::span(words).subspan(first_stray, i + 1 - first_stray), "");
            continue;
        }
        std::string const name = word.substr(0, word.find('='));
        auto const* const known = find(name);
        bool const alone = known != nullptr && known->count == declared_option::value_count::none;
        std::vector<std::string> values;
        if (name.size() < word.size())
            values.push_back(word.substr(name.size() + 1));
        else
            while (!alone && i + 1 < words.size() && !is_option(words[i + 1])) values.push_back(words[++i]);
        take_word_values(name, std::move(values));
    }
}

// Ignores empty variables and variables of other programs' options.
void command::take_environment() {
    auto known = options_of_all_programs();
    known.push_back("--fixtures");      // where the library's tests find their data
    known.push_back("--instructions");  // which of a portable program's variants runs
    known.push_back("--cuda-check");    // makes the host wait for the GPU after every kernel
    for (auto const* const one : {"--ranks-secret", "--ranks-secret-file", "--ranks-insecure"})
        known.push_back(one);      // secrets of ranks: run/ranks_secret.hpp
    known.push_back("--python");   // interpreter for the benchmarks' PyTorch reference
    known.push_back("--plugins");  // cache of compiled configurations: plugin/plugin.hpp
    known.push_back(options_file);
    for (auto const& one : options_)
        if (one.is_kept) known.push_back(one.name);
    for (auto& one : known) one = variable_of(one);
    for (char** at = ::environ; at != nullptr && *at != nullptr; ++at) {
        std::string const line = *at;
        auto const equals = line.find('=');
        if (!line.starts_with(variable_prefix) || equals == std::string::npos || equals + 1 == line.size()) continue;
        std::string const variable = line.substr(0, equals), value = line.substr(equals + 1);
        if (std::find(known.begin(), known.end(), variable) == known.end()) {
            problem("the environment variable " + variable + " belongs to no option" + did_you_mean(variable, known));
            continue;
        }
        for (auto& one : options_) {
            if (variable_of(one.name) != variable || !one.origin.empty() || !one.may_be_variable) continue;
            try {
                give(one, takes_several(one) ? listed_values(value) : std::vector{value}, "environment", variable);
            } catch (error const& wrong) {
                problem(variable + ": " + wrong.what());
                told_of_.push_back(one.name);
            }
        }
    }
}

// A command's own table takes precedence over top-level keys. Top-level keys of other programs are ignored.
void command::take_file(std::string const& path) {
    if (path.empty()) return;
    auto const file = read_settings_file(path);
    for (auto const& wrong : file.problems) problem(wrong);
    is_whole_ = file.problems.empty();
    auto tables = names_of_all_commands();
    if (std::find(tables.begin(), tables.end(), table()) == tables.end()) tables.push_back(table());
    std::vector<std::string> keys;
    for (auto const& one : options_)
        if (one.is_kept) keys.push_back(one.name.substr(2));
    std::vector<std::string> keys_of_all = keys;
    for (auto const& one : options_of_all_programs()) keys_of_all.push_back(one.substr(2));
    std::vector<std::string> unknown;  // tables already reported
    auto const take = [&](file_setting const& each) {
        auto const& allowed = each.table.empty() ? keys_of_all : keys;
        if (std::find(allowed.begin(), allowed.end(), each.key) == allowed.end())
            problem(each.place + ": " +
                    (each.table.empty() ? "no program reads " + each.key + " from a file of options"
                                        : "[" + each.table + "] has no key " + each.key) +
                    did_you_mean(each.key, allowed));
        if (std::find(keys.begin(), keys.end(), each.key) == keys.end()) return;
        auto& option = named("--" + each.key);
        if (!option.origin.empty()) return;
        if (each.values.empty()) {
            problem(each.place + ": " + each.key + ": expected a value, found an empty list");
            told_of_.push_back(option.name);
        } else {
            give(option, each.values, "file", each.place);
        }
    };
    for (auto const& each : file.settings)
        if (each.table == table()) take(each);
    for (auto const& each : file.settings) {
        if (each.table.empty()) {
            take(each);
        } else if (std::find(tables.begin(), tables.end(), each.table) == tables.end() &&
                   std::find(unknown.begin(), unknown.end(), each.table) == unknown.end()) {
            unknown.push_back(each.table);
            problem(each.place + ": there is no command " + each.table + did_you_mean(each.table, tables));
        }
    }
}

void command::use_values() {
    auto const told_of = [&](std::string const& option) {
        return std::find(told_of_.begin(), told_of_.end(), option) != told_of_.end();
    };
    is_whole_ = is_whole_ && !told_of(options_file);
    for (auto const& one : options_) {
        bool const is_replaced = !one.instead.empty() && !named(one.instead).given.empty();
        if (one.need == needed::yes && one.given.empty() && is_whole_ && !told_of(one.name) && !is_replaced)
            problem(one.name + " is needed" + (one.instead.empty() ? "" : " without " + one.instead) + ": " + one.help);
        if (one.given.size() > 1 && !takes_several(one))
            problem(one.name + " is given " + std::to_string(one.given.size()) + " times; give it once");
        auto const before = problems_.size();
        for (auto const& value : one.given)
            if (value.empty() && !one.may_be_empty)
                problem(one.name + ": expected " + (one.type.empty() ? "true or false" : one.type) +
                        ", found an empty text; is a shell variable unset?");
            else
                guarded([&] { one.take(value); });
        if (!one.place.empty())
            for (auto i = before; i < problems_.size(); ++i) problems_[i] += " (" + one.place + ")";
    }
    for (auto const& question : checks_) guarded(question);
}

bool command::asks_for(std::string const& option) {
    auto const& given = named(option).given;
    return !given.empty() && truth_of(given.front()) == true;
}

bool command::read(int argc, char const* const* argv) {
    take_words({argv, argv + std::max(argc, 0)});
    if (bool const all = asks_for(print_all_help); all || asks_for(print_help)) {
        text_output().put(help(all, columns_of_help()));
        return false;
    }
    if (asks_for(print_version)) {
        text_output().put(version_line(name_.substr(0, name_.find(' '))));
        return false;
    }
    if (auto const& shell = named(completion).given; !shell.empty()) {
        require_completed_shell(shell.front());
        completed_command const whole{"", options_};
        text_output().put(bash_completion(name_, {&whole, 1}));
        return false;
    }
    take_environment();
    auto const& file = named(options_file).given;
    take_file(file.empty() ? "" : file.front());
    use_values();
    if (problems_.empty()) {
        if (asks_for(print_resolved)) {
            text_output().put(resolved());
            return false;
        }
        for (auto const& note : notes_) log_line(note);
        return true;
    }
    bool const single = problems_.size() == 1;
    std::vector<std::string> lines;
    if (!single)
        for (auto const& one : std::span(problems_).first(std::min(problems_.size(), most_told)))
            lines.push_back("  - " + one);
    if (problems_.size() > most_told)
        lines.push_back("  - and " + std::to_string(problems_.size() - most_told) + " more");
    lines.push_back("(" + called_ + " --help-all shows every option)");
    throw error(errc::usage, single ? problems_.front() : std::to_string(problems_.size()) + " problems", lines);
}

std::vector<setting> command::settings() const {
    auto const program = version_line(name_.substr(0, name_.find(' ')));
    std::vector<setting> all{{"program", program.substr(0, program.find('\n'))}, {"command", name_}};
    for (auto const& one : options_) {
        auto values = one.given;
        if (values.empty() && one.otherwise) values = {one.otherwise()};
        std::string text;
        for (auto const& value : values) {
            auto const part = one.compared ? one.compared(value) : value;
            text += (text.empty() ? "" : ", ") + (values.size() > 1 && part.empty() ? "''" : part);
        }
        all.push_back({one.name, text});
    }
    return all;
}

std::string command::resolved() const {
    std::string text = "# " + called_ + " --config-file THIS does the same\n";
    for (auto const& one : options_) {
        if (!one.is_kept) continue;
        auto values = one.given;
        if (values.empty() && one.otherwise) values = {one.otherwise()};
        if (values.empty() || (one.given.empty() && values.front().empty())) continue;
        std::string const key = one.name.substr(2);
        bool const readable =
            std::all_of(values.begin(), values.end(), [](std::string const& v) { return valid_prefix(v) == v.size(); });
        if (!readable) {
            text += "# " + key + " has bytes that are no UTF-8; give it again\n";
            continue;
        }
        std::string shown;
        for (auto const& value : values) shown += (shown.empty() ? "" : ", ") + toml_value(one, value);
        if (takes_several(one)) shown = "[" + shown + "]";
        text += key + " = " + shown + "  # " + (one.origin.empty() ? "default" : one.origin) + "\n";
    }
    return text;
}

}  // namespace calm::apps
