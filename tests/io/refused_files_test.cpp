// Files whose headers promise large contents: no reader allocates memory based on these sizes alone.

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include "calm/io/detail/config_json.hpp"
#include "calm/io/detail/pytorch_file.hpp"
#include "calm/io/detail/shard_index.hpp"
#include "calm/io/safetensors.hpp"
#include "support/archives.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

namespace {

std::size_t largest = 0;
std::size_t total_asked = 0;

}  // namespace

// All other forms of new end here, except array new under the sanitizers, which is not counted.
[[gnu::noinline]] void* operator new(std::size_t size, std::nothrow_t const&) noexcept {
    largest = std::max(largest, size);
    total_asked += size;
    return std::malloc(std::max<std::size_t>(size, 1));
}
[[gnu::noinline]] void* operator new(std::size_t size) {
    if (void* const at = operator new(size, std::nothrow)) return at;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* at) noexcept {
    std::free(at);
}
[[gnu::noinline]] void operator delete(void* at, std::size_t) noexcept {
    std::free(at);
}

using namespace calm;
using namespace calm::test;

namespace {

// Whether a call refuses a file; checks that no single allocation exceeds `most` bytes.
template <class Call> bool refuses_within(std::size_t most, Call const& call) {
    largest = 0;
    bool refused = false;
    try {
        call();
    } catch (error const& thrown) {
        refused = thrown.code() == errc::model_file;
    }
    BOOST_TEST(largest <= most);
    return refused;
}

std::string header_of(std::string const& header, std::uint64_t length) {
    return little(length, 8) + header;
}

}  // namespace

BOOST_AUTO_TEST_CASE(sizes_in_headers_allocate_nothing) {
    temporary_folder const folder;
    constexpr std::size_t little_memory = 64 << 10;
    std::string const giant =
        R"({"x":{"dtype":"F32","shape":[4000000000,1000000],"data_offsets":[0,16000000000000000]}})";
    std::string const many =
        R"({"x":{"dtype":"U8","shape":[1152921504606846976],"data_offsets":[0,1152921504606846976]}})";
    for (auto const& content : {header_of("{}", 9'999'999), header_of("{", ~0ULL), header_of(giant, giant.size()),
                                header_of(many, many.size()), header_of(giant, giant.size()) + "data"}) {
        auto const path = folder.with("f", content);
        BOOST_TEST(refuses_within(little_memory, [&] { static_cast<void>(safetensors_file::open(path)); }));
    }
    using pickled::made_tensor;
    std::int64_t const huge = std::int64_t{1} << 60;
    for (auto const& t :
         {made_tensor{.elements = huge}, made_tensor{.shape = {huge}, .strides = {1}}, made_tensor{.offset = huge},
          made_tensor{.shape = {huge, 8}, .strides = {8, 1}}, made_tensor{.key = std::string(60'000, '9')}}) {
        auto const parts = torch_parts(pickled::dictionary(pickled::text("x") + t.made()), {std::string(24, '\0')});
        auto const path = folder.with("f", zip_of(parts));
        BOOST_TEST(refuses_within(4 * little_memory, [&] { static_cast<void>(detail::pytorch_file::open(path)); }));
    }
    // Counts and sizes in the archive's own records.
    auto const zip = zip_of(torch_parts("x", {}), true);
    auto const wide_end = record(zip, "PK\x06\x06");
    for (std::size_t const at : {wide_end + 4, wide_end + 24, wide_end + 32, wide_end + 40, wide_end + 48}) {
        auto const path = folder.with("f", patched(zip, at, std::string(8, '\x7f')));
        BOOST_TEST(refuses_within(little_memory, [&] { static_cast<void>(detail::pytorch_file::open(path)); }));
    }
    for (auto const* const text :
         {"{\"metadata\":{\"total_size\":1e15},\"weight_map\":{}}", "[[[[", "{\"weight_map\":"})
        BOOST_TEST(refuses_within(little_memory, [&] { static_cast<void>(detail::parse_shard_index(text, "f")); }));
    for (auto const* const text :
         {R"({"architectures":["EnergyTransformer"],"vocab_size":2147483647})", "{\"a\":", "]"})
        BOOST_TEST(refuses_within(little_memory, [&] { static_cast<void>(parse_config_json(text, "f")); }));
}

BOOST_AUTO_TEST_CASE(json_larger_than_its_kind_can_need_is_not_read) {
    temporary_folder const folder;
    auto const refuses = [&](std::size_t most, auto const& read) {
        auto const path = folder.with("f", "{\"a\":");
        std::filesystem::resize_file(path, 200'000'000);  // a sparse file
        total_asked = 0;
        auto const said = sentence_of<error>([&] { read(path); });
        BOOST_TEST(total_asked <= std::size_t{64} << 10);
        BOOST_TEST(has(said, "at most " + std::to_string(most) + " bytes, found 200000000"), said);
    };
    refuses(json_limit::config, [](auto const& path) { static_cast<void>(read_config_json(path)); });
    refuses(json_limit::index, [](auto const& path) {
        static_cast<void>(detail::parse_shard_index(mapped_file::open(path).text(), path));
    });
}

BOOST_AUTO_TEST_CASE(json_takes_a_multiple_of_its_size) {
    constexpr std::size_t size = 900'000;
    auto const all = [](std::string const& begin, auto const& each, std::string const& end) {
        auto text = begin;
        for (std::size_t i = 0; text.size() < size; ++i) text += each(i);
        return text + end;
    };
    std::vector<std::string> const worst{
        all(
            "{\"a\":[[]", [](std::size_t) { return ",[]"; }, "]}"),
        all(
            "{\"a\":[0", [](std::size_t) { return ",0"; }, "]}"),
        all(
            "{\"a\":0", [](std::size_t i) { return ",\"" + std::to_string(i) + "\":0"; }, "}"),
        all(
            "{\"__metadata__\":{\"a\":\"\"", [](std::size_t i) { return ",\"" + std::to_string(i) + "\":\"\""; }, "}}"),
        all(
            "{\"weight_map\":{\"a\":\"b\"", [](std::size_t i) { return ",\"" + std::to_string(i) + "\":\"b\""; }, "}}"),
        all(
            "{\"a\":\"", [](std::size_t) { return "\\u0001"; }, "\"}")};
    temporary_folder const folder;
    for (auto const& json : worst) {
        auto const path = folder.with("f", header_of(json, json.size()));
        auto const within = [&](auto const& read) {
            total_asked = 0;
            static_cast<void>(sentence_of<error>(read));
            BOOST_TEST(total_asked <= 40 * json.size(), total_asked << " bytes for " << json.substr(0, 30));
        };
        within([&] { static_cast<void>(safetensors_file::open(path)); });
        within([&] { static_cast<void>(detail::parse_shard_index(json, "f")); });
        within([&] { static_cast<void>(parse_config_json(json, "f")); });
    }
}

BOOST_AUTO_TEST_CASE(repeated_pickle_objects_take_little_memory) {
    // One byte per instruction: the number of objects is limited, however long the file is.
    for (char const opcode : {'}', ']', 'N', ')', '('}) {
        std::string const pickle = "\x80\x04" + std::string(7 << 20, opcode) + ".";
        BOOST_TEST(refuses_within(
            64 << 20, [&] { static_cast<void>(detail::read_pickled_tensors(std::as_bytes(std::span(pickle)), "f")); }));
    }
    std::string again = "\x80\x04}q";
    again += '\0';
    for (int i = 0; i < 3'000'000; ++i) (again += 'h') += '\0';
    BOOST_TEST(refuses_within(
        64 << 20, [&] { static_cast<void>(detail::read_pickled_tensors(std::as_bytes(std::span(again)), "f")); }));
    std::string remembered = "\x80\x04}" + std::string(7 << 20, '\x94') + ".";
    BOOST_TEST(refuses_within(
        64 << 20, [&] { static_cast<void>(detail::read_pickled_tensors(std::as_bytes(std::span(remembered)), "f")); }));
}

BOOST_AUTO_TEST_CASE(a_long_key_of_a_storage_is_not_copied_for_every_tensor) {
    using namespace pickled;
    // One storage with a key of 4 MiB, then tensors of five bytes each that reuse the function and its arguments.
    made_tensor const t{.key = std::string(std::size_t{4} << 20, '9')};
    std::string const arguments = "(" + t.id() + integer(0) + tuple({2, 3}) + tuple({3, 1}) + "\x89" + ordered + "t";
    std::string pickle =
        "\x80\x02" + global("torch._utils", "_rebuild_tensor_v2") + "q" + little(0, 1) + arguments + "q" + little(1, 1);
    for (int i = 0; i < 1000; ++i) pickle += "h" + little(0, 1) + "h" + little(1, 1) + "R";
    total_asked = 0;
    BOOST_TEST(refuses_within(
        1 << 20, [&] { static_cast<void>(detail::read_pickled_tensors(std::as_bytes(std::span(pickle)), "f")); }));
    BOOST_TEST(total_asked <= std::size_t{1} << 20);
}
