#include "calm/io/detail/pytorch_file.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "calm/base/random.hpp"
#include "support/archives.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::test;
using namespace calm::test::pickled;

namespace {

std::string floats(std::vector<float> const& values) {
    std::string bytes(values.size() * 4, '\0');
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}
std::string const six = floats({1, 2, 3, 4, 5, 6});

std::string file_with(made_tensor const& t, std::vector<std::string> const& storages = {six}) {
    return zip_of(torch_parts(dictionary(text("x") + t.made()), storages));
}

std::string complaint(std::string const& path) {
    try {
        static_cast<void>(detail::pytorch_file::open(path));
    } catch (error const& thrown) {
        BOOST_TEST((thrown.code() == errc::model_file));
        return thrown.what();
    }
    return "opened";
}

}  // namespace

BOOST_AUTO_TEST_CASE(tensors_are_windows_on_storages) {
    temporary_folder const folder;
    auto const pickle = dictionary(text("all") + made_tensor{}.made() + "q\x01" + text("tied") + "h\x01" +
                                   text("tail") + made_tensor{"FloatStorage", "0", 6, 4, {2}, {1}}.made() +
                                   text("row") + made_tensor{"FloatStorage", "0", 6, 3, {1, 3}, {77, 1}}.made() +
                                   text("none") + made_tensor{"HalfStorage", "1", 0, 0, {0, 3}, {3, 1}}.made() +
                                   text("scalar") + made_tensor{"LongStorage", "2", 1, 0, {}, {}}.made());
    for (bool const wide : {false, true}) {
        auto const file =
            detail::pytorch_file::open(folder.with("f", zip_of(torch_parts(pickle, {six, "", little(41, 8)}), wide)));
        BOOST_TEST(file.tensors().size() == 6U);
        std::vector<float> values(6);
        file.read_into(file.at("all"), std::span(values));
        BOOST_TEST((values == std::vector<float>{1, 2, 3, 4, 5, 6}));
        BOOST_TEST((file.at("tied").bytes.data() == file.at("all").bytes.data()));
        std::vector<float> tail(2);
        file.read_into(file.at("tail"), std::span(tail));
        BOOST_TEST(tail[0] == 5.0F);
        BOOST_TEST(file.at("row").count() == 3U);
        BOOST_TEST(file.at("none").count() == 0U);
        BOOST_TEST((file.at("none").type == stored_type::f16));
        BOOST_TEST(file.integers(file.at("scalar"))[0] == 41);
    }
}

BOOST_AUTO_TEST_CASE(every_archive_that_is_not_of_torch_save_is_refused) {
    struct bad {
        std::string file;
        std::string says;
    };
    std::int64_t const huge = std::int64_t{1} << 62;
    auto const parts = torch_parts(dictionary(text("x") + made_tensor{}.made()), {six});
    auto const without = [&](std::size_t i) {
        auto fewer = parts;
        fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
        return zip_of(fewer);
    };
    auto const changed = [&](std::size_t i, std::string const& content) {
        auto other = parts;
        other[i].content = content;
        return zip_of(other);
    };
    auto const more = [&](std::string const& name, std::string const& content) {
        auto all = parts;
        all.push_back({name, content});
        return zip_of(all);
    };
    std::vector<bad> const files{
        {"", "byte 0: expected the end record of a zip archive, found none"},
        {"\x80\x02\x8a\x0al\xfc\x9c"
         "F",
         "byte 0: expected a zip archive, found a bare pickle from torch.save before"},
        {"{}", "expected the end record of a zip archive, found none"},
        {zip_of({}), "expected an entry 'NAME/data.pkl', found none among the 0 of the archive"},
        {zip_of({{"data.pkl", "x"}}), "expected an entry 'NAME/data.pkl', found none among the 1"},
        {zip_of({{"a/b/data.pkl", "x"}}), "expected an entry 'NAME/data.pkl', found none among the 1"},
        {without(0), "expected an entry 'NAME/data.pkl', found none among the 3"},
        {without(2), "tensor 'x': expected its storage in an entry 'archive/data/0', found none"},
        {without(3), "expected an entry 'archive/version', found none"},
        {changed(1, "big"), "entry 'archive/byteorder': expected 'little', found 'big'"},
        {changed(3, "4\n"), "entry 'archive/version': expected version 3, found '4\\n'"},
        // NOLINTNEXTLINE(bugprone-string-literal-with-embedded-nul)
        {changed(0, "\x80\x02"
                    "cos\nsystem\n(X\x02\0\0\0lstR."),
         "found GLOBAL 'os system', which is refused"},
        {changed(0, "\x80\x02"
                    "0."),
         "entry 'archive/data.pkl', byte 2: expected an opcode of dictionaries of tensors"},
        {changed(2, six.substr(1)),
         "expected a storage of 6 elements of F32, found 23 bytes in entry 'archive/data/0'"},
        {changed(2, six + "1234"), "expected a storage of 6 elements of F32, found 28 bytes"},
        {changed(2, ""), "expected a storage of 6 elements of F32, found 0 bytes"},
        {more("archive/data/1", "abcd"), "entry 'archive/data/1': expected only the storages of its tensors, found"},
        {more("archive/code/model.py", "import os"), "entry 'archive/code/model.py': expected only the storages"},
        {more("archive/constants.pkl", "x"), "entry 'archive/constants.pkl': expected only the storages"},
        {more("other/data.pkl", "x"), "entry 'other/data.pkl': expected only the storages"},
        {more("../../evil", "x"), "entry '../../evil': expected only the storages"},
        {[] {
             auto const file = file_with({});
             return patched(file, file.find(six) + 3, "\x01");
         }(),
         "entry 'archive/data/0': expected contents of CRC-32"},
        {file_with({.key = "../../../etc/passwd"}), "in an entry 'archive/data/../../../etc/passwd', found none"},
        {file_with({.key = ""}), "expected its storage in an entry 'archive/data/', found none"},
        {file_with({.elements = 7}), "expected a storage of 7 elements of F32, found 24 bytes"},
        {file_with({.elements = huge}), "expected a storage of 4611686018427387904 elements of F32, found 24 bytes"},
        {file_with({.type = "DoubleStorage"}), "expected a storage of 6 elements of F64, found 24 bytes"},
        {file_with({.offset = 1}),
         "expected a window inside the 6 elements of its storage, found 6 elements from 1 on"},
        {file_with({.offset = huge}), "found 6 elements from 4611686018427387904 on"},
        {file_with({.offset = std::numeric_limits<std::int64_t>::max()}), "from 9223372036854775807 on"},
        {file_with({.shape = {3, 3}, .strides = {3, 1}}),
         "expected a window inside the 6 elements of its storage, found 9"},
        {file_with({.shape = {huge}, .strides = {1}}), "expected a shape whose size in bytes fits 64 bits, found ["},
        {file_with({.shape = {huge, huge}, .strides = {huge, 1}}), "expected a shape whose size in bytes fits 64 bits"},
        {file_with({.shape = {huge >> 4}, .strides = {1}}), "expected a window inside the 6 elements"},
        {file_with({.strides = {1, 2}}), "expected row-major strides for shape [2, 3], found [1, 2]"},
        {file_with({.strides = {0, 0}}), "expected row-major strides for shape [2, 3], found [0, 0]"},
        {file_with({.strides = {3, 0}}), "], found [3, 0]; save it with .contiguous()"},
        {file_with({.strides = {huge, 1}}), "], found [4611686018427387904, 1]"},
    };
    BOOST_TEST(files.size() >= 35U);
    temporary_folder const folder;
    for (auto const& one : files) {
        auto const said = complaint(folder.with("pytorch_model.bin", one.file));
        BOOST_TEST(has(said, one.says), "expected '" << one.says << "', found '" << said << "'");
        BOOST_TEST(said.starts_with(folder.path("pytorch_model.bin")), said);
        BOOST_TEST(has(said, "expected "), said);
        BOOST_TEST(has(said, "found "), said);
    }
    BOOST_TEST(has(complaint(folder.path("absent")), "No such file"));
}

BOOST_AUTO_TEST_CASE(every_cut_and_flipped_byte_is_an_error_or_a_whole_file) {
    temporary_folder const folder;
    auto const whole = file_with({});
    for (std::size_t cut = 0; cut < whole.size(); ++cut)
        BOOST_TEST(complaint(folder.with("cut", whole.substr(0, cut))) != "opened");
    random_sequence random(key{.seed = 9});
    for (int i = 0; i < 2000; ++i) {
        auto broken = whole;
        for (std::uint32_t n = random.below(3) + 1; n-- > 0;)
            broken[random.below(static_cast<std::uint32_t>(whole.size()))] = static_cast<char>(random.below(256));
        static_cast<void>(complaint(folder.with("broken", broken)));
    }
}
