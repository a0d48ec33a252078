#include "calm/io/safetensors.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstring>
#include <string>

#include "calm/base/random.hpp"
#include "support/fixtures.hpp"
#include "support/temporary_folder.hpp"

using calm::safetensors_file;
using calm::stored_tensor;
using calm::stored_type;
using calm::test::temporary_folder;

namespace {

std::string prefix(std::uint64_t length) {
    std::array<char, 8> bytes{};
    std::memcpy(bytes.data(), &length, 8);
    return {bytes.data(), 8};
}

// A file with this header and `data` zero bytes.
std::string file_of(std::string const& header, std::size_t data = 0) {
    return prefix(header.size()) + header + std::string(data, '\0');
}

std::string sentence(std::string const& path) {
    try {
        (void)safetensors_file::open(path);
    } catch (calm::error const& thrown) {
        BOOST_TEST((thrown.code() == calm::errc::model_file));
        BOOST_TEST(thrown.path() == path);
        return thrown.what();
    }
    return "opened";
}

bool same(stored_tensor const& a, stored_tensor const& b) {
    return a.name == b.name && a.type == b.type && a.shape == b.shape &&
           std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end());
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_file_written_by_hand_is_read) {
    temporary_folder const folder;
    std::string const header = R"({"__metadata__":{"format":"pt","x":"ä\n"},)"
                               R"("b":{"dtype":"F32","shape":[2],"data_offsets":[2,10]},)"
                               R"("a":{"dtype":"U8","shape":[1,2],"data_offsets":[0,2]},)"
                               R"("none":{"dtype":"F64","shape":[0,7],"data_offsets":[2,2]},)"
                               R"("one":{"dtype":"I16","shape":[],"data_offsets":[10,12],"more":1}}   )";
    auto const file = safetensors_file::open(
        folder.with("f", prefix(header.size()) + header + std::string("\x07\x08\0\0\x80\x3f\0\0\0\xc0\xff\xff", 12)));
    BOOST_TEST(file.tensors().size() == 4U);
    BOOST_TEST(file.metadata().at("format") == "pt");
    BOOST_TEST(file.metadata().at("x") == "ä\n");
    std::vector<float> b(2);
    file.read_into(file.at("b"), std::span(b));  // not aligned to 4 bytes
    BOOST_TEST(b[0] == 1.0F);
    BOOST_TEST(b[1] == -2.0F);
    BOOST_TEST(file.integers(file.at("a"))[1] == 8);
    BOOST_TEST(file.at("none").count() == 0U);
    BOOST_TEST(file.integers(file.at("one"))[0] == -1);
    BOOST_TEST((file.find("c") == nullptr));
    BOOST_CHECK_EXCEPTION((void)file.at("c"), calm::error, [&](calm::error const& thrown) {
        return thrown.what() == folder.path("f") + ": expected a tensor 'c', found none among its 4";
    });
}

BOOST_AUTO_TEST_CASE(an_empty_header_is_a_file_without_tensors) {
    temporary_folder const folder;
    BOOST_TEST(safetensors_file::open(folder.with("f", file_of("{}"))).tensors().empty());
}

BOOST_AUTO_TEST_CASE(every_malformed_file_has_its_own_error) {
    struct malformed {
        std::string content;
        std::string says;
    };
    auto const tensor = [](std::string const& inside, std::size_t data = 8) {
        return file_of(R"({"x":{)" + inside + "}}", data);
    };
    auto const shape = [&](std::string const& sizes) {
        return tensor(R"("dtype":"F32","shape":)" + sizes + R"(,"data_offsets":[0,8])");
    };
    auto const offsets = [&](std::string const& pair, std::size_t data = 8) {
        return tensor(R"("dtype":"F32","shape":[2],"data_offsets":)" + pair, data);
    };
    auto const type = [&](std::string const& name) {
        return tensor(R"("dtype":)" + name + R"(,"shape":[2],"data_offsets":[0,8])");
    };
    auto const bytes = [](std::string const& name, std::size_t begin, std::size_t end) {
        return "\"" + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(end - begin) + R"(],"data_offsets":[)" +
               std::to_string(begin) + "," + std::to_string(end) + "]}";
    };
    std::string const x = R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
    std::string const json = "expected a JSON object, found none: ";
    std::string const begins = "byte 8: expected a header that begins with '{', found ";
    std::string const sizes = "tensor 'x': expected sizes that are integers of at least 0 as shape, found ";
    std::string const pairs = "tensor 'x': expected two integers of at least 0 as data_offsets, found ";
    std::string const types = "tensor 'x': expected a dtype among BOOL, U8 to U64, I8 to I64, F16, BF16, F32 and F64, ";
    std::vector<malformed> const files{
        // the prefix
        {"", "byte 0: expected the length of the header of 8 bytes, found 0 bytes up to the end of the file"},
        {"abc", "byte 0: expected the length of the header of 8 bytes, found 3 bytes up to the end of the file"},
        {prefix(~0ULL) + "{}", "byte 0: expected a header of at most 10000000 bytes, found a length of 184467"},
        {prefix(1ULL << 63) + "{}", "byte 0: expected a header of at most 10000000 bytes, found a length of 922337"},
        {prefix(10'000'001) + "{}", "byte 0: expected a header of at most 10000000 bytes, found a length of 10000001"},
        {prefix(10'000'000) + "{}", "byte 8: expected a header of 10000000 bytes, found 2 bytes"},
        {prefix(9'000'000) + "{}",
         "byte 8: expected a header of 9000000 bytes, found 2 bytes up to the end of the file"},
        {prefix(3) + "{}", "byte 8: expected a header of 3 bytes, found 2 bytes"},
        {prefix(1) + "{", json},
        {prefix(1) + "{}", json},
        // the text of the header
        {file_of(""), begins + "an empty one"},
        {file_of("  {}"), begins + "' '"},
        {file_of("\n{}"), begins + "'\\n'"},
        {file_of("[]"), begins + "'['"},
        {file_of("null"), begins + "'n'"},
        {file_of("PK\x03\x04"), begins + "'P'"},
        {file_of("{" + x + ",}", 8), json},
        {file_of("{" + x, 8), json},
        {file_of("{}{}"), json},
        {file_of("{} x"), json},
        {file_of("{'x':1}"), json},
        {file_of(std::string("{}\0", 3)), json},
        {file_of(std::string("{\"a\0\":1}", 8)), json},
        {file_of("{\"\xff\":1}"), json + "The input is not valid UTF-8"},
        {file_of("{\"\xc0\xaf\":1}"), json + "The input is not valid UTF-8"},
        {file_of("{\"\xed\xa0\x80\":1}"), json + "The input is not valid UTF-8"},
        {file_of(R"({"\ud800":1})"), json},
        {file_of("{\"x\":" + std::string(1025, '[') + std::string(1025, ']') + "}"), json},
        {file_of("{\"x\":" + std::string(100'000, '[')), json},
        // duplicates
        {file_of("{" + x + "," + x + "}", 8), "expected every tensor once, found tensor 'x' twice"},
        {file_of(R"({"\u0078":{"dtype":"U8","shape":[],"data_offsets":[8,9]},)" + x + "}", 9),
         "expected every tensor once, found tensor 'x' twice"},
        {file_of(R"({"__metadata__":{},"__metadata__":{}})"), "expected __metadata__ once, found it twice"},
        {file_of(R"({"__metadata__":{"a":"1","a":"2"}})"), "__metadata__: expected every key once, found 'a' twice"},
        {tensor(R"("dtype":"F32","dtype":"F64","shape":[2],"data_offsets":[0,8])"),
         "expected the key 'dtype' once, found it twice"},
        {tensor(R"("dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8])"),
         "expected the key 'shape' once, found it twice"},
        {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"data_offsets":[0,8])"),
         "expected the key 'data_offsets' once, found it twice"},
        // metadata and entries
        {file_of(R"({"__metadata__":[]})"), "__metadata__: expected an object of strings, found '[]'"},
        {file_of(R"({"__metadata__":"pt"})"), "__metadata__: expected an object of strings, found '\"pt\"'"},
        {file_of(R"({"__metadata__":{"a":1}})"), "__metadata__, key 'a': expected a string, found '1'"},
        {file_of(R"({"__metadata__":{"a":{"b":"c"}}})"), "key 'a': expected a string, found '{\"b\":\"c\"}'"},
        {file_of(R"({"__metadata__":{"a":null}})"), "key 'a': expected a string, found 'null'"},
        {file_of(R"({"x":7})"), "tensor 'x': expected an object with dtype, shape and data_offsets, found '7'"},
        {file_of(R"({"":[]})"), "tensor '': expected an object with dtype, shape and data_offsets, found '[]'"},
        {file_of(R"({"a\u0007b":0})"), "tensor 'a\\x07b': expected an object with"},
        {file_of("{\"" + std::string(100'000, 'n') + "\":0}"), "nnn...': expected an object with"},
        {tensor(""), "tensor 'x': expected a key 'dtype', found none"},
        {tensor(R"("shape":[2],"data_offsets":[0,8])"), "tensor 'x': expected a key 'dtype', found none"},
        {tensor(R"("dtype":"F32","data_offsets":[0,8])"), "tensor 'x': expected a key 'shape', found none"},
        {tensor(R"("dtype":"F32","shape":[2])"), "tensor 'x': expected a key 'data_offsets', found none"},
        {type("32"), "tensor 'x': expected a string as dtype, found '32'"},
        {type("null"), "tensor 'x': expected a string as dtype, found 'null'"},
        {type("\"F31\""), types + "found 'F31'"},
        {type("\"f32\""), types + "found 'f32'"},
        {type("\"\""), types + "found ''"},
        {type("\"F4\""), types + "found 'F4'"},
        {type("\"F8_E4M3\""), types + "found 'F8_E4M3'"},
        {shape("2"), "tensor 'x': expected a list of sizes as shape, found '2'"},
        {shape("{}"), "tensor 'x': expected a list of sizes as shape, found '{}'"},
        {shape("[-2]"), sizes + "'-2'"},
        {shape("[2.0]"), sizes + "'2"},
        {shape("[1e3]"), sizes + "'1"},
        {shape("[\"2\"]"), sizes + "'\"2\"'"},
        {shape("[[2]]"), sizes + "'[2]'"},
        {shape("[null]"), sizes + "'null'"},
        {shape("[18446744073709551615]"), sizes + "'184467"},
        {shape("[9223372036854775808]"), sizes + "'922337"},
        {shape("[18446744073709551618]"), json},
        {shape("[4294967296,4294967296,4]"),
         "tensor 'x': expected a shape whose size in bytes fits 64 bits, found F32 [4294967296, 4294967296, 4]"},
        {shape("[4611686018427387906]"), "expected a shape whose size in bytes fits 64 bits, found F32 [461168"},
        {shape("[" + std::string(2000, '2') + "]"), json},
        // offsets
        {offsets("8"), pairs + "'8'"},
        {offsets("[8]"), pairs + "'[8]'"},
        {offsets("[0,8,8]"), pairs + "'[0,8,8]'"},
        {offsets("[]"), pairs + "'[]'"},
        {offsets("[-8,0]"), pairs + "'[-8,0]'"},
        {offsets("[0,8.5]"), pairs + "'[0,8.5]'"},
        {offsets("[\"0\",\"8\"]"), pairs + "'[\"0\",\"8\"]'"},
        {offsets("[8,0]"), "expected data_offsets that begin before they end, found 8 and 0"},
        {offsets("[0,8]", 7), "tensor 'x': expected its end within 7 bytes of data, found it at byte 8 of them"},
        {offsets("[0,8]", 0), "tensor 'x': expected its end within 0 bytes of data, found it at byte 8 of them"},
        {offsets("[18446744073709551608,18446744073709551615]"), "found it at byte 18446744073709551615 of them"},
        {shape("[3]"), "tensor 'x': expected data_offsets of the 12 bytes of F32 [3], found 8 bytes"},
        {shape("[]"), "expected data_offsets of the 4 bytes of F32 [], found 8 bytes"},
        {shape("[0]"), "expected data_offsets of the 0 bytes of F32 [0], found 8 bytes"},
        {shape("[2,2]"), "expected data_offsets of the 16 bytes of F32 [2, 2], found 8 bytes"},
        // the data
        {file_of("{" + x + "," + bytes("y", 7, 9) + "}", 9),
         "expected tensors that do not overlap, found tensor 'y' in the one before it"},
        {file_of("{" + x + R"(,"y":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
         "expected tensors that do not overlap, found tensor"},
        {file_of("{" + bytes("y", 0, 9) + "," + bytes("z", 4, 4) + "}", 9), "found tensor 'z' in the one before it"},
        {file_of("{" + bytes("a", 0, 4) + "," + bytes("b", 2, 6) + "," + bytes("c", 4, 8) + "}", 8),
         "found tensor 'b' in the one before it"},
        {file_of("{" + x + "," + bytes("y", 9, 10) + "}", 10),
         "expected tensor 'y' here, found 1 bytes that belong to no tensor"},
        {file_of("{" + bytes("y", 1, 3) + "}", 3), "expected tensor 'y' here, found 1 bytes that belong to no tensor"},
        {file_of("{" + x + "}", 11),
         "expected the end of the file after the last tensor, found 3 bytes that belong to no tensor"},
        {file_of("{" + x + "}", 8) + "PK\x05\x06" + std::string(18, '\0'), "found 22 bytes that belong to no tensor"},
        {file_of("{}", 1), "byte 10: expected the end of the file after the last tensor, found 1 bytes"},
    };
    BOOST_TEST(files.size() >= 90U);
    temporary_folder const folder;
    for (auto const& file : files) {
        auto const said = sentence(folder.with("bad.safetensors", file.content));
        BOOST_TEST(said.find(file.says) != std::string::npos, "expected '" << file.says << "', found '" << said << "'");
        BOOST_TEST(said.starts_with(folder.path("bad.safetensors") + ", byte "), said);
        BOOST_TEST(said.find("expected ") != std::string::npos, said);
        BOOST_TEST(said.find(", found ") != std::string::npos, said);
    }
    BOOST_TEST(sentence(folder.path("absent")).find("No such file") != std::string::npos);
    BOOST_TEST(sentence(folder.path("")).find("expected a file, found a folder") != std::string::npos);
    std::filesystem::create_symlink("loop", folder.path("loop"));
    BOOST_TEST(sentence(folder.path("loop")).find("cannot be opened") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(unusual_files_that_keep_the_rules_are_read) {
    temporary_folder const folder;
    auto const open = [&](std::string const& content) { return safetensors_file::open(folder.with("f", content)); };
    auto const entry = [](std::string const& name, std::string const& shape, std::size_t begin, std::size_t end) {
        return "\"" + name + R"(":{"dtype":"U8","shape":)" + shape + R"(,"data_offsets":[)" + std::to_string(begin) +
               "," + std::to_string(end) + "]}";
    };
    BOOST_TEST(open(file_of("{}   \n")).tensors().empty());
    BOOST_TEST(open(file_of(R"({"__metadata__":{}})")).tensors().empty());
    // The header may list tensors in any order, and an empty tensor may start where another one does.
    auto const file = open(file_of(
        "{" + entry("b", "[2]", 1, 3) + "," + entry("z", "[0,7]", 1, 1) + "," + entry("a", "[]", 0, 1) + "}", 3));
    BOOST_TEST(file.at("b").bytes.data() - file.at("a").bytes.data() == 1);
    BOOST_TEST(file.at("z").count() == 0U);
    std::string ones = "[1";
    for (int i = 1; i < 1000; ++i) ones += ",1";
    BOOST_TEST(open(file_of("{" + entry("deep", ones + "]", 0, 1) + "}", 1)).at("deep").shape.size() == 1000U);
    BOOST_TEST((open(file_of("{" + entry("", "[1]", 0, 1) + "}", 1)).find("") != nullptr));
    // Names are only names: numbers in them allocate nothing, paths in them open nothing.
    auto const odd = open(file_of(
        "{" + entry("model.layers.4294967296.w", "[1]", 0, 1) + "," + entry("../../etc/passwd", "[1]", 1, 2) + "}", 2));
    BOOST_TEST(odd.tensors().size() == 2U);
    // A sparse file larger than memory: only the header is read.
    std::uint64_t const large = std::uint64_t{5} << 30;
    auto const path =
        folder.with("f", file_of("{" + entry("large", "[" + std::to_string(large) + "]", 0, large) + "}"));
    std::filesystem::resize_file(path, std::filesystem::file_size(path) + large);
    BOOST_TEST(safetensors_file::open(path).at("large").count() == large);
}

BOOST_AUTO_TEST_CASE(every_cut_and_every_flipped_byte_is_an_error_or_a_whole_file) {
    temporary_folder const folder;
    std::vector<float> const values{1, 2, 3};
    std::vector<stored_tensor> const tensors{calm::to_store("weights.x", {3}, std::span(values)),
                                             calm::to_store("y", {1, 1}, std::span(values).first(1))};
    calm::write_safetensors(folder.path("f"), tensors, {{"key", "value"}});
    auto const whole = folder.content("f");
    for (std::size_t cut = 0; cut < whole.size(); ++cut)
        BOOST_TEST(sentence(folder.with("cut", whole.substr(0, cut))) != "opened");
    calm::random_sequence random(calm::key{.seed = 5});
    for (int i = 0; i < 3000; ++i) {
        auto broken = whole;
        for (std::uint32_t n = random.below(3) + 1; n-- > 0;)
            broken[random.below(static_cast<std::uint32_t>(whole.size()))] = static_cast<char>(random.below(256));
        try {
            auto const file = safetensors_file::open(folder.with("broken", broken));
            std::size_t covered = 0;
            for (auto const& tensor : file.tensors()) covered += tensor.bytes.size();
            BOOST_TEST(covered == 16U);
        } catch (calm::error const& thrown) {
            if (thrown.code() != calm::errc::model_file) BOOST_ERROR(thrown.what());
        }
    }
}

BOOST_AUTO_TEST_CASE(written_data_is_read_back_bit_for_bit) {
    temporary_folder const folder;
    calm::random_sequence random(calm::key{.seed = 11});
    for (int round = 0; round < 50; ++round) {
        std::vector<std::vector<std::byte>> storage;
        std::vector<stored_tensor> tensors;
        std::map<std::string, std::string> metadata;
        auto const text = [&] {
            static constexpr std::array<char const*, 8> pieces{"a", "\"", "\\", "\n", "\x01", "ß", "\xf0\x9f\x8c\x8a",
                                                               "."};
            std::string made;
            for (std::uint32_t n = random.below(6); n-- > 0;) made += pieces[random.below(8)];
            return made;
        };
        for (std::uint32_t n = random.below(6); n-- > 0;) {
            stored_tensor tensor{text() + std::to_string(n), static_cast<stored_type>(random.below(13)), {}, {}};
            std::size_t bytes = calm::bytes_of(tensor.type);
            for (std::uint32_t rank = random.below(4); rank-- > 0;) {
                tensor.shape.push_back(random.below(5));
                bytes *= static_cast<std::size_t>(tensor.shape.back());
            }
            auto& values = storage.emplace_back(bytes);
            for (auto& value : values) value = static_cast<std::byte>(random.below(256));
            tensor.bytes = values;
            tensors.push_back(std::move(tensor));
            metadata[text()] = text();
        }
        calm::write_safetensors(folder.path("f"), tensors, metadata);
        auto const file = safetensors_file::open(folder.path("f"));
        BOOST_REQUIRE(file.tensors().size() == tensors.size());
        for (std::size_t i = 0; i < tensors.size(); ++i) BOOST_TEST(same(file.tensors()[i], tensors[i]));
        BOOST_TEST((file.metadata() == metadata));
        auto const bytes = folder.content("f");
        std::uint64_t length = 0;
        std::memcpy(&length, bytes.data(), 8);
        BOOST_TEST(length % 8 == 0U);
        // Writing the tensors again gives an identical file.
        calm::write_safetensors(folder.path("again"), file.tensors(), file.metadata());
        BOOST_TEST((folder.content("again") == bytes));
    }
}

BOOST_AUTO_TEST_CASE(a_failed_write_leaves_the_old_file) {
    temporary_folder const folder;
    std::vector<float> const values{1, 2};
    auto const good = calm::to_store("x", {2}, std::span(values));
    calm::write_safetensors(folder.path("f"), std::span(&good, 1));
    auto const before = folder.content("f");
    auto const refuses = [&](std::vector<stored_tensor> const& tensors,
                             std::map<std::string, std::string> const& metadata, std::string const& fragment) {
        try {
            calm::write_safetensors(folder.path("f"), tensors, metadata);
            BOOST_ERROR("nothing was thrown instead of: " << fragment);
        } catch (calm::error const& thrown) {
            BOOST_TEST((thrown.code() == calm::errc::usage));
            BOOST_TEST(std::string(thrown.what()).find(fragment) != std::string::npos, thrown.what());
        }
        BOOST_TEST((folder.content("f") == before));
        BOOST_TEST(!std::filesystem::exists(folder.path("f.partial")));
    };
    refuses({good, good}, {}, "tensor 'x': its name is taken");
    refuses({calm::to_store("__metadata__", {2}, std::span(values))}, {}, "tensor '__metadata__': its name is taken");
    refuses({calm::to_store("x", {3}, std::span(values))}, {}, "expected the bytes of F32 [3], found 8");
    refuses({calm::to_store("x", {-2, -1}, std::span(values))}, {}, "expected the bytes of F32 [-2, -1], found 8");
    refuses({calm::to_store("\xff", {2}, std::span(values))}, {}, "is not UTF-8");
    refuses({good}, {{"a", "\xc3"}}, "is not UTF-8");
}

BOOST_AUTO_TEST_CASE(files_of_the_reference_are_read_and_written_again) {
    temporary_folder const folder;
    int files = 0;
    for (auto const& found : std::filesystem::recursive_directory_iterator(calm::test::fixtures_folder())) {
        if (found.path().extension() != ".safetensors") continue;
        auto const file = safetensors_file::open(found.path().string());
        calm::write_safetensors(folder.path("again"), file.tensors(), file.metadata());
        auto const again = safetensors_file::open(folder.path("again"));
        BOOST_REQUIRE(again.tensors().size() == file.tensors().size());
        bool equal = again.metadata() == file.metadata();
        for (auto const& tensor : file.tensors()) equal = equal && same(tensor, again.at(tensor.name));
        BOOST_TEST(equal, found.path());
        ++files;
    }
    BOOST_TEST(files >= 20);
}

BOOST_AUTO_TEST_CASE(bf16_checkpoints_are_the_rounded_ones) {
    auto const folder = calm::test::fixtures_folder() / "base" / "checkpoints";
    auto const full = safetensors_file::open((folder / "calm" / "model.safetensors").string());
    auto const half = safetensors_file::open((folder / "calm_bf16" / "model.safetensors").string());
    BOOST_REQUIRE(full.tensors().size() == half.tensors().size());
    for (auto const& tensor : full.tensors()) {
        std::vector<float> a(tensor.count());
        std::vector<float> b(tensor.count());
        full.read_into(tensor, std::span(a));
        half.read_into(half.at(tensor.name), std::span(b));
        BOOST_TEST(calm::test::close_to(std::span<float const>(b), std::span<float const>(a), 0.0, 0x1p-8));
    }
}
