#pragma once
// Files by which the directory of a run explains itself: how it came about, and what it wrote as it learned.

#include <string>
#include <vector>

#include "calm/runs/metrics_log.hpp"
#include "calm/runs/recipe_record.hpp"
#include "calm/tensor/extents.hpp"
#include "command/options.hpp"

namespace calm::apps {

inline constexpr char const* run_file = "run.json";
inline constexpr char const* options_toml = "options.toml";
inline constexpr char const* samples_file = "samples.jsonl";

// The version of the library, with the state of its sources where a build knew it: "0.1.0 (6ccf3cb)".
std::string version_text();

// The same text of options.toml with these values where it has the defaults of their options: what a run keeps as it
// was begun does not follow from the options of a later call.
std::string with_defaults(std::string const& options, recipe_record const& values);

// What files record of a list that may be long, as that of a pattern that a shell expands: all of it, or of more than
// 100,000 bytes the first ones, the number of all and a SHA-256 of all. So every file can be read again.
std::vector<std::string> recorded(std::vector<std::string> const& words);

// Writes options.toml, and adds this call to the calls of run.json: its time (UTC), command line and version, and the
// step it begins after. Of options that are too long to be read again there is no file, and of the calls the newest
// remain; both are said. Throws errc::storage.
void write_record(std::string const& directory, run_record const& record, index_t step);

// samples.jsonl: what the model writes at a step, a line each.
class samples_log {
public:
    // Goes on with the file after a step: what was written later is left out. Throws errc::storage.
    samples_log(std::string const& directory, index_t step);
    void add(index_t step, double seconds, std::string const& prompt, std::string const& text);

private:
    metrics_log log_;
};

}  // namespace calm::apps
