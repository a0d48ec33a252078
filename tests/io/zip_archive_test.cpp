#include "calm/io/detail/zip_archive.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include "calm/base/random.hpp"
#include "support/archives.hpp"
#include "support/sentences.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr char const* local = "PK\x03\x04";
constexpr char const* central = "PK\x01\x02";
constexpr char const* end_of = "PK\x05\x06";

std::string complaint(std::string const& file) {
    try {
        detail::zip_archive const archive(std::as_bytes(std::span(file)), "some.zip");
        archive.check_contents();
    } catch (error const& thrown) {
        BOOST_TEST((thrown.code() == errc::model_file));
        return thrown.what();
    }
    return "read";
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_checksum_matches_zip) {
    auto const crc = [](std::string const& text) { return detail::crc32_of(std::as_bytes(std::span(text))); };
    BOOST_TEST(crc("") == 0U);
    BOOST_TEST(crc("123456789") == 0xCBF43926U);
    BOOST_TEST(crc("The quick brown fox jumps over the lazy dog") == 0x414FA339U);
}

BOOST_AUTO_TEST_CASE(entries_are_found_in_narrow_and_wide_archives) {
    std::vector<zip_part> const parts{{"a/one", "1"}, {"a/empty", ""}, {"a/three", "333"}};
    for (bool const wide : {false, true}) {
        auto const file = zip_of(parts, wide);
        detail::zip_archive const archive(std::as_bytes(std::span(file)), "some.zip");
        archive.check_contents();
        BOOST_TEST(archive.entries().size() == 3U);
        for (auto const& part : parts) {
            auto const* const entry = archive.find(part.name);
            BOOST_REQUIRE((entry != nullptr));
            BOOST_TEST(std::string(reinterpret_cast<char const*>(entry->bytes.data()), entry->bytes.size()) ==
                       part.content);
        }
        BOOST_TEST((archive.find("a") == nullptr));
    }
    // With a comment, and with sizes after the content (data descriptor).
    auto const plain = zip_of({{"x", "abc"}});
    auto const at = record(plain, end_of);
    BOOST_TEST(complaint(patched(plain, at + 20, little(5, 2)) + "hello") == "read");
    auto later = plain;
    for (auto const place : {record(plain, local) + 6, record(plain, central) + 8})
        later = patched(later, place, "\x08");
    later = patched(later, record(plain, local) + 14, std::string(12, '\0'));
    auto const end_of_content = record(plain, central);
    later.insert(end_of_content, std::string(16, '\0'));
    later = patched(later, record(later, end_of) + 16, little(end_of_content + 16, 4));
    BOOST_TEST(complaint(later) == "read");
}

BOOST_AUTO_TEST_CASE(every_inconsistent_archive_has_its_own_error) {
    struct bad {
        std::string file;
        std::string says;
    };
    auto const good = zip_of({{"a/one", "11111111"}, {"a/two", "22222222"}});
    auto const wide = zip_of({{"a/one", "11111111"}, {"a/two", "22222222"}}, true);
    auto const first = record(good, central);
    auto const second = record(good, central, 1);
    auto const end = record(good, end_of);
    auto const local_second = record(good, local, 1);
    auto const with = [&](std::size_t at, std::string_view bytes) { return patched(good, at, bytes); };
    auto const locator = record(wide, "PK\x06\x07");
    auto const wide_end = record(wide, "PK\x06\x06");
    auto const wide_extra = record(wide, central) + 46 + 5;
    std::string const no_end = "expected the end record of a zip archive, found none";
    std::vector<bad> const files{
        {"", "byte 0: " + no_end},
        {"PK", no_end},
        {good.substr(0, good.size() - 1), no_end},
        {good + "x", no_end},
        {with(end + 4, "\x01"), "expected disk 0, found 1"},
        {with(end + 6, "\x01"), "expected disk of the directory 0, found 1"},
        {with(end + 8, "\x01"), "expected entries on this disk 2, found 1"},
        {patched(with(end + 8, "\x01"), end + 10, "\x01"), "expected the central directory to end at byte"},
        {patched(with(end + 8, "\x03"), end + 10, "\x03"), "expected the signature of an entry, 33639248, found"},
        {with(end + 12, "\x01"), "expected the central directory to end here, found an offset of"},
        {with(end + 16, "\x01"), "expected the central directory to end here, found an offset of 1 and"},
        {with(end + 16, "\xff\xff\xff\xff"),
         "expected the central directory to end here, found an offset of 4294967295"},
        {with(first, "XX"), "expected the signature of an entry, 33639248, found"},
        {with(first + 8, "\x01"), "entry 'a/one': expected an entry that is not encrypted, found one that is"},
        {with(first + 8, "\x40"), "entry 'a/one': expected flags among 0x0808, found 64"},
        {with(first + 10, "\x08"), "entry 'a/one': expected a stored entry (method 0), found compression method 8"},
        {with(first + 16, "\x77"), "expected the checksum of its local header to be"},
        {patched(with(first + 16, "abcd"), 14, "abcd"), "entry 'a/one': expected contents of CRC-32 1684234849, found"},
        {with(40, "x"), "entry 'a/one': expected contents of CRC-32"},
        {with(first + 20, "\x07"), "expected equal sizes of a stored entry, found 7 for 8 bytes"},
        {with(first + 24, "\x09"), "expected equal sizes of a stored entry, found 8 for 9 bytes"},
        {patched(with(first + 20, "\x09"), first + 24, "\x09"), "expected the stored size of its local header to be 9"},
        {patched(with(first + 20, "\xff\xff\xff\x7f"), first + 24, "\xff\xff\xff\x7f"),
         "expected the stored size of its local header"},
        {patched(with(first + 20, "\xff\xff\xff\xff"), first + 24, "\xff\xff\xff\xff"),
         "entry 'a/one': expected a zip64 field with its sizes, found none"},
        {with(first + 28, "\xff\xff"), "expected a name of 65535 bytes, found"},
        {with(first + 30, "\x04"), "expected an extra field of"},
        {with(first + 34, "\x01"), "entry 'a/one': expected disk 0, found 1"},
        {with(first + 42, "\x01"), "entry 'a/one': expected the signature of a local header, 67324752, found"},
        {with(first + 42, "\xff\xff\xff\x7f"),
         "expected a local header before the central directory, found byte 2147483647"},
        {with(second + 42, std::string(4, '\0')), "entry 'a/two': expected the checksum of its local header to be"},
        {zip_of({{"a/one", "1"}, {"a/one", "1"}}), "expected every entry once, found it twice"},
        {with(second + 46, "a/one"), "expected the same name in its local header, found 'a/two'"},
        {patched(with(second + 46, "a/one"), local_second + 30, "a/one"), "entry 'a/one': expected every entry once"},
        {with(6, "\x08"), "entry 'a/one': expected the flags of its local header to be 0, found 8"},
        {with(8, "\x08"), "entry 'a/one': expected the method of its local header to be 0, found 8"},
        {with(22, "\x07"), "expected the size of its local header to be 8, found 7"},
        {with(26, "\x04"), "expected the same name in its local header, found 'a/on'"},
        {with(28, "\x08"), "expected entries that do not overlap, found it inside the one before"},
        {with(28, "\xff\x7f"), "expected extra fields of 32767 bytes, found"},
        {patched(wide, wide_end + 4, "\x2d"), "expected a zip64 end record of size 44, found 45"},
        {patched(wide, wide_end + 24, "\x03"), "expected entries on this disk 2, found 3"},
        {patched(wide, wide_end + 40, std::string(8, '\xff')), "expected the central directory to end here"},
        {patched(wide, wide_end + 48, std::string(8, '\xff')), "expected the central directory to end here"},
        {patched(wide, locator + 8, std::string(8, '\xff')), "the zip64 end record lies past the end"},
        {patched(wide, locator + 16, "\x02"), "expected disks 1, found 2"},
        {patched(patched(wide, locator + 28, "\x01"), locator + 30, "\x01"),
         "expected the end record to agree with its zip64 form, found other numbers"},
        {patched(wide, wide_extra, "\x02"), "entry 'a/one': expected a zip64 field with its sizes, found none"},
        {patched(wide, wide_extra + 2, "\x10"), "extra field"},
        {patched(wide, wide_extra + 4, std::string(16, '\xff')), "bytes of content before the central directory"},
        // Two overlapping entries, unassigned bytes, and bytes before the first entry.
        {[&] {
             auto file = zip_of({{"a", "12345678901234567890123456789012345678901234567890"}, {"b", "x"}});
             auto const inner = zip_of({{"b", "x"}}).substr(0, 32);
             auto const at = record(file, central, 1);
             file = patched(file, 35, inner);
             return patched(file, at + 42, little(35, 4));
         }(),
         "expected entries that do not overlap, found it inside the one before"},
        {[&] {
             auto file = good;
             file.insert(first, "some more bytes than any sizes take");
             return patched(file, end + 35 + 16, little(first + 35, 4));
         }(),
         "found 35 bytes that belong to no entry"},
    };
    for (auto const& one : files) {
        auto const said = complaint(one.file);
        BOOST_TEST(has(said, one.says), "expected '" << one.says << "', found '" << said << "'");
        BOOST_TEST(said.starts_with("some.zip, "), said);
        BOOST_TEST(has(said, "byte "), said);
    }
}

BOOST_AUTO_TEST_CASE(every_cut_and_flipped_byte_is_an_error_or_an_archive) {
    auto const whole = zip_of({{"a/one", "11111111"}, {"a/two", "22222222"}}, true);
    for (std::size_t cut = 0; cut < whole.size(); ++cut) BOOST_TEST(complaint(whole.substr(0, cut)) != "read");
    random_sequence random(key{.seed = 7});
    for (int i = 0; i < 20000; ++i) {
        auto broken = whole;
        for (std::uint32_t n = random.below(3) + 1; n-- > 0;)
            broken[random.below(static_cast<std::uint32_t>(whole.size()))] = static_cast<char>(random.below(256));
        static_cast<void>(complaint(broken));
    }
}
