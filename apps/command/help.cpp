#include "command/help.hpp"

#include <algorithm>
#include <utility>

namespace calm::apps {

namespace {

constexpr std::size_t help_columns = 80;
constexpr std::size_t column_of_help = 28;  // of an option, on its line if the name ends before it

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
void put_words(std::string& text, std::size_t used, std::string_view words, std::size_t indent) {
    bool is_first = true;
    while (!words.empty()) {
        auto const end = std::min(words.find(' '), words.size());
        auto const word = words.substr(0, end);
        words.remove_prefix(std::min(end + 1, words.size()));
        if (word.empty()) continue;
        if (!is_first && used + 1 + word.size() > help_columns) {
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

std::string row_of(declared_option const& option) {
    auto text = left_of(option);
    if (text.size() + 2 > column_of_help)
        (text += '\n').append(column_of_help, ' ');
    else
        text.resize(column_of_help, ' ');
    char const* const note = option.need == needed::yes ? " (needed)"
                             : option.may_be_variable   ? ""
                                                        : " (command line only)";
    put_words(text, column_of_help, option.help + note, column_of_help);
    return text;
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t more) {
    std::string all;
    while (!text.empty()) {
        auto const end = std::min(text.find('\n'), text.size());
        auto const line = text.substr(0, end);
        auto const indent = std::min(line.find_first_not_of(' '), line.size());
        all.append(indent, ' ');
        put_words(all, indent, line.substr(indent), indent + more);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return all;
}

std::string option_list(std::span<declared_option const> options, help_of which) {
    std::string text;
    for (auto const& [under, title] : titles) {
        std::string rows;
        for (auto const& one : options)
            if (one.under == under && (which == help_of::all_options || !one.is_seldom)) rows += row_of(one);
        if (!rows.empty()) text += std::string("\n") + title + ":\n" + rows;
    }
    return text;
}

}  // namespace calm::apps
