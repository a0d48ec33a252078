#pragma once
// Files that document a run in its directory: how it was started, and texts it generated while learning.

#include <string>
#include <vector>

#include "calm/runs/metrics_log.hpp"
#include "calm/runs/recipe_record.hpp"
#include "calm/tensor/core/extents.hpp"
#include "command/options.hpp"

namespace calm::apps {

inline constexpr char const* run_file = "run.json";
inline constexpr char const* options_toml = "options.toml";
inline constexpr char const* samples_file = "samples.jsonl";

// The library's version, with the state of its sources if the build knew it: "0.1.0 (6ccf3cb)".
std::string version_text();

// The text of options.toml with its default values replaced by `values`: a resumed run keeps these from its start, so
// they do not follow from the current options.
std::string with_defaults(std::string const& options, recipe_record const& values);

// A list as recorded in files. A list over 100,000 bytes, such as an expanded shell pattern, is cut and followed by its
// length and SHA-256, so that every file stays readable.
std::vector<std::string> recorded(std::vector<std::string> const& words);

// Writes options.toml and adds this call to run.json with its time (UTC), command line, version and first step. Options
// too long to be read again are not written, and run.json drops its oldest calls if it gets too long; both are
// reported. Throws errc::storage.
void write_record(std::string const& directory, run_record const& record, index_t step);

// samples.jsonl: one generated text per line, with its step.
class samples_log {
public:
    // Appends to the file, dropping lines after a step. Throws errc::storage.
    samples_log(std::string const& directory, index_t step);
    void add(index_t step, double seconds, std::string const& prompt, std::string const& text);

private:
    metrics_log log_;
};

}  // namespace calm::apps
