#include "calm/io/detail/bounded_reader.hpp"

#include <boost/test/unit_test.hpp>

#include <cstring>
#include <limits>
#include <string>

namespace {

std::span<std::byte const> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

auto says(std::string const& fragment) {
    return [fragment](calm::error const& thrown) {
        BOOST_TEST_INFO(thrown.what());
        bool const said = std::string(thrown.what()).find(fragment) != std::string::npos;
        BOOST_CHECK(said);
        return said;
    };
}

}  // namespace

BOOST_AUTO_TEST_CASE(sums_and_products_that_do_not_fit_are_nothing) {
    constexpr auto most = std::numeric_limits<std::uint64_t>::max();
    static_assert(calm::detail::checked_add(most - 1, 1) == most);
    static_assert(!calm::detail::checked_add(most, 1));
    static_assert(calm::detail::checked_multiply(0, most) == 0U);
    static_assert(calm::detail::checked_multiply(most, 0) == 0U);
    static_assert(calm::detail::checked_multiply(most, 1) == most);
    static_assert(calm::detail::checked_multiply(1ULL << 32, (1ULL << 32) - 1) == ((1ULL << 32) - 1) << 32);
    static_assert(!calm::detail::checked_multiply(1ULL << 32, 1ULL << 32));
    static_assert(!calm::detail::checked_multiply(most, 2));
    BOOST_TEST(true);
}

BOOST_AUTO_TEST_CASE(reads_in_order_low_byte_first) {
    calm::detail::bounded_reader reader(bytes_of({"\x01\x02\x03\x04\xff\xee"
                                                  "abc",
                                                  9}),
                                        "file");
    BOOST_TEST(reader.size() == 9U);
    BOOST_TEST(reader.little<std::uint32_t>("a number") == 0x04030201U);
    BOOST_TEST(reader.position() == 4U);
    BOOST_TEST(int{reader.little<std::uint8_t>("a byte")} == 0xff);
    BOOST_TEST(int{reader.little<std::uint8_t>("a byte")} == 0xee);
    BOOST_TEST(reader.text(3, "a name") == "abc");
    BOOST_TEST(reader.remaining() == 0U);
    BOOST_TEST(reader.take(0, "nothing").empty());
    reader.seek(9, "the end");
    reader.seek(1, "a place");
    BOOST_TEST(reader.little<std::uint16_t>("a number") == 0x0302);
}

BOOST_AUTO_TEST_CASE(the_end_of_a_file_is_an_error) {
    calm::detail::bounded_reader reader(bytes_of("abcd"), "some/file", calm::errc::data);
    reader.seek(3, "a place");
    BOOST_CHECK_EXCEPTION(
        reader.little<std::uint64_t>("a length"), calm::error,
        says("some/file, byte 3: expected a length of 8 bytes, found 1 byte up to the end of the file"));
    BOOST_CHECK_EXCEPTION(reader.take(2, "a name"), calm::error, says("expected a name of 2 bytes, found 1 byte"));
    BOOST_CHECK_EXCEPTION(reader.take(std::numeric_limits<std::uint64_t>::max(), "a name"), calm::error,
                          says("expected a name of 18446744073709551615 bytes"));
    BOOST_CHECK_EXCEPTION(reader.seek(5, "the index"), calm::error,
                          says("byte 5: the index lies past the end of 4 bytes"));
    BOOST_TEST(reader.position() == 3U);
    try {
        reader.fail("wrong");
    } catch (calm::error const& thrown) {
        BOOST_TEST((thrown.code() == calm::errc::data));
        BOOST_TEST(thrown.path() == "some/file");
        BOOST_TEST(thrown.place() == "byte 3");
    }
}
