#include "calm/tensor/detail/ops/positions.hpp"
#include "calm/tensor/ops/attention.hpp"
#include "calm/tensor/ops/rotate.hpp"
#include "support/sentences.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using matrix = tensor<float, extents<dyn, dyn>>;
using memory = tensor<float, extents<dyn, dyn, dyn>>;  // (sequences, positions, width)
using vector = tensor<float, extents<dyn>>;
matrix rows_of(index_t count, index_t width) {
    return matrix(extents<dyn, dyn>(count, width));
}
memory room_of(index_t sequences, index_t positions, index_t width) {
    return memory(extents<dyn, dyn, dyn>(sequences, positions, width));
}

// Operand sizes: two sequences of three positions, four query heads of size four that share two key heads.
struct given {
    index_t rows = 6, q = 6, k = 6, v = 6, y = 6, dy = 6, dk = 6, dv = 6;  // rows
    index_t width = 16, kv_width = 8, values_width = 8;                    // columns
    index_t lse = 24, positions = 3, head_size = 4;
};
void call_attention(given const& s) {
    context<> ctx;
    auto y = rows_of(s.rows, s.width);
    vector lse(extents<dyn>(s.lse));
    auto const k = rows_of(s.k, s.kv_width);
    causal_attention(ctx, y, lse, rows_of(s.q, s.width).view(), k, rows_of(s.v, s.values_width).view(), s.positions,
                     s.head_size);
}
void call_attention_back(given const& s) {
    context<> ctx;
    auto dq = rows_of(s.rows, s.width), dk = rows_of(s.dk, s.kv_width), dv = rows_of(s.dv, s.kv_width);
    vector const lse(extents<dyn>(s.lse));
    causal_attention_back(ctx, dq, dk, dv, rows_of(s.dy, s.width).view(), lse,
                          {.y = rows_of(s.y, s.width).view(),
                           .q = rows_of(s.q, s.width).view(),
                           .k = rows_of(s.k, s.kv_width).view(),
                           .v = rows_of(s.v, s.values_width).view(),
                           .positions = s.positions,
                           .head_size = s.head_size});
}

// One new row for each of two sequences, with the same heads, and cache memory for three sequences of four positions.
struct cached_given {
    index_t rows = 2, q = 2, lse = 8, values = 3, values_room = 4, kv_width = 8, sequence = 2, length = 3;
    index_t new_rows = 2, new_values = 2, new_width = 8;  // to be appended
};
std::vector<cached_sequence> sequences_of(cached_given const& s) {
    return {cached_sequence{0, 1}, cached_sequence{s.sequence, s.length}};
}
void call_cached_attention(cached_given const& s) {
    context<> ctx;
    auto y = rows_of(s.rows, 16);
    vector lse(extents<dyn>(s.lse));
    auto const keys = room_of(3, 4, s.kv_width), values = room_of(s.values, s.values_room, s.kv_width);
    auto const sequences = sequences_of(s);
    cached_attention(ctx, y, lse, rows_of(s.q, 16).view(), keys, values, to_device(ctx, std::span(sequences)), 4);
}
void call_append(cached_given const& s) {
    context<> ctx;
    auto keys = room_of(3, 4, 8), values = room_of(s.values, s.values_room, 8);
    auto const sequences = sequences_of(s);
    detail::append_positions(ctx, keys, values, rows_of(s.new_rows, s.new_width).view(),
                             rows_of(s.new_values, s.new_width).view(), to_device(ctx, std::span(sequences)));
}

// Checks the error message of a call with one wrong size.
template <class Call, class Given> void check(Call call, Given const& s, std::string const& sentence) {
    call({});
    BOOST_TEST(usage_sentence([&] { call(s); }) == sentence);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_operand_of_attention_of_another_size_is_refused) {
    auto const shape = [](char const* what, index_t rows, index_t width) {
        return "calm::causal_attention: expected " + std::string(what) + " of shape (6, " +
               std::to_string(width == 16 ? 16 : 8) + "), found (" + std::to_string(rows) + ", " +
               std::to_string(width) + ")";
    };
    check(call_attention, given{.q = 5}, shape("q", 5, 16));
    check(call_attention, given{.k = 3}, shape("k", 3, 8));
    check(call_attention, given{.v = 7}, shape("v", 7, 8));
    check(call_attention, given{.values_width = 4}, shape("v", 6, 4));
    check(call_attention, given{.lse = 23}, "calm::causal_attention: expected lse of 24 numbers, found 23");
    check(call_attention, given{.positions = 4},
          "calm::attention: expected rows of whole sequences of 4 positions, found 6 rows");
    check(call_attention, given{.positions = 0},
          "calm::attention: expected rows of whole sequences of 0 positions, found 6 rows");
    check(call_attention, given{.head_size = 3},
          "calm::attention: expected rows of whole heads of 3 numbers, found rows of 16");
    check(call_attention, given{.head_size = 0},
          "calm::attention: expected rows of whole heads of 0 numbers, found rows of 16");
    check(call_attention, given{.kv_width = 12, .values_width = 12},
          "calm::attention: expected 4 heads to be a multiple of the key heads, found 3");
}

BOOST_AUTO_TEST_CASE(every_operand_of_its_gradient_of_another_size_is_refused) {
    auto const shape = [](char const* what, index_t rows, index_t width) {
        return "calm::causal_attention_back: expected " + std::string(what) + " of shape (6, " + std::to_string(width) +
               "), found (" + std::to_string(rows) + ", " + std::to_string(width) + ")";
    };
    check(call_attention_back, given{.q = 5}, shape("q", 5, 16));
    check(call_attention_back, given{.k = 3}, shape("k", 3, 8));
    check(call_attention_back, given{.v = 7}, shape("v", 7, 8));
    check(call_attention_back, given{.y = 5}, shape("y", 5, 16));
    check(call_attention_back, given{.dy = 4}, shape("dy", 4, 16));
    check(call_attention_back, given{.dk = 5}, shape("dk", 5, 8));
    check(call_attention_back, given{.dv = 7}, shape("dv", 7, 8));
    check(call_attention_back, given{.lse = 25}, "calm::causal_attention_back: expected lse of 24 numbers, found 25");
    check(call_attention_back, given{.positions = 5},
          "calm::attention: expected rows of whole sequences of 5 positions, found 6 rows");
}

BOOST_AUTO_TEST_CASE(operands_that_do_not_fit_a_cache_are_refused) {
    check(call_cached_attention, cached_given{.q = 3},
          "calm::cached_attention: expected q of shape (2, 16), found (3, 16)");
    check(call_cached_attention, cached_given{.lse = 7}, "calm::cached_attention: expected lse of 8 numbers, found 7");
    check(call_cached_attention, cached_given{.rows = 3},
          "calm::cached_attention: expected a whole number of rows for each of 2, found 3");
    check(call_cached_attention, cached_given{.values = 2},
          "calm::cached_attention: expected values of shape (3, 4, 8), found (2, 4, 8)");
    check(call_cached_attention, cached_given{.values_room = 3},
          "calm::cached_attention: expected values of shape (3, 4, 8), found (3, 3, 8)");
    check(call_cached_attention, cached_given{.kv_width = 6},
          "calm::attention: expected rows of whole heads of 4 numbers, found rows of 6");
    check(call_cached_attention, cached_given{.sequence = 3},
          "calm::cached_attention: expected a sequence number below 3, found 3");
    check(call_cached_attention, cached_given{.length = 4},
          "calm::cached_attention: expected room for 5 positions of a sequence, found room for 4");

    check(call_append, cached_given{.values_room = 3},
          "calm::append_positions: expected values of shape (3, 4, 8), found (3, 3, 8)");
    check(call_append, cached_given{.new_values = 1},
          "calm::append_positions: expected new values of shape (2, 8), found (1, 8)");
    check(call_append, cached_given{.new_rows = 3},
          "calm::append_positions: expected a whole number of rows for each of 2, found 3");
    check(call_append, cached_given{.new_width = 6}, "calm::append_positions: expected rows of 8 numbers, found 6");
    check(call_append, cached_given{.sequence = -1},
          "calm::append_positions: expected a sequence number below 3, found -1");
}

BOOST_AUTO_TEST_CASE(the_destination_of_a_move_must_be_large_enough) {
    context<> ctx;
    auto more_keys = room_of(2, 4, 8), more_values = room_of(2, 4, 8), fewer = room_of(1, 4, 8);
    auto const keys = room_of(2, 3, 8), values = room_of(2, 3, 8), others = room_of(2, 2, 8);
    detail::move_positions(ctx, more_keys, more_values, keys, values, 3);
    auto const said = [&](auto& to, auto& values_to, auto const& from, auto const& values_from, index_t filled) {
        return usage_sentence([&] { detail::move_positions(ctx, to, values_to, from, values_from, filled); });
    };
    BOOST_TEST(said(more_keys, fewer, keys, values, 3) ==
               "calm::move_positions: expected the larger values of shape (2, 4, 8), found (1, 4, 8)");
    BOOST_TEST(said(fewer, fewer, keys, values, 3) ==
               "calm::move_positions: expected keys of shape (1, 3, 8), found (2, 3, 8)");
    BOOST_TEST(said(more_keys, more_values, keys, others, 2) ==
               "calm::move_positions: expected values of shape (2, 3, 8), found (2, 2, 8)");
    BOOST_TEST(said(more_keys, more_values, keys, values, 4) ==
               "calm::move_positions: expected room for 4 positions of a sequence, found 3 and 4");
}

BOOST_AUTO_TEST_CASE(rows_that_cannot_be_rotated_are_refused) {
    context<> ctx;
    auto x = rows_of(6, 12);
    auto const said = [&](index_t head_size, index_t period) {
        return usage_sentence([&] { rotate(ctx, x, head_size, period, 0, 1e4); });
    };
    BOOST_TEST(said(4, 3).empty());
    BOOST_TEST(said(4, 0) == "calm::rotate: expected a period of at least 1, found 0");
    BOOST_TEST(said(3, 3) == "calm::rotate: expected heads of an even size, found 3");
    BOOST_TEST(said(8, 3) == "calm::rotate: expected rows of whole heads of 8 numbers, found rows of 12");
    BOOST_TEST(said(0, 3) == "calm::rotate: expected rows of whole heads of 0 numbers, found rows of 12");
    std::vector<cached_sequence> const sequences{{0, 1}, {1, 1}, {2, 1}, {3, 1}};
    BOOST_TEST(usage_sentence([&] { rotate(ctx, x, 4, to_device(ctx, std::span(sequences)), 1e4); }) ==
               "calm::rotate: expected a whole number of rows for each of 4, found 6");
}

// Two sequences compared with the definition of attention, with tensors as operands. The last position is also computed
// alone, from appended keys and values.
BOOST_AUTO_TEST_CASE_TEMPLATE(tensors_are_operands, on, test_devices) {
    using T = typename on::scalar;
    constexpr index_t B = 2, P = 5, size = 4, heads = 4, D = heads * size, KvWidth = 2 * size;
    typename on::context ctx(1, 2);
    typename on::template tensor<extents<dyn, D>> q{extents<dyn, D>(B * P)}, y{extents<dyn, D>(B * P)};
    typename on::template tensor<extents<dyn, KvWidth>> k{extents<dyn, KvWidth>(B * P)},
        v{extents<dyn, KvWidth>(B * P)};
    typename on::template tensor<extents<dyn, heads, dyn>> lse{extents<dyn, heads, dyn>(B, P)};
    draw(q, 1), draw(k, 2), draw(v, 3);
    causal_attention(ctx, y, lse, q, k, v, P, size);

    auto const number = [](auto const& of, index_t i) { return static_cast<double>(of[i]); };
    double worst = 0;
    for (index_t row = 0; row < B * P; ++row)
        for (index_t h = 0; h < heads; ++h) {
            index_t const at = row * D + h * size, shared = h / 2 * size;
            double total = 0;
            std::array<double, size> want{};
            for (index_t other = row / P * P; other <= row; ++other) {
                double score = 0;
                for (index_t i = 0; i < size; ++i)
                    score += number(q, at + i) * number(k, other * KvWidth + shared + i) / 2;
                total += std::exp(score);
                for (index_t i = 0; i < size; ++i)
                    want[static_cast<std::size_t>(i)] += std::exp(score) * number(v, other * KvWidth + shared + i);
            }
            for (index_t i = 0; i < size; ++i)
                worst = std::max(worst, std::abs(number(y, at + i) - want[static_cast<std::size_t>(i)] / total));
            worst = std::max(worst, std::abs(number(lse, (row / P * heads + h) * P + row % P) - std::log(total)));
        }
    BOOST_TEST(worst <= rounding<T>);

    typename on::template tensor<extents<dyn, dyn, KvWidth>> keys{extents<dyn, dyn, KvWidth>(1, P)},
        values{extents<dyn, dyn, KvWidth>(1, P)};
    std::vector<cached_sequence> const none{{0, 0}}, some{{0, P - 1}};
    detail::append_positions(ctx, keys, values, rows(k.view(), P, P), rows(v.view(), P, P),
                             to_device(ctx, std::span(none)));
    typename on::template tensor<extents<dyn, D>> last{extents<dyn, D>(1)};
    typename on::vector sums{extents<dyn>(heads)};
    cached_attention(ctx, last, sums, rows(q.view(), 2 * P - 1, 1), keys, values, to_device(ctx, std::span(some)),
                     size);
    for (index_t i = 0; i < D; ++i)
        BOOST_TEST(std::abs(number(last, i) - number(y, (2 * P - 1) * D + i)) <= rounding<T>);
}

// A position that sees more keys than one chunk holds agrees with the definition. Its bits do not depend on the
// capacity of the cache or on other texts.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_new_position_sees_any_number_of_keys, on, test_devices) {
    using T = typename on::scalar;
    constexpr index_t size = 8, heads = 4, D = heads * size, KvWidth = 2 * size;
    std::vector<cached_sequence> const sequences{{2, 0}, {0, 126}, {1, 127}, {3, 300}};
    auto const texts = static_cast<index_t>(sequences.size());
    auto const attended = [&](index_t room) {
        typename on::context ctx(1, 2);
        typename on::template tensor<extents<dyn, dyn, KvWidth>> keys{extents<dyn, dyn, KvWidth>(texts, room)},
            values{extents<dyn, dyn, KvWidth>(texts, room)};
        typename on::template tensor<extents<dyn, D>> q{extents<dyn, D>(texts)}, y{extents<dyn, D>(texts)};
        typename on::vector lse{extents<dyn>(texts * heads)};
        draw(q, 1);
        for (index_t i = 0; i < keys.size(); ++i) {
            // independent of the capacity
            auto const place = static_cast<double>(i / KvWidth % room * KvWidth + i % KvWidth);
            keys[i] = static_cast<T>(std::sin(0.7 * place));
            values[i] = static_cast<T>(std::cos(0.3 * place));
        }
        cached_attention(ctx, y, lse, q, keys, values, to_device(ctx, std::span(sequences)), size);
        std::vector<T> all;
        for (index_t i = 0; i < y.size(); ++i) all.push_back(y[i]);
        for (index_t i = 0; i < lse.size(); ++i) all.push_back(lse[i]);
        double worst = 0;
        for (index_t s = 0; s < texts; ++s)
            for (index_t h = 0; h < heads; ++h) {
                double total = 0;
                std::array<double, size> want{};
                for (index_t p = 0; p <= sequences[static_cast<std::size_t>(s)].length; ++p) {
                    double score = 0;
                    auto const at = [&](index_t i) { return static_cast<double>(p * KvWidth + h / 2 * size + i); };
                    for (index_t i = 0; i < size; ++i)
                        score += static_cast<double>(q[s * D + h * size + i]) * std::sin(0.7 * at(i)) / std::sqrt(8.0);
                    total += std::exp(score);
                    for (index_t i = 0; i < size; ++i)
                        want[static_cast<std::size_t>(i)] += std::exp(score) * std::cos(0.3 * at(i));
                }
                for (index_t i = 0; i < size; ++i)
                    worst = std::max(worst, std::abs(static_cast<double>(y[s * D + h * size + i]) -
                                                     want[static_cast<std::size_t>(i)] / total));
                worst = std::max(worst, std::abs(static_cast<double>(lse[s * heads + h]) - std::log(total)));
            }
        BOOST_TEST(worst <= 10 * rounding<T>);
        return all;
    };
    auto const all = attended(301);
    BOOST_TEST((all == attended(400)));
    BOOST_TEST((all == attended(1024)));
}
