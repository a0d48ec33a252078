#include "calm/text/detail/byte_stream.hpp"

#include <boost/test/unit_test.hpp>

#include <sys/stat.h>

#include "calm/base/random.hpp"
#include "compressed.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

namespace {

using calm::byte_stream;
using calm::test::gzip;
using calm::test::has;
using calm::test::sentence_of;
using calm::test::zstd;

// Text that compresses poorly.
std::string some_text(std::size_t size) {
    calm::random_sequence random({.seed = size});
    std::string text(size, '\0');
    for (char& c : text) c = static_cast<char>('a' + random.below(16));
    return text;
}

std::string all_of(byte_stream& bytes) {
    std::string all;
    for (auto part = bytes.next(); !part.empty(); part = bytes.next()) all += part;
    return all;
}

struct files {
    calm::test::temporary_folder folder;

    std::string read(std::string const& name, std::string const& content) const {
        byte_stream bytes(folder.with(name, content));
        auto all = all_of(bytes);
        BOOST_TEST(bytes.offset() == content.size());
        BOOST_TEST(bytes.next().empty());
        return all;
    }
    std::string complaint(std::string const& name, std::string const& content) const {
        byte_stream bytes(folder.with(name, content));
        auto said = sentence_of<calm::error>([&] { (void)all_of(bytes); });
        BOOST_TEST(bytes.next().empty());  // it stays at its end
        return said;
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE(any_size_is_read_whole) {
    files const f;
    for (std::size_t const size : {0U, 1U, 3U, 131071U, 131072U, 131073U, 262144U, 700'001U}) {
        auto const text = some_text(size);
        BOOST_TEST((f.read("a.txt", text) == text), size);
        BOOST_TEST((f.read("a.txt.gz", gzip(text)) == text), size);
        BOOST_TEST((f.read("a.txt.zst", zstd(text)) == text), size);
    }
}

BOOST_AUTO_TEST_CASE(members_and_frames_follow_one_another) {
    files const f;
    auto const one = some_text(200'000), two = some_text(131'072);
    BOOST_TEST((f.read("a.gz", gzip(one) + gzip("") + gzip(two) + gzip("end")) == one + two + "end"));
    BOOST_TEST((f.read("a.zst", zstd(one) + zstd("") + zstd(two) + zstd("end")) == one + two + "end"));
    std::string const skippable("\x50\x2a\x4d\x18\x03\0\0\0abc", 11);
    BOOST_TEST((f.read("b.zst", skippable + zstd(one) + skippable) == one));
}

BOOST_AUTO_TEST_CASE(truncated_streams_are_refused_at_any_length) {
    files const f;
    auto const text = some_text(3000);
    for (auto const& [name, whole] : {std::pair<std::string, std::string>{"a.gz", gzip(text)}, {"a.zst", zstd(text)}})
        for (std::size_t size = 1; size < whole.size(); size += size < 40 || size + 40 > whole.size() ? 1 : 97)
            BOOST_TEST(has(f.complaint(name, whole.substr(0, size)),
                           name + ", byte " + std::to_string(size) + ": the compressed file ends early"));
    BOOST_TEST(has(f.complaint("two.gz", gzip(text) + gzip(text).substr(0, 5)), "ends early"));
    BOOST_TEST(has(f.complaint("two.zst", zstd(text) + zstd(text).substr(0, 5)), "ends early"));
}

BOOST_AUTO_TEST_CASE(damaged_streams_are_refused) {
    files const f;
    auto const text = some_text(3000);
    auto const damaged = [](std::string bytes, std::size_t at) {
        bytes[at] = static_cast<char>(bytes[at] ^ 0x55);
        return bytes;
    };
    for (auto const& [name, whole] : {std::pair<std::string, std::string>{"a.gz", gzip(text)}, {"a.zst", zstd(text)}}) {
        auto const kind = "invalid " + std::string(name == "a.gz" ? "gzip" : "zstd") + " data";
        for (std::size_t const at : {std::size_t{0}, whole.size() / 2, whole.size() - 1})
            if (auto const said = f.complaint(name, damaged(whole, at)); !has(said, "ends early"))
                BOOST_TEST(has(said, kind), said);
        BOOST_TEST(has(f.complaint(name, "{\"text\": \"not compressed\"}\n"), kind));
        BOOST_TEST(has(f.complaint(name, whole + "what follows"), kind));
    }
}

BOOST_AUTO_TEST_CASE(unbounded_decompression_is_refused) {
    files const f;
    std::string const zeros(200'000'000, '\0');
    BOOST_TEST(has(f.complaint("bomb.zst", zstd(zeros)), "grows more than 1000 times"));
    BOOST_TEST(has(f.complaint("bomb.gz", gzip(std::string(90'000'000, ' ')).substr(0, 1000)), "ends early"));
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_read_is_of_storage) {
    calm::test::temporary_folder const folder;
    for (auto const& path : {folder.path("none.txt"), folder.path("")}) {
        try {
            byte_stream bytes(path);
            (void)bytes.next();
            BOOST_TEST(false, path);
        } catch (calm::error const& wrong) {
            BOOST_TEST((wrong.code() == calm::errc::storage));
            BOOST_TEST(wrong.path() == path);
        }
    }
}

BOOST_AUTO_TEST_CASE(files_that_may_never_end_are_refused) {
    calm::test::temporary_folder const folder;
    BOOST_REQUIRE(::mkfifo(folder.path("a.txt").c_str(), 0600) == 0);  // without a writer
    auto const pipe =
        calm::test::sentence_of<calm::error>([&] { calm::byte_stream const bytes(folder.path("a.txt")); });
    BOOST_TEST(pipe.ends_with("a.txt: expected a file, found a pipe"), pipe);
    auto const device = calm::test::sentence_of<calm::error>([&] { calm::byte_stream const bytes("/dev/zero"); });
    BOOST_TEST(device == "/dev/zero: expected a file, found a device");
}
