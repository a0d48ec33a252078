// SiLU fused with products in one launch, compared with separate operations and with exact results in double.
#include "calm/emulated.hpp"
#include "calm/tensor/ops/matmul.hpp"

#include <vector>

#include "support/normed_product.hpp"
#include "support/rows.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

template <class T, class W, class Backend> struct on_context {
    using scalar = T;
    using weights = W;
    using backend = Backend;
};
using all = boost::mpl::list<on_context<float, float, cpu>, on_context<double, double, cpu>,
                             on_context<float, float, blocks>, on_context<float, float, emulated>,
                             on_context<double, double, emulated>, on_context<float, bf16, emulated>>;
using devices = boost::mpl::list<on_context<float, float, emulated>, on_context<double, double, emulated>>;

// m rows of K, and tables of N rows for the gate and the gated product.
template <class On, index_t K> struct products {
    using T = typename On::scalar;
    using W = typename On::weights;
    using Backend = typename On::backend;
    static constexpr index_t N = 13;
    static constexpr double eps = 1e-6;
    context<Backend> ctx{1, 2};
    matrix_view<T, K, Backend> x, weights_of_norm = drawn_rows<K, T>(ctx, 1, 2);
    view<W, extents<dyn, K>, Backend> gate = table(3), up = table(4);

    explicit products(index_t m) : x(drawn_rows<K, T>(ctx, m, 1)) { evaluate(ctx, x, x * 0.3); }

    auto table(std::uint64_t seed) {
        auto const wide = drawn_rows<K, T>(ctx, N, seed);
        evaluate(ctx, wide, wide * 0.3);
        auto const narrow = ctx.saved.template take<W>(extents<dyn, K>(N));
        detail::run_copy(ctx, narrow.data(), wide.data(), wide.size());
        return narrow;
    }
    auto to_norm(matrix_view<T const, K, Backend> const& rows) const {
        return rms_norm_prologue<T, K, Backend>{rows, {weights_of_norm.data(), {}}, eps};
    }
    // y, gate and up, concatenated.
    template <class A> std::vector<T> together(A const& a) {
        return written(a.extent(0), [&](auto const& y, auto const& g, auto const& u) {
            matmul(ctx, with_gate(g, u, y), a, side_by_side(transposed(gate), transposed(up)));
        });
    }
    template <class A> std::vector<T> one_after_another(A const& a) {
        return written(a.extent(0), [&](auto const& y, auto const& g, auto const& u) {
            matmul(ctx, side_by_side(g, u), a, side_by_side(transposed(gate), transposed(up)));
            gated(ctx, y, g, u);
        });
    }
    template <class Write> std::vector<T> written(index_t m, Write const& write) {
        auto const y = drawn_rows<N, T>(ctx, m, 5), g = drawn_rows<N, T>(ctx, m, 6), u = drawn_rows<N, T>(ctx, m, 7);
        write(y, g, u);
        auto values = values_of(ctx, y);
        for (auto const& more : {values_of(ctx, g), values_of(ctx, u)})
            values.insert(values.end(), more.begin(), more.end());
        return values;
    }
    // Checks y, the first third of `found`.
    void check_near_truth(std::vector<T> const& found, bool is_normed) {
        auto const in_double = [&](auto const& table) {
            auto const stored = values_of(ctx, table);
            return normed_product<T>{values_of(ctx, x),
                                     {stored.begin(), stored.end()},
                                     is_normed ? values_of(ctx, weights_of_norm) : std::vector<T>{},
                                     K,
                                     eps};
        };
        auto const by_gate = in_double(gate), by_up = in_double(up);
        for (index_t i = 0; i < std::ssize(found) / 3; ++i) {
            auto const g = by_gate.at(i / N, i % N), u = by_up.at(i / N, i % N);
            double const silu = g.value / (1 + std::exp(-g.value));
            // The derivative of silu is at most 1.1, and silu itself is rounded a few times.
            double const terms = 1.1 * g.terms * std::abs(u.value) + std::abs(silu) * (u.terms + std::abs(u.value));
            double const apart = static_cast<double>(found[static_cast<std::size_t>(i)]) - silu * u.value;
            BOOST_TEST(std::abs(apart) <= by_gate.bound() * terms, K << ": " << i << " is apart by " << apart);
        }
    }
};

// Rows as they are, or as factors to be normalised.
template <class On, index_t K> void check_gated_products(bool is_normed) {
    for (index_t const m : {0, 1, 2, 3, 8, 9, 16, 17, 70}) {
        products<On, K> of(m);
        auto const together = [&](auto const& rows) {
            return is_normed ? of.together(of.to_norm(rows)) : of.together(rows);
        };
        auto const found = together(of.x);
        auto const want = is_normed ? of.one_after_another(of.to_norm(of.x)) : of.one_after_another(of.x);
        BOOST_TEST(found == want, boost::test_tools::per_element());
        if (m > 16) continue;
        of.check_near_truth(found, is_normed);
        if constexpr (std::is_same_v<typename On::backend, cpu>) continue;
        // A row has the same bits for any neighbours and any thread order.
        if constexpr (!std::is_same_v<typename On::backend, cpu>) of.ctx.order = thread_order::permuted;
        for (index_t i = 0; i < m; ++i) {
            auto const alone = together(rows(of.x, i, 1));
            for (index_t part = 0; part < 3; ++part)
                BOOST_TEST(std::equal(alone.begin() + part * of.N, alone.begin() + (part + 1) * of.N,
                                      found.begin() + (part * m + i) * of.N));
        }
    }
}

// silu(c) next to c, where c starts from nothing, from its previous value, or from a bias.
template <class On> void check_silu_of_a_product() {
    using T = typename On::scalar;
    constexpr index_t N = 13;
    for (index_t const m : {0, 1, 2, 3, 8, 9, 16, 17, 70}) {
        products<On, 37> of(m);
        auto const row = drawn_rows<N, T>(of.ctx, 1, 8);
        view<T const, extents<N>, typename On::backend> const bias(row.data(), {});
        auto const w = transposed(of.gate);
        auto const check = [&](auto const& together, auto const& alone) {
            auto const y = drawn_rows<N, T>(of.ctx, m, 5), c = drawn_rows<N, T>(of.ctx, m, 6);
            auto const want_y = drawn_rows<N, T>(of.ctx, m, 7), want_c = drawn_rows<N, T>(of.ctx, m, 6);
            together(with_silu(c, y));
            alone(want_c);
            evaluate(of.ctx, want_y, silu(want_c));
            BOOST_TEST(values_of(of.ctx, y) == values_of(of.ctx, want_y), boost::test_tools::per_element());
            BOOST_TEST(values_of(of.ctx, c) == values_of(of.ctx, want_c), boost::test_tools::per_element());
        };
        for (auto const mode : {into::overwrite, into::accumulate})
            check([&](auto const& to) { matmul(of.ctx, to, of.x, w, {.mode = mode}); },
                  [&](auto const& c) { matmul(of.ctx, c, of.x, w, {.mode = mode}); });
        check([&](auto const& to) { matmul(of.ctx, to, of.x, w, {.bias = bias}); },
              [&](auto const& c) { matmul(of.ctx, c, of.x, w, {.bias = bias}); });
    }
}

// Gated products with biases.
template <class On> void check_gated_products_with_biases() {
    using T = typename On::scalar;
    for (index_t const m : {1, 16, 17}) {
        products<On, 37> of(m);
        auto const rows = drawn_rows<13, T>(of.ctx, 2, 8);
        using bias_view = vector_view<T const, dyn, typename On::backend>;
        bias_view const both(rows.data(), extents<dyn>(26)), of_gate(rows.data(), extents<dyn>(13)),
            of_up(rows.data() + 13, extents<dyn>(13));
        auto const found = of.written(m, [&](auto const& y, auto const& g, auto const& u) {
            matmul(of.ctx, with_gate(g, u, y), of.x, side_by_side(transposed(of.gate), transposed(of.up)),
                   {.bias = both});
        });
        auto const want = of.written(m, [&](auto const& y, auto const& g, auto const& u) {
            matmul(of.ctx, g, of.x, transposed(of.gate), {.bias = of_gate});
            matmul(of.ctx, u, of.x, transposed(of.up), {.bias = of_up});
            gated(of.ctx, y, g, u);
        });
        BOOST_TEST(found == want, boost::test_tools::per_element());
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(a_gate_is_one_with_its_products, on, all) {
    for (bool const is_normed : {false, true}) {
        check_gated_products<on, 2>(is_normed);
        check_gated_products<on, 37>(is_normed);
        check_gated_products<on, 512>(is_normed);
        check_gated_products<on, 1301>(is_normed);
    }
    check_gated_products_with_biases<on>();
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_silu_is_one_with_its_product, on, all) {
    check_silu_of_a_product<on>();
}

BOOST_AUTO_TEST_CASE_TEMPLATE(epilogues_must_fit_their_products, on, devices) {
    using T = typename on::scalar;
    products<on, 37> of(3);
    auto const c = drawn_rows<13, T>(of.ctx, 3, 1), other = drawn_rows<13, T>(of.ctx, 3, 2);
    auto const less = drawn_rows<13, T>(of.ctx, 2, 3);
    auto const w = transposed(of.gate);
    BOOST_CHECK_EXCEPTION(matmul(of.ctx, with_silu(c, less), of.x, w), error,
                          says(errc::usage, "calm::matmul", "of shape (3, 13), found (2, 13)"));
    BOOST_CHECK_EXCEPTION(matmul(of.ctx, with_silu(c, c), of.x, w), error,
                          says(errc::usage, "calm::matmul", "overlaps the product"));
    using rows_view = matrix_view<T, dyn, typename on::backend>;
    rows_view const y(c), gate(other), narrow(drawn_rows<12, T>(of.ctx, 3, 4));
    auto const columns_of = [&](index_t n) { return transposed(rows(of.gate, 0, n)); };
    BOOST_CHECK_EXCEPTION(
        matmul(of.ctx, with_gate(gate, narrow, y), of.x, side_by_side(columns_of(13), columns_of(12))), error,
        says(errc::usage, "calm::matmul", "of shape (3, 12), found (3, 13)"));
    BOOST_CHECK_EXCEPTION(matmul(of.ctx, with_gate(c, less, other), of.x, side_by_side(w, w)), error,
                          says(errc::usage, "calm::matmul", "(2, 13)"));
}

BOOST_AUTO_TEST_CASE(a_gate_and_its_products_are_one_launch) {
    for (index_t const m : {1, 16, 17}) {
        products<on_context<float, float, emulated>, 37> of(m);
        auto const y = drawn_rows<13>(of.ctx, m, 5), g = drawn_rows<13>(of.ctx, m, 6), u = drawn_rows<13>(of.ctx, m, 7);
        auto const tables = side_by_side(transposed(of.gate), transposed(of.up));
        auto const launches = [&](auto const& work) {
            auto const before = of.ctx.counts();
            work();
            BOOST_TEST(of.ctx.workspace.used() == 0U);
            return (of.ctx.counts() - before).launches;
        };
        BOOST_TEST(launches([&] { matmul(of.ctx, with_gate(g, u, y), of.x, tables); }) == (m <= 16 ? 1 : 3));
        BOOST_TEST(launches([&] { matmul(of.ctx, with_gate(g, u, y), of.to_norm(of.x), tables); }) ==
                   (m <= 16 ? 1 : 4));
        BOOST_TEST(launches([&] { matmul(of.ctx, with_silu(g, y), of.x, transposed(of.gate)); }) == (m <= 16 ? 1 : 2));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(gradients_take_the_place_of_gate_and_up, on, all) {
    using T = typename on::scalar;
    context<typename on::backend> ctx(1, 2);
    auto const g = drawn_rows<5, T>(ctx, 3, 1), u = drawn_rows<5, T>(ctx, 3, 2), d = drawn_rows<5, T>(ctx, 3, 3);
    auto const gate = values_of(ctx, g), up = values_of(ctx, u), dy = values_of(ctx, d);
    gated_back(ctx, g, u, d);
    auto const dgate = values_of(ctx, g), dup = values_of(ctx, u);
    for (std::size_t i = 0; i < gate.size(); ++i) {
        double const x = static_cast<double>(gate[i]), s = 1 / (1 + std::exp(-x)), slope = s + x * s * (1 - s);
        double const bound = 16 * static_cast<double>(std::numeric_limits<T>::epsilon());
        double const want = static_cast<double>(dy[i]) * static_cast<double>(up[i]) * slope;
        BOOST_TEST(std::abs(static_cast<double>(dgate[i]) - want) <=
                   bound * std::abs(static_cast<double>(dy[i]) * static_cast<double>(up[i])));
        double const want_up = static_cast<double>(dy[i]) * x * s;
        BOOST_TEST(std::abs(static_cast<double>(dup[i]) - want_up) <= bound * std::abs(want_up));
    }
}
