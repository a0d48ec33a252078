#pragma once
// The text of --help and --help-all.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "command/command.hpp"

namespace calm::apps {

// A text in lines of at most 80 columns. Words longer than that stay whole. Lines keep their indentation, and what
// continues one is indented by `more` columns more.
std::string wrapped(std::string_view text, std::size_t more = 0);

// Which options a help has.
enum class help_of { common_options, all_options };

// The options below their headings: a name with the type of its value, and wrapped next to it what it is for.
std::string option_list(std::span<declared_option const> options, help_of which);

}  // namespace calm::apps
