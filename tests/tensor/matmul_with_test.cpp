// What stands beside a product is what stands there when it is done by itself: to the bits.
#include "calm/emulated.hpp"
#include "calm/tensor/matmul_with.hpp"

#include <vector>

#include "calm/tensor/bf16_products.hpp"
#include "calm/tensor/fill.hpp"
#include "calm/tensor/rotate.hpp"
#include "calm/tensor/rows.hpp"
#include "support/rows.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

template <class T, class Backend> struct on_context {
    using scalar = T;
    using backend = Backend;
    context<Backend> ctx{1, 2};

    template <index_t N> auto drawn(index_t count, std::uint64_t seed) { return drawn_rows<N, T>(ctx, count, seed); }
};
using all = boost::mpl::list<on_context<float, cpu>, on_context<double, cpu>, on_context<float, blocks>,
                             on_context<float, emulated>, on_context<double, emulated>>;

// Of one row, of as many as go by warps and one more, and of a tile and more.
constexpr index_t row_counts[] = {0, 1, 3, 16, 17, 70};

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_are_added_to_a_product, on, all) {
    using T = typename on::scalar;
    for (index_t const m : row_counts)
        for (bool const has_bias : {false, true}) {
            on with;
            auto const a = with.template drawn<37>(m, 1);
            auto const w = with.template drawn<37>(13, 2);
            auto const plus = with.template drawn<13>(m, 3);
            auto const found = with.template drawn<13>(m, 4);
            auto const want = with.template drawn<13>(m, 4);
            auto const row = with.template drawn<13>(1, 5);
            view<T const, extents<13>, typename on::backend> const bias(row.data(), {});
            if (has_bias) {
                matmul_onto(with.ctx, found, plus, a, transposed(w), bias);
                matmul(with.ctx, want, a, transposed(w), bias);
            } else {
                matmul_onto(with.ctx, found, plus, a, transposed(w));
                matmul(with.ctx, want, a, transposed(w));
            }
            evaluate(with.ctx, want, want + plus);
            BOOST_TEST(values_of(with.ctx, found) == values_of(with.ctx, want), boost::test_tools::per_element());
        }
    on with;
    auto const a = with.template drawn<4>(3, 1);
    auto const w = with.template drawn<4>(5, 2);
    auto const y = with.template drawn<5>(3, 3);
    auto const other = with.template drawn<5>(2, 4);
    BOOST_CHECK_EXCEPTION(matmul_onto(with.ctx, y, other, a, transposed(w)), error,
                          says(errc::usage, "calm::matmul_onto", "(3, 5)", "(2, 5)"));
    BOOST_CHECK_EXCEPTION(matmul_onto(with.ctx, y, y, a, transposed(w)), error,
                          says(errc::usage, "calm::matmul_onto", "overlaps the rows to add"));
}

// And in bf16, where the sum is in fp32.
BOOST_AUTO_TEST_CASE(rows_are_added_to_a_product_in_bf16) {
    on_context<float, emulated> with;
    multiply_in_bf16(with.ctx);
    auto const a = with.drawn<37>(70, 1);
    auto const w = with.drawn<37>(13, 2);
    auto const plus = with.drawn<13>(70, 3);
    auto const found = with.drawn<13>(70, 4);
    auto const want = with.drawn<13>(70, 4);
    matmul_onto(with.ctx, found, plus, a, transposed(w));
    matmul(with.ctx, want, a, transposed(w));
    evaluate(with.ctx, want, want + plus);
    BOOST_TEST(values_of(with.ctx, found) == values_of(with.ctx, want), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(products_of_one_factor_are_those_of_each, on, all) {
    for (index_t const m : row_counts) {
        on with;
        auto const a = with.template drawn<37>(m, 1);
        auto const v = with.template drawn<37>(13, 2);
        auto const w = with.template drawn<37>(1, 3);
        auto const u = with.template drawn<37>(70, 4);
        auto const x = with.template drawn<13>(m, 5);
        auto const y = with.template drawn<1>(m, 5);
        auto const z = with.template drawn<70>(m, 5);
        auto const want_x = with.template drawn<13>(m, 5);
        auto const want_y = with.template drawn<1>(m, 5);
        auto const want_z = with.template drawn<70>(m, 5);
        matmul_each(with.ctx, a, std::pair(x, transposed(v)), std::pair(y, transposed(w)), std::pair(z, transposed(u)));
        matmul(with.ctx, want_x, a, transposed(v));
        matmul(with.ctx, want_y, a, transposed(w));
        matmul(with.ctx, want_z, a, transposed(u));
        BOOST_TEST(values_of(with.ctx, x) == values_of(with.ctx, want_x), boost::test_tools::per_element());
        BOOST_TEST(values_of(with.ctx, y) == values_of(with.ctx, want_y), boost::test_tools::per_element());
        BOOST_TEST(values_of(with.ctx, z) == values_of(with.ctx, want_z), boost::test_tools::per_element());
    }
}

// A device is asked once for few rows, and what is added needs no launch.
BOOST_AUTO_TEST_CASE(a_device_is_asked_once) {
    for (index_t const m : {1, 16, 17}) {
        on_context<float, emulated> with;
        auto const a = with.drawn<37>(m, 1);
        auto const w = with.drawn<37>(13, 2);
        auto const v = with.drawn<37>(7, 2);
        auto const x = with.drawn<13>(m, 3);
        auto const y = with.drawn<7>(m, 3);
        auto const plus = with.drawn<13>(m, 3);
        auto const launches = [&](auto const& work) {
            auto const before = with.ctx.counts();
            work();
            return (with.ctx.counts() - before).launches;
        };
        BOOST_TEST(launches([&] { matmul_onto(with.ctx, x, plus, a, transposed(w)); }) == 1);
        BOOST_TEST(launches([&] {
                       matmul_each(with.ctx, a, std::pair(x, transposed(w)), std::pair(y, transposed(v)));
                   }) == (m <= 16 ? 1 : 2));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(two_matrices_are_turned_as_each_by_itself, on, all) {
    for (double const direction : {1.0, -1.0})
        for (index_t const rows : {6, 70}) {
            on with;
            auto const q = with.template drawn<24>(rows, 1);
            auto const k = with.template drawn<8>(rows, 2);
            auto const want_q = with.template drawn<24>(rows, 1);
            auto const want_k = with.template drawn<8>(rows, 2);
            rotate_both(with.ctx, q, k, 8, 7, 3, 100.0, direction);
            rotate(with.ctx, want_q, 8, 7, 3, 100.0, direction);
            rotate(with.ctx, want_k, 8, 7, 3, 100.0, direction);
            BOOST_TEST(values_of(with.ctx, q) == values_of(with.ctx, want_q), boost::test_tools::per_element());
            BOOST_TEST(values_of(with.ctx, k) == values_of(with.ctx, want_k), boost::test_tools::per_element());
        }
    on with;
    auto const q = with.template drawn<24>(6, 1);
    auto const k = with.template drawn<8>(7, 2);
    BOOST_CHECK_EXCEPTION(rotate_both(with.ctx, q, k, 8, 7, 3, 100.0), error,
                          says(errc::usage, "calm::rotate_both", "found 6 and 7"));
}
