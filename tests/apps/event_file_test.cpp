#include <boost/test/unit_test.hpp>

#include "run/event_file.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "support/sentences.hpp"
#include "support/standard_error.hpp"
#include "support/temporary_folder.hpp"

using namespace calm::apps;
using calm::test::has;
using calm::test::temporary_folder;

namespace {

template <class Integer> Integer taken(std::string_view& bytes) {
    Integer value = 0;
    for (std::size_t i = 0; i < sizeof value; ++i)
        value |= static_cast<Integer>(static_cast<Integer>(static_cast<std::uint8_t>(bytes.at(i))) << (8 * i));
    bytes.remove_prefix(sizeof value);
    return value;
}

std::string_view taken_bytes(std::string_view& bytes, std::size_t size) {
    if (size > bytes.size()) throw std::runtime_error("the record ends early");
    auto const part = bytes.substr(0, size);
    bytes.remove_prefix(size);
    return part;
}

std::uint64_t taken_varint(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        auto const byte = taken<std::uint8_t>(bytes);
        value |= std::uint64_t{byte & 0x7fU} << shift;
        if (byte < 0x80) return value;
    }
}

struct event {
    double wall_time = 0;
    std::int64_t step = 0;
    std::string version;
    std::map<std::string, float> scalars;
};

// Calls f(field, rest) after the tag of each field of a message; f takes the value off the rest.
template <class F> void each_field(std::string_view message, F const& f) {
    while (!message.empty()) {
        auto const tag = taken_varint(message);
        f(std::pair(tag >> 3, tag & 7), message);
    }
}

using field = std::pair<std::uint64_t, std::uint64_t>;  // number and wire type

event event_of(std::string_view record) {
    event e;
    each_field(record, [&](field const& f, std::string_view& rest) {
        if (f == field(1, 1)) {
            e.wall_time = std::bit_cast<double>(taken<std::uint64_t>(rest));
        } else if (f == field(2, 0)) {
            e.step = static_cast<std::int64_t>(taken_varint(rest));
        } else if (f == field(3, 2)) {
            e.version = taken_bytes(rest, taken_varint(rest));
        } else if (f == field(5, 2)) {
            each_field(taken_bytes(rest, taken_varint(rest)), [&](field const& value, std::string_view& values) {
                BOOST_TEST_REQUIRE((value == field(1, 2)));
                std::string tag;
                each_field(taken_bytes(values, taken_varint(values)), [&](field const& part, std::string_view& parts) {
                    if (part == field(1, 2)) {
                        tag = taken_bytes(parts, taken_varint(parts));
                    } else {
                        BOOST_TEST_REQUIRE((part == field(2, 5)));
                        e.scalars[tag] = std::bit_cast<float>(taken<std::uint32_t>(parts));
                    }
                });
            });
        } else {
            throw std::runtime_error("an unknown field");
        }
    });
    return e;
}

std::vector<event> events_of(std::string_view file) {
    std::vector<event> all;
    while (!file.empty()) {
        auto const begin = file;
        auto const length = taken<std::uint64_t>(file);
        BOOST_TEST(taken<std::uint32_t>(file) == masked_crc32c_of(begin.substr(0, 8)));
        auto const record = taken_bytes(file, length);
        BOOST_TEST(taken<std::uint32_t>(file) == masked_crc32c_of(record));
        all.push_back(event_of(record));
    }
    return all;
}

constexpr char const* events_file = "events.out.tfevents.0.calm";

}  // namespace

// The check value of the CRC catalogue, and RFC 3720 (B.4).
BOOST_AUTO_TEST_CASE(the_crc_is_castagnolis) {
    BOOST_TEST(crc32c_of("123456789") == 0xe3069283U);
    BOOST_TEST(crc32c_of(std::string(32, '\0')) == 0x8a9136aaU);
    BOOST_TEST(crc32c_of(std::string(32, '\xff')) == 0x62a8ab43U);
}

// As the RecordWriter of TensorBoard 2.21 writes these events.
BOOST_AUTO_TEST_CASE(records_have_the_bytes_of_tensorboards) {
    auto const hex = [](std::string_view bytes) {
        std::string text;
        for (char const c : bytes) calm::append_hex(text, static_cast<std::uint8_t>(c), 2);
        return text;
    };
    BOOST_TEST(hex(tf_record(version_event(1.5))) ==
               "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
    std::vector<std::pair<std::string, float>> const loss{{"train/loss", 3.25F}};
    BOOST_TEST(hex(tf_record(scalars_event(1.5, 300, loss))) ==
               "2100000000000000017becf609000000000000f83f10ac022a130a110a0a747261696e2f6c6f73731500005040478c3bd4");
}

BOOST_AUTO_TEST_CASE(scalars_come_back) {
    std::vector<std::pair<std::string, float>> const scalars{{"train/loss", 3.25F}, {"", -0.0F}};
    for (std::int64_t const step : {std::int64_t{0}, std::int64_t{127}, std::int64_t{128}, std::int64_t{1} << 40}) {
        auto const e = event_of(scalars_event(1.5, step, scalars));
        BOOST_TEST(e.step == step);
        BOOST_TEST(e.wall_time == 1.5);
        BOOST_TEST((e.scalars == std::map<std::string, float>(scalars.begin(), scalars.end())));
    }
}

BOOST_AUTO_TEST_CASE(the_numbers_of_a_run_become_events) {
    temporary_folder const folder;
    static_cast<void>(
        folder.with("run.json", R"({"calls": [{"date": "1970-01-02T00:00:10Z", "command": ["train"]}]})"));
    static_cast<void>(folder.with("metrics.jsonl",
                                  "{\"step\":10,\"seconds\":1.5,\"loss\":5.5,\"kl\":null,\"skipped\":0}\n"
                                  "{\"step\":11,\"skipped\":1,\"why\":\"not finite\"}\n"
                                  "{\"step\":10,\"brier\":[0.25,0.125],\"brier_lm\":4,\"huge\":1e300}\n"
                                  "no JSON\n{\"loss\":1}\n{\"step\":20,\"lo"));
    auto const said = write_events(folder.path(""));
    BOOST_TEST(has(said, "wrote " + folder.path(events_file)), said);
    BOOST_TEST(has(said, "tensorboard --logdir " + folder.path("")), said);
    auto const events = events_of(folder.content(events_file));
    BOOST_TEST_REQUIRE(events.size() == 4U);
    BOOST_TEST(events[0].version == "brain.Event:2");
    using scalars = std::map<std::string, float>;
    BOOST_TEST(events[1].step == 10);
    BOOST_TEST(events[1].wall_time == 86411.5);
    BOOST_TEST((events[1].scalars == scalars{{"train/seconds", 1.5F}, {"train/loss", 5.5F}, {"train/skipped", 0}}));
    BOOST_TEST((events[2].scalars == scalars{{"train/skipped", 1}}));
    BOOST_TEST(events[3].step == 10);
    BOOST_TEST(events[3].wall_time == 86411.5);
    BOOST_TEST((events[3].scalars ==
                scalars{{"heldout/brier_1", 0.25F}, {"heldout/brier_2", 0.125F}, {"heldout/brier_lm", 4}}));
}

BOOST_AUTO_TEST_CASE(a_directory_without_numbers_is_refused) {
    temporary_folder const folder;
    auto const written = [&] { static_cast<void>(write_events(folder.path(""))); };
    BOOST_TEST(has(calm::test::sentence_of(calm::errc::storage, written), "is this the directory of a run?"));
    static_cast<void>(folder.with("metrics.jsonl", "{\"step\":1,\"loss\":null}\n[]\n"));
    auto const reported = calm::test::standard_error_of([&] {
        BOOST_TEST(has(calm::test::sentence_of(calm::errc::data, written), "expected lines of steps with a number"));
    });
    BOOST_TEST(has(reported, "run.json: the times of events begin in 1970"), reported);
    BOOST_TEST(!std::filesystem::exists(folder.path(events_file)));
}
