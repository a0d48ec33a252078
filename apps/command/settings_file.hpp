#pragma once
// Files of options, TOML or JSON: keys are long options without their dashes, at the top or in the table of a command.

#include <string>
#include <vector>

namespace calm::apps {

// One key and what it is set to, as a command line would have it.
struct file_setting {
    std::string table;  // empty at the top
    std::string key;
    std::vector<std::string> values;
    std::string place;  // "run.toml, line 3"
};

struct settings_file {
    std::vector<file_setting> settings;
    std::vector<std::string> problems;  // what cannot be read, a sentence each
};

// Reads a file of at most 1 MB: JSON where its name ends in .json, else TOML. Whatever is wrong is in `problems`.
settings_file read_settings_file(std::string const& path);
// The same of its text; the path is what places call it.
settings_file parse_settings(std::string const& text, std::string const& path);

// The values of a text like ["a", 2]: what an option that takes several is given by one variable. Any other text is
// one value. Throws errc::usage for a list that is none.
std::vector<std::string> listed_values(std::string const& text);

// The text in quotes, as TOML has it, without a character that a terminal obeys. It must be UTF-8.
std::string toml_string(std::string const& text);

}  // namespace calm::apps
