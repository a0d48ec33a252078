// bf16 factors and tables: every product is bit-identical to the product of the same numbers as float. The exception is
// a product of many rows on a device, which is only close.
#include "calm/tensor/detail/kernels/cpu/widen.hpp"

#include <cstring>
#include <iterator>
#include <span>

#include "calm/tensor/ops/matmul.hpp"
#include "calm/tensor/ops/rows.hpp"
#include "support/sanitized.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using backends = boost::mpl::list<cpu, blocks, emulated>;
using matrix_shape = extents<dyn, dyn>;
template <class T, class On = cpu> using matrix = typename test_device<On, T>::template tensor<matrix_shape>;

template <class On> matrix<float, On> drawn_matrix(index_t rows, index_t columns, std::uint64_t seed) {
    matrix<float, On> x(matrix_shape(rows, columns));
    draw(x, seed);
    return x;
}

// One factor in both types, with equal values.
template <class On> struct both_types {
    matrix<bf16, On> stored;
    matrix<float, On> as_float;
    both_types(index_t rows, index_t columns, std::uint64_t seed) :
        stored(matrix_shape(rows, columns)), as_float(drawn_matrix<On>(rows, columns, seed)) {
        auto* const narrow = stored.data();
        auto* const wide = as_float.data();
        host_access const access;
        for (index_t i = 0; i < stored.size(); ++i) {
            narrow[i] = bf16(wide[i]);
            wide[i] = std::bit_cast<float>(std::uint32_t{narrow[i].bits} << 16U);
        }
    }
};

template <class X> bool same_bits(X const& x, X const& y) {
    auto const here = copied(x), there = copied(y);
    bool const is_empty = here.empty();  // may have no memory
    return here.size() == there.size() && (is_empty || std::memcmp(here.data(), there.data(), here.size() * 4) == 0);
}

// Tolerance for sums of k products of normals, each rounded a few times.
template <class X> bool are_near(X const& x, X const& y, index_t k) {
    auto const here = copied(x), there = copied(y);
    double const bound = 0x1p-22 * static_cast<double>(k + 8);
    return std::equal(here.begin(), here.end(), there.begin(), there.end(),
                      [&](float a, float b) { return std::abs(double{a} - double{b}) <= bound; });
}

// To nearest, ties to even.
template <class X, class Y> bool are_rounded(X const& x, Y const& y) {
    auto const from = copied(x);
    auto const to = copied(y);
    return std::equal(from.begin(), from.end(), to.begin(), to.end(), [](float number, bf16 stored) {
        auto const bits = std::bit_cast<std::uint32_t>(number);
        return stored.bits == (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
    });
}

}  // namespace

// Few rows, few rows with B as stored, tiles, several parts, depths and widths that fill no register.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_product_by_bf16_is_the_product_by_the_same_numbers_as_float, on, backends) {
    struct shape {
        index_t m, n, k;
    };
    // Under the sanitizers without the last four.
    constexpr shape all_shapes[] = {{1, 17, 5},     {1, 331, 64},   {2, 16, 128},    {3, 83, 300},
                                    {4, 259, 83},   {5, 40, 31},    {16, 70, 64},    {17, 33, 16},
                                    {24, 66, 300},  {64, 96, 256},  {0, 3, 2},       {3, 2, 0},
                                    {25, 65, 2100}, {130, 259, 64}, {1033, 33, 257}, {13, 1057, 513}};
    auto const shapes = std::span(all_shapes).first(std::size(all_shapes) - (is_sanitized ? 4 : 0));
    for (shape const& size : shapes) {
        index_t const m = size.m, n = size.n, k = size.k;
        auto const a = drawn_matrix<on>(m, k, 1);
        auto const at = drawn_matrix<on>(k, m, 2);
        both_types<on> const b(k, n, 3);
        both_types<on> const bt(n, k, 4);
        typename test_device<on, float>::vector bias{extents<dyn>(n)};
        draw(bias, 5);
        for (int const threads : {1, 2}) {
            context<on> ctx(1, threads);
            auto const check = [&](char const* what, auto const& multiply) {
                auto x = drawn_matrix<on>(m, n, 6);
                auto y = drawn_matrix<on>(m, n, 6);
                multiply(x, b.stored, bt.stored);
                multiply(y, b.as_float, bt.as_float);
                bool const splits = device_memory<on> && m > 16;
                BOOST_TEST((splits ? are_near(x, y, k) : same_bits(x, y)),
                           what << " " << m << " " << n << " " << k << ", " << threads << " threads");
            };
            check("a b^T", [&](auto& c, auto const&, auto const& w) { matmul(ctx, c, a, transposed(w)); });
            check("c + a b^T", [&](auto& c, auto const&, auto const& w) {
                matmul(ctx, c, a, transposed(w), {.mode = into::accumulate});
            });
            check("bias + a b^T", [&](auto& c, auto const&, auto const& w) {
                matmul(ctx, c, a, transposed(w), {.bias = bias.view()});
            });
            check("a^T b^T",
                  [&](auto& c, auto const&, auto const& w) { matmul(ctx, c, transposed(at), transposed(w)); });
            check("a b", [&](auto& c, auto const& w, auto const&) { matmul(ctx, c, a, w); });
            check("c + a b",
                  [&](auto& c, auto const& w, auto const&) { matmul(ctx, c, a, w, {.mode = into::accumulate}); });
            check("a^T b", [&](auto& c, auto const& w, auto const&) { matmul(ctx, c, transposed(at), w); });
        }
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(columns_and_rows_of_a_wider_matrix_of_bf16, on, backends) {
    context<on> ctx(1, 2);
    both_types<on> const wide(40, 70, 1);
    for (index_t const m : {1, 3, 30}) {
        auto const a = drawn_matrix<on>(m, 35, 2);
        auto x = drawn_matrix<on>(m, 40, 3);
        auto y = drawn_matrix<on>(m, 40, 3);
        matmul(ctx, x, a, transposed(columns<35, 35>(wide.stored)));
        matmul(ctx, y, a, transposed(columns<35, 35>(wide.as_float)));
        BOOST_TEST(same_bits(x, y), m);
        auto const b = drawn_matrix<on>(m, 70, 4);
        auto u = drawn_matrix<on>(m, 19, 5);
        auto v = drawn_matrix<on>(m, 19, 5);
        matmul(ctx, u, b, transposed(rows(wide.stored.view(), 21, 19)));
        matmul(ctx, v, b, transposed(rows(wide.as_float.view(), 21, 19)));
        BOOST_TEST(same_bits(u, v), m);
    }
}

// Includes NaN and infinity. Products treat subnormal numbers of either type as zero.
BOOST_AUTO_TEST_CASE_TEMPLATE(every_bf16_times_one_is_itself, on, backends) {
    context<on> ctx(1, 1);
    matrix<bf16, on> all(matrix_shape(65536, 1));
    std::generate(all.begin(), all.end(), [i = std::uint16_t{}]() mutable { return bf16::of(i++); });
    for (index_t const m : {1, 9, 17}) {  // few rows, and tiles
        matrix<float, on> ones(matrix_shape(m, 1));
        std::fill(ones.begin(), ones.end(), 1.0F);
        matrix<float, on> product(matrix_shape(m, 65536));
        matmul(ctx, product, ones, transposed(all));
        auto const y = copied(product);
        bool good = true;
        for (index_t row = 0; row < m; ++row)
            for (index_t i = 0; i < 65536; ++i) {
                float const want = std::bit_cast<float>(static_cast<std::uint32_t>(i) << 16U);
                float const got = y[static_cast<std::size_t>(row * 65536 + i)];
                bool const is_zero = std::abs(want) < std::numeric_limits<float>::min();
                good = good && (std::isnan(want) ? std::isnan(got) : got == (is_zero ? 0 : want));
            }
        BOOST_TEST(good, m);
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_of_a_table_of_bf16_are_gathered_as_float, on, backends) {
    context<on> ctx(1, 2);
    both_types<on> const table(50, 37, 1);
    std::vector<row_id> ids;
    for (index_t i = 0; i < 600; ++i) ids.push_back(static_cast<row_id>(i * 7 % 50));
    auto x = drawn_matrix<on>(600, 37, 2);
    auto y = drawn_matrix<on>(600, 37, 2);
    auto const there = placed<on>(ids);
    row_ids<on> const named(there.data(), extents<dyn>(600));
    matrix<bf16, on> const& stored = table.stored;
    gather_rows(ctx, x.view(), stored.view(), named);
    gather_rows(ctx, y.view(), table.as_float.view(), named);
    BOOST_TEST(same_bits(x, y));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(numbers_are_rounded_to_bf16_as_they_are_copied, on, backends) {
    context<on> ctx(1, 2);
    auto const x = drawn_matrix<on>(70, 91, 1);
    matrix<bf16, on> y(x.extents());
    copy(ctx, y.view(), x.view());
    BOOST_TEST(are_rounded(x, y));
}

BOOST_AUTO_TEST_CASE(numbers_are_converted_on_their_way_to_a_device_and_back) {
    context<emulated> ctx(1, 1);
    auto const x = drawn_matrix<cpu>(70, 91, 1);
    matrix<bf16, emulated> there(x.extents());
    matrix<float> back(x.extents());
    copy(ctx, there.view(), x.view());
    BOOST_TEST(are_rounded(x, there));
    copy(ctx, back.view(), there.view());
    BOOST_TEST(are_rounded(back, there));
    both_types<emulated> const both(70, 91, 1);
    auto const want = copied(both.as_float);
    BOOST_TEST(std::equal(want.begin(), want.end(), back.begin()));
}
