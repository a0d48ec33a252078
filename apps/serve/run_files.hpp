#pragma once
// The files of a training run that the page shows while they grow.

#include <cstdint>
#include <optional>
#include <string>

namespace calm::apps {

// The name of a directory, without those it is in.
std::string name_of_directory(std::string const& directory);

// A run as it is now. Of a run of `train text` its language model, or before that is trained its autoencoder.
struct shown_run {
    std::string directory;  // of metrics.jsonl
    std::string name;
    bool finished;  // a run of `train text` is; of other runs it is not known
};
shown_run run_in(std::string const& directory);

// The whole lines of a file from a byte on, at most `most` bytes of them; empty if there are none yet.
std::string lines_from(std::string const& path, std::uint64_t from, std::size_t most);

// The number after "from=" in a query, 0 without it; nothing if it is no number.
std::optional<std::uint64_t> offset_in_query(std::string const& query);

}  // namespace calm::apps
