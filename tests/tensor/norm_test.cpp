#include "calm/tensor/ops/norm.hpp"
#include "support/sentences.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

// Operand sizes; the destination is (3, 5).
struct given {
    index_t x = 3, dy = 3, mean = 3, r = 3;  // rows
    index_t w = 5, b = 5, dw = 5, db = 5;    // columns
};
using matrix = tensor<float, extents<dyn, dyn>>;
using vector = tensor<float, extents<dyn>>;
matrix rows_of(index_t count) {
    return matrix(extents<dyn, dyn>(count, 5));
}
vector of(index_t count) {
    return vector(extents<dyn>(count));
}

void call_rms_norm(given const& s) {
    context<> ctx;
    auto y = rows_of(3);
    auto r = of(s.r);
    rms_norm(ctx, y, r, rows_of(s.x).view(), of(s.w).view(), 1e-6);
}
void call_rms_norm_back(given const& s) {
    context<> ctx;
    auto dx = rows_of(3);
    auto dw = of(s.dw);
    rms_norm_back(ctx, dx, dw, rows_of(s.dy).view(), rows_of(s.x).view(), of(s.w).view(), of(s.r).view());
}
void call_layer_norm(given const& s) {
    context<> ctx;
    auto y = rows_of(3);
    auto mean = of(s.mean), r = of(s.r);
    layer_norm(ctx, y, mean, r, rows_of(s.x).view(), of(s.w).view(), of(s.b).view(), 1e-6);
}
void call_layer_norm_back(given const& s) {
    context<> ctx;
    auto dx = rows_of(3);
    auto dw = of(s.dw), db = of(s.db);
    layer_norm_back(ctx, dx, dw, db, rows_of(s.dy).view(),
                    {.x = rows_of(s.x).view(), .w = of(s.w).view(), .mean = of(s.mean).view(), .r = of(s.r).view()});
}

// Checks the error message of a call with one wrong size.
template <class Call> void check(Call call, given const& s, std::string const& sentence) {
    call({});
    BOOST_TEST(usage_sentence([&] { call(s); }) == sentence);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_operand_of_another_size_is_refused) {
    check(call_rms_norm, {.x = 2}, "calm::rms_norm: expected x of shape (3, 5), found (2, 5)");
    check(call_rms_norm, {.r = 2}, "calm::rms_norm: expected r of 3 numbers, found 2");
    check(call_rms_norm, {.w = 4}, "calm::rms_norm: expected w of 5 numbers, found 4");

    check(call_rms_norm_back, {.x = 4}, "calm::rms_norm_back: expected x of shape (3, 5), found (4, 5)");
    check(call_rms_norm_back, {.dy = 2}, "calm::rms_norm_back: expected dy of shape (3, 5), found (2, 5)");
    check(call_rms_norm_back, {.r = 4}, "calm::rms_norm_back: expected r of 3 numbers, found 4");
    check(call_rms_norm_back, {.w = 6}, "calm::rms_norm_back: expected w of 5 numbers, found 6");
    check(call_rms_norm_back, {.dw = 4}, "calm::rms_norm_back: expected dw of 5 numbers, found 4");

    check(call_layer_norm, {.x = 2}, "calm::layer_norm: expected x of shape (3, 5), found (2, 5)");
    check(call_layer_norm, {.mean = 2}, "calm::layer_norm: expected mean of 3 numbers, found 2");
    check(call_layer_norm, {.r = 2}, "calm::layer_norm: expected r of 3 numbers, found 2");
    check(call_layer_norm, {.w = 4}, "calm::layer_norm: expected w of 5 numbers, found 4");
    check(call_layer_norm, {.b = 4}, "calm::layer_norm: expected b of 5 numbers, found 4");

    check(call_layer_norm_back, {.x = 2}, "calm::layer_norm_back: expected x of shape (3, 5), found (2, 5)");
    check(call_layer_norm_back, {.dy = 4}, "calm::layer_norm_back: expected dy of shape (3, 5), found (4, 5)");
    check(call_layer_norm_back, {.mean = 2}, "calm::layer_norm_back: expected mean of 3 numbers, found 2");
    check(call_layer_norm_back, {.r = 2}, "calm::layer_norm_back: expected r of 3 numbers, found 2");
    check(call_layer_norm_back, {.w = 4}, "calm::layer_norm_back: expected w of 5 numbers, found 4");
    check(call_layer_norm_back, {.dw = 4}, "calm::layer_norm_back: expected dw of 5 numbers, found 4");
    check(call_layer_norm_back, {.db = 4}, "calm::layer_norm_back: expected db of 5 numbers, found 4");
}

// Forward keeps the statistics of every row, and backward reads them.
BOOST_AUTO_TEST_CASE(a_row_is_normalised_forward_and_backward) {
    extents<dyn, 2> const one_row(1);
    context<> ctx;
    tensor<double, extents<dyn, 2>> x(one_row), y(one_row), dx(one_row), dy(one_row);
    tensor<double, extents<2>> w, b, dw, db;  // zeros; backward adds to dw and db
    tensor<double, extents<dyn>> mean{extents<dyn>(1)}, r{extents<dyn>(1)};
    x[0] = 3, x[1] = 4;
    w[0] = 1, w[1] = 2;
    b[0] = b[1] = 10;
    dy[0] = 1, dy[1] = 0;
    auto const within = boost::test_tools::tolerance(1e-12);

    rms_norm(ctx, y, r, x, w, 0);  // eps 0, for exact numbers
    double const root = std::sqrt((9 + 16) / 2.0);
    BOOST_TEST(r[0] == 1 / root, within);
    BOOST_TEST(y[0] == 1 * 3 / root, within);
    BOOST_TEST(y[1] == 2 * 4 / root, within);
    rms_norm_back(ctx, dx, dw, dy, x, w, r);
    BOOST_TEST(dw[0] == 3 / root, within);
    BOOST_TEST(dx[0] == 0.64 / root, within);
    BOOST_TEST(std::abs(dx[0] * x[0] + dx[1] * x[1]) < 1e-12);  // a multiple of x has the same y

    layer_norm(ctx, y, mean, r, x, w, b, 0);
    BOOST_TEST(mean[0] == 3.5, within);
    BOOST_TEST(y[0] == 10 - 1, within);
    BOOST_TEST(y[1] == 10 + 2, within);
    layer_norm_back(ctx, dx, dw, db, dy, {.x = x, .w = w, .mean = mean, .r = r});
    BOOST_TEST(dw[0] == 3 / root - 1, within);  // added to what rms_norm_back left there
    BOOST_TEST(db[0] == 1, within);
}

// If the sum of squares overflows, the row becomes NaN, not zeros or the bias that look like a result.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_row_that_overflows_is_nan, on, test_devices) {
    using T = typename on::scalar;
    constexpr index_t R = 3, D = 19;
    typename on::context ctx(1, 2);
    typename on::template tensor<extents<dyn, D>> x{extents<dyn, D>(R)}, y{extents<dyn, D>(R)};
    typename on::template tensor<extents<D>> w, b;
    typename on::vector mean{extents<dyn>(R)}, r{extents<dyn>(R)};
    draw(x, 1), draw(w, 2), draw(b, 3);
    x[D + 4] = std::sqrt(std::numeric_limits<T>::max()) * 2;
    auto const is_marked = [&](auto const& what) {
        for (index_t i = 0; i < R * D; ++i) BOOST_TEST(std::isnan(static_cast<double>(y[i])) == (i / D == 1), what);
    };
    rms_norm(ctx, y, r, x, w, 1e-6);
    is_marked("rms_norm");
    layer_norm(ctx, y, mean, r, x, w, b, 1e-6);
    is_marked("layer_norm");
}

// LayerNorm and its gradients compared with their definition, with tensors as operands.
BOOST_AUTO_TEST_CASE_TEMPLATE(tensors_are_operands, on, test_devices) {
    using T = typename on::scalar;
    constexpr index_t R = 3, D = 19;
    typename on::context ctx(1, 2);
    typename on::template tensor<extents<dyn, D>> x{extents<dyn, D>(R)}, y{extents<dyn, D>(R)}, dy{extents<dyn, D>(R)},
        dx{extents<dyn, D>(R)};
    typename on::template tensor<extents<D>> w, b, dw, db;
    typename on::vector mean{extents<dyn>(R)}, r{extents<dyn>(R)};
    draw(x, 1), draw(w, 2), draw(b, 3), draw(dy, 4);
    layer_norm(ctx, y, mean, r, x, w, b, 1e-6);
    layer_norm_back(ctx, dx, dw, db, dy, {.x = x, .w = w, .mean = mean, .r = r});
    auto const number = [](auto const& of, index_t i) { return static_cast<double>(of[i]); };
    double worst = 0;
    std::vector<double> want_dw(D), want_db(D);
    for (index_t i = 0; i < R; ++i) {
        double middle = 0, variance = 0, slope = 0, along = 0;
        for (index_t j = 0; j < D; ++j) middle += number(x, i * D + j) / D;
        for (index_t j = 0; j < D; ++j) variance += std::pow(number(x, i * D + j) - middle, 2) / D;
        double const root = 1 / std::sqrt(variance + 1e-6);
        auto const h = [&](index_t j) { return (number(x, i * D + j) - middle) * root; };
        for (index_t j = 0; j < D; ++j) {
            slope += number(dy, i * D + j) * number(w, j) / D;
            along += number(dy, i * D + j) * number(w, j) * h(j) / D;
        }
        for (index_t j = 0; j < D; ++j) {
            double const g = number(dy, i * D + j);
            worst = std::max({worst, std::abs(number(y, i * D + j) - (h(j) * number(w, j) + number(b, j))),
                              std::abs(number(dx, i * D + j) - (g * number(w, j) - slope - h(j) * along) * root)});
            want_dw[static_cast<std::size_t>(j)] += g * h(j), want_db[static_cast<std::size_t>(j)] += g;
        }
    }
    for (index_t j = 0; j < D; ++j)
        worst = std::max({worst, std::abs(number(dw, j) - want_dw[static_cast<std::size_t>(j)]),
                          std::abs(number(db, j) - want_db[static_cast<std::size_t>(j)])});
    BOOST_TEST(worst <= rounding<T>);
}

namespace {

// Gradients of row norms from their definition, summed in double with the given statistics, and the sums of the terms'
// magnitudes, which scale the rounding error.
struct wanted_gradients {
    std::vector<double> dx, dw, db, dx_terms, dw_terms, db_terms;

    template <class Numbers>
    wanted_gradients(Numbers const& x, Numbers const& dy, Numbers const& w, Numbers const& mean, Numbers const& r,
                     bool centred) :
        dx(x.size()),
        dw(w.size()), db(w.size()), dx_terms(x.size()), dw_terms(w.size()), db_terms(w.size()) {
        std::size_t const D = w.size();
        auto const number = static_cast<double>(D);
        for (std::size_t row = 0; row < r.size(); ++row) {
            double const middle = centred ? double{mean[row]} : 0.0, root{r[row]};
            auto const h = [&](std::size_t j) { return (double{x[row * D + j]} - middle) * root; };
            double slope = 0, along = 0, all = 0;
            for (std::size_t j = 0; j < D; ++j) {
                double const g = double{dy[row * D + j]} * double{w[j]};
                slope += centred ? g / number : 0;
                along += g * h(j) / number;
                all += std::abs(g) * (1 + std::abs(h(j))) / number;
            }
            for (std::size_t j = 0; j < D; ++j) {
                double const g{dy[row * D + j]};
                dx[row * D + j] = (g * double{w[j]} - slope - h(j) * along) * root;
                dx_terms[row * D + j] = (std::abs(g * double{w[j]}) + all * (1 + std::abs(h(j)))) * root;
                dw[j] += g * h(j), dw_terms[j] += std::abs(g) * (std::abs(h(j)) + std::abs(middle) * root);
                db[j] += g, db_terms[j] += std::abs(g);
            }
        }
    }
};

template <class Numbers>
double worst_of(Numbers const& got, std::vector<double> const& want, std::vector<double> const& terms) {
    double worst = got.size() == want.size() ? 0 : std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < want.size() && i < got.size(); ++i) {
        double const apart = std::abs(double{got[i]} - want[i]) / (terms[i] + 1);
        worst = apart <= worst ? worst : apart;
    }
    return worst;
}

}  // namespace

// Rows that are multiples of a group and others, some wider than a block's registers. Few rows, and so many that a
// block processes several. dx is separate, or overwrites dy or x.
BOOST_AUTO_TEST_CASE_TEMPLATE(gradients_by_their_definition, on, test_devices) {
    using T = typename on::scalar;
    using matrix_on = typename on::template tensor<extents<dyn, dyn>>;
    // Tree sums of D or R terms, each rounded a few times.
    double const bound = 32 * static_cast<double>(std::numeric_limits<T>::epsilon());
    struct size {
        index_t rows, width;
    };
    for (size const at : {size{0, 8},
                          {1, 1},
                          {3, 5},
                          {1, 8},
                          {70, 130},
                          {2100, 8},
                          {2100, 5},
                          {9, 256},
                          {9, 260},
                          {70, 1024},
                          {5, 1028},
                          {6, 2052},
                          {3, 4096},
                          {2, 4100}})
        for (int const place : {0, 1, 2}) {
            index_t const R = at.rows, D = at.width;
            typename on::context ctx(1, 2);
            ctx.order = thread_order::permuted;
            extents<dyn, dyn> const shape(R, D);
            matrix_on x(shape), dy(shape), dx(shape);
            typename on::vector w{extents<dyn>(D)}, b{extents<dyn>(D)}, mean{extents<dyn>(R)}, r{extents<dyn>(R)};
            draw(x, 1, 2, 1), draw(dy, 2), draw(w, 3), draw(b, 4);
            auto const copy_of = [](auto const& t) { return std::vector<T>(t.begin(), t.end()); };
            auto const given_x = copy_of(x), given_dy = copy_of(dy);
            matrix_on addend(shape);
            draw(addend, 5);
            auto const check_gradients = [&](bool centred, auto const& back, bool onto = false) {
                std::copy(given_x.begin(), given_x.end(), x.begin());
                std::copy(given_dy.begin(), given_dy.end(), dy.begin());
                typename on::vector dw{extents<dyn>(D)}, db{extents<dyn>(D)};
                std::fill(dw.begin(), dw.end(), T{1}), std::fill(db.begin(), db.end(), T{1});
                auto& to = place == 0 ? dx : place == 1 ? dy : x;
                back(to, dw, db);
                wanted_gradients want(given_x, given_dy, copy_of(w), copy_of(mean), copy_of(r), centred);
                for (std::size_t i = 0; onto && i < want.dx.size(); ++i)
                    want.dx[i] += static_cast<double>(addend[static_cast<index_t>(i)]);
                for (auto* const sums : {&want.dw, &want.db})
                    for (double& sum : *sums) sum += 1;
                auto const where = std::to_string(R) + " rows of " + std::to_string(D) + ", dx in place " +
                                   std::to_string(place) + (centred ? ", centred" : "");
                BOOST_TEST(worst_of(copy_of(to), want.dx, want.dx_terms) <= bound, where);
                BOOST_TEST(worst_of(copy_of(dw), want.dw, want.dw_terms) <= bound, where);
                if (centred) BOOST_TEST(worst_of(copy_of(db), want.db, want.db_terms) <= bound, where);
            };
            matrix_on y(shape);
            rms_norm(ctx, y, r, x, w, 1e-6);
            check_gradients(false, [&](auto& to, auto& dw, auto&) { rms_norm_back(ctx, to, dw, dy, x, w, r); });
            auto const rms_onto = [&](auto& to, auto& dw, auto&) { rms_norm_back(ctx, to, dw, dy, x, w, r, addend); };
            check_gradients(false, rms_onto, true);
            std::copy(given_x.begin(), given_x.end(), x.begin());
            layer_norm(ctx, y, mean, r, x, w, b, 1e-6);
            check_gradients(true, [&](auto& to, auto& dw, auto& db) {
                layer_norm_back(ctx, to, dw, db, dy, {.x = x, .w = w, .mean = mean, .r = r});
            });
            auto const layer_onto = [&](auto& to, auto& dw, auto& db) {
                layer_norm_back(ctx, to, dw, db, dy, {.x = x, .w = w, .mean = mean, .r = r}, addend);
            };
            check_gradients(true, layer_onto, true);
        }
}
