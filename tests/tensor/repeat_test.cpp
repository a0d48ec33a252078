#include "calm/tensor/ops/repeat.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_are_repeated_and_summed_back, on, test_devices) {
    using T = typename on::scalar;
    using backend = typename on::backend;
    typename on::context ctx(1, 2);
    for (index_t const R : {0, 1, 7, 33})
        for (index_t const N : {1, 2, 5}) {
            auto const y = draws<T, backend>(R * 3, 1);
            numbers<T, backend> x(static_cast<std::size_t>(R * N * 3), T(777)), back(y.size(), T(777));
            auto const many = out_rows<backend, 3>(x);
            repeat_interleave(ctx, many, in_rows<backend, 3>(y));
            for (index_t i = 0; i < R * N * 3; ++i)
                BOOST_TEST(opened(many)[i] == y[static_cast<std::size_t>(i / 3 / N * 3 + i % 3)]);
            draw(x, 2);
            segment_sum(ctx, out_rows<backend, 3>(back), many);
            for (index_t i = 0; i < R * 3; ++i) {
                T want{};
                for (index_t n = 0; n < N; ++n) want += opened(many)[(i / 3 * N + n) * 3 + i % 3];
                BOOST_TEST(back[static_cast<std::size_t>(i)] == want);
            }
        }
}

// Zero repetitions produce no rows, and their sum is 0.
BOOST_AUTO_TEST_CASE_TEMPLATE(rows_may_repeat_no_row, on, test_devices) {
    using T = typename on::scalar;
    using backend = typename on::backend;
    typename on::context ctx(1, 2);
    numbers<T, backend> few(6, T(777));
    matrix_view<T, 3, backend> const none(nullptr, extents<dyn, 3>(0)), two = out_rows<backend, 3>(few);
    repeat_interleave(ctx, none, two);
    segment_sum(ctx, two, none);
    BOOST_TEST((few == numbers<T, backend>(6)));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(numbers_of_rows_that_do_not_divide_are_refused, on, test_devices) {
    using T = typename on::scalar;
    using backend = typename on::backend;
    typename on::context ctx(1, 1);
    numbers<T, backend> many(15), few(6);
    auto const five = out_rows<backend, 3>(many), two = out_rows<backend, 3>(few);
    BOOST_CHECK_EXCEPTION(repeat_interleave(ctx, five, two), error,
                          says(errc::usage, "calm::repeat_interleave", "for each of 2, found 5"));
    BOOST_CHECK_EXCEPTION(segment_sum(ctx, two, five), error,
                          says(errc::usage, "calm::segment_sum", "for each of 2, found 5"));
    BOOST_CHECK_EXCEPTION(repeat_interleave(ctx, five, matrix_view<T, 3, backend>(nullptr, extents<dyn, 3>(0))), error,
                          says(errc::usage, "for each of 0, found 5"));
}
