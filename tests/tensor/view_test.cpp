#include "calm/tensor/core/view.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

using matrix = view<float, extents<dyn, 3>>;

BOOST_AUTO_TEST_CASE(a_view_is_a_pointer_and_dynamic_sizes) {
    static_assert(std::is_trivially_copyable_v<matrix>);
    static_assert(sizeof(view<float, extents<2, 3>>) == sizeof(float*));
    static_assert(sizeof(matrix) == sizeof(float*) + sizeof(index_t));
    constexpr matrix nothing;
    static_assert(nothing.data() == nullptr && nothing.size() == 0);
    float memory[6] = {0, 1, 2, 3, 4, 5};
    matrix const x(memory, extents<dyn, 3>(2));
    BOOST_TEST(x.size() == 6);
    BOOST_TEST(x.extent(0) == 2);
    BOOST_TEST(x.extent(1) == 3);
    x[5] = 7;  // a constant view of mutable elements
    BOOST_TEST(memory[5] == 7.0F);
    float total = 0;
    for (float const v : x) total += v;
    BOOST_TEST(total == 17.0F);
}

BOOST_AUTO_TEST_CASE(constness_and_static_sizes_convert_one_way) {
    static_assert(std::is_convertible_v<matrix, view<float const, extents<dyn, 3>>>);
    static_assert(std::is_convertible_v<matrix, view<float const, extents<dyn, dyn>>>);
    static_assert(!std::is_convertible_v<view<float const, extents<dyn, 3>>, matrix>);
    static_assert(!std::is_constructible_v<matrix, view<float, extents<dyn, dyn>>>);
    static_assert(!std::is_convertible_v<matrix, view<double, extents<dyn, 3>>>);
    static_assert(!std::is_constructible_v<view<float, extents<dyn, 3>, blocks>, matrix>);  // another backend
    float memory[6] = {};
    matrix const x(memory, extents<dyn, 3>(2));
    view<float const, extents<dyn, dyn>> const y = x;
    BOOST_CHECK(y.data() == x.data() && y.extents() == x.extents());
}

BOOST_AUTO_TEST_CASE(reshaping_there_and_back_is_the_same_view) {
    float memory[12] = {};
    view<float, extents<dyn, 4>> const x(memory, extents<dyn, 4>(3));
    auto const y = reshape(x, extents<2, dyn>(6));
    auto const z = reshape(y, extents<dyn, 4>(3));
    BOOST_CHECK(y.data() == x.data() && y.extent(1) == 6);
    BOOST_CHECK(z.data() == x.data() && z.extents() == x.extents());
    BOOST_CHECK_EXCEPTION(reshape(x, extents<5>()), error, says(errc::usage, "(3, 4) has 12", "(5) has 5"));
}

BOOST_AUTO_TEST_CASE(rows_of_the_leading_dimension) {
    float memory[24] = {};
    view<float, extents<4, dyn, 3>> const x(memory, extents<4, dyn, 3>(2));
    auto const middle = rows(x, 1, 2);
    static_assert(std::is_same_v<decltype(middle), view<float, extents<dyn, dyn, 3>> const>);
    BOOST_TEST(middle.data() == memory + 6);
    BOOST_TEST(to_string(middle.extents()) == "(2, 2, 3)");
    BOOST_TEST(rows(x, 4, 0).size() == 0);
    matrix const none(memory, extents<dyn, 3>(0));
    BOOST_TEST(rows(none, 0, 0).size() == 0);
    for (auto const& [first, count] : {std::pair(3, 2), std::pair(-1, 2), std::pair(0, -1), std::pair(5, 0)})
        BOOST_CHECK_EXCEPTION(rows(x, first, count), error, says(errc::usage, "calm::rows", "(4, 2, 3)"));
}

BOOST_AUTO_TEST_CASE(sizes_whose_product_comes_round_are_refused) {
    float memory[4] = {};
    constexpr index_t most = std::numeric_limits<index_t>::max();
    view<float, extents<dyn>> const x(memory, extents<dyn>(4));
    view<float, extents<dyn>> const none(memory, extents<dyn>(0));
    extents<dyn, dyn> const huge(index_t{1} << 32, index_t{1} << 32);  // 0 elements in 64 bits
    BOOST_CHECK_EXCEPTION(reshape(none, huge), error, says(errc::usage, "can be counted", "(4294967296, 4294967296)"));
    BOOST_CHECK_EXCEPTION(rows(x, 1, most), error, says(errc::usage, "calm::rows", "from row 1"));
    BOOST_CHECK_EXCEPTION(rows(x, most, 1), error, says(errc::usage, "calm::rows", "1 rows"));
}
