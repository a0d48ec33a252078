#pragma once
// Words of commands that a shell runs, or that a user copies into one.

#include <string>

namespace calm::apps {

// The word in single quotes, unless it has only letters, digits and -_./:=,+@%.
std::string shell_word(std::string const& word);

}  // namespace calm::apps
