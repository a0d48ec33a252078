#include "calm/tensor/ops/bf16_products.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "calm/base/bf16.hpp"
#include "calm/tensor/ops/fill.hpp"
#include "calm/tensor/ops/matmul.hpp"
#include "support/sanitized.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using matrix = tensor<float, extents<dyn, dyn>>;

struct shape {
    index_t m, n, k;
};
// One row and many, one column and several parts, zero depth, odd depths, blocks whose rows are packed first. Under the
// sanitizers without the two largest.
constexpr shape all_shapes[] = {{0, 3, 2},    {3, 2, 0},      {1, 1, 1},       {17, 5, 3},
                                {65, 33, 17}, {97, 130, 31},  {130, 259, 64},  {61, 64, 1025},
                                {300, 7, 2},  {500, 96, 515}, {129, 512, 1500}};
constexpr auto shapes = std::span(all_shapes).first(std::size(all_shapes) - (is_sanitized ? 2 : 0));

context<> in_bf16(int threads) {
    context<> ctx(1, threads);
    multiply_in_bf16(ctx);
    return ctx;
}

// Calls f(what, c, a_at, b_at) for the products of a shape in each form; a_at(i, l) and b_at(l, j) are the elements of
// the factors.
template <class Fill, class F> void each_form(context<>& ctx, shape const& s, Fill const& fill, F const& f) {
    for (bool const a_turned : {false, true})
        for (bool const b_turned : {false, true}) {
            matrix a(a_turned ? extents<dyn, dyn>(s.k, s.m) : extents<dyn, dyn>(s.m, s.k));
            matrix b(b_turned ? extents<dyn, dyn>(s.n, s.k) : extents<dyn, dyn>(s.k, s.n));
            matrix c(extents<dyn, dyn>(s.m, s.n));
            fill(a, 1);
            fill(b, 2);
            if (a_turned && b_turned)
                matmul(ctx, c, transposed(a), transposed(b));
            else if (a_turned)
                matmul(ctx, c, transposed(a), b);
            else if (b_turned)
                matmul(ctx, c, a, transposed(b));
            else
                matmul(ctx, c, a, b);
            f(
                std::string(a_turned ? "a^T " : "a ") + (b_turned ? "b^T" : "b"), c,
                [&](index_t i, index_t l) { return a.data()[a_turned ? l * s.m + i : i * s.k + l]; },
                [&](index_t l, index_t j) { return b.data()[b_turned ? j * s.k + l : l * s.n + j]; });
        }
}

double sum_of(shape const& s, auto const& term) {
    double sum = 0;
    for (index_t l = 0; l < s.k; ++l) sum += term(l);
    return sum;
}

}  // namespace

// Whole numbers up to 128 are exact in bf16, and their sums below 2^24 are exact in float, so nothing is rounded.
BOOST_AUTO_TEST_CASE(products_of_small_whole_numbers_are_exact) {
    auto ctx = in_bf16(2);
    auto const whole = [](matrix& x, std::uint64_t seed) {
        random_sequence draws(key{seed, stream::story, 0});
        for (auto& each : x) each = static_cast<float>(draws.below(181)) - 90;
    };
    for (auto const& s : shapes)
        each_form(ctx, s, whole, [&](std::string const& what, matrix const& c, auto const& a, auto const& b) {
            index_t wrong = 0;
            for (index_t i = 0; i < s.m; ++i)
                for (index_t j = 0; j < s.n; ++j) {
                    double const want = sum_of(s, [&](index_t l) { return double{a(i, l)} * double{b(l, j)}; });
                    wrong += double{c.data()[i * s.n + j]} != want ? 1 : 0;
                }
            BOOST_TEST(wrong == 0, what << " " << s.m << " " << s.n << " " << s.k);
        });
}

// Each element is the sum of products of factors rounded by bf16(x), up to float summation error: k 2^-24 of the sum of
// magnitudes. The factors are really rounded: the sum differs from that of unrounded a and b.
BOOST_AUTO_TEST_CASE(factors_are_rounded_to_nearest_and_sums_are_float) {
    auto ctx = in_bf16(2);
    auto const normal = [&](matrix& x, std::uint64_t seed) {
        fill_normal(ctx, x.view(), key{seed});
        for (index_t i = 0; i < x.size(); i += 7) x.data()[i] = 1.0F + static_cast<float>(i % 9) * 0x1p-8F;  // ties
    };
    auto const rounded = [](float x) { return double{static_cast<float>(bf16(double{x}))}; };
    for (auto const& s : shapes) {
        if (s.m <= 64) continue;  // few rows need not be rounded
        each_form(ctx, s, normal, [&](std::string const& what, matrix const& c, auto const& a, auto const& b) {
            double worst = 0;
            index_t as_unrounded = 0;
            for (index_t i = 0; i < s.m; ++i)
                for (index_t j = 0; j < s.n; ++j) {
                    double const found = c.data()[i * s.n + j];
                    auto const term = [&](index_t l) { return rounded(a(i, l)) * rounded(b(l, j)); };
                    double const most = sum_of(s, [&](index_t l) { return std::abs(term(l)); });
                    worst = std::max(worst, std::abs(found - sum_of(s, term)) / (most + 1e-30));
                    double const plain = sum_of(s, [&](index_t l) { return double{a(i, l)} * double{b(l, j)}; });
                    as_unrounded += std::abs(found - plain) < most * 1e-6 ? 1 : 0;
                }
            BOOST_TEST(worst <= static_cast<double>(s.k) * 0x1p-24,
                       what << " " << s.m << " " << s.n << " " << s.k << ": " << worst);
            if (s.k > 8) BOOST_TEST(as_unrounded <= s.m * s.n / 50);
        });
    }
}

BOOST_AUTO_TEST_CASE(products_keep_their_initial_values) {
    auto ctx = in_bf16(2);
    constexpr index_t m = 40, n = 37, k = 1100;
    matrix a(extents<dyn, dyn>(m, k)), b(extents<dyn, dyn>(k, n)), c(extents<dyn, dyn>(m, n));
    std::fill(a.begin(), a.end(), 2.0F);
    std::fill(b.begin(), b.end(), 0.5F);
    std::fill(c.begin(), c.end(), 7.0F);
    matmul(ctx, c, a, b, {.mode = into::accumulate});
    BOOST_TEST(std::ranges::count(c, 1107.0F) == m * n);
    tensor<float, extents<dyn>> bias{extents<dyn>(n)};
    for (index_t j = 0; j < n; ++j) bias.data()[j] = static_cast<float>(j);
    matmul(ctx, c, a, b, {.bias = bias.view()});
    for (index_t j = 0; j < n; ++j) BOOST_TEST(c.data()[5 * n + j] == 1100.0F + static_cast<float>(j));
}

BOOST_AUTO_TEST_CASE(bits_do_not_depend_on_the_threads) {
    for (auto const& s : shapes) {
        std::vector<std::vector<float>> found;
        for (int const threads : {1, 2, 3, 7}) {
            auto ctx = in_bf16(threads);
            each_form(
                ctx, s, [&](matrix& x, std::uint64_t seed) { fill_normal(ctx, x.view(), key{seed}); },
                [&](std::string const&, matrix const& c, auto const&, auto const&) {
                    found.emplace_back(c.begin(), c.end());
                });
        }
        for (std::size_t i = 4; i < found.size(); ++i)
            BOOST_TEST((found[i] == found[i % 4]), s.m << " " << s.n << " " << s.k);
    }
}

BOOST_AUTO_TEST_CASE(non_finite_values_stay_non_finite) {
    auto ctx = in_bf16(1);
    constexpr float infinity = std::numeric_limits<float>::infinity();
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    matrix a(extents<dyn, dyn>(80, 50)), b(extents<dyn, dyn>(50, 40)), c(extents<dyn, dyn>(80, 40));
    std::fill(a.begin(), a.end(), 1.0F);
    std::fill(b.begin(), b.end(), 1.0F);
    a.data()[3 * 50 + 7] = nan;
    a.data()[4 * 50 + 8] = std::bit_cast<float>(0x7FFFFFFFU);  // a NaN that rounding up would turn into -0
    a.data()[5 * 50 + 49] = infinity;
    a.data()[6 * 50] = std::numeric_limits<float>::max();  // rounds to infinity
    matmul(ctx, c, a, b);
    BOOST_TEST(std::isnan(c.data()[3 * 40 + 39]));
    BOOST_TEST(std::isnan(c.data()[4 * 40]));
    BOOST_TEST(c.data()[5 * 40 + 20] == infinity);
    BOOST_TEST(c.data()[6 * 40 + 20] == infinity);
    BOOST_TEST(c.data()[7 * 40 + 20] == 50.0F);
}

BOOST_AUTO_TEST_CASE(a_dry_run_plans_what_it_takes) {
    auto ctx = in_bf16(2);
    matrix a(extents<dyn, dyn>(700, 333)), b(extents<dyn, dyn>(333, 200)), c(extents<dyn, dyn>(700, 200));
    std::fill(c.begin(), c.end(), 5.0F);
    ctx.set_dry_run(true);
    matmul(ctx, c, a, b);
    ctx.set_dry_run(false);
    BOOST_TEST(c.data()[0] == 5.0F);
    auto const planned = ctx.workspace.peak();
    matmul(ctx, c, a, b);
    BOOST_TEST(ctx.workspace.peak() == planned);
}
