#include "calm/tensor/norm.hpp"
#include "support/sentences.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

// How much there is of each operand; the destination is (3, 5).
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
    layer_norm_back(ctx, dx, dw, db, rows_of(s.dy).view(), rows_of(s.x).view(), of(s.w).view(), of(s.mean).view(),
                    of(s.r).view());
}

// What a call says of one wrong size.
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

// LayerNorm and its gradients by their definition, of tensors as they are.
BOOST_AUTO_TEST_CASE_TEMPLATE(tensors_are_operands, on, executors) {
    using T = typename on::scalar;
    constexpr index_t R = 3, D = 19;
    typename on::context ctx(1, 2);
    typename on::template tensor<extents<dyn, D>> x{extents<dyn, D>(R)}, y{extents<dyn, D>(R)}, dy{extents<dyn, D>(R)},
        dx{extents<dyn, D>(R)};
    typename on::template tensor<extents<D>> w, b, dw, db;
    typename on::vector mean{extents<dyn>(R)}, r{extents<dyn>(R)};
    draw(x, 1), draw(w, 2), draw(b, 3), draw(dy, 4);
    layer_norm(ctx, y, mean, r, x, w, b, 1e-6);
    layer_norm_back(ctx, dx, dw, db, dy, x, w, mean, r);
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
