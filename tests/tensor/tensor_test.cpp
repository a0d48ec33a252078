#include "calm/tensor/expr/expr.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

BOOST_AUTO_TEST_CASE_TEMPLATE(a_tensor_owns_zeros, on, test_devices) {
    using matrix = typename on::template tensor<extents<dyn, 3>>;
    static_assert(!std::is_copy_constructible_v<matrix> && !std::is_copy_assignable_v<matrix>);
    static_assert(std::is_nothrow_move_constructible_v<matrix> && std::is_nothrow_move_assignable_v<matrix>);
    for (index_t const n : {0, 1, 33}) {
        matrix x{extents<dyn, 3>(n)};
        BOOST_TEST(x.size() == 3 * n);
        BOOST_TEST(reinterpret_cast<std::uintptr_t>(x.data()) % 64 == 0U);
        BOOST_TEST(std::count(x.begin(), x.end(), typename on::scalar{}) == 3 * n);
    }
    typename on::template tensor<extents<2, 2>> fixed;
    BOOST_TEST(fixed.size() == 4);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(moving_takes_the_memory_along, on, test_devices) {
    typename on::vector x{extents<dyn>(5)};
    x[3] = 2;
    auto const* const data = x.data();
    auto y = std::move(x);
    BOOST_TEST(y.data() == data);
    BOOST_TEST(y[3] == 2);
    typename on::vector z{extents<dyn>(1)};
    z = std::move(y);
    BOOST_TEST(z.data() == data);
    BOOST_TEST(z.size() == 5);
}

BOOST_AUTO_TEST_CASE(tensors_are_passed_as_views) {
    using matrix = tensor<float, extents<2, 3>>;
    static_assert(std::is_convertible_v<matrix&, view<float, extents<2, 3>>>);
    static_assert(std::is_convertible_v<matrix&, view<float const, extents<dyn, 3>>>);
    static_assert(std::is_convertible_v<matrix const&, view<float const, extents<dyn, dyn>>>);
    static_assert(!std::is_convertible_v<matrix const&, view<float, extents<2, 3>>>);
    static_assert(!std::is_convertible_v<matrix, view<float, extents<2, 3>>>);  // a temporary is not written to
    static_assert(!std::is_convertible_v<matrix&, view<float, extents<2, 4>>>);
    matrix x;
    view<float, extents<dyn, 3>> const v = x;
    v[1] = 4;
    BOOST_TEST(x[1] == 4.0F);
    matrix const& constant = x;
    static_assert(std::is_same_v<decltype(constant.view()), view<float const, extents<2, 3>>>);
    x = x * 2;
    BOOST_TEST(constant.view()[1] == 8.0F);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(shapes_that_no_memory_holds_are_refused, on, test_devices) {
    using matrix = typename on::template tensor<extents<dyn, 4>>;
    for (index_t const n : {index_t{1} << 62, index_t{1} << 60, index_t{1} << 57, (index_t{1} << 59) + 1, index_t{-1}})
        BOOST_CHECK_EXCEPTION(matrix(extents<dyn, 4>(n)), error,
                              says(errc::memory, "calm::tensor: expected memory for a shape of", std::to_string(n)));
}
