// bf16 activations on the emulated device with bf16 products: operations, products and layers on them.
#include "calm/emulated.hpp"
#include "calm/tensor/core/activations.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "calm/model/heads/energy.hpp"
#include "calm/nn/attention.hpp"
#include "calm/nn/mlp.hpp"
#include "calm/nn/norm.hpp"
#include "calm/nn/sequential.hpp"
#include "calm/tensor/ops/bf16_products.hpp"
#include "calm/tensor/ops/fill.hpp"
#include "calm/tensor/ops/matmul.hpp"
#include "calm/tensor/ops/repeat.hpp"
#include "support/rows.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using device = space<emulated>;
template <class T, index_t Columns> using rows_of = matrix_view<T, Columns, emulated>;
using floats = std::vector<float>;
using calm::test::values_of;

context<emulated> in_bf16(thread_order order = thread_order::ascending) {
    context<emulated> ctx(1, 2);
    ctx.order = order;
    multiply_in_bf16(ctx);
    return ctx;
}

// x rounded to bf16.
template <index_t Columns> rows_of<bf16, Columns> halved(context<emulated>& ctx, rows_of<float, Columns> const& x) {
    auto const y = ctx.saved.take<bf16>(x.extents());
    copy(ctx, y, x);
    return y;
}
template <index_t Columns> rows_of<float, Columns> widened(context<emulated>& ctx, rows_of<bf16, Columns> const& x) {
    auto const y = ctx.saved.take<float>(x.extents());
    copy(ctx, y, x);
    return y;
}

template <index_t Columns> floats values_of(context<emulated>& ctx, rows_of<bf16, Columns> const& x) {
    return values_of(ctx, widened(ctx, x));
}
template <index_t Columns> floats values_of(context<emulated>& ctx, activations<float, Columns, emulated> const& x) {
    floats all;
    with_numbers([&](auto const& y) { all = values_of(ctx, y); }, x);
    return all;
}

floats rounded(floats x) {
    for (auto& each : x) each = static_cast<float>(bf16(each));
    return x;
}

// The largest difference, relative to the largest magnitude of `want`.
double apart(floats const& found, floats const& want) {
    BOOST_REQUIRE(found.size() == want.size());
    double most = 0, off = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        most = std::max(most, std::abs(double{want[i]}));
        off = std::max(off, std::isfinite(found[i]) ? std::abs(double{found[i]} - double{want[i]}) : INFINITY);
    }
    return off / most;
}

// Runs f(context) with and without bf16 products; the results must be close but not equal.
template <class F> void compare_with_fp32(std::string const& what, double bound, F const& f) {
    for (auto const order : {thread_order::ascending, thread_order::permuted}) {
        auto ctx = in_bf16(order);
        context<emulated> plain(1, 2);
        auto const found = f(ctx), want = f(plain);
        BOOST_REQUIRE(found.size() == want.size());
        for (std::size_t i = 0; i < want.size(); ++i) {
            double const off = apart(found[i], want[i]);
            BOOST_TEST(off < bound, what << ", number " << i << ": " << off);
        }
        BOOST_TEST((found != want), what);
    }
}

}  // namespace

// Activations are rounded where the products on them round. They are not rounded for few rows, for rows that are not
// multiples of 16 bytes, or when the context multiplies in fp32. On the cpu, and for double, they are plain views.
BOOST_AUTO_TEST_CASE(activations_are_rounded_where_products_round) {
    auto ctx = in_bf16();
    context<emulated> plain(1, 2);
    auto const rounds = [](context<emulated>& by, index_t rows) {
        arena_scope const scope(by.saved);
        return take_activations<float, 24>(by, by.saved, rows).is_rounded();
    };
    BOOST_TEST(rounds(ctx, 65));
    BOOST_TEST(!rounds(ctx, 64));
    BOOST_TEST(!rounds(plain, 65));
    BOOST_TEST(!(take_activations<float, 20>(ctx, ctx.saved, 65).is_rounded()));
    static_assert(std::is_same_v<activations<float, 24, cpu>, matrix_view<float, 24>>);
    static_assert(std::is_same_v<activations<double, 24, emulated>, matrix_view<double, 24, emulated>>);

    auto const before = ctx.saved.used();
    auto const x = take_activations<float, 64>(ctx, ctx.saved, 128);
    BOOST_TEST(ctx.saved.used() - before <= 128U * 64 * sizeof(bf16) + 64);  // plus alignment
    BOOST_TEST(x.extent(0) == 128);
    BOOST_TEST(x.extent(1) == 64);
    auto const full = ctx.saved.take<float>(x.extents());
    activations<float const, 64, emulated> const other(full);
    BOOST_CHECK_EXCEPTION(with_numbers([](auto const&, auto const&) {}, x, activations<float, 64, emulated>(full)),
                          error, says(errc::usage, "all activations rounded, or none"));
    BOOST_TEST(!other.is_rounded());
}

// Expressions convert bf16 inputs to float and round once when they write.
BOOST_AUTO_TEST_CASE(expressions_read_and_write_bf16) {
    for (auto const order : {thread_order::ascending, thread_order::permuted}) {
        auto ctx = in_bf16(order);
        for (index_t const rows : {1, 3, 130}) {
            auto const check = [&]<index_t N>() {
                auto const x = halved(ctx, drawn_rows<N>(ctx, rows, 1)), w = halved(ctx, drawn_rows<N>(ctx, rows, 2));
                auto const wide_x = widened(ctx, x), wide_w = widened(ctx, w);
                auto const y = ctx.saved.take<bf16>(x.extents());
                auto const wide_y = ctx.saved.take<float>(x.extents());
                evaluate(ctx, wide_y, silu(wide_x) * wide_w);
                evaluate(ctx, y, silu(x) * w);
                BOOST_TEST(values_of(ctx, y) == rounded(values_of(ctx, wide_y)), boost::test_tools::per_element());
                evaluate(ctx, y, silu(wide_x) * w);
                BOOST_TEST(values_of(ctx, y) == rounded(values_of(ctx, wide_y)), boost::test_tools::per_element());

                auto const dy = halved(ctx, drawn_rows<N>(ctx, rows, 3));
                differentiate(ctx, silu(wrt(wide_x, wide_x)) * wrt(wide_w, wide_w), widened(ctx, dy));
                differentiate(ctx, silu(wrt(x, x)) * wrt(w, w), dy);
                BOOST_TEST(values_of(ctx, x) == rounded(values_of(ctx, wide_x)), boost::test_tools::per_element());
                BOOST_TEST(values_of(ctx, w) == rounded(values_of(ctx, wide_w)), boost::test_tools::per_element());
            };
            check.operator()<40>();
            check.operator()<7>();
            check.operator()<1>();
        }
    }
}

// Operand and result may share memory only index by index, which elements of different sizes at one address cannot.
BOOST_AUTO_TEST_CASE(memory_of_another_type_is_not_shared_index_by_index) {
    auto ctx = in_bf16();
    auto const x = drawn_rows<8>(ctx, 4, 1);
    rows_of<bf16, 8> const same(reinterpret_cast<bf16*>(x.data()), x.extents());
    BOOST_CHECK_EXCEPTION(evaluate(ctx, same, x * 2.0), error, says(errc::usage, "at another index"));
    BOOST_CHECK_EXCEPTION(evaluate(ctx, x, same * 2.0), error, says(errc::usage, "at another index"));
    auto const w = drawn_rows<8>(ctx, 8, 2);
    auto const y = activations<float, 8, emulated>(rows_of<bf16, 8>(same));
    BOOST_CHECK_EXCEPTION(matmul(ctx, y, x, w), error, says(errc::usage, "overlaps a factor"));
    BOOST_CHECK_EXCEPTION(matmul(ctx, y, y, w), error, says(errc::usage, "overlaps a factor"));
}

// A bf16 copy holds the values that a product would round to, so every product of it (whole, of some columns,
// transposed or not) is bit-identical to the product of the fp32 numbers.
BOOST_AUTO_TEST_CASE(products_of_rounded_rows_equal_products_of_their_values) {
    auto ctx = in_bf16();
    constexpr index_t m = 130, k = 48, n = 40;
    auto const x = drawn_rows<k>(ctx, m, 1);
    auto const w = drawn_rows<k>(ctx, n, 2);
    auto const dy = drawn_rows<n>(ctx, m, 3);
    activations<float, k, emulated> const stored(halved(ctx, x));
    auto const slopes = precast_factor(ctx, dy);
    BOOST_TEST(slopes.rounded != nullptr);
    BOOST_TEST(precast_factor(ctx, rows(dy, 0, 64)).rounded == nullptr);
    auto const compare = [&]<index_t N>(index_t rows, auto const& a, auto const& b, auto const& c, auto const& d) {
        auto const found = drawn_rows<N>(ctx, rows, 9), wanted = drawn_rows<N>(ctx, rows, 9);
        for (into const mode : {into::accumulate, into::overwrite}) {
            matmul(ctx, found, a, b, {.mode = mode});
            matmul(ctx, wanted, c, d, {.mode = mode});
            BOOST_TEST(values_of(ctx, found) == values_of(ctx, wanted), boost::test_tools::per_element());
        }
    };
    compare.operator()<n>(m, stored, transposed(w), x, transposed(w));
    compare.operator()<k>(m, slopes, w, dy, w);
    compare.operator()<n>(m, columns<16, 24>(stored), transposed(columns<8, 24>(w)), columns<16, 24>(x),
                          transposed(columns<8, 24>(w)));
    auto const many = drawn_rows<72>(ctx, m, 4);
    compare.operator()<k>(72, transposed(precast_factor(ctx, many)), stored, transposed(many), x);
}

// A product of few rows rounds a factor only if the factor is stored in bf16 alone.
BOOST_AUTO_TEST_CASE(skinny_products_stay_fp32) {
    auto ctx = in_bf16();
    context<emulated> plain(1, 2);
    constexpr index_t m = 130, k = 16, n = 24;
    auto const values = [&](context<emulated>& by, bool rounds) {
        arena_scope const scope(by.saved);
        auto const x = drawn_rows<k>(by, m, 1);
        auto const dw = by.saved.take<float>(extents<n, k>());
        auto const slopes = precast_factor(by, drawn_rows<n>(by, m, 2));
        if (rounds)
            matmul(by, dw, transposed(slopes), activations<float, k, emulated>(halved(by, x)));
        else
            matmul(by, dw, transposed(slopes), x);
        return values_of(by, dw);
    };
    auto const want = values(plain, false);
    BOOST_TEST(values(ctx, false) == want, boost::test_tools::per_element());
    auto const found = values(ctx, true);
    BOOST_TEST((found != want));
    BOOST_TEST(apart(found, want) < 0x1p-7);
}

// A bf16 result is the fp32 sum, with bias or previous value, rounded once.
BOOST_AUTO_TEST_CASE(products_write_activations) {
    for (auto const order : {thread_order::ascending, thread_order::permuted}) {
        auto ctx = in_bf16(order);
        constexpr index_t m = 70, k = 33, n = 24;
        auto const x = drawn_rows<k>(ctx, m, 1);
        auto const w = drawn_rows<k>(ctx, n, 2);
        auto const full = ctx.saved.take<float>(extents<dyn, n>(m));
        auto const y = take_activations<float, n>(ctx, ctx.saved, m);
        BOOST_TEST(y.is_rounded());
        matmul(ctx, full, x, transposed(w));
        matmul(ctx, y, x, transposed(w));
        BOOST_TEST(values_of<n>(ctx, y) == rounded(values_of(ctx, full)), boost::test_tools::per_element());

        copy(ctx, full, y.rounded());
        matmul(ctx, full, x, transposed(w), {.mode = into::accumulate});
        matmul(ctx, y, x, transposed(w), {.mode = into::accumulate});
        BOOST_TEST(values_of<n>(ctx, y) == rounded(values_of(ctx, full)), boost::test_tools::per_element());

        auto const bias = drawn_rows<n>(ctx, 1, 3);
        auto const of_bf16 = widened(ctx, halved(ctx, bias));
        auto const as_row = [](auto const& b) { return vector_view<float const, n, emulated>(b.data(), {}); };
        matmul(ctx, full, x, transposed(w), {.bias = as_row(of_bf16)});
        matmul(ctx, y, x, transposed(w), {.bias = as_row(bias)});
        BOOST_TEST(values_of<n>(ctx, y) == rounded(values_of(ctx, full)), boost::test_tools::per_element());
    }
}

// Row operations convert bf16 rows to float and round what they write back.
BOOST_AUTO_TEST_CASE(operations_on_rows_take_bf16) {
    auto ctx = in_bf16(thread_order::permuted);
    for (index_t const rows : {3, 70, 300}) {
        auto const x = drawn_rows<24>(ctx, rows, 1);
        auto const half = halved(ctx, x);
        auto const wide = widened(ctx, half);
        auto const sums = ctx.saved.take<float>(extents<24>()), want = ctx.saved.take<float>(extents<24>());
        fill(ctx, sums, 1.0F);
        fill(ctx, want, 1.0F);
        add_sum_axis0(ctx, sums, half);
        add_sum_axis0(ctx, want, wide);
        BOOST_TEST(values_of(ctx, sums) == values_of(ctx, want), boost::test_tools::per_element());

        auto const many = ctx.saved.take<bf16>(extents<dyn, 24>(rows * 5));
        auto const many_wide = ctx.saved.take<float>(many.extents());
        repeat_interleave(ctx, many, x);
        repeat_interleave(ctx, many_wide, wide);
        BOOST_TEST(values_of(ctx, many) == values_of(ctx, many_wide), boost::test_tools::per_element());
        auto const summed = ctx.saved.take<float>(x.extents()), summed_wide = ctx.saved.take<float>(x.extents());
        segment_sum(ctx, summed, many);
        segment_sum(ctx, summed_wide, many_wide);
        BOOST_TEST(values_of(ctx, summed) == values_of(ctx, summed_wide), boost::test_tools::per_element());

        rotate(ctx, half, 8, 7, 2, 100.0);
        rotate(ctx, wide, 8, 7, 2, 100.0);
        BOOST_TEST(values_of(ctx, half) == rounded(values_of(ctx, wide)), boost::test_tools::per_element());
    }
}

// Norms and activation functions write the rounded fp32 result to bf16.
BOOST_AUTO_TEST_CASE(layers_round_saved_activations) {
    auto ctx = in_bf16(thread_order::permuted);
    auto const compare = [&]<class Rounded, class Full>(Rounded& half, Full& full, std::string const& what) {
        arena<emulated> values("values");
        arena<emulated>* const without_gradients = nullptr;
        allocate(half, values, without_gradients);
        allocate(full, values, without_gradients);
        initialise(ctx, full);
        copy_parameters(ctx, parameters_of(half), parameters_of(full));
        for (index_t const rows : {66, 131}) {
            auto const x = drawn_rows<40>(ctx, rows, 1);
            auto const s = half.forward(ctx, x);
            BOOST_TEST(s.y.is_rounded(), what);
            BOOST_TEST((values_of<40>(ctx, s.y) == rounded(values_of(ctx, full.forward(ctx, x).y))), what);
        }
    };
    rms_norm_layer<40, device, result_as::activations> rms;
    rms_norm_layer<40, device> plain_rms;
    compare(rms, plain_rms, "rms_norm");
    layer_norm_layer<40, device, result_as::activations> layer_norm;
    layer_norm_layer<40, device> plain_layer_norm;
    compare(layer_norm, plain_layer_norm, "layer_norm");
    silu_layer<40, device, result_as::activations> activation;
    silu_layer<40, device> plain_activation;
    compare(activation, plain_activation, "silu");
}

// Attention on bf16 rows, and its gradients, equal fp32 attention on the same numbers, rounded.
BOOST_AUTO_TEST_CASE(attention_takes_and_gives_bf16) {
    auto ctx = in_bf16();
    constexpr index_t width = 32, kv_width = 16, head = 8, positions = 33, rows = 2 * positions;
    auto const q = halved(ctx, drawn_rows<width>(ctx, rows, 1)), dy = halved(ctx, drawn_rows<width>(ctx, rows, 4));
    auto const k = halved(ctx, drawn_rows<kv_width>(ctx, rows, 2)), v = halved(ctx, drawn_rows<kv_width>(ctx, rows, 3));
    auto const lse = ctx.saved.take<float>(extents<dyn>(rows * width / head));
    auto const y = ctx.saved.take<bf16>(extents<dyn, width>(rows));
    auto const full = ctx.saved.take<float>(extents<dyn, width>(rows));
    causal_attention(ctx, full, lse, widened(ctx, q), widened(ctx, k), widened(ctx, v), positions, head);
    causal_attention(ctx, y, lse, q, k, v, positions, head);
    BOOST_TEST(values_of(ctx, y) == rounded(values_of(ctx, full)), boost::test_tools::per_element());

    auto const dq = ctx.saved.take<bf16>(q.extents());
    auto const dk = ctx.saved.take<bf16>(k.extents());
    auto const dv = ctx.saved.take<bf16>(k.extents());
    causal_attention_back(ctx, dq, dk, dv, dy, lse,
                          {.y = y, .q = q, .k = k, .v = v, .positions = positions, .head_size = head});
    auto const full_dq = ctx.saved.take<float>(q.extents());
    auto const full_dk = ctx.saved.take<float>(k.extents());
    auto const full_dv = ctx.saved.take<float>(k.extents());
    causal_attention_back(ctx, full_dq, full_dk, full_dv, widened(ctx, dy), lse,
                          {.y = widened(ctx, y),
                           .q = widened(ctx, q),
                           .k = widened(ctx, k),
                           .v = widened(ctx, v),
                           .positions = positions,
                           .head_size = head});
    BOOST_TEST(values_of(ctx, dq) == rounded(values_of(ctx, full_dq)), boost::test_tools::per_element());
    BOOST_TEST(values_of(ctx, dk) == rounded(values_of(ctx, full_dk)), boost::test_tools::per_element());
    BOOST_TEST(values_of(ctx, dv) == rounded(values_of(ctx, full_dv)), boost::test_tools::per_element());
}

namespace {

// A layer with nonzero weights and zero gradients.
template <class Layer> struct weighted {
    arena<emulated> values{"values"}, gradients{"gradients"};
    Layer layer;
    std::vector<any_parameter<device>> all;

    explicit weighted(context<emulated>& ctx) {
        allocate(layer, values, &gradients);
        all = parameters_of(layer);
        std::uint64_t seed = 20;
        for (auto const& p : all) {
            fill_normal(ctx, p.value, key{++seed});
            evaluate(ctx, p.value, p.value * 0.2);
        }
    }
    // Appends the parameter gradients to `found`.
    std::vector<floats> with_gradients(context<emulated>& ctx, std::vector<floats> found) const {
        for (auto const& p : all) found.push_back(values_of(ctx, p.grad));
        return found;
    }
};

// y, dx and the parameter gradients of a layer (R, 32) after forward and backward.
template <class Layer, class... Given>
std::vector<floats> worked(context<emulated>& ctx, index_t rows, Given const&... given) {
    arena_scope const scope(ctx.saved);
    weighted<Layer> own(ctx);
    auto const x = drawn_rows<32>(ctx, rows, 1), dy = drawn_rows<32>(ctx, rows, 2);
    auto const dx = ctx.saved.take<float>(x.extents());
    auto const s = own.layer.forward(ctx, x, given...);
    auto const y = values_of(ctx, s.y);
    if constexpr (sizeof...(given) > 0)
        own.layer.backward(ctx, s, dy, dx, 100.0);
    else
        own.layer.backward(ctx, s, dy, dx);
    return own.with_gradients(ctx, {y, values_of(ctx, dx)});
}

}  // namespace

// Whole layers with bf16 activations: results and gradients differ from fp32 by a few times 2^-8.
BOOST_AUTO_TEST_CASE(layers_with_activations_in_bf16_compute_as_in_fp32) {
    compare_with_fp32("swiglu", 0.02, [](context<emulated>& ctx) { return worked<swiglu<32, 48, device>>(ctx, 130); });
    compare_with_fp32("attention", 0.02, [](context<emulated>& ctx) {
        return worked<attention<32, 4, 2, device>>(ctx, 132, index_t{66}, 100.0);
    });
}

// A block of the energy head, with the part that samples share.
BOOST_AUTO_TEST_CASE(an_energy_block_with_activations_in_bf16_computes_as_in_fp32) {
    compare_with_fp32("energy block", 0.03, [](context<emulated>& ctx) {
        constexpr index_t positions = 66, samples = 2;
        arena_scope const scope(ctx.saved);
        weighted<energy_block<32, device>> own(ctx);
        auto const x = drawn_rows<32>(ctx, positions * samples, 1), dy = drawn_rows<32>(ctx, positions * samples, 2);
        auto const part = drawn_rows<32>(ctx, positions, 3);
        auto const dx = ctx.saved.take<float>(x.extents()), dpart = ctx.saved.take<float>(part.extents());
        fill(ctx, dpart, 0.0F);
        auto const s = own.layer.forward(ctx, x, part);
        auto const y = values_of(ctx, s.y);
        own.layer.backward(ctx, s, dy, dx, dpart);
        return own.with_gradients(ctx, {y, values_of(ctx, dx), values_of(ctx, dpart)});
    });
}
