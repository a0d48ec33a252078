// Factors and tables of bf16: every product has the bits that it has with the same numbers as float.
#include "calm/tensor/cpu/widen.hpp"

#include <cstring>

#include "calm/tensor/matmul.hpp"
#include "calm/tensor/rows.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

template <class T> using matrix = tensor<T, extents<dyn, dyn>>;

matrix<float> drawn_matrix(index_t rows, index_t columns, std::uint64_t seed) {
    matrix<float> x(extents<dyn, dyn>(rows, columns));
    draw(x, seed);
    return x;
}

// A factor in both types: the float is what the bf16 is.
struct both_types {
    matrix<bf16> stored;
    matrix<float> as_float;
    both_types(index_t rows, index_t columns, std::uint64_t seed) :
        stored(extents<dyn, dyn>(rows, columns)), as_float(drawn_matrix(rows, columns, seed)) {
        for (index_t i = 0; i < stored.size(); ++i) {
            stored[i] = bf16(as_float[i]);
            as_float[i] = std::bit_cast<float>(std::uint32_t{stored[i].bits} << 16U);
        }
    }
};

bool same_bits(matrix<float> const& x, matrix<float> const& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), static_cast<std::size_t>(x.size()) * 4) == 0;
}

}  // namespace

// Few rows, few rows through B as it is stored, tiles, several parts, depths and widths that fill no register.
BOOST_AUTO_TEST_CASE(a_product_by_bf16_is_the_product_by_the_same_numbers_as_float) {
    struct shape {
        index_t m, n, k;
    };
    constexpr shape shapes[] = {{1, 17, 5},    {1, 331, 64},   {2, 16, 128},    {3, 83, 300},
                                {4, 259, 83},  {5, 40, 31},    {16, 70, 64},    {17, 33, 16},
                                {24, 66, 300}, {25, 65, 2100}, {64, 96, 256},   {130, 259, 64},
                                {0, 3, 2},     {3, 2, 0},      {1033, 33, 257}, {13, 1057, 513}};
    for (shape const& sizes : shapes) {
        index_t const m = sizes.m, n = sizes.n, k = sizes.k;
        auto const a = drawn_matrix(m, k, 1);
        auto const at = drawn_matrix(k, m, 2);
        both_types const b(k, n, 3);
        both_types const bt(n, k, 4);
        tensor<float, extents<dyn>> bias{extents<dyn>(n)};
        draw(bias, 5);
        for (int const threads : {1, 2}) {
            context<> ctx(1, threads);
            auto const check = [&](char const* what, auto const& multiply) {
                auto x = drawn_matrix(m, n, 6);
                auto y = drawn_matrix(m, n, 6);
                multiply(x, b.stored, bt.stored);
                multiply(y, b.as_float, bt.as_float);
                BOOST_TEST(same_bits(x, y), what << " " << m << " " << n << " " << k << ", " << threads << " threads");
            };
            check("a b^T", [&](auto& c, auto const&, auto const& w) { matmul(ctx, c, a, transposed(w)); });
            check("c + a b^T",
                  [&](auto& c, auto const&, auto const& w) { matmul(ctx, c, a, transposed(w), into::accumulate); });
            check("bias + a b^T",
                  [&](auto& c, auto const&, auto const& w) { matmul(ctx, c, a, transposed(w), bias.view()); });
            check("a^T b^T",
                  [&](auto& c, auto const&, auto const& w) { matmul(ctx, c, transposed(at), transposed(w)); });
            check("a b", [&](auto& c, auto const& w, auto const&) { matmul(ctx, c, a, w); });
            check("c + a b", [&](auto& c, auto const& w, auto const&) { matmul(ctx, c, a, w, into::accumulate); });
            check("a^T b", [&](auto& c, auto const& w, auto const&) { matmul(ctx, c, transposed(at), w); });
        }
    }
}

BOOST_AUTO_TEST_CASE(columns_and_rows_of_a_wider_matrix_of_bf16) {
    context<> ctx(1, 2);
    both_types const wide(40, 70, 1);
    for (index_t const m : {1, 3, 30}) {
        auto const a = drawn_matrix(m, 35, 2);
        auto x = drawn_matrix(m, 40, 3);
        auto y = drawn_matrix(m, 40, 3);
        matmul(ctx, x, a, transposed(columns<35, 35>(wide.stored)));
        matmul(ctx, y, a, transposed(columns<35, 35>(wide.as_float)));
        BOOST_TEST(same_bits(x, y), m);
        auto const b = drawn_matrix(m, 70, 4);
        auto u = drawn_matrix(m, 19, 5);
        auto v = drawn_matrix(m, 19, 5);
        matmul(ctx, u, b, transposed(rows(wide.stored.view(), 21, 19)));
        matmul(ctx, v, b, transposed(rows(wide.as_float.view(), 21, 19)));
        BOOST_TEST(same_bits(u, v), m);
    }
}

// NaN and infinity too. Products take a subnormal number for zero, of whichever type.
BOOST_AUTO_TEST_CASE(every_bf16_times_one_is_itself) {
    context<> ctx(1, 1);
    matrix<bf16> all(extents<dyn, dyn>(65536, 1));
    for (index_t i = 0; i < all.size(); ++i) all[i] = bf16::of(static_cast<std::uint16_t>(i));
    for (index_t const m : {1, 9}) {  // few rows, and tiles
        matrix<float> ones(extents<dyn, dyn>(m, 1));
        std::fill(ones.begin(), ones.end(), 1.0F);
        matrix<float> y(extents<dyn, dyn>(m, 65536));
        matmul(ctx, y, ones, transposed(all));
        bool good = true;
        for (index_t row = 0; row < m; ++row)
            for (index_t i = 0; i < 65536; ++i) {
                float const want = std::bit_cast<float>(static_cast<std::uint32_t>(i) << 16U);
                float const got = y[row * 65536 + i];
                bool const is_zero = std::abs(want) < std::numeric_limits<float>::min();
                good = good && (std::isnan(want) ? std::isnan(got) : got == (is_zero ? 0 : want));
            }
        BOOST_TEST(good, m);
    }
}

BOOST_AUTO_TEST_CASE(rows_of_a_table_of_bf16_are_gathered_as_float) {
    context<> ctx(1, 2);
    both_types const table(50, 37, 1);
    std::vector<row_id> ids;
    for (index_t i = 0; i < 600; ++i) ids.push_back(static_cast<row_id>(i * 7 % 50));
    auto x = drawn_matrix(600, 37, 2);
    auto y = drawn_matrix(600, 37, 2);
    row_ids<> const named(ids.data(), extents<dyn>(600));
    matrix<bf16> const& stored = table.stored;
    gather_rows(ctx, x.view(), stored.view(), named);
    gather_rows(ctx, y.view(), table.as_float.view(), named);
    BOOST_TEST(same_bits(x, y));
}

BOOST_AUTO_TEST_CASE(numbers_are_rounded_to_bf16_as_they_are_copied) {
    context<> ctx(1, 2);
    auto const x = drawn_matrix(70, 90, 1);
    matrix<bf16> y(x.extents());
    copy(ctx, y.view(), x.view());
    bool good = true;
    for (index_t i = 0; i < x.size(); ++i) {
        auto const bits = std::bit_cast<std::uint32_t>(x[i]);
        good = good && y[i].bits == (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;  // to nearest, ties to even
    }
    BOOST_TEST(good);
}
