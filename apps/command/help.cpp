#include "command/help.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "command/number_within.hpp"

namespace calm::apps {

namespace {

constexpr std::size_t least_columns = 20, most_columns = 100;
constexpr std::size_t column_of_help = 28;      // of an option
constexpr std::size_t column_below = 6;         // of a text below what it describes
constexpr std::size_t least_next_to_name = 28;  // columns of a text next to what it describes

constexpr std::pair<heading, char const*> titles[] = {{heading::common, "Common options"},
                                                      {heading::data, "Data"},
                                                      {heading::model, "Model"},
                                                      {heading::optimizer, "Optimizer"},
                                                      {heading::checkpoints, "Checkpoints"},
                                                      {heading::evaluation, "Evaluation"},
                                                      {heading::sampling, "Sampling"},
                                                      {heading::devices, "Devices"},
                                                      {heading::advanced, "Advanced"}};

// Adds words to a text whose last line has `used` columns. Lines that continue it are indented.
void put_words(std::string& text, std::size_t used, std::string_view words, std::size_t indent, std::size_t columns) {
    bool is_first = true;
    while (!words.empty()) {
        auto const end = std::min(words.find(' '), words.size());
        auto const word = words.substr(0, end);
        words.remove_prefix(std::min(end + 1, words.size()));
        if (word.empty()) continue;
        if (!is_first && used + 1 + word.size() > columns) {
            (text += '\n').append(indent, ' ');
            used = indent;
        } else if (!is_first) {
            text += ' ';
            ++used;
        }
        text += word;
        used += word.size();
        is_first = false;
    }
    text += '\n';
}

std::string left_of(declared_option const& option) {
    using count = declared_option::value_count;
    return (option.name == "--help" ? "  -h, " : "  ") + option.name + (option.type.empty() ? "" : " " + option.type) +
           (option.count == count::several ? " ..." : "");
}

std::string row_of(declared_option const& option, std::size_t columns) {
    std::string const note = option.need == needed::yes
                                 ? option.instead.empty() ? " (needed)" : " (needed without " + option.instead + ")"
                             : option.may_be_variable ? ""
                                                      : " (command line only)";
    return two_columns(left_of(option), option.help + note, column_of_help, columns);
}

}  // namespace

std::string two_columns(std::string left, std::string_view what, std::size_t column, std::size_t columns) {
    if (columns < column + least_next_to_name) column = column_below;
    if (left.size() + 2 > column)
        (left += '\n').append(column, ' ');
    else
        left.resize(column, ' ');
    put_words(left, column, what, column, columns);
    return left;
}

std::size_t columns_of_help() {
    auto const limited = [](std::size_t columns) { return std::clamp(columns, least_columns, most_columns); };
    auto const* const given = std::getenv("COLUMNS");
    constexpr std::size_t widest = 1'000'000;
    if (auto const columns = number_within<std::size_t>(given == nullptr ? "" : given, 1, widest))
        return limited(*columns);
    struct winsize size {};
    bool const known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? limited(size.ws_col) : usual_columns;
}

std::string wrapped(std::string_view text, std::size_t columns, std::size_t more) {
    std::string all;
    while (!text.empty()) {
        auto const end = std::min(text.find('\n'), text.size());
        auto const line = text.substr(0, end);
        auto const indent = std::min(line.find_first_not_of(' '), line.size());
        all.append(indent, ' ');
        put_words(all, indent, line.substr(indent), indent + more, columns);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return all;
}

std::string option_list(std::span<declared_option const> options, help_of which, std::size_t columns) {
    std::string text;
    for (auto const& [under, title] : titles) {
        std::string rows;
        for (auto const& one : options)
            if (one.under == under && (which == help_of::all_options || !one.is_seldom)) rows += row_of(one, columns);
        if (!rows.empty()) text += std::string("\n") + title + ":\n" + rows;
    }
    return text;
}

}  // namespace calm::apps
