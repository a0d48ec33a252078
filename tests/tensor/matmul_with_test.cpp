// Products with fused residuals, norms and several results are bit-identical to the separate operations.
#include "calm/emulated.hpp"
#include "calm/tensor/ops/matmul.hpp"

#include <vector>

#include "calm/tensor/ops/bf16_products.hpp"
#include "calm/tensor/ops/fill.hpp"
#include "calm/tensor/ops/rotate.hpp"
#include "calm/tensor/ops/rows.hpp"
#include "support/normed_product.hpp"
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

// One row, up to the limit of the skinny product and one more, and more than a tile.
constexpr index_t row_counts[] = {0, 1, 3, 16, 17, 70};

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_are_added_to_a_product, on, all) {
    using T = typename on::scalar;
    for (index_t const m : row_counts)
        for (bool const has_bias : {false, true}) {
            on with;
            auto const a = with.template drawn<37>(m, 1);
            auto const w = with.template drawn<37>(13, 2);
            auto const addend = with.template drawn<13>(m, 3);
            auto const found = with.template drawn<13>(m, 4);
            auto const want = with.template drawn<13>(m, 4);
            auto const row = with.template drawn<13>(1, 5);
            view<T const, extents<13>, typename on::backend> const bias(row.data(), {});
            if (has_bias) {
                matmul(with.ctx, found, a, transposed(w), {.bias = bias, .residual = addend});
                matmul(with.ctx, want, a, transposed(w), {.bias = bias});
            } else {
                matmul(with.ctx, found, a, transposed(w), {.residual = addend});
                matmul(with.ctx, want, a, transposed(w));
            }
            evaluate(with.ctx, want, want + addend);
            BOOST_TEST(values_of(with.ctx, found) == values_of(with.ctx, want), boost::test_tools::per_element());
        }
    on with;
    auto const a = with.template drawn<4>(3, 1);
    auto const w = with.template drawn<4>(5, 2);
    auto const y = with.template drawn<5>(3, 3);
    auto const other = with.template drawn<5>(2, 4);
    BOOST_CHECK_EXCEPTION(matmul(with.ctx, y, a, transposed(w), {.residual = other}), error,
                          says(errc::usage, "calm::matmul", "the residual of shape (3, 5), found (2, 5)"));
    BOOST_CHECK_EXCEPTION(matmul(with.ctx, y, a, transposed(w), {.residual = y}), error,
                          says(errc::usage, "calm::matmul", "overlaps the residual"));
    auto const third = with.template drawn<5>(3, 4);
    auto const accumulate = [&] {
        matmul(with.ctx, y, a, transposed(w), {.mode = into::accumulate, .residual = third});
    };
    BOOST_CHECK_EXCEPTION(accumulate(), error, says(errc::usage, "expected into::overwrite", "into::accumulate"));
    auto const wide = with.template drawn<9>(3, 5);
    BOOST_CHECK_EXCEPTION(matmul(with.ctx, columns<2, 5>(wide), a, transposed(w), {.residual = third}), error,
                          says(errc::usage, "one contiguous destination"));
}

// In bf16 the sum is in fp32.
BOOST_AUTO_TEST_CASE(rows_are_added_to_a_product_in_bf16) {
    on_context<float, emulated> with;
    multiply_in_bf16(with.ctx);
    auto const a = with.drawn<37>(70, 1);
    auto const w = with.drawn<37>(13, 2);
    auto const addend = with.drawn<13>(70, 3);
    auto const found = with.drawn<13>(70, 4);
    auto const want = with.drawn<13>(70, 4);
    matmul(with.ctx, found, a, transposed(w), {.residual = addend});
    matmul(with.ctx, want, a, transposed(w));
    evaluate(with.ctx, want, want + addend);
    BOOST_TEST(values_of(with.ctx, found) == values_of(with.ctx, want), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(grouped_products_match_separate_ones, on, all) {
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
        matmul(with.ctx, side_by_side(x, y, z), a, side_by_side(transposed(v), transposed(w), transposed(u)));
        matmul(with.ctx, want_x, a, transposed(v));
        matmul(with.ctx, want_y, a, transposed(w));
        matmul(with.ctx, want_z, a, transposed(u));
        BOOST_TEST(values_of(with.ctx, x) == values_of(with.ctx, want_x), boost::test_tools::per_element());
        BOOST_TEST(values_of(with.ctx, y) == values_of(with.ctx, want_y), boost::test_tools::per_element());
        BOOST_TEST(values_of(with.ctx, z) == values_of(with.ctx, want_z), boost::test_tools::per_element());
    }
}

// Few rows take one launch; adding the residual takes none.
BOOST_AUTO_TEST_CASE(one_launch_is_enough) {
    for (index_t const m : {1, 16, 17}) {
        on_context<float, emulated> with;
        auto const a = with.drawn<37>(m, 1);
        auto const w = with.drawn<37>(13, 2);
        auto const v = with.drawn<37>(7, 2);
        auto const x = with.drawn<13>(m, 3);
        auto const y = with.drawn<7>(m, 3);
        auto const addend = with.drawn<13>(m, 3);
        auto const launches = [&](auto const& work) {
            auto const before = with.ctx.counts();
            work();
            return (with.ctx.counts() - before).launches;
        };
        BOOST_TEST(launches([&] { matmul(with.ctx, x, a, transposed(w), {.residual = addend}); }) == 1);
        BOOST_TEST(launches([&] {
                       matmul(with.ctx, side_by_side(x, y), a, side_by_side(transposed(w), transposed(v)));
                   }) == (m <= 16 ? 1 : 2));
    }
}

namespace {

// Rows of K normalised as input of two products with tables in W.
template <class On, class W, index_t K> struct normed_products {
    using T = typename On::scalar;
    using Backend = typename On::backend;
    static constexpr double eps = 1e-6;
    On with;
    matrix_view<T, K, Backend> x, gain = with.template drawn<K>(1, 2);
    view<W, extents<dyn, K>, Backend> v = table(13, 3), w = table(1, 4);

    explicit normed_products(index_t m) : x(with.template drawn<K>(m, 1)) {}

    auto table(index_t n, std::uint64_t seed) {
        auto const wide = with.template drawn<K>(n, seed);
        auto const narrow = with.ctx.saved.template take<W>(extents<dyn, K>(n));
        detail::run_copy(with.ctx, narrow.data(), wide.data(), wide.size());
        return narrow;
    }
    auto to_norm(matrix_view<T const, K, Backend> const& rows) const {
        return rms_norm_prologue<T, K, Backend>{rows, {gain.data(), {}}, eps};
    }
    // The results of both products of such a factor, concatenated.
    template <class A> std::vector<T> of(A const& a) {
        auto const y = with.template drawn<13>(a.extent(0), 5);
        auto const z = with.template drawn<1>(a.extent(0), 5);
        matmul(with.ctx, side_by_side(y, z), a, side_by_side(transposed(v), transposed(w)));
        auto both = values_of(with.ctx, y);
        for (T const each : values_of(with.ctx, z)) both.push_back(each);
        return both;
    }
    // Normalises first, then multiplies.
    std::vector<T> one_after_another() {
        auto const y = with.template drawn<K>(x.extent(0), 6);
        auto const r = with.ctx.saved.template take<T>(extents<dyn>(x.extent(0)));
        rms_norm(with.ctx, y, r, x, {gain.data(), {}}, eps);
        return of(y);
    }
    void check_near_truth(std::vector<T> const& found) {
        auto const in_double = [&](auto const& table) {
            auto const stored = values_of(with.ctx, table);
            return normed_product<T>{
                values_of(with.ctx, x), {stored.begin(), stored.end()}, values_of(with.ctx, gain), K, eps};
        };
        auto const by_v = in_double(v), by_w = in_double(w);
        for (index_t i = 0; i < std::ssize(found); ++i) {
            bool const first = i < x.extent(0) * 13;
            auto const want = first ? by_v.at(i / 13, i % 13) : by_w.at(i - x.extent(0) * 13, 0);
            double const apart = static_cast<double>(found[static_cast<std::size_t>(i)]) - want.value;
            BOOST_TEST(std::abs(apart) <= by_v.bound() * want.terms, K << ": " << i << " is apart by " << apart);
        }
    }
};

template <class On, class W, index_t K> void check_normed_products() {
    for (index_t const m : {0, 1, 2, 3, 8, 9, 16, 17}) {
        normed_products<On, W, K> of(m);
        auto const found = of.of(of.to_norm(of.x));
        if (m > 16 || !device_memory<typename On::backend>) {
            BOOST_TEST(found == of.one_after_another(), boost::test_tools::per_element());
            continue;
        }
        of.check_near_truth(found);
        of.check_near_truth(of.one_after_another());
        // A row has the same bits for any neighbours.
        for (index_t i = 0; i < m; ++i) {
            auto const alone = of.of(of.to_norm(rows(of.x, i, 1)));
            BOOST_TEST(std::equal(alone.begin(), alone.end() - 1, found.begin() + i * 13));
            BOOST_TEST(alone.back() == found[static_cast<std::size_t>(m * 13 + i)]);
        }
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_are_normalised_by_their_products, on, all) {
    using T = typename on::scalar;
    check_normed_products<on, T, 2>();
    check_normed_products<on, T, 37>();
    check_normed_products<on, T, 512>();
    check_normed_products<on, T, 1301>();
    if constexpr (std::is_same_v<T, float>) {
        check_normed_products<on, bf16, 37>();
        check_normed_products<on, bf16, 1304>();
    }
}

BOOST_AUTO_TEST_CASE(normalising_and_multiplying_is_one_launch) {
    for (index_t const m : {1, 16, 17}) {
        normed_products<on_context<float, emulated>, float, 37> of(m);
        auto const y = of.with.drawn<13>(m, 5);
        auto const z = of.with.drawn<1>(m, 5);
        auto const alone = of.with.drawn<13>(m, 6);
        auto const launches = [&](auto const& work) {
            auto const before = of.with.ctx.counts();
            work();
            BOOST_TEST(of.with.ctx.workspace.used() == 0U);
            return (of.with.ctx.counts() - before).launches;
        };
        auto const a = of.to_norm(of.x);
        BOOST_TEST(launches([&] {
                       matmul(of.with.ctx, side_by_side(y, z), a, side_by_side(transposed(of.v), transposed(of.w)));
                   }) == (m <= 16 ? 1 : 3));
        BOOST_TEST(launches([&] { matmul(of.with.ctx, alone, a, transposed(of.v)); }) == (m <= 16 ? 1 : 2));
        BOOST_TEST(values_of(of.with.ctx, alone) == values_of(of.with.ctx, y), boost::test_tools::per_element());
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
