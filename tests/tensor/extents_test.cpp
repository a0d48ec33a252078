#include "calm/tensor/core/extents.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

BOOST_AUTO_TEST_CASE(only_dynamic_sizes_are_stored) {
    static_assert(std::is_trivially_copyable_v<extents<dyn, dyn, 768>>);
    static_assert(sizeof(extents<dyn, dyn, 768>) == 2 * sizeof(index_t));
    static_assert(sizeof(extents<3, 4>) == 1);
    static_assert(std::is_empty_v<extents<3, 4>>);
    static_assert(extents<dyn, 4, dyn>::rank == 3 && extents<dyn, 4, dyn>::rank_dynamic == 2);
    static_assert(extents<dyn, 4>::static_extent(0) == dyn && extents<dyn, 4>::static_extent(1) == 4);
}

BOOST_AUTO_TEST_CASE(sizes_in_order) {
    constexpr extents<dyn, 4, dyn, 2> e(3, 5);
    static_assert(e[0] == 3 && e[1] == 4 && e[2] == 5 && e[3] == 2 && e.size() == 120);
    static_assert(extents<>().size() == 1);
    static_assert(extents<dyn>().size() == 0);
    static_assert(extents<dyn, 7>(0).size() == 0);
    BOOST_TEST(to_string(e) == "(3, 4, 5, 2)");
    BOOST_TEST(to_string(extents<>()) == "()");
    BOOST_TEST(to_string(extents<0>()) == "(0)");
}

BOOST_AUTO_TEST_CASE(equal_where_all_sizes_are) {
    constexpr extents<dyn, 4> e(3);
    static_assert(e == extents<3, 4>() && extents<3, 4>() == e && e == extents<dyn, dyn>(3, 4));
    static_assert(e != extents<dyn, dyn>(4, 3) && !(e == extents<3>()) && e != extents<dyn, 4>(2));
}

BOOST_AUTO_TEST_CASE(static_sizes_are_forgotten_implicitly_and_recovered_by_a_cast) {
    using any = extents<dyn, dyn>;
    static_assert(std::is_convertible_v<extents<3, 4>, any>);
    static_assert(std::is_convertible_v<extents<dyn, 4>, any>);
    static_assert(!std::is_convertible_v<any, extents<dyn, 4>>);
    static_assert(!std::is_constructible_v<extents<dyn, 4>, any>);
    static_assert(!std::is_convertible_v<extents<dyn, 5>, extents<dyn, 4>>);
    static_assert(!std::is_convertible_v<extents<4>, any>);
    static_assert(!std::is_convertible_v<index_t, extents<dyn>>);  // a number is not a shape
    constexpr any e = extents<3, 4>();
    static_assert(e[0] == 3 && e[1] == 4);
    static_assert(extents_cast<extents<dyn, 4>>(e)[0] == 3);
    static_assert(extents_cast<extents<3, 4>>(e).size() == 12);
    BOOST_CHECK_EXCEPTION((extents_cast<extents<dyn, 5>>(e)), error,
                          says(errc::usage, "calm::extents_cast", "expected size 5 at position 1", "(3, 4)"));
}

BOOST_AUTO_TEST_CASE(rows_replace_only_the_leading_size) {
    constexpr auto e = detail::with_rows(extents<3, dyn, 5>(4), 7);
    static_assert(std::is_same_v<decltype(e), extents<dyn, dyn, 5> const>);
    static_assert(e[0] == 7 && e[1] == 4 && e[2] == 5);
}

BOOST_AUTO_TEST_CASE(sizes_that_overflow_are_reported) {
    constexpr index_t most = std::numeric_limits<index_t>::max();
    static_assert(detail::bytes_of_sizes({}, 4) == 4U);
    constexpr std::array<index_t, 3> many{1 << 20, 1 << 20, 1 << 19};
    static_assert(detail::bytes_of_sizes(many, 1) == std::size_t{1} << 59);
    static_assert(!detail::bytes_of_sizes(many, 16));
    for (auto const& shape : {extents<dyn, dyn>(most, 2), extents<dyn, dyn>(most / 2 + 1, 1), extents<dyn, dyn>(-1, 1),
                              extents<dyn, dyn>(index_t{1} << 32, index_t{1} << 32)})
        BOOST_CHECK_EXCEPTION(checked_size(shape), error, says(errc::usage, "can be counted", to_string(shape)));
    BOOST_TEST(checked_size(extents<dyn, 3>(5)) == 15);
    BOOST_TEST(checked_size(extents<dyn, dyn>(0, most)) == 0);
    BOOST_TEST(detail::checked_count("things", {3, 5}, 8) == 15);
    BOOST_TEST(detail::checked_count("things", {}) == 1);
    // Sizes that fit 64 bits but no memory; a product that wraps to 0.
    BOOST_CHECK_EXCEPTION(detail::checked_count("things", {most, 1}), error,
                          says(errc::memory, "as many things", "x 1"));
    BOOST_CHECK_EXCEPTION(detail::checked_count("things", {index_t{1} << 61}, 8), error,
                          says(errc::memory, "as many things"));
    BOOST_CHECK_EXCEPTION(detail::checked_count("things", {index_t{1} << 32, index_t{1} << 32}), error,
                          says(errc::memory, "4294967296 x 4294967296"));
    BOOST_CHECK_EXCEPTION(detail::checked_count("things", {-3}), error, says(errc::memory, "found -3"));
}
