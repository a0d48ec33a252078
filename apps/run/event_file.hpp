#pragma once
// Metrics as an event file of TensorBoard: records of TFRecord that hold protocol buffers of TensorFlow's event.proto
// and summary.proto.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace calm::apps {

// The CRC-32C (Castagnoli) of RFC 3720.
std::uint32_t crc32c_of(std::string_view bytes);

// The CRC as TFRecord stores it.
std::uint32_t masked_crc32c_of(std::string_view bytes);

// A record: its length, the length's masked CRC, the bytes, their masked CRC. All numbers are little endian.
std::string tf_record(std::string_view bytes);

// The first event of a file, which has the version of the format. `wall_time` is in seconds since 1970.
std::string version_event(double wall_time);

// An event with scalars, each a tag and a value.
std::string scalars_event(double wall_time, std::int64_t step, std::span<std::pair<std::string, float> const> scalars);

// Writes <directory>/events.out.tfevents.0.calm with every number of metrics.jsonl: a step's key loss as train/loss, an
// evaluation's key brier_lm as heldout/brier_lm, and elements of a list as heldout/brier_1, heldout/brier_2, .... The
// wall time is the date of the first call in run.json plus the seconds of training; without such a date it is the
// seconds alone, which is reported. Ignores incomplete lines and numbers that a finite float cannot hold. The same
// metrics give the same bytes. Returns a sentence with the path and how to show the file. Throws errc::data if there is
// no number, and errc::storage if a file cannot be read or written.
std::string write_events(std::string const& directory);

}  // namespace calm::apps
