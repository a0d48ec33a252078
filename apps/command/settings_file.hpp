#pragma once
// Files of options in TOML or JSON. Keys are long options without dashes, at the top level or in the table of a
// command.

#include <string>
#include <vector>

namespace calm::apps {

// A key and its values, as a command line would give them.
struct file_setting {
    std::string table;  // empty at the top level
    std::string key;
    std::vector<std::string> values;
    std::string place;  // "run.toml, line 3"
};

struct settings_file {
    std::vector<file_setting> settings;
    std::vector<std::string> problems;  // one sentence each
};

// Reads a file of at most 1 MB: JSON if its name ends in .json, else TOML. All errors are in `problems`.
settings_file read_settings_file(std::string const& path);
// Parses the content of such a file; `path` is the name that messages use.
settings_file parse_settings(std::string const& text, std::string const& path);

// Splits a list like ["a", 2], which gives an option several values in one environment variable. Any other text is one
// value. Throws errc::usage for a malformed list.
std::vector<std::string> listed_values(std::string const& text);

// The text as a quoted TOML string with control characters escaped. The text must be UTF-8.
std::string toml_string(std::string const& text);

}  // namespace calm::apps
