#pragma once
// The text of --help and --help-all.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "command/command.hpp"

namespace calm::apps {

// Columns of help on a terminal with neither COLUMNS nor a width.
inline constexpr std::size_t usual_columns = 80;

// Columns for help on standard output: COLUMNS, else those of the terminal, else the usual ones. At most 100, because
// longer lines are hard to read.
std::size_t columns_of_help();

// A text in lines of at most so many columns. Longer words stay whole. Lines keep their indentation, and what continues
// one is indented by `more` columns more.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t more = 0);

// `left`, and wrapped from `column` on what it is: next to it if it ends before and enough columns are left, else
// below.
std::string two_columns(std::string left, std::string_view what, std::size_t column, std::size_t columns);

// Which options a help has.
enum class help_of { common_options, all_options };

// The options below their headings: a name with the type of its value, and what it is for.
std::string option_list(std::span<declared_option const> options, help_of which, std::size_t columns);

}  // namespace calm::apps
