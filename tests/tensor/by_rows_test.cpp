#include "calm/tensor/expr/expr.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {

// Rows (R, D), a row (D) and a column (R): the operands of one expression tree, their gradients, and the cotangent.
template <class T, class Backend> struct operands {
    using rows_type = typename test_device<Backend, T>::template tensor<extents<dyn, dyn>>;
    using line = typename test_device<Backend, T>::vector;
    rows_type x, y, dy, dx;
    line w, dw, c, dc;

    operands(index_t R, index_t D) :
        x(extents<dyn, dyn>(R, D)), y(x.extents()), dy(x.extents()), dx(x.extents()), w(extents<dyn>(D)),
        dw(w.extents()), c(extents<dyn>(R)), dc(c.extents()) {
        draw(x, 1);
        draw(dy, 2);
        draw(w, 3);
        draw(c, 4);
        draw(dx, 5);  // must be overwritten, as dw
        draw(dw, 6);
        std::fill(dc.begin(), dc.end(), T{2});  // must be added to
    }
};

// Trees of the operands x(), w() and c(); more() is a further use of x.
struct trees {
    // RMS normalisation with a gain, plus a column.
    struct rms {
        template <class X, class More, class W, class C> auto operator()(X&& x, More&& more, W&& w, C&& c) const {
            return x() * (1.0 / sqrt(mean_square_axis1(more()) + 0.25)) * w() + c();
        }
    };
    // Nested reductions: a modulated LayerNorm.
    struct layer_norm {
        template <class X, class More, class W, class C> auto operator()(X&& x, More&& more, W&& w, C&& c) const {
            return (x() - mean_axis1(more())) * (1.0 / sqrt(mean_square_axis1(more() - mean_axis1(more())) + 0.25)) *
                       (1.0 + w()) +
                   tanh(c());
        }
    };
    // Softmax, weighted by the row and the column.
    struct softmax {
        template <class X, class More, class W, class C> auto operator()(X&& x, More&& more, W&& w, C&& c) const {
            return exp(x() - max_axis1(more())) / sum_axis1(exp(more() - max_axis1(more()))) * silu(w()) * c();
        }
    };
    // The operands over (D) and (R, 1) inside a reduction.
    struct within {
        template <class X, class More, class W, class C> auto operator()(X&& x, More&& more, W&& w, C&& c) const {
            return x() * sum_axis1(more() * w() * c()) + 0.5;
        }
    };
    // One number per row.
    struct narrow {
        template <class X, class More, class W, class C> auto operator()(X&& x, More&& more, W&& w, C&& c) const {
            return square(mean_axis1(x() * w())) * c() + max_axis1(more()) / 3.0;
        }
    };
};

// sum(dy * tree) of complex operands.
template <class Tree> complex cotangent_sum(operands<complex, cpu>& o) {
    context<> ctx(1, 1);
    if constexpr (std::is_same_v<Tree, trees::narrow>) {
        auto const y = rows(reshape(o.y.view(), extents<dyn, 1>(o.y.size())), 0, o.c.size());
        auto const dy = rows(reshape(o.dy.view(), extents<dyn, 1>(o.y.size())), 0, o.c.size());
        evaluate(ctx, y,
                 dy * Tree()([&] { return o.x.view(); }, [&] { return o.x.view(); }, [&] { return o.w.view(); },
                             [&] { return column(o.c); }));
        return sum(ctx, y);
    } else {
        evaluate(ctx, o.y,
                 o.dy * Tree()([&] { return o.x.view(); }, [&] { return o.x.view(); }, [&] { return o.w.view(); },
                               [&] { return column(o.c); }));
        return sum(ctx, o.y);
    }
}

// Copies of y and all gradients of a tree.
template <class Tree, class T, class Backend> auto outcome_of(operands<T, Backend>& o, context<Backend>& ctx) {
    auto const value = [&] {
        return Tree()([&] { return o.x.view(); }, [&] { return o.x.view(); }, [&] { return o.w.view(); },
                      [&] { return column(o.c); });
    };
    auto const tree = [&] {
        return Tree()([&] { return wrt(o.x, o.dx); }, [&] { return accumulate(o.x, o.dx); },
                      [&] { return wrt(o.w, o.dw); }, [&] { return accumulate(column(o.c), column(o.dc)); });
    };
    if constexpr (std::is_same_v<Tree, trees::narrow>) {
        auto const y = rows(reshape(o.y.view(), extents<dyn, 1>(o.y.size())), 0, o.c.size());
        auto const dy = rows(reshape(o.dy.view(), extents<dyn, 1>(o.y.size())), 0, o.c.size());
        evaluate(ctx, y, value());
        differentiate(ctx, tree(), dy);
    } else {
        evaluate(ctx, o.y, value());
        differentiate(ctx, tree(), o.dy);
    }
    return std::vector{copied(o.y), copied(o.dx), copied(o.dw), copied(o.dc)};
}

template <class Tree> void check_gradients(char const* name) {
    for (auto const& [R, D] : {std::pair<index_t, index_t>{1, 1}, {3, 5}, {130, 19}}) {
        operands<double, cpu> o(R, D);
        operands<complex, cpu> twin(R, D);
        context<> ctx(1, 2);
        outcome_of<Tree>(o, ctx);
        for (auto& each : o.dc) each -= 2;
        auto const check = [&](char const* operand, auto& gradient, auto& of) {
            check_by_differences(std::string(name) + ", " + operand, gradient.data(), gradient.size(), [&](index_t i) {
                return complex_slope(of[i], [&] { return cotangent_sum<Tree>(twin); });
            });
        };
        check("x", o.dx, twin.x);
        check("w", o.dw, twin.w);
        check("c", o.dc, twin.c);
        BOOST_TEST(ctx.workspace.used() == 0U);
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(gradients_match_the_complex_step) {
    check_gradients<trees::rms>("rms");
    check_gradients<trees::layer_norm>("layer norm");
    check_gradients<trees::softmax>("softmax");
    check_gradients<trees::within>("within");
    check_gradients<trees::narrow>("narrow");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_and_columns_broadcast_against_matrices, on, test_devices) {
    using T = typename on::scalar;
    for (index_t const D : {1, 7, 16, 33, 300}) {
        operands<T, typename on::backend> o(5, D);
        typename on::context const ctx(1, 2);
        evaluate(ctx, o.y, 2.0 * o.w - o.x * column(o.c));
        for (index_t i = 0; i < o.y.size(); ++i)
            BOOST_REQUIRE(near(static_cast<double>(o.y[i]),
                               2 * static_cast<double>(o.w[i % D]) -
                                   static_cast<double>(o.x[i]) * static_cast<double>(o.c[i / D]),
                               rounding<T>));
    }
    // R may consist of several sizes.
    typename on::context const ctx(1, 1);
    typename on::template tensor<extents<2, dyn, 3>> x{extents<2, dyn, 3>(4)}, y{x.extents()};
    typename on::template tensor<extents<3>> w;
    typename on::template tensor<extents<2, 4, 1>> c;
    draw(x, 1);
    draw(w, 2);
    draw(c, 3);
    evaluate(ctx, y, x + w + c);
    for (index_t i = 0; i < 24; ++i)
        BOOST_TEST(near(static_cast<double>(y[i]), static_cast<double>(x[i] + w[i % 3] + c[i / 3]), rounding<T>));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(reductions_match_plain_loops, on, test_devices) {
    using T = typename on::scalar;
    for (index_t const D : {1, 7, 16, 33, 300}) {
        operands<T, typename on::backend> o(5, D);
        typename on::context ctx(1, 2);
        typename on::template tensor<extents<dyn, 1>> total{extents<dyn, 1>(5)}, mean{total.extents()},
            squares{total.extents()}, most{total.extents()};
        evaluate(ctx, total, sum_axis1(o.x));
        evaluate(ctx, mean, mean_axis1(o.x));
        evaluate(ctx, squares, mean_square_axis1(o.x));
        evaluate(ctx, most, max_axis1(o.x));
        double all = 0;
        for (index_t r = 0; r < 5; ++r) {
            double sum_of_row = 0, square_of_row = 0, highest = -1e300;
            for (index_t j = 0; j < D; ++j) {
                double const v = static_cast<double>(o.x[r * D + j]);
                sum_of_row += v;
                square_of_row += v * v;
                highest = std::max(highest, v);
            }
            auto const n = static_cast<double>(D);
            BOOST_TEST(near(static_cast<double>(total[r]), sum_of_row, rounding<T> * n));
            BOOST_TEST(near(static_cast<double>(mean[r]), sum_of_row / n, rounding<T>));
            BOOST_TEST(near(static_cast<double>(squares[r]), square_of_row / n, rounding<T>));
            BOOST_TEST(static_cast<double>(most[r]) == highest);
            all += (sum_of_row - highest) * static_cast<double>(o.c[r]);
        }
        BOOST_TEST(near(sum(ctx, (sum_axis1(o.x) - max_axis1(o.x)) * column(o.c)), all, 1e-4));
        BOOST_TEST(near(sum(ctx, (o.x - max_axis1(o.x) / static_cast<double>(D)) * column(o.c)), all, 1e-4));
    }
}

// Equal maxima share the gradient; NaN is passed on.
BOOST_AUTO_TEST_CASE_TEMPLATE(the_largest_of_a_row, on, test_devices) {
    using T = typename on::scalar;
    typename on::context const ctx(1, 1);
    typename on::template tensor<extents<2, 40>> x, dx;
    typename on::template tensor<extents<2, 1>> y, dy;
    x = x * 0 - 1;
    x[3] = x[21] = x[39] = T{5};
    dy[0] = T{6};
    dy[1] = T{40};
    differentiate(ctx, max_axis1(wrt(x, dx)), dy);
    for (index_t j = 0; j < 40; ++j) {
        BOOST_TEST(dx[j] == (j == 3 || j == 21 || j == 39 ? T{2} : T{0}));
        BOOST_TEST(dx[40 + j] == T{1});
    }
    x[77] = std::numeric_limits<T>::quiet_NaN();
    evaluate(ctx, y, max_axis1(x));
    BOOST_TEST(y[0] == T{5});
    BOOST_TEST(std::isnan(y[1]));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(pieces_are_written_while_reading, on, test_devices) {
    using T = typename on::scalar;
    operands<T, typename on::backend> o(70, 9);
    typename on::context const ctx(1, 2);
    typename on::vector mean{extents<dyn>(70)};
    typename on::template tensor<extents<dyn, 1>> want{extents<dyn, 1>(70)};
    evaluate(ctx, want, mean_axis1(o.x));
    evaluate(ctx, o.y, o.x - tee(mean, mean_axis1(o.x)));
    BOOST_CHECK((copied(mean) == copied(want)));
    // A later operand of the tree reads the value that was just written.
    evaluate(ctx, o.y, o.x - tee(mean, mean_axis1(o.x) + 1.0) - column(mean));
    for (index_t i = 0; i < o.y.size(); ++i)
        BOOST_REQUIRE(o.y[i] == o.x[i] - (want[i / 9] + T{1}) - (want[i / 9] + T{1}));
    BOOST_CHECK_EXCEPTION(differentiate(ctx, wrt(o.x, o.dx) * tee(mean, mean_axis1(o.x)), o.dy), error,
                          says(errc::usage, "calm::tee", "only evaluate"));
}

// Neither the number of threads nor the order of a block's threads changes a bit; gradients may overwrite their
// operands.
BOOST_AUTO_TEST_CASE_TEMPLATE(neither_threads_nor_places_change_a_bit, on, test_devices) {
    using T = typename on::scalar;
    using backend = typename on::backend;
    auto const of = [](int threads, thread_order order) {
        operands<T, backend> o(150, 37);
        typename on::context ctx(1, threads);
        ctx.order = order;
        auto all = outcome_of<trees::layer_norm>(o, ctx);
        operands<T, backend> p(150, 37);
        all.push_back(outcome_of<trees::narrow>(p, ctx)[1]);
        return all;
    };
    auto const once = of(1, thread_order::ascending);
    BOOST_CHECK((of(3, thread_order::permuted) == once));
    BOOST_CHECK((of(2, thread_order::descending) == once));
    operands<T, backend> o(150, 37);
    typename on::context ctx(1, 2);
    auto const x = [&](auto&& dx) { return wrt(o.x, dx) - mean_axis1(accumulate(o.x, dx)) * column(o.c); };
    differentiate(ctx, x(o.dx), o.dy);
    auto const want = copied(o.dx);
    auto const saved = copied(o.x);
    differentiate(ctx, x(o.x), o.dy);
    BOOST_CHECK((copied(o.x) == want));
    std::copy(saved.begin(), saved.end(), o.x.begin());
    differentiate(ctx, x(o.dy), o.dy);
    BOOST_CHECK((copied(o.dy) == want));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_emulated_blocks_agree, on, test_devices) {
    using T = typename on::scalar;
    auto const compare = [&]<class Tree>(Tree) {
        operands<double, cpu> exact(33, 21);
        operands<T, typename on::backend> o(33, 21);
        context<> of_exact(1, 1);
        typename on::context ctx(1, 2);
        auto const want = outcome_of<Tree>(exact, of_exact);
        auto const got = outcome_of<Tree>(o, ctx);
        for (std::size_t k = 0; k < want.size(); ++k)
            for (std::size_t i = 0; i < want[k].size(); ++i)
                BOOST_REQUIRE_MESSAGE(near(static_cast<double>(got[k][i]), want[k][i], 40 * rounding<T>),
                                      k << ", " << i << ": " << got[k][i] << " and " << want[k][i]);
    };
    compare(trees::rms());
    compare(trees::layer_norm());
    compare(trees::softmax());
    compare(trees::within());
    compare(trees::narrow());
}

BOOST_AUTO_TEST_CASE(sums_of_trees_by_rows_have_gradients) {
    operands<double, cpu> o(4, 6);
    context<> ctx(1, 2);
    differentiate_sum(ctx, square(wrt(o.x, o.dx)) * sum_axis1(o.x) * wrt(o.w, o.dw), 0.5);
    for (index_t j = 0; j < 6; ++j) {
        double of_w = 0;
        for (index_t r = 0; r < 4; ++r) {
            double total = 0;
            for (index_t k = 0; k < 6; ++k) total += o.x[r * 6 + k];
            double const v = o.x[r * 6 + j];
            of_w += 0.5 * v * v * total;
            BOOST_TEST(near(o.dx[r * 6 + j], v * total * o.w[j], 1e-13));
        }
        BOOST_TEST(near(o.dw[j], of_w, 1e-13));
    }
}

BOOST_AUTO_TEST_CASE(a_dry_run_takes_the_memory_and_computes_nothing) {
    operands<double, cpu> o(200, 6);
    context<> ctx(1, 2);
    auto const before = copied(o.dw);
    ctx.set_dry_run(true);
    differentiate(ctx, o.x * wrt(o.w, o.dw), o.dy);
    BOOST_TEST(sum(ctx, o.x * o.w) == 0);
    BOOST_CHECK((copied(o.dw) == before));
    auto const planned = ctx.workspace.peak();
    ctx.set_dry_run(false);
    differentiate(ctx, o.x * wrt(o.w, o.dw), o.dy);
    BOOST_TEST(ctx.workspace.peak() == planned);
    BOOST_CHECK((copied(o.dw) != before));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(unsupported_row_trees_are_refused, on, test_devices) {
    using T = typename on::scalar;
    typename on::context ctx(1, 1);
    operands<T, typename on::backend> o(4, 6);
    operands<T, typename on::backend> other(4, 5);
    auto const shape = says(errc::usage, "must have the same shape");
    BOOST_CHECK_EXCEPTION(evaluate(ctx, o.y, o.x * other.w), error, shape);
    BOOST_CHECK_EXCEPTION(evaluate(ctx, o.y, o.x * column(o.w)), error, shape);
    BOOST_CHECK_EXCEPTION(evaluate(ctx, o.y, o.x * sum_axis1(other.x)), error,
                          says(errc::usage, "evaluate that one separately", "6", "5"));
    BOOST_CHECK_EXCEPTION(evaluate(ctx, column(o.c), sum_axis1(o.x) + sum_axis1(other.x)), error,
                          says(errc::usage, "evaluate that one separately", "6", "5"));
    typename on::template tensor<extents<dyn, dyn>> none{extents<dyn, dyn>(3, 0)};
    typename on::vector three{extents<dyn>(3)};
    evaluate(ctx, none, none - mean_axis1(none));  // nothing
    BOOST_CHECK_EXCEPTION(evaluate(ctx, column(three), max_axis1(none)), error,
                          says(errc::usage, "at least one number", "3 rows"));
    BOOST_CHECK_EXCEPTION(evaluate(ctx, column(three), sum_axis1(none)), error,
                          says(errc::usage, "at least one number"));
    auto const overlaps = says(errc::usage, "overlaps");
    auto const first_row = reshape(rows(o.x.view(), 0, 1), extents<dyn>(6));
    BOOST_CHECK_EXCEPTION(evaluate(ctx, o.x, o.x + first_row), error, overlaps);
    BOOST_CHECK_EXCEPTION(differentiate(ctx, wrt(o.x, o.dx) * wrt(o.w, first_row), o.dy), error, overlaps);
    BOOST_CHECK_EXCEPTION(evaluate(ctx, o.y, o.x * column(o.c) * tee(o.c, sum_axis1(o.x))), error, overlaps);
    BOOST_CHECK_EXCEPTION(differentiate(ctx, sum_axis1(wrt(o.x, o.dx)) * wrt(o.x, o.dx), o.dy), error,
                          says(errc::usage, "two gradients", "use accumulate"));
}
