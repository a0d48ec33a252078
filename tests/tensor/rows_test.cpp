#include "calm/tensor/expr.hpp"
#include "calm/tensor/rows.hpp"
#include "calm/text/token.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {
using table = tensor<float, extents<dyn, 5>>;
table drawn_table(index_t rows, std::uint64_t seed) {
    table x{extents<dyn, 5>(rows)};
    draw(x, seed);
    return x;
}
vector_view<token_id const> seen(std::vector<token_id> const& ids) {
    return {ids.data(), extents<dyn>(static_cast<index_t>(ids.size()))};
}
matrix_view<float const, 5> read(table const& x) {
    return x;
}
}  // namespace

BOOST_AUTO_TEST_CASE(copies_and_fills) {
    context<> ctx(1, 2);
    auto const x = drawn_table(4001, 1);  // more than one task
    tensor<float, extents<5, dyn>> y{extents<5, dyn>(4001)};
    copy(ctx, y.view(), x.view());
    BOOST_CHECK((copied(y) == copied(x)));
    fill(ctx, y.view(), 3.0F);
    BOOST_TEST(std::count(y.begin(), y.end(), 3.0F) == y.size());
    BOOST_CHECK_EXCEPTION(copy(ctx, y.view(), read(drawn_table(2, 1))), error,
                          says(errc::usage, "calm::copy", "(5, 4001)", "(2, 5)"));
    ctx.rehearse(true);
    copy(ctx, y.view(), x.view());
    BOOST_TEST(y[7] == 3.0F);
}

BOOST_AUTO_TEST_CASE(row_sums_are_added) {
    for (index_t const n : {0, 1, 63, 64, 65, 1000}) {
        auto const x = drawn_table(n, 1);
        std::vector<std::vector<float>> all;
        for (int threads : {1, 2, 3}) {
            context<> ctx(1, threads);
            tensor<float, extents<5>> total;
            std::fill(total.begin(), total.end(), 2.0F);
            add_row_sums(ctx, total.view(), read(x));
            for (index_t j = 0; j < 5; ++j) {
                double want = 2;
                for (index_t r = 0; r < n; ++r) want += static_cast<double>(x[r * 5 + j]);
                BOOST_TEST(std::abs(static_cast<double>(total[j]) - want) < 1e-4);
            }
            all.push_back(copied(total));
        }
        BOOST_CHECK((all[0] == all[1] && all[0] == all[2]));
    }
}

BOOST_AUTO_TEST_CASE(rows_are_gathered_and_their_gradients_scattered) {
    constexpr index_t V = 37;
    auto const x = drawn_table(V, 1);
    std::vector<token_id> ids;
    for (index_t i = 0; i < 701; ++i) ids.push_back(static_cast<token_id>(i * i % V));
    auto const R = static_cast<index_t>(ids.size());
    auto const dy = drawn_table(R, 2);
    std::vector<std::vector<float>> all;
    for (int threads : {1, 2, 3}) {
        context<> ctx(1, threads);
        table y{extents<dyn, 5>(R)}, dx{extents<dyn, 5>(V)};
        std::fill(dx.begin(), dx.end(), 1.0F);
        gather_rows(ctx, y.view(), read(x), seen(ids));
        scatter_add_rows(ctx, dx.view(), read(dy), seen(ids));
        bool same = true;
        std::vector<double> want(V * 5, 1.0);
        for (index_t r = 0; r < R; ++r)
            for (index_t j = 0; j < 5; ++j) {
                auto const at = static_cast<index_t>(ids[static_cast<std::size_t>(r)]) * 5 + j;
                same = same && y[r * 5 + j] == x[at];
                want[static_cast<std::size_t>(at)] += static_cast<double>(dy[r * 5 + j]);
            }
        BOOST_TEST(same);
        for (index_t i = 0; i < V * 5; ++i)
            BOOST_TEST(near(static_cast<double>(dx[i]), want[static_cast<std::size_t>(i)], 1e-5));
        all.push_back(copied(dx));
    }
    BOOST_CHECK((all[0] == all[1] && all[0] == all[2]));
}

BOOST_AUTO_TEST_CASE(ids_outside_the_table_and_other_shapes_are_refused) {
    context<> ctx(1, 1);
    auto const x = drawn_table(4, 1);
    table y{extents<dyn, 5>(2)};
    for (token_id const bad : {-1, 4})
        BOOST_CHECK_EXCEPTION(
            gather_rows(ctx, y.view(), read(x), seen({0, bad})), error,
            says(errc::tokenizer, "token id " + std::to_string(bad), "vocabulary of 4", "another tokenizer"));
    auto const shape = says(errc::usage, "expected one row an id, (3, 5), found (2, 5)");
    std::vector<token_id> const three{0, 1, 2};
    BOOST_CHECK_EXCEPTION(gather_rows(ctx, y.view(), read(x), seen(three)), error, shape);
    BOOST_CHECK_EXCEPTION(scatter_add_rows(ctx, y.view(), read(y), seen(three)), error, shape);
}

BOOST_AUTO_TEST_CASE(distinct_ids_in_order_of_appearance) {
    context<> ctx(1, 1);
    std::vector<token_id> const ids{7, 2, 7, 0, 2, 9};
    std::vector<token_id> places(ids.size());
    vector_view<token_id> const where(places.data(), extents<dyn>(6));
    auto const distinct = distinct_rows(ctx, seen(ids), 10, where);
    BOOST_TEST(copied(distinct) == (std::vector<token_id>{7, 2, 0, 9}), boost::test_tools::per_element());
    BOOST_TEST(places == (std::vector<token_id>{0, 1, 0, 2, 1, 3}), boost::test_tools::per_element());
    BOOST_CHECK_EXCEPTION(distinct_rows(ctx, seen(ids), 9, where), error, says(errc::tokenizer, "token id 9"));
    // A rehearsal does not know the ids and takes the memory of the worst.
    context<> rehearsal(1, 1);
    rehearsal.rehearse(true);
    BOOST_TEST(distinct_rows(rehearsal, seen(ids), 10, where).size() == 6);
    BOOST_TEST(rehearsal.scratch.peak() == ctx.scratch.peak());
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
