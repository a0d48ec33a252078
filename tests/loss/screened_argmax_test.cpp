#include "calm/emulated.hpp"
#include "calm/loss/cross_entropy.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "calm/tensor/ops/fill.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr index_t D = 64;
using weight_types = boost::mpl::list<float, bf16>;

// Logits of a row by double, and the first largest of them.
template <class Table> token_id wanted(float const* x, Table const& table) {
    index_t const V = std::ssize(table) / D;
    double most = -std::numeric_limits<double>::infinity();
    token_id best = 0;
    for (index_t v = 0; v < V; ++v) {
        double logit = 0;
        for (index_t i = 0; i < D; ++i)
            logit += double{x[i]} * static_cast<double>(static_cast<float>(table[static_cast<std::size_t>(v * D + i)]));
        if (logit > most) most = logit, best = static_cast<token_id>(v);
    }
    return best;
}

template <class Table>
std::vector<token_id> screened(context<emulated>& ctx, numbers<float, emulated> const& x, Table const& table,
                               index_t rows_at_once) {
    numbers<token_id, emulated> tokens(x.size() / static_cast<std::size_t>(D), -1);
    detail::run_screened_argmax(ctx, out_vector<emulated>(tokens), in_rows<emulated, D>(x), in_rows<emulated, D>(table),
                                rows_at_once);
    return copied(tokens);
}

template <class W> void compare(std::string const& what, float scale) {
    index_t const R = 70, V = 601;
    auto x = draws<float, emulated>(R * D, 1);
    auto const drawn = draws<float, emulated>(V * D, 2);
    for (float& each : x) each *= scale;
    numbers<W, emulated> table(drawn.size());
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<W>(drawn[i]);
    for (index_t i = 0; i < D; ++i)  // a tie: the last token equals token 5
        table[static_cast<std::size_t>((V - 1) * D + i)] = table[static_cast<std::size_t>(5 * D + i)];
    for (index_t i = 0; i < D; ++i)  // row 3 chooses it
        x[static_cast<std::size_t>(3 * D + i)] = scale * static_cast<float>(table[static_cast<std::size_t>(5 * D + i)]);
    auto const host_x = copied(x);
    auto const host_table = copied(table);
    for (auto const order : {thread_order::ascending, thread_order::permuted})
        for (index_t const at_once : {1, 32, 256}) {
            context<emulated> ctx(1, 2);
            ctx.order = order;
            auto const tokens = screened(ctx, x, table, at_once);
            for (index_t r = 0; r < R; ++r)
                BOOST_TEST(tokens[static_cast<std::size_t>(r)] == wanted(host_x.data() + r * D, host_table),
                           what << ", row " << r << ", " << at_once << " rows at once");
        }
}

}  // namespace

BOOST_AUTO_TEST_CASE(screening_finds_the_argmax_of_full_precision) {
    compare<float>("a table in fp32", 1);
    compare<bf16>("a table in bf16", 1);
    compare<float>("small rows, whose squares vanish", 1e-25F);
    compare<float>("large rows, whose squares overflow", 1e36F);
}

// Tokens whose logits bf16 cannot tell apart: the table's rows differ by less than its precision. Squares of the
// smaller rows vanish.
BOOST_AUTO_TEST_CASE(screening_decides_between_tokens_that_bf16_confuses) {
    index_t const R = 20, V = 300;
    numbers<float, emulated> table(static_cast<std::size_t>(V * D));
    auto const base = draws<float, emulated>(D, 4), apart = draws<float, emulated>(V * D, 5);
    for (std::size_t i = 0; i < table.size(); ++i)
        table[i] = base[i % static_cast<std::size_t>(D)] * (1 + 1e-3F * apart[i]);
    for (float const scale : {1.0F, 1e-25F}) {
        auto x = draws<float, emulated>(R * D, 3);
        for (float& each : x) each *= scale;
        context<emulated> ctx(1, 2);
        auto const tokens = screened(ctx, x, table, 256);
        auto const host_x = copied(x), host_table = copied(table);
        for (index_t r = 0; r < R; ++r)
            BOOST_TEST(tokens[static_cast<std::size_t>(r)] == wanted(host_x.data() + r * D, host_table),
                       "row " << r << " times " << scale);
    }
}

// Rounding moves the logits of the two best tokens of each row as far as it can in the wrong direction. x is halfway
// between two numbers of bf16, and ties are rounded to even. Each product of token 7 loses 2^-8 of it, each of token 9
// gains almost 2^-8.
BOOST_AUTO_TEST_CASE_TEMPLATE(screening_allows_for_the_largest_rounding, W, weight_types) {
    index_t const R = 3, V = 300;
    numbers<float, emulated> x(static_cast<std::size_t>(R * D));
    numbers<W, emulated> table(static_cast<std::size_t>(V * D));
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<W>(0.0F);
    for (index_t i = 0; i < D; ++i) {
        bool const is_first = i < D / 2;
        for (index_t r = 0; r < R; ++r) x[static_cast<std::size_t>(r * D + i)] = is_first ? 1 + 0x1p-8F : 1 + 0x3p-8F;
        table[static_cast<std::size_t>((is_first ? 7 : 9) * D + i)] = static_cast<W>(is_first ? 1.0F : 1 - 0x1p-7F);
    }
    context<emulated> ctx(1, 2);
    auto const tokens = screened(ctx, x, table, 256);
    auto const host_x = copied(x);
    auto const host_table = copied(table);
    for (index_t r = 0; r < R; ++r) {
        BOOST_TEST(wanted(host_x.data() + r * D, host_table) == 7);
        BOOST_TEST(tokens[static_cast<std::size_t>(r)] == 7, "row " << r);
    }
}

// As without screening: NaN is never the largest. Token 0 if all logits are NaN, and infinite logits count.
BOOST_AUTO_TEST_CASE(screening_ignores_logits_that_are_nan) {
    index_t const V = 600;
    float const nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
    auto const chosen = [&](float of_3, float of_259, float of_260, float of_others) {
        numbers<float, emulated> x(static_cast<std::size_t>(D)), table(static_cast<std::size_t>(V * D));
        for (auto& each : x) each = 1;
        for (auto& each : table) each = of_others;
        table[static_cast<std::size_t>(3 * D)] = of_3;
        table[static_cast<std::size_t>(259 * D)] = of_259;
        table[static_cast<std::size_t>(260 * D)] = of_260;
        context<emulated> ctx(1, 2);
        return screened(ctx, x, table, 256).front();
    };
    BOOST_TEST(chosen(nan, 1, 0, 0) == 259);
    BOOST_TEST(chosen(nan, nan, 2, -1) == 260);
    BOOST_TEST(chosen(nan, 1, infinity, 0) == 260);
    BOOST_TEST(chosen(nan, nan, nan, nan) == 0);
}

// argmax_token screens many rows of a large table, and only where products have full precision.
BOOST_AUTO_TEST_CASE(many_rows_of_a_large_table_are_screened) {
    context<emulated> ctx(1, 2);
    BOOST_TEST(detail::screens_argmax(ctx, 129, index_t{1} << 18));
    BOOST_TEST(!detail::screens_argmax(ctx, 128, index_t{1} << 18));
    BOOST_TEST(!detail::screens_argmax(ctx, 129, (index_t{1} << 18) - 1));
    context<emulated> rounding(1, 2);
    multiply_in_bf16(rounding);
    BOOST_TEST(!detail::screens_argmax(rounding, 129, index_t{1} << 18));
    index_t const R = 130, V = 4099;
    auto const x = draws<float, emulated>(R * D, 6);
    auto const table = draws<float, emulated>(V * D, 7);
    numbers<token_id, emulated> tokens(static_cast<std::size_t>(R), -1);
    argmax_token(ctx, out_vector<emulated>(tokens), in_rows<emulated, D>(x), in_rows<emulated, D>(table));
    auto const found = copied(tokens);
    auto const host_x = copied(x), host_table = copied(table);
    for (index_t r = 0; r < R; ++r)
        BOOST_TEST(found[static_cast<std::size_t>(r)] == wanted(host_x.data() + r * D, host_table), "row " << r);
}
