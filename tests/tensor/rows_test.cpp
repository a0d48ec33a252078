#include <algorithm>
#include <array>

#include "calm/base/token.hpp"
#include "calm/tensor/expr/expr.hpp"
#include "calm/tensor/ops/rows.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {
template <class On> using table = typename On::template tensor<extents<dyn, 5>>;
template <class On> table<On> drawn_table(index_t rows, std::uint64_t seed) {
    table<On> x{extents<dyn, 5>(rows)};
    draw(x, seed);
    return x;
}
template <class On> using ids_on = numbers<token_id, typename On::backend>;
template <class On> auto seen(ids_on<On> const& ids) {
    return in_vector<typename On::backend>(ids);
}
template <class T, class Backend> matrix_view<T const, 5, Backend> read(tensor<T, extents<dyn, 5>, Backend> const& x) {
    return x;
}

// Checks that f(ctx) gives the same bits with 1, 2 and 3 threads and in every order of a block's threads; returns them.
template <class On, class F> auto same_bits(F const& f) {
    auto const run = [&](int threads, thread_order order) {
        typename On::context ctx(1, threads);
        ctx.order = order;
        return f(ctx);
    };
    auto all = run(1, thread_order::ascending);
    for (int const threads : {2, 3}) BOOST_CHECK((all == run(threads, thread_order::ascending)));
    for (auto const order : {thread_order::descending, thread_order::permuted}) BOOST_CHECK((all == run(2, order)));
    return all;
}
}  // namespace

// A table of 4 rows: each id reads its row, and its gradient goes back to that row.
BOOST_AUTO_TEST_CASE(ids_read_rows_of_a_table_and_gradients_go_back) {
    using matrix = tensor<float, extents<dyn, 2>>;
    context<> ctx;
    matrix values(extents<dyn, 2>(4)), gradients(extents<dyn, 2>(4));
    for (index_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);  // 0 1, 2 3, 4 5, 6 7
    std::vector<token_id> const tokens{3, 0, 3};
    vector_view<token_id const> const ids(tokens.data(), extents<dyn>(3));

    matrix y(extents<dyn, 2>(3));
    gather_rows(ctx, y, values, ids);
    BOOST_TEST(std::ranges::equal(y, std::to_array<float>({6, 7, 0, 1, 6, 7})));

    matrix dy(extents<dyn, 2>(3));
    fill(ctx, dy.view(), 0.5F);
    scatter_add_rows(ctx, gradients, dy, ids);  // row 3 was read twice
    BOOST_TEST(std::ranges::equal(gradients, std::to_array<float>({0.5F, 0.5F, 0, 0, 0, 0, 1, 1})));

    tensor<float, extents<2>> total;  // zeros
    add_sum_axis0(ctx, total, y);
    BOOST_TEST(std::ranges::equal(total, std::to_array<float>({12, 15})));

    // Work that depends on the id alone is done once per unique id, then copied to every place of that id.
    auto const found = unique(ctx, ids, 4);
    BOOST_TEST(std::ranges::equal(found.unique.view(), std::to_array<token_id>({3, 0})));
    matrix once(extents<dyn, 2>(2)), again(extents<dyn, 2>(3));
    gather_rows(ctx, once, values, found.unique);
    gather_rows(ctx, again, once, found.inverse);
    BOOST_TEST(std::ranges::equal(again, y));

    BOOST_CHECK_THROW(gather_rows(ctx, y, once, ids), error);  // id 3 in a table of 2 rows
}

BOOST_AUTO_TEST_CASE_TEMPLATE(copies_and_fills, on, test_devices) {
    using T = typename on::scalar;
    typename on::context ctx(1, 2);
    auto const x = drawn_table<on>(4001, 1);  // more than one task
    typename on::template tensor<extents<5, dyn>> y{extents<5, dyn>(4001)};
    copy(ctx, y.view(), x.view());
    BOOST_CHECK((copied(y) == copied(x)));
    fill(ctx, y.view(), T{3});
    BOOST_TEST(std::count(y.begin(), y.end(), T{3}) == y.size());
    BOOST_CHECK_EXCEPTION(copy(ctx, y.view(), read(drawn_table<on>(2, 1))), error,
                          says(errc::usage, "calm::copy", "(5, 4001)", "(2, 5)"));
    ctx.set_dry_run(true);
    copy(ctx, y.view(), x.view());
    BOOST_TEST(y[7] == T{3});
}

BOOST_AUTO_TEST_CASE_TEMPLATE(row_sums_are_added, on, test_devices) {
    using T = typename on::scalar;
    for (index_t const n : {0, 1, 63, 64, 65, 256, 257, 1000}) {
        auto const x = drawn_table<on>(n, 1);
        auto const total = same_bits<on>([&](auto& ctx) {
            typename on::template tensor<extents<5>> sums;
            std::fill(sums.begin(), sums.end(), T{2});
            add_sum_axis0(ctx, sums.view(), read(x));
            return copied(sums);
        });
        for (index_t j = 0; j < 5; ++j) {
            double want = 2;
            for (index_t r = 0; r < n; ++r) want += static_cast<double>(x[r * 5 + j]);
            BOOST_TEST(std::abs(static_cast<double>(total[static_cast<std::size_t>(j)]) - want) < 1e-4);
        }
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sums_of_wide_rows, on, test_devices) {
    using T = typename on::scalar;
    constexpr index_t D = 300;  // more columns than a block has
    for (index_t const R : {70, 600})
        for (index_t const first : {0, 1}) {  // a matrix at offset 1 is not aligned
            typename on::vector x{extents<dyn>(R * D + 1)};
            typename on::template tensor<extents<D>> sums;
            draw(x, 1);
            typename on::context ctx(1, 2);
            add_sum_axis0(ctx, sums.view(),
                          matrix_view<T const, D, typename on::backend>(x.view().data() + first, extents<dyn, D>(R)));
            for (index_t j = 0; j < D; ++j) {
                double want = 0;
                for (index_t r = 0; r < R; ++r) want += static_cast<double>(x[first + r * D + j]);
                BOOST_TEST(std::abs(static_cast<double>(sums[j]) - want) < 1e-4);
            }
        }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_are_gathered_and_their_gradients_scattered, on, test_devices) {
    using T = typename on::scalar;
    constexpr index_t V = 37;
    auto const x = drawn_table<on>(V, 1);
    ids_on<on> ids(701);
    for (std::size_t i = 0; i < 701; ++i) ids[i] = static_cast<token_id>(i * i % V);
    auto const R = static_cast<index_t>(ids.size());
    auto const dy = drawn_table<on>(R, 2);
    auto const gathered = same_bits<on>([&](auto& ctx) {
        table<on> y{extents<dyn, 5>(R)};
        gather_rows(ctx, y.view(), read(x), seen<on>(ids));
        return copied(y);
    });
    auto const scattered = same_bits<on>([&](auto& ctx) {
        table<on> dx{extents<dyn, 5>(V)};
        std::fill(dx.begin(), dx.end(), T{1});
        scatter_add_rows(ctx, dx.view(), read(dy), seen<on>(ids));
        return copied(dx);
    });
    bool same = true;
    std::vector<T> want(V * 5, T{1});  // rows of one id are added in order, bit-identical
    for (index_t r = 0; r < R; ++r)
        for (index_t j = 0; j < 5; ++j) {
            auto const at = static_cast<index_t>(ids[static_cast<std::size_t>(r)]) * 5 + j;
            same = same && gathered[static_cast<std::size_t>(r * 5 + j)] == x[at];
            want[static_cast<std::size_t>(at)] += dy[r * 5 + j];
        }
    BOOST_TEST(same);
    BOOST_CHECK((scattered == want));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(ids_outside_the_table_and_other_shapes_are_refused, on, test_devices) {
    typename on::context ctx(1, 1);
    auto const x = drawn_table<on>(4, 1);
    table<on> y{extents<dyn, 5>(2)};
    for (token_id const bad : {-1, 4})
        BOOST_CHECK_EXCEPTION(
            gather_rows(ctx, y.view(), read(x), seen<on>({0, bad})), error,
            says(errc::tokenizer, "token id " + std::to_string(bad), "vocabulary of 4", "another tokenizer"));
    ids_on<on> many(1000, 3);
    many[700] = 5, many[701] = 6;  // the message names the first
    table<on> more{extents<dyn, 5>(1000)};
    BOOST_CHECK_EXCEPTION(gather_rows(ctx, more.view(), read(x), seen<on>(many)), error,
                          says(errc::tokenizer, "token id 5 "));
    BOOST_TEST(ctx.workspace.used() == 0U);
    auto const shape = says(errc::usage, "expected one row per id, (3, 5), found (2, 5)");
    ids_on<on> const three{0, 1, 2};
    BOOST_CHECK_EXCEPTION(gather_rows(ctx, y.view(), read(x), seen<on>(three)), error, shape);
    BOOST_CHECK_EXCEPTION(scatter_add_rows(ctx, y.view(), read(y), seen<on>(three)), error, shape);
    ctx.set_dry_run(true);
    gather_rows(ctx, y.view(), read(x), seen<on>({0, 99}));  // a dry run does not read ids
}

BOOST_AUTO_TEST_CASE_TEMPLATE(distinct_ids_in_order_of_appearance, on, test_devices) {
    typename on::context ctx(1, 1);
    ids_on<on> const ids{7, 2, 7, 0, 2, 9};
    auto const found = unique(ctx, seen<on>(ids), 10);
    // On a device the list is not reduced: all ids are used as the distinct ones.
    bool const counted = host_memory<typename on::backend>;
    std::vector<token_id> const distinct = counted ? std::vector<token_id>{7, 2, 0, 9} : std::vector<token_id>(ids);
    std::vector<token_id> const places =
        counted ? std::vector<token_id>{0, 1, 0, 2, 1, 3} : std::vector<token_id>{0, 1, 2, 3, 4, 5};
    BOOST_TEST(copied(found.unique) == distinct, boost::test_tools::per_element());
    BOOST_TEST(copied(found.inverse) == places, boost::test_tools::per_element());
    BOOST_CHECK(
        (found.ids.are_validated() && found.unique.limit() == 10 && found.inverse.limit() == (counted ? 4 : 6)));
    BOOST_CHECK_EXCEPTION(unique(ctx, seen<on>(ids), 9), error, says(errc::tokenizer, "token id 9"));
    // A dry run does not know the ids and takes the memory of the worst case.
    typename on::context dry(1, 1);
    dry.set_dry_run(true);
    BOOST_TEST(unique(dry, seen<on>(ids), 10).unique.size() == 6);
    BOOST_TEST(dry.saved.peak() >= ctx.saved.used());
    BOOST_TEST(dry.workspace.peak() == ctx.workspace.peak());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(reductions_of_one_row, T, scalars) {
    for (index_t const n : {1, 3, 8, 16, 17, 255, 1000}) {
        auto x = draws<T>(n, 1, 1, -4);  // all negative
        auto const y = draws<T>(n, 2);
        double product = 0;
        for (std::size_t i = 0; i < x.size(); ++i) product += static_cast<double>(x[i]) * static_cast<double>(y[i]);
        BOOST_TEST(std::abs(static_cast<double>(detail::dot(x.data(), y.data(), n)) - product) <= rounding<T> * 40);
        BOOST_TEST(detail::largest(x.data(), n) == static_cast<double>(*std::max_element(x.begin(), x.end())));
        auto const middle = static_cast<std::size_t>(n / 2);
        x[middle] = std::numeric_limits<T>::max();
        BOOST_TEST(detail::largest(x.data(), n) == static_cast<double>(std::numeric_limits<T>::max()));
        x[middle] = std::numeric_limits<T>::quiet_NaN();
        BOOST_TEST(!std::isnan(detail::largest(x.data(), n)));
    }
}
