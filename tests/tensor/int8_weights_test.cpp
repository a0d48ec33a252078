// Weights in int8: how they are rounded, and that operations on them give the bits of float weights of the same values.
#include "calm/tensor/core/int8_weights.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "calm/loss/detail/token_screen.hpp"
#include "calm/tensor/ops/fill.hpp"
#include "calm/tensor/ops/int8_products.hpp"
#include "calm/tensor/ops/matmul.hpp"
#include "calm/tensor/ops/rows.hpp"
#include "support/sentences.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using matrix = tensor<float, extents<dyn, dyn>>;

matrix drawn_weights(index_t rows, index_t columns, std::uint64_t seed) {
    matrix x(extents<dyn, dyn>(rows, columns));
    fill_normal(context<>(seed, 1), x.view(), key{seed});
    return x;
}

// A matrix held in int8, and one of float with its values.
struct both_weights {
    matrix held, wide;
    int8_weights weights;  // destroyed before `held`

    both_weights(index_t n, index_t k, std::uint64_t seed) :
        held(drawn_weights(n, k, seed)), wide(extents<dyn, dyn>(n, k)) {
        weights.add(held.data(), n, k);
        for (index_t r = 0; r < n; ++r) weights.find(held.data())->read_row(r, wide.data() + r * k);
    }
};

context<> in_context(int8_weights* weights, int threads, bool independent_rows) {
    context<> ctx(1, threads);
    ctx.independent_rows = independent_rows;
    if (weights != nullptr) use_int8_weights(ctx, *weights);
    return ctx;
}

bool same_bits_as(matrix const& x, matrix const& y) {
    return std::memcmp(x.data(), y.data(), static_cast<std::size_t>(x.size()) * sizeof(float)) == 0;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_block_is_rounded_to_its_nearest_bytes_and_stays_so) {
    auto const from = drawn_weights(64, detail::int8_block, 3);
    for (double const size : {1e-36, 1e-20, 0.02, 1.0, 1e20, 1e37})
        for (index_t b = 0; b < 64; ++b) {
            float x[detail::int8_block], again[detail::int8_block];
            std::int8_t bytes[detail::int8_block], more[detail::int8_block];
            for (index_t i = 0; i < detail::int8_block; ++i)
                x[i] = static_cast<float>(from.data()[b * detail::int8_block + i] * size);
            auto const scale = detail::quantise_block(x, bytes);
            auto const step = static_cast<float>(scale);
            int most = 0;
            for (index_t i = 0; i < detail::int8_block; ++i) {
                again[i] = static_cast<float>(bytes[i]) * step;
                most = std::max(most, std::abs(int{bytes[i]}));
                BOOST_TEST(std::abs(double{x[i]} - double{again[i]}) <= 0.5001 * double{step}, size);
            }
            BOOST_TEST(most == 127);
            BOOST_TEST(detail::quantise_block(again, more).bits == scale.bits);
            BOOST_TEST(std::memcmp(bytes, more, sizeof(bytes)) == 0);
        }
}

BOOST_AUTO_TEST_CASE(zeros_subnormal_and_the_largest_numbers_have_finite_weights) {
    constexpr float largest = std::numeric_limits<float>::max();
    for (float const value : {0.0F, 1e-40F, largest, -largest}) {
        std::vector<float> const x(detail::int8_block, value);
        std::int8_t bytes[detail::int8_block];
        auto const scale = static_cast<float>(detail::quantise_block(x.data(), bytes));
        float const made = static_cast<float>(bytes[0]) * scale;
        BOOST_TEST(std::isfinite(made));
        BOOST_TEST(std::abs(double{made} - double{value}) <= 0.01 * double{largest});
        if (std::abs(value) < 1e-30F) BOOST_TEST(made == 0.0F);
    }
}

// A layer's product with its weights in int8: the call of `matmul` is the one with float weights.
BOOST_AUTO_TEST_CASE(a_product_reads_weights_of_9_bits) {
    constexpr index_t inputs = 320, outputs = 64;
    context<> ctx;
    tensor<float, extents<3, inputs>> x;
    tensor<float, extents<outputs, inputs>> weights;
    tensor<float, extents<3, outputs>> exact, y;
    fill_normal(ctx, x.view(), key{1});
    fill_normal(ctx, weights.view(), key{2});
    matmul(ctx, exact, x, transposed(weights));

    int8_weights held;  // destroyed before `weights`
    held.add(weights.data(), outputs, inputs);
    use_int8_weights(ctx, held);
    matmul(ctx, y, x, transposed(weights));  // from now on only operations of ctx may read `weights`

    BOOST_TEST(8 * held.bytes() == 9U * inputs * outputs);
    double const error = std::sqrt(sum(ctx, square(y - exact)) / sum(ctx, square(exact)));
    BOOST_TEST((error > 0.003 && error < 0.007), error);  // half a percent
}

// Few rows, tiles, several parts; all rows and a part of them, all columns and a part of them that begins with a block
// or within one; with a bias and added to what is there.
BOOST_AUTO_TEST_CASE(a_product_by_int8_is_the_product_by_the_same_numbers_as_float) {
    struct shape {
        index_t m, n, k;
    };
    for (auto const& [m, n, k] : {shape{1, 17, 32}, shape{1, 331, 96}, shape{3, 64, 320}, shape{16, 70, 64},
                                  shape{33, 130, 96}, shape{150, 129, 576}}) {
        both_weights both(n, k, static_cast<std::uint64_t>(n));
        auto const x = drawn_weights(m, k, 7), bias = drawn_weights(1, n, 8);
        vector_view<float const, dyn> const addend(bias.data(), extents<dyn>(n));
        for (bool const independent : {false, true})
            for (int const threads : {1, 3}) {
                auto plain = in_context(nullptr, threads, independent);
                auto narrow = in_context(&both.weights, threads, independent);
                matrix want(extents<dyn, dyn>(m, n)), got(extents<dyn, dyn>(m, n));
                matmul(plain, want, x, transposed(both.wide), {.bias = addend});
                matmul(narrow, got, x, transposed(both.held), {.bias = addend});
                BOOST_TEST(same_bits_as(want, got), m << " " << n << " " << k);
                matmul(plain, want, x, transposed(both.wide), {.mode = into::accumulate});
                matmul(narrow, got, x, transposed(both.held), {.mode = into::accumulate});
                BOOST_TEST(same_bits_as(want, got));
                matrix want_rows(extents<dyn, dyn>(m, 9)), got_rows(extents<dyn, dyn>(m, 9));
                matmul(plain, want_rows, x, transposed(rows(both.wide.view(), 5, 9)));
                matmul(narrow, got_rows, x, transposed(rows(both.held.view(), 5, 9)));
                BOOST_TEST(same_bits_as(want_rows, got_rows));
            }
    }
}

BOOST_AUTO_TEST_CASE(columns_of_a_matrix_in_int8_may_begin_within_a_block) {
    using wide_matrix = tensor<float, extents<dyn, 96>>;
    wide_matrix held(extents<dyn, 96>(40)), wide(extents<dyn, 96>(40));
    fill_normal(context<>(1, 1), held.view(), key{4});
    int8_weights weights;
    weights.add(held.data(), 40, 96);
    for (index_t r = 0; r < 40; ++r) weights.find(held.data())->read_row(r, wide.data() + r * 96);
    auto plain = in_context(nullptr, 2, true), narrow = in_context(&weights, 2, true);
    auto const check = [&](auto first, auto count) {
        auto const x = drawn_weights(5, count, 6);
        matrix want(extents<dyn, dyn>(5, 40)), got(extents<dyn, dyn>(5, 40));
        matmul(plain, want, x, transposed(columns<first, count>(wide.view())));
        matmul(narrow, got, x, transposed(columns<first, count>(held.view())));
        BOOST_TEST(same_bits_as(want, got), first());
        BOOST_TEST(narrow.workspace.used() == 0U);
    };
    check(std::integral_constant<index_t, 32>(), std::integral_constant<index_t, 64>());
    check(std::integral_constant<index_t, 40>(), std::integral_constant<index_t, 40>());
    check(std::integral_constant<index_t, 16>(), std::integral_constant<index_t, 64>());
}

BOOST_AUTO_TEST_CASE(rows_and_the_likeliest_token_are_those_of_the_same_numbers_as_float) {
    constexpr index_t V = 4099, D = 64;  // enough for a screen
    both_weights both(V, D, 9);
    auto plain = in_context(nullptr, 3, true), narrow = in_context(&both.weights, 3, true);
    token_id const chosen[] = {0, 4098, 17, 17};
    matrix want(extents<dyn, dyn>(4, D)), got(extents<dyn, dyn>(4, D));
    vector_view<token_id const> const ids(chosen, extents<dyn>(4));
    gather_rows(plain, want, both.wide, ids);
    gather_rows(narrow, got, both.held, ids);
    BOOST_TEST(same_bits_as(want, got));

    auto const x = drawn_weights(50, D, 10);
    std::vector<token_id> likeliest(50), screened(50), unscreened(50);
    auto const view_of = [](std::vector<token_id>& tokens) {
        return vector_view<token_id>(tokens.data(), extents<dyn>(50));
    };
    argmax_token(plain, view_of(likeliest), x, both.wide);
    argmax_token(narrow, view_of(unscreened), x, both.held);
    token_screen const screen(narrow, both.held);
    argmax_token(narrow, view_of(screened), x, both.held, screen);
    BOOST_TEST(unscreened == likeliest, boost::test_tools::per_element());
    BOOST_TEST(screened == likeliest, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(an_address_finds_the_matrix_that_it_belongs_to) {
    matrix values(extents<dyn, dyn>(12, 32));
    std::fill_n(values.data(), values.size(), 1.0F);
    int8_weights weights;
    weights.add(values.data() + 8 * 32, 2, 32);
    weights.add(values.data() + 32, 3, 32);
    auto const first_of = [&](index_t row) {
        auto const* const found = weights.find(values.data() + row * 32);
        return found == nullptr ? -1 : (found->begin - values.data()) / 32;
    };
    index_t const expected[] = {-1, 1, 1, 1, -1, -1, -1, -1, 8, 8, -1, -1};
    for (index_t row = 0; row < 12; ++row) BOOST_TEST(first_of(row) == expected[row], row);
    BOOST_TEST(weights.matrices() == 2U);
}

BOOST_AUTO_TEST_CASE(what_int8_takes_and_refuses) {
    index_t const fits[] = {3, 64}, odd[] = {3, 40}, vector[] = {64}, empty[] = {0, 32};
    BOOST_TEST(int8_weights::takes(fits));
    BOOST_TEST(!int8_weights::takes(odd));
    BOOST_TEST(!int8_weights::takes(vector));
    BOOST_TEST(!int8_weights::takes(empty));
    both_weights both(32, 32, 11);
    BOOST_TEST(both.weights.bytes() == 32U * 32U + 32U * sizeof(float));
    auto ctx = in_context(&both.weights, 1, false);
    auto const x = drawn_weights(4, 32, 12);
    matrix y(extents<dyn, dyn>(4, 32));
    BOOST_TEST(has(sentence_of<error>([&] { matmul(ctx, y, x, both.held); }),
                   "expected products x W^T with weights W in int8, found another product"));
}
