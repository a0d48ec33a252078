#include "run/event_file.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <nlohmann/json.hpp>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/detail/shell_word.hpp"
#include "calm/base/error.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "program.hpp"
#include "run/report.hpp"
#include "run/run_record.hpp"
#include "strict_json.hpp"

namespace calm::apps {

namespace {

constexpr std::array<std::uint32_t, 256> make_crc32c_table() {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        table[i] = i;
        for (int bit = 0; bit < 8; ++bit) table[i] = (table[i] >> 1) ^ ((table[i] & 1U) != 0 ? 0x82f63b78U : 0U);
    }
    return table;
}

template <class Integer> std::string little_endian_bytes(Integer value) {
    std::string bytes;
    for (std::size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xffU);
    return bytes;
}

// A field of a protocol buffer is a tag of number and wire type, and the value.
std::string varint(std::uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7fU) | 0x80U);
    return bytes + static_cast<char>(value);
}
std::string field_tag(unsigned number, unsigned wire_type) {
    return varint((number << 3) | wire_type);
}
std::string integer_field(unsigned number, std::int64_t value) {
    return field_tag(number, 0) + varint(static_cast<std::uint64_t>(value));
}
std::string double_field(unsigned number, double value) {
    return field_tag(number, 1) + little_endian_bytes(std::bit_cast<std::uint64_t>(value));
}
std::string bytes_field(unsigned number, std::string_view value) {
    return field_tag(number, 2) + varint(value.size()) + std::string(value);
}
std::string float_field(unsigned number, float value) {
    return field_tag(number, 5) + little_endian_bytes(std::bit_cast<std::uint32_t>(value));
}

// The date of the first call in run.json, in seconds since 1970.
double date_of_first_call(std::string const& directory) {
    auto const path = in_directory(directory, run_file);
    std::string why = "it has no date of a call";
    try {
        auto const all = strict_json(mapped_file::open(path).text());
        auto const place = nlohmann::json::json_pointer("/calls/0/date");
        std::tm parts{};
        if (all.contains(place) && all[place].is_string() &&
            ::strptime(all[place].get<std::string>().c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts) != nullptr)
            return static_cast<double>(::timegm(&parts));
    } catch (error const& wrong) {
        why = wrong.what();
    }
    log_line(path + ": the times of events begin in 1970: " + why);
    return 0;
}

using named_scalars = std::vector<std::pair<std::string, float>>;

void add_scalar(named_scalars& to, std::string tag, nlohmann::json const& value) {
    if (!value.is_number()) return;
    if (auto const number = value.get<float>(); std::isfinite(number)) to.emplace_back(std::move(tag), number);
}

named_scalars scalars_of(nlohmann::json const& line) {
    std::string const group = line.contains("loss") || line.contains("skipped") ? "train/" : "heldout/";
    named_scalars scalars;
    for (auto const& [key, value] : line.items()) {
        if (key == "step") continue;
        add_scalar(scalars, group + key, value);
        if (!value.is_array()) continue;
        for (std::size_t i = 0; i < value.size(); ++i)
            add_scalar(scalars, group + key + "_" + std::to_string(i + 1), value[i]);
    }
    return scalars;
}

}  // namespace

std::uint32_t crc32c_of(std::string_view bytes) {
    static constexpr auto table = make_crc32c_table();
    std::uint32_t crc = ~0U;
    for (char const c : bytes) crc = table[(crc ^ static_cast<std::uint8_t>(c)) & 0xffU] ^ (crc >> 8);
    return ~crc;
}

std::uint32_t masked_crc32c_of(std::string_view bytes) {
    return std::rotr(crc32c_of(bytes), 15) + 0xa282ead8U;
}

std::string tf_record(std::string_view bytes) {
    auto const length = little_endian_bytes(std::uint64_t{bytes.size()});
    return length + little_endian_bytes(masked_crc32c_of(length)) + std::string(bytes) +
           little_endian_bytes(masked_crc32c_of(bytes));
}

// Fields of Event: wall_time = 1, step = 2, file_version = 3, summary = 5. Of Summary: value = 1. Of Summary.Value:
// tag = 1, simple_value = 2.
std::string version_event(double wall_time) {
    return double_field(1, wall_time) + bytes_field(3, "brain.Event:2");
}

std::string scalars_event(double wall_time, std::int64_t step, std::span<std::pair<std::string, float> const> scalars) {
    std::string summary;
    for (auto const& [tag, value] : scalars) summary += bytes_field(1, bytes_field(1, tag) + float_field(2, value));
    return double_field(1, wall_time) + integer_field(2, step) + bytes_field(5, summary);
}

std::string write_events(std::string const& directory) {
    auto const metrics = in_directory(directory, metrics_file);
    if (!calm::is_there(metrics))
        throw error(errc::storage, metrics, "", "cannot be read, there is none: is this the directory of a run?");
    double const begin = date_of_first_call(directory);
    auto const path = in_directory(directory, "events.out.tfevents.0.calm");
    replaced_file file(path);
    file.write(tf_record(version_event(begin)));
    double seconds = 0;  // an evaluation has none and follows its step
    bool any_number = false;
    each_json_line(metrics, [&](std::string_view, nlohmann::json const& line) {
        auto const step = line.find("step");
        if (step == line.end() || !step->is_number_integer()) return;
        if (auto const at = line.find("seconds"); at != line.end() && at->is_number()) seconds = at->get<double>();
        auto const scalars = scalars_of(line);
        if (scalars.empty()) return;
        any_number = true;
        file.write(tf_record(scalars_event(begin + seconds, step->get<std::int64_t>(), scalars)));
    });
    if (!any_number) throw error(errc::data, metrics, "", "expected lines of steps with a number, found none");
    file.commit();
    return "wrote " + path + "; to show it: tensorboard --logdir " + shell_word(directory);
}

}  // namespace calm::apps
