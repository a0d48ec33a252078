// Rows that products alone read, of the emulated device: rounded or not, a product's bits are the same.
#include "calm/emulated.hpp"
#include "calm/tensor/factor.hpp"

#include <string>
#include <vector>

#include "calm/nn/attention.hpp"
#include "calm/nn/chain.hpp"
#include "calm/nn/mlp.hpp"
#include "calm/nn/norm.hpp"
#include "calm/tensor/bf16_products.hpp"
#include "calm/tensor/fill.hpp"
#include "calm/tensor/matmul.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using device = space<emulated>;
template <index_t Columns> using rows_of = matrix_view<float, Columns, emulated>;

context<emulated> in_bf16(thread_order order = thread_order::ascending) {
    context<emulated> ctx(1, 2);
    ctx.order = order;
    multiply_in_bf16(ctx);
    return ctx;
}

template <index_t Columns> rows_of<Columns> drawn(context<emulated>& ctx, index_t rows, std::uint64_t seed) {
    auto const x = ctx.saved.take<float>(extents<dyn, Columns>(rows));
    fill_normal(ctx, x, key{seed});
    return x;
}

template <class T, class E> std::vector<T> values_of(context<emulated>& ctx, view<T, E, emulated> const& x) {
    std::vector<T> room;
    auto const values = on_host(ctx, x, room);
    return {values.begin(), values.end()};
}

// Numbers of a factor as float.
template <index_t Columns>
std::vector<float> floats_of(context<emulated>& ctx, factor<float, Columns, emulated> const& x) {
    auto const wide = ctx.saved.take<float>(extents<dyn, Columns>(x.extent(0)));
    with_numbers(x, [&](auto const& y) { copy(ctx, wide, y); });
    return values_of(ctx, wide);
}

std::vector<float> rounded(std::vector<float> x) {
    for (auto& each : x) each = static_cast<float>(bf16(each));
    return x;
}

}  // namespace

// Rounded where products of so many rows are: not of few, not in rows that are no whole groups of 16 bytes, not where
// the context multiplies in fp32. On the cpu it is a view.
BOOST_AUTO_TEST_CASE(a_factor_is_rounded_where_products_round_it) {
    auto ctx = in_bf16();
    context<emulated> plain(1, 2);
    auto const takes = [](context<emulated>& by, index_t rows) {
        arena_scope const scope(by.saved);
        return take_factor<float, 24>(by, by.saved, rows).is_rounded();
    };
    BOOST_TEST(takes(ctx, 65));
    BOOST_TEST(!takes(ctx, 64));
    BOOST_TEST(!takes(plain, 65));
    BOOST_TEST(!(take_factor<float, 20>(ctx, ctx.saved, 65).is_rounded()));
    static_assert(std::is_same_v<factor<float, 24, cpu>, matrix_view<float, 24>>);
    static_assert(std::is_same_v<factor<double, 24, emulated>, matrix_view<double, 24, emulated>>);

    auto const before = ctx.saved.used();
    auto const x = take_factor<float, 64>(ctx, ctx.saved, 128);
    BOOST_TEST(ctx.saved.used() - before <= 128U * 64 * sizeof(bf16) + 64);  // as much as alignment adds
    BOOST_TEST(x.extent(0) == 128);
    BOOST_TEST(x.extent(1) == 64);
}

// What is stored is what a product would have made of the numbers: every product, whole, of some columns, turned or
// not, has the bits that it has of them in fp32.
BOOST_AUTO_TEST_CASE(products_of_rounded_rows_have_the_bits_of_their_numbers) {
    auto ctx = in_bf16();
    constexpr index_t m = 130, k = 48, n = 40;
    auto const x = drawn<k>(ctx, m, 1);
    auto const w = drawn<k>(ctx, n, 2);
    auto const dy = drawn<n>(ctx, m, 3);
    auto const stored = take_factor<float, k>(ctx, ctx.saved, m);
    BOOST_TEST(stored.is_rounded());
    with_numbers(stored, [&](auto const& to) { evaluate(ctx, to, x + 0.0); });
    BOOST_TEST(floats_of<k>(ctx, stored) == rounded(values_of(ctx, x)), boost::test_tools::per_element());

    auto const slopes = shared_factor(ctx, dy);
    BOOST_TEST(slopes.rounded != nullptr);
    auto const compare = [&]<index_t N>(index_t rows, auto const& a, auto const& b, auto const& c, auto const& d) {
        auto const found = drawn<N>(ctx, rows, 9), wanted = drawn<N>(ctx, rows, 9);
        for (into const mode : {into::accumulate, into::overwrite}) {
            matmul(ctx, found, a, b, mode);
            matmul(ctx, wanted, c, d, mode);
            BOOST_TEST(values_of(ctx, found) == values_of(ctx, wanted), boost::test_tools::per_element());
        }
    };
    compare.operator()<n>(m, stored, transposed(w), x, transposed(w));
    compare.operator()<k>(m, slopes, w, dy, w);
    compare.operator()<n>(m, columns<16, 24>(stored), transposed(columns<8, 24>(w)), columns<16, 24>(x),
                          transposed(columns<8, 24>(w)));
    auto const many = drawn<72>(ctx, m, 4);
    compare.operator()<k>(72, transposed(shared_factor(ctx, many)), stored, transposed(many), x);
}

// A product of few rows rounds a factor only where it is there in nothing else.
BOOST_AUTO_TEST_CASE(a_product_of_few_rows_keeps_what_it_has_in_fp32) {
    auto ctx = in_bf16();
    context<emulated> plain(1, 2);
    constexpr index_t m = 130, k = 16, n = 24;
    auto const values = [&](context<emulated>& by, bool stores) {
        arena_scope const scope(by.saved);
        auto const x = drawn<k>(by, m, 1);
        auto const dy = drawn<n>(by, m, 2);
        auto const stored = take_factor<float, k>(by, by.saved, m);
        with_numbers(stored, [&](auto const& to) { evaluate(by, to, x * 1.0); });
        auto const dw = by.saved.take<float>(extents<n, k>());
        auto const slopes = shared_factor(by, dy);
        if (stores)
            matmul(by, dw, transposed(slopes), stored);
        else
            matmul(by, dw, transposed(slopes), x);
        return values_of(by, dw);
    };
    BOOST_TEST(values(ctx, false) == values(plain, false), boost::test_tools::per_element());
    BOOST_TEST((values(ctx, true) != values(plain, true)));
}

// Norms, activations and trees write to bf16 what they write to float, rounded once; by any order of threads.
BOOST_AUTO_TEST_CASE(layers_round_what_products_alone_read) {
    for (auto const order : {thread_order::ascending, thread_order::permuted}) {
        auto ctx = in_bf16(order);
        auto const compare = [&]<class Rounded, class Full>(Rounded& for_products, Full& for_all,
                                                            std::string const& what) {
            arena<emulated> values("values");
            arena<emulated>* const without_gradients = nullptr;
            allocate(for_products, values, without_gradients);
            allocate(for_all, values, without_gradients);
            initialise(ctx, for_all);
            copy_parameters(ctx, parameters_of(for_products), parameters_of(for_all));
            for (index_t const rows : {66, 131}) {
                auto const x = drawn<40>(ctx, rows, 1);
                auto const s = for_products.forward(ctx, x);
                BOOST_TEST(s.y.is_rounded(), what);
                BOOST_TEST((floats_of<40>(ctx, s.y) == rounded(values_of(ctx, for_all.forward(ctx, x).y))), what);
            }
        };
        rms_norm_layer<40, device, read_by::products> rms;
        rms_norm_layer<40, device> plain_rms;
        compare(rms, plain_rms, "rms_norm");
        layer_norm_layer<40, device, read_by::products> layer_norm;
        layer_norm_layer<40, device> plain_layer_norm;
        compare(layer_norm, plain_layer_norm, "layer_norm");
        silu_layer<40, device, read_by::products> activation;
        silu_layer<40, device> plain_activation;
        compare(activation, plain_activation, "silu");
    }
}

// Attention to bf16 is attention to float, rounded, and its gradients are those that the rounded result gives.
BOOST_AUTO_TEST_CASE(attention_rounds_its_result) {
    auto ctx = in_bf16();
    constexpr index_t width = 32, head = 8, positions = 33, rows = 2 * positions;
    auto const q = drawn<width>(ctx, rows, 1), k = drawn<width>(ctx, rows, 2), v = drawn<width>(ctx, rows, 3),
               dy = drawn<width>(ctx, rows, 4);
    auto const lse = ctx.saved.take<float>(extents<dyn>(rows * width / head));
    auto const full = ctx.saved.take<float>(extents<dyn, width>(rows));
    auto const stored = ctx.saved.take<bf16>(extents<dyn, width>(rows));
    causal_attention(ctx, full, lse, q, k, v, positions, head);
    causal_attention(ctx, stored, lse, q, k, v, positions, head);
    auto const wide = ctx.saved.take<float>(extents<dyn, width>(rows));
    copy(ctx, wide, stored);
    BOOST_TEST(values_of(ctx, wide) == rounded(values_of(ctx, full)), boost::test_tools::per_element());
    auto const gradients = [&](auto const& y) {
        auto const dq = ctx.saved.take<float>(extents<dyn, width>(rows)), dk = ctx.saved.take<float>(q.extents()),
                   dv = ctx.saved.take<float>(q.extents());
        causal_attention_back(ctx, dq, dk, dv, dy, y, lse, q, k, v, positions, head);
        auto all = values_of(ctx, dq);
        for (auto const& more : {values_of(ctx, dk), values_of(ctx, dv)})
            all.insert(all.end(), more.begin(), more.end());
        return all;
    };
    BOOST_TEST(gradients(stored) == gradients(wide), boost::test_tools::per_element());
}
