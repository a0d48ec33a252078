#include "calm/tensor/print.hpp"

#include <boost/test/unit_test.hpp>

#include <sstream>

#include "support/sentences.hpp"

using namespace calm;
using calm::test::has;
using calm::test::usage_sentence;

namespace {

tensor<float, extents<dyn, 3>> two_rows() {
    tensor<float, extents<dyn, 3>> x(extents<dyn, 3>{2});
    for (index_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) / 2;
    return x;
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_element_is_found_by_its_indices) {
    auto x = two_rows();
    BOOST_TEST(x(1, 2) == 2.5F);
    x(0, 1) = 7;
    BOOST_TEST(x[1] == 7);
    auto const& read = x;
    static_assert(std::is_same_v<decltype(read(0, 1)), float const&>);
    BOOST_TEST(read(0, 1) == 7);
    BOOST_TEST(read.view()(1, 0) == 1.5F);
    for (index_t const outside : {-1, 3}) {
        auto const said = usage_sentence([&] { (void)x(1, outside); });
        BOOST_TEST(has(said, "below 3 in dimension 1 of (2, 3), found " + std::to_string(outside)), said);
    }
}

BOOST_AUTO_TEST_CASE(a_tensor_is_printed_row_by_row) {
    auto const x = two_rows();
    BOOST_TEST(to_string(x) == "[[0, 0.5, 1],\n [1.5, 2, 2.5]]");
    std::ostringstream out;
    out << x << ' ' << rows(x.view(), 1, 1);
    BOOST_TEST(out.str() == "[[0, 0.5, 1],\n [1.5, 2, 2.5]] [[1.5, 2, 2.5]]");
    tensor<int, extents<2, 1, 2>> const cube;
    BOOST_TEST(to_string(cube) == "[[[0, 0]],\n [[0, 0]]]");
    BOOST_TEST(to_string(tensor<double, extents<dyn>>{}) == "[]");
}

BOOST_AUTO_TEST_CASE(a_large_tensor_is_shortened) {
    tensor<int, extents<dyn, 2>> x(extents<dyn, 2>{501});
    for (index_t i = 0; i < x.size(); ++i) x[i] = static_cast<int>(i);
    BOOST_TEST(to_string(x) == "[[0, 1],\n [2, 3],\n [4, 5],\n ...,\n [996, 997],\n [998, 999],\n [1000, 1001]]");
    BOOST_TEST(has(to_string(rows(x.view(), 0, 500)), "[500, 501]"));
}
