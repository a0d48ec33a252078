// bf16 products on a device, here the emulated one: the block kernels that round and multiply.
#include "calm/emulated.hpp"
#include "calm/tensor/ops/bf16_products.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "calm/base/bf16.hpp"
#include "calm/tensor/ops/fill.hpp"
#include "calm/tensor/ops/matmul.hpp"
#include "calm/tensor/ops/rows.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

template <class Backend> using matrix_of = tensor<float, extents<dyn, dyn>, Backend>;

struct shape {
    index_t m, n, k;
};
// More rows than stay in fp32, one column, depth one and zero, sizes around tiles and groups.
constexpr shape shapes[] = {{65, 1, 1}, {66, 33, 17}, {130, 63, 8}, {97, 130, 31}, {71, 9, 200}, {80, 5, 0}};

enum class start { zero, bias, what_was_there };

double rounded(float x) {
    return double{static_cast<float>(bf16(double{x}))};
}

// A product in one of its forms.
struct asked {
    shape s;
    bool a_turned, b_turned;
    start from;
    std::vector<float> a, b, c, bias;

    asked(shape const& of, bool a_is, bool b_is, start begins) :
        s(of), a_turned(a_is), b_turned(b_is), from(begins), a(drawn_values(s.m * s.k, 1)),
        b(drawn_values(s.k * s.n, 2)), c(drawn_values(s.m * s.n, 3)), bias(drawn_values(s.n, 4)) {}

    [[nodiscard]] float a_at(index_t i, index_t l) const {
        return a[static_cast<std::size_t>(a_turned ? l * s.m + i : i * s.k + l)];
    }
    [[nodiscard]] float b_at(index_t l, index_t j) const {
        return b[static_cast<std::size_t>(b_turned ? j * s.k + l : l * s.n + j)];
    }
    [[nodiscard]] float start_at(index_t i, index_t j) const {
        if (from == start::zero) return 0;
        return from == start::bias ? bias[static_cast<std::size_t>(j)] : c[static_cast<std::size_t>(i * s.n + j)];
    }

    // The result computed by a context.
    template <class Backend> std::vector<float> found(context<Backend>& ctx) const {
        using shape_of = extents<dyn, dyn>;
        arena_scope const scope(ctx.saved);
        auto const place = [&](std::vector<float> const& x, index_t rows, index_t columns) {
            auto const there = ctx.saved.template take<float>(shape_of(rows, columns));
            if constexpr (host_memory<Backend>)
                std::copy(x.begin(), x.end(), there.begin());
            else
                copy(ctx, there, view<float const, shape_of>(x.data(), there.extents()));
            return there;
        };
        auto const first = a_turned ? place(a, s.k, s.m) : place(a, s.m, s.k);
        auto const second = b_turned ? place(b, s.n, s.k) : place(b, s.k, s.n);
        auto const result = place(c, s.m, s.n);
        auto const row = place(bias, 1, s.n);
        auto const multiply = [&](auto const& x, auto const& y) {
            if (from == start::bias)
                matmul(ctx, result, x, y,
                       {.bias = vector_view<float const, dyn, Backend>(row.data(), extents<dyn>(s.n))});
            else
                matmul(ctx, result, x, y, {.mode = from == start::zero ? into::overwrite : into::accumulate});
        };
        if (a_turned && b_turned)
            multiply(transposed(first), transposed(second));
        else if (a_turned)
            multiply(transposed(first), second);
        else if (b_turned)
            multiply(first, transposed(second));
        else
            multiply(first, second);
        std::vector<float> room;
        auto const values = to_host(ctx, result, room);
        return {values.begin(), values.end()};
    }

private:
    static std::vector<float> drawn_values(index_t n, std::uint64_t seed) {
        auto x = draws<float>(n, seed);
        for (std::size_t i = 0; i < x.size(); i += 7) x[i] = 1.0F + static_cast<float>(i % 9) * 0x1p-8F;  // ties
        return x;
    }
};

template <class F> void each_product(F const& f) {
    for (auto const& s : shapes)
        for (bool const a_turned : {false, true})
            for (bool const b_turned : {false, true})
                for (start const from : {start::zero, start::bias, start::what_was_there})
                    f(asked(s, a_turned, b_turned, from));
}

std::string told(asked const& p) {
    return std::to_string(p.s.m) + " " + std::to_string(p.s.n) + " " + std::to_string(p.s.k) + ", turned " +
           std::to_string(int{p.a_turned}) + std::to_string(int{p.b_turned}) + ", from " +
           std::to_string(static_cast<int>(p.from));
}

context<emulated> in_bf16() {
    context<emulated> ctx(1, 2);
    multiply_in_bf16(ctx);
    return ctx;
}

}  // namespace

// Each element is the sum of products of factors rounded by bf16(x), up to float summation error: (k + 1) 2^-24 of the
// sum of magnitudes. So it is within twice that of the cpu's result. It differs from the sum of unrounded a and b.
BOOST_AUTO_TEST_CASE(a_device_multiplies_as_the_cpu_does) {
    auto ctx = in_bf16();
    context<> host(1, 2);
    multiply_in_bf16(host);
    each_product([&](asked const& p) {
        auto const found = p.found(ctx);
        auto const of_cpu = p.found(host);
        double worst = 0, apart = 0;
        index_t as_unrounded = 0;
        for (index_t i = 0; i < p.s.m; ++i)
            for (index_t j = 0; j < p.s.n; ++j) {
                double want = p.start_at(i, j), plain = want, most = std::abs(want) + 1e-30;
                for (index_t l = 0; l < p.s.k; ++l) {
                    double const term = rounded(p.a_at(i, l)) * rounded(p.b_at(l, j));
                    want += term;
                    most += std::abs(term);
                    plain += double{p.a_at(i, l)} * double{p.b_at(l, j)};
                }
                auto const at = static_cast<std::size_t>(i * p.s.n + j);
                worst = std::max(worst, std::abs(found[at] - want) / most);
                apart = std::max(apart, std::abs(double{found[at]} - double{of_cpu[at]}) / most);
                as_unrounded += std::abs(found[at] - plain) < most * 1e-6 ? 1 : 0;
            }
        double const bound = static_cast<double>(p.s.k + 1) * 0x1p-24;
        BOOST_TEST(worst <= bound, told(p) << ": " << worst);
        BOOST_TEST(apart <= 2 * bound, told(p) << ": " << apart);
        if (p.s.k > 8) BOOST_TEST(as_unrounded <= p.s.m * p.s.n / 50);
    });
}

BOOST_AUTO_TEST_CASE(bits_do_not_depend_on_the_order_of_blocks_and_threads) {
    auto ctx = in_bf16(), other = in_bf16();
    other.order = thread_order::permuted;
    each_product([&](asked const& p) { BOOST_TEST((p.found(ctx) == p.found(other)), told(p)); });
}

// Products of at most 64 rows, whatever their depth, and of other types than float are not rounded.
BOOST_AUTO_TEST_CASE(few_rows_stay_in_fp32) {
    auto ctx = in_bf16();
    context<emulated> plain(1, 2);
    for (bool const a_turned : {false, true}) {
        asked const few({64, 70, 300}, a_turned, false, start::zero), more({65, 70, 300}, a_turned, false, start::zero);
        BOOST_TEST((few.found(ctx) == few.found(plain)));
        BOOST_TEST((more.found(ctx) != more.found(plain)));
    }
    auto const f = [](auto& by) {
        arena_scope const scope(by.saved);
        auto const x = by.saved.template take<double>(extents<dyn, dyn>(80, 80));
        auto const y = by.saved.template take<double>(extents<dyn, dyn>(80, 80));
        fill_normal(by, x, key{1});
        matmul(by, y, x, x);
        std::vector<double> room;
        auto const values = to_host(by, y, room);
        return std::vector<double>(values.begin(), values.end());
    };
    BOOST_TEST((f(ctx) == f(plain)));
}

// bf16 weights are used as stored and A is rounded: bit-identical to a product with the same numbers as a float B.
BOOST_AUTO_TEST_CASE(weights_in_bf16_are_not_rounded_again) {
    auto ctx = in_bf16();
    for (index_t const m : {16, 17, 64, 65, 130})
        for (bool const turned : {false, true}) {
            constexpr index_t n = 45, k = 37;
            using shape_of = extents<dyn, dyn>;
            shape_of const of_weights = turned ? shape_of(n, k) : shape_of(k, n);
            auto const x = ctx.saved.take<float>(shape_of(m, k)), w = ctx.saved.take<float>(of_weights),
                       y = ctx.saved.take<float>(shape_of(m, n));
            auto const narrow = ctx.saved.take<bf16>(of_weights);
            fill_normal(ctx, x, key{1});
            fill_normal(ctx, w, key{2});
            copy(ctx, narrow, w);
            copy(ctx, w, narrow);
            std::vector<float> room;
            auto const by = [&](auto const& weights) {
                auto const launched = ctx.counts().launches;
                turned ? matmul(ctx, y, x, transposed(weights)) : matmul(ctx, y, x, weights);
                BOOST_TEST(ctx.counts().launches - launched <= 2);
                auto const values = to_host(ctx, y, room);
                return std::vector<float>(values.begin(), values.end());
            };
            BOOST_TEST((by(narrow) == by(w)), m << " " << turned);
        }
}

// Sizes that are not multiples of a group (as of a vocabulary), with row strides that are: nothing outside the result
// is written, and the rest of the depth is included.
BOOST_AUTO_TEST_CASE(remainders_of_whole_groups_are_multiplied_too) {
    auto ctx = in_bf16();
    constexpr index_t m = 3, group = 8;
    auto const up = [](index_t n) { return (n + group - 1) / group * group; };
    for (auto const& [n, k] : {std::pair<index_t, index_t>{521, 40}, {16, 523}, {519, 517}})
        for (bool const turned : {false, true})
            for (bool const accumulates : {false, true}) {
                arena_scope const scope(ctx.saved);
                index_t const a_stride = turned ? up(m) : up(k), b_stride = turned ? up(k) : up(n), stride = up(n);
                index_t const a_size = a_stride * (turned ? k : m), b_size = b_stride * (turned ? n : k);
                auto const drawn = [&](index_t size, std::uint64_t seed) {
                    auto const x = ctx.saved.take<float>(extents<dyn>(size));
                    auto const there = ctx.saved.take<bf16>(extents<dyn>(size));
                    fill_normal(ctx, x, key{seed});
                    copy(ctx, there, x);
                    copy(ctx, x, there);
                    return std::pair(x, there);
                };
                auto const [a, narrow_a] = drawn(a_size, 1);
                auto const [b, narrow_b] = drawn(b_size, 2);
                auto const c = drawn(m * stride, 3).first, bias = drawn(n, 4).first,
                           addend = drawn(m * stride, 5).first;
                std::vector<float> rooms[6];
                auto const there = to_host(ctx, c, rooms[0]);
                std::vector<float> const start(there.begin(), there.end());
                detail::product<float, bf16, bf16> p{
                    m,        n,      k,          c.data(), stride, narrow_a.data(), a_stride, turned, narrow_b.data(),
                    b_stride, turned, accumulates};
                if (!accumulates) p.bias = bias.data(), p.addend = addend.data();
                detail::product_in_groups(ctx, p);
                auto const found = to_host(ctx, c, rooms[1]);
                auto const x = to_host(ctx, a, rooms[2]), y = to_host(ctx, b, rooms[3]),
                           row = to_host(ctx, bias, rooms[4]), more = to_host(ctx, addend, rooms[5]);
                auto const at = [](auto const& values, index_t i) {
                    return double{values[static_cast<std::size_t>(i)]};
                };
                double worst = 0;
                bool stays = true;
                for (index_t i = 0; i < m; ++i)
                    for (index_t j = 0; j < stride; ++j) {
                        double want = at(start, i * stride + j);
                        if (j >= n) {
                            stays = stays && at(found, i * stride + j) == want;
                            continue;
                        }
                        if (!accumulates) want = at(row, j) + at(more, i * stride + j);
                        for (index_t l = 0; l < k; ++l)
                            want += at(x, turned ? l * a_stride + i : i * a_stride + l) *
                                    at(y, turned ? j * b_stride + l : l * b_stride + j);
                        worst = std::max(worst, std::abs(at(found, i * stride + j) - want));
                    }
                BOOST_TEST(stays, n << " " << k << " " << turned << accumulates);
                BOOST_TEST(worst < 1e-4, n << " " << k << " " << turned << accumulates << ": " << worst);
            }
}

// Columns of a wider matrix may start anywhere, and the other columns are not read.
BOOST_AUTO_TEST_CASE(factors_may_be_columns_of_others) {
    auto ctx = in_bf16();
    constexpr index_t m = 70, k = 19, n = 11, wide = 45;
    auto const x = draws<float>(m * wide, 1), w = draws<float>(n * wide, 2);
    auto const there = ctx.saved.take<float>(extents<dyn, wide>(m)),
               weights = ctx.saved.take<float>(extents<dyn, wide>(n));
    auto const y = ctx.saved.take<float>(extents<dyn, n>(m));
    copy(ctx, there, view<float const, extents<dyn, wide>>(x.data(), there.extents()));
    copy(ctx, weights, view<float const, extents<dyn, wide>>(w.data(), weights.extents()));
    matmul(ctx, y, columns<3, k>(there), transposed(columns<26, k>(weights)));
    std::vector<float> room;
    auto const found = to_host(ctx, y, room);
    double worst = 0;
    for (index_t i = 0; i < m; ++i)
        for (index_t j = 0; j < n; ++j) {
            double want = 0;
            for (index_t l = 0; l < k; ++l)
                want += rounded(x[static_cast<std::size_t>(i * wide + 3 + l)]) *
                        rounded(w[static_cast<std::size_t>(j * wide + 26 + l)]);
            worst = std::max(worst, std::abs(found[static_cast<std::size_t>(i * n + j)] - want));
        }
    BOOST_TEST(worst < 1e-5);
}

BOOST_AUTO_TEST_CASE(non_finite_values_stay_non_finite) {
    auto ctx = in_bf16();
    constexpr float infinity = std::numeric_limits<float>::infinity();
    asked p({80, 40, 50}, false, false, start::zero);
    std::fill(p.a.begin(), p.a.end(), 1.0F);
    std::fill(p.b.begin(), p.b.end(), 1.0F);
    p.a[3 * 50 + 7] = std::numeric_limits<float>::quiet_NaN();
    p.a[4 * 50 + 8] = std::bit_cast<float>(0x7FFFFFFFU);  // a NaN that rounding up would turn into -0
    p.a[5 * 50 + 49] = infinity;
    p.a[6 * 50] = std::numeric_limits<float>::max();  // rounds to infinity
    auto const c = p.found(ctx);
    BOOST_TEST(std::isnan(c[3 * 40 + 39]));
    BOOST_TEST(std::isnan(c[4 * 40]));
    BOOST_TEST(c[5 * 40 + 20] == infinity);
    BOOST_TEST(c[6 * 40 + 20] == infinity);
    BOOST_TEST(c[7 * 40 + 20] == 50.0F);
}

// A product is two launches, without waiting or allocating; a dry run counts them and plans their memory. All of it can
// be captured in a graph.
BOOST_AUTO_TEST_CASE(a_dry_run_plans_what_it_takes) {
    auto ctx = in_bf16();
    auto const x = ctx.saved.take<float>(extents<dyn, dyn>(130, 37)),
               w = ctx.saved.take<float>(extents<dyn, dyn>(45, 37)),
               y = ctx.saved.take<float>(extents<dyn, dyn>(130, 45));
    fill_normal(ctx, x, key{1});
    fill_normal(ctx, w, key{2});
    fill(ctx, y, 0.0F);
    ctx.set_dry_run(true);
    auto const dry_launches = ctx.dry_launches();
    matmul(ctx, y, x, transposed(w));
    BOOST_TEST(ctx.dry_launches() - dry_launches == 2);
    ctx.set_dry_run(false);
    auto const planned = ctx.workspace.peak();
    BOOST_TEST(planned >= 2U * (130 + 45) * 40);
    auto const before = ctx.counts();
    matmul(ctx, y, x, transposed(w));
    auto const asked = ctx.counts() - before;
    BOOST_TEST((asked.launches == 2 && asked.waits == 0 && asked.uploads == 0 && asked.allocations == 0));
    BOOST_TEST(ctx.workspace.peak() == planned);
    std::vector<float> room, again;
    auto const once = to_host(ctx, y, room);
    device_graph<emulated> const graph(
        ctx, [&] { matmul(ctx, y, x, transposed(w)); }, 0);
    fill(ctx, y, 0.0F);
    graph.launch(ctx);
    BOOST_TEST(to_host(ctx, y, again) == once, boost::test_tools::per_element());
}
