#include "calm/loss/detail/token_screen.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "calm/base/bf16.hpp"
#include "calm/tensor/ops/fill.hpp"
#include "support/sanitized.hpp"
#include "support/sentences.hpp"

using namespace calm;
using namespace calm::test;

namespace {

template <class W = float> using matrix = tensor<W, extents<dyn, dyn>>;

matrix<> random_matrix(index_t rows, index_t columns, std::uint32_t number) {
    matrix<> x{extents<dyn, dyn>(rows, columns)};
    fill_normal(context<>(1, 1), x.view(), key{number});
    return x;
}
std::span<float> row_of(matrix<>& x, index_t r) {
    return {x.data() + r * x.extent(1), static_cast<std::size_t>(x.extent(1))};
}

// By products of at most four rows.
template <class W> std::vector<token_id> without_screen(matrix<> const& x, matrix<W> const& table) {
    context<> ctx(1, 1);
    std::vector<token_id> tokens(static_cast<std::size_t>(x.extent(0)), -1);
    for (index_t r = 0; r < x.extent(0); r += 4) {
        index_t const n = std::min<index_t>(4, x.extent(0) - r);
        argmax_token(ctx, {tokens.data() + r, extents<dyn>(n)}, rows(x.view(), r, n), table.view());
    }
    return tokens;
}

template <class W>
std::vector<token_id> with_screen(matrix<> const& x, matrix<W> const& table, token_screen const& screen, int threads) {
    context<> ctx(1, threads);
    std::vector<token_id> tokens(static_cast<std::size_t>(x.extent(0)), -1);
    argmax_token(ctx, {tokens.data(), extents<dyn>(x.extent(0))}, x.view(), table.view(), screen);
    BOOST_TEST(ctx.workspace.used() == 0U);
    return tokens;
}

template <class W> void check_same(matrix<> const& x, matrix<W> const& table) {
    auto const want = without_screen(x, table);
    for (int const threads : {1, 3}) {
        token_screen const screen(context<>(1, threads), table.view());
        BOOST_TEST(with_screen(x, table, screen, threads) == want, boost::test_tools::per_element());
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_argmax_matches_the_product) {
    for (auto const& [R, D, V] : {std::tuple(1, 1, 1),
                                  {2, 3, 5},
                                  {7, 16, 64},
                                  {1, 17, 65},
                                  {130, 33, 200},
                                  {31, 128, 2000},
                                  {200, 130, 1025},
                                  {3, 515, 4099}})
        check_same(random_matrix(R, D, 1), random_matrix(V, D, 2));
}

// Rows of small whole numbers: products are exact, and many tokens share the largest.
BOOST_AUTO_TEST_CASE(of_equal_products_the_lowest_token_is_taken) {
    for (index_t const D : {2, 8, 24}) {
        auto x = random_matrix(150, D, 3), table = random_matrix(900, D, 4);
        for (auto* const m : {&x, &table})
            for (float& number : *m) number = std::round(number);
        for (index_t v = 100; v < 900; v += 7) std::ranges::copy(row_of(table, v - 100), row_of(table, v).begin());
        check_same(x, table);
    }
}

// Tokens that differ in their last bits: all of them are multiplied exactly.
BOOST_AUTO_TEST_CASE(nearly_equal_tokens_are_distinguished) {
    for (index_t const V : {60, 3000}) {
        auto const x = random_matrix(40, 64, 5);
        auto table = random_matrix(V, 64, 6);
        auto const token = random_matrix(1, 64, 17);
        for (index_t i = 0; i < V * 64; ++i)
            table.data()[i] = token.data()[i % 64] * (1 + 0x1p-22F * std::round(4 * table.data()[i]));
        check_same(x, table);
    }
}

// Rows and tokens of all magnitudes, including zeros and underflow, and rows with one large number among small ones
// that int8 rounding cannot distinguish.
BOOST_AUTO_TEST_CASE(numbers_of_any_size) {
    auto x = random_matrix(64, 40, 7), table = random_matrix(700, 40, 8);
    for (index_t r = 0; r < 64; ++r)
        for (float& number : row_of(x, r)) number *= std::ldexp(1.0F, static_cast<int>(r) * 4 - 126);
    for (index_t v = 0; v < 700; ++v)
        for (float& number : row_of(table, v)) number *= std::ldexp(1.0F, static_cast<int>(v % 7) * 20 - 126);
    std::ranges::fill(row_of(x, 20), 0.0F);
    std::ranges::fill(row_of(table, 0), 0.0F);
    std::ranges::fill(row_of(table, 300), 0.0F);
    for (index_t r = 40; r < 50; ++r) row_of(x, r)[3] = 1e9F;
    check_same(x, table);
    std::fill(table.begin(), table.end(), 0.0F);
    check_same(x, table);
}

BOOST_AUTO_TEST_CASE(a_table_of_bf16) {
    auto const x = random_matrix(50, 96, 9), table = random_matrix(3000, 96, 10);
    matrix<bf16> rounded{table.extents()};
    for (index_t i = 0; i < table.size(); ++i) rounded.data()[i] = bf16(table.data()[i]);
    check_same(x, rounded);
}

// Rows that int8 cannot represent are multiplied with all tokens; a table with such rows is not screened at all.
BOOST_AUTO_TEST_CASE(non_finite_rows_are_left_to_the_product) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    auto x = random_matrix(9, 24, 11), table = random_matrix(500, 24, 12);
    for (auto const& [row, number] : {std::pair(1, nan), {4, inf}, {5, -inf}, {7, 1e30F}}) row_of(x, row)[5] = number;
    BOOST_TEST(token_screen(context<>(1, 1), table.view()).serves());
    check_same(x, table);
    for (float const number : {nan, inf, 1e20F}) {
        row_of(table, 77)[3] = number;
        BOOST_TEST(!token_screen(context<>(1, 1), table.view()).serves());
        check_same(x, table);
    }
}

// As many rows as in a long evaluation. A fifth of the tokens differ by about one int8 step, so the error bounds
// matter.
BOOST_AUTO_TEST_CASE(over_a_million_rows) {
    constexpr index_t R = is_sanitized                ? 20'000
                          : detail::has_byte_products ? 1'000'000
                                                      : 50'000,
                      at_once = 10'000, D = 12, V = 130;
    auto table = random_matrix(V, D, 13);
    for (index_t v = 1; v < V; v += 5)
        for (index_t j = 0; j < D; ++j)
            table.data()[v * D + j] = table.data()[(v - 1) * D + j] + 0.01F * static_cast<float>(j % 3 - 1);
    token_screen const screen(context<>(1, 2), table.view());
    index_t different = 0;
    for (index_t r = 0; r < R; r += at_once) {
        auto const x = random_matrix(at_once, D, 100 + static_cast<std::uint32_t>(r / at_once));
        auto const want = without_screen(x, table), got = with_screen(x, table, screen, 2);
        different += static_cast<index_t>(
            std::inner_product(want.begin(), want.end(), got.begin(), 0, std::plus<>(), std::not_equal_to<>()));
    }
    BOOST_TEST(different == 0);
}

BOOST_AUTO_TEST_CASE(a_screen_is_made_where_it_is_faster_and_for_its_table) {
    context<> ctx(1, 2);
    auto const small = random_matrix(1000, 64, 14), large = random_matrix(4096, 64, 15);
    BOOST_TEST(!screen_if_faster<float>(ctx, small.view()));
    BOOST_TEST(static_cast<bool>(screen_if_faster<float>(ctx, large.view())) == detail::has_byte_products);
    tensor<double, extents<dyn, dyn>> const other{large.extents()};
    BOOST_TEST(!screen_if_faster<double>(ctx, other.view()));
    auto const x = random_matrix(1, 64, 16);
    std::vector<token_id> tokens(1);
    token_screen const screen(ctx, small.view());
    auto const said = usage_sentence([&] {
        argmax_token(ctx, {tokens.data(), extents<dyn>(1)}, x.view(), large.view(), screen);
    });
    BOOST_TEST(has(said, "screened table"));
    BOOST_TEST(has(said, "4096"));
}
