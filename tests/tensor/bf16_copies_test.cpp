// Products on the emulated device read bf16 copies of matrices, bit-identical to products that round the factors
// themselves. With stochastic rounding the cpu's products read copies too.
#include "calm/emulated.hpp"
#include "calm/tensor/detail/ops/bf16_copies.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "calm/tensor/ops/bf16_products.hpp"
#include "calm/tensor/ops/fill.hpp"
#include "calm/tensor/ops/matmul.hpp"
#include "calm/tensor/ops/rows.hpp"
#include "support/rows.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using multiplying = std::tuple<cpu, emulated>;
template <index_t Columns> using rows_of = matrix_view<float, Columns, emulated>;

struct device {
    context<emulated> ctx{1, 2};
    device() { multiply_in_bf16(ctx); }

    // The product that f writes to y, and its number of launches.
    template <class F> std::pair<std::vector<float>, index_t> by(rows_of<40> const& y, F const& f) {
        auto const before = ctx.counts();
        f(y);
        auto const launches = (ctx.counts() - before).launches;
        return {values_of(ctx, y), launches};
    }
};

template <class Backend> context<Backend> in_bf16(std::uint32_t step = 0, int threads = 2, std::uint64_t seed = 1) {
    context<Backend> ctx(seed, threads);
    multiply_in_bf16(ctx);
    ctx.step = step;
    return ctx;
}

// The bf16 copy of x, converted to float, in ctx.saved.
template <class Backend, index_t Columns>
auto copy_of(context<Backend>& ctx, bf16_copies<Backend> const& copies, matrix_view<float, Columns, Backend> const& x) {
    auto const wide = ctx.saved.template take<float>(x.extents());
    calm::detail::run_copy(ctx, wide.data(), copies.of(x.data()), x.size());
    return wide;
}

// A matrix of several parts and a second matrix, both (rows, 48), with special values at their ends.
template <class Backend> struct two_matrices {
    static constexpr index_t columns = 48, first_rows = 1000, second_rows = 40;
    matrix_view<float, columns, Backend> first, second;
    bf16_copies<Backend> copies;

    explicit two_matrices(context<Backend>& ctx) :
        first(drawn(ctx, first_rows, 2)), second(drawn(ctx, second_rows, 3)) {
        copies.add(first.data(), first_rows, columns);
        copies.add(second.data(), second_rows, columns);
        static_cast<void>(copies.use(ctx, weight_rounding::stochastic));
        static_cast<void>(copies.of(second.data()));
        static_cast<void>(copies.of(first.data()));
    }

    // The bits of both copies made in the given step.
    std::vector<std::uint32_t> at(context<Backend>& ctx, std::uint32_t step) {
        ctx.step = step;
        auto const scope = copies.use(ctx, weight_rounding::stochastic);
        std::vector<std::uint32_t> bits;
        for (auto const& x : {first, second})
            for (float const each : values_of(ctx, copy_of(ctx, copies, x)))
                bits.push_back(std::bit_cast<std::uint32_t>(each));
        return bits;
    }

    static std::vector<float> numbers(index_t rows, std::uint64_t seed) {
        context<> ctx(1, 1);
        auto x = values_of(ctx, drawn_rows<columns>(ctx, rows, seed));
        constexpr auto inf = std::numeric_limits<float>::infinity();
        std::size_t i = 0;
        for (float const each : {inf, -inf, std::numeric_limits<float>::quiet_NaN(), -0.0F, 1.0F, 0x1.FFFFFEp127F,
                                 0x1.2346p-130F, -0x1p-149F}) {
            x[i] = x[x.size() - 1 - i] = each;
            ++i;
        }
        return x;
    }

private:
    static matrix_view<float, columns, Backend> drawn(context<Backend>& ctx, index_t rows, std::uint64_t seed) {
        auto const x = ctx.saved.template take<float>(extents<dyn, columns>(rows));
        auto const all = numbers(rows, seed);
        if constexpr (device_memory<Backend>)
            copy(ctx, x, matrix_view<float const, columns>(all.data(), extents<dyn, columns>(rows)));
        else
            std::ranges::copy(all, x.data());
        return x;
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE(products_read_the_copies_of_their_factors) {
    device on;
    auto const x = activations<float, 48, emulated>(on.ctx.saved.take<bf16>(extents<dyn, 48>(70)));
    copy(on.ctx, x.rounded(), drawn_rows<48>(on.ctx, 70, 1));
    auto const w = drawn_rows<48>(on.ctx, 40, 2);        // (40, 48)
    auto const large = drawn_rows<48>(on.ctx, 1000, 3);  // more than one part; only some rows are read
    auto const wide = drawn_rows<96>(on.ctx, 40, 4);     // only some columns are read
    auto const y = drawn_rows<40>(on.ctx, 70, 5);
    auto const multiply = [&](auto const& factor) {
        return [&](rows_of<40> const& to) { matmul(on.ctx, to, x, transposed(factor)); };
    };
    bf16_copies<emulated> copies;
    copies.add(large.data(), 1000, 48);
    copies.add(w.data(), 40, 48);
    copies.add(wide.data(), 40, 96);
    BOOST_TEST(copies.bytes() == 0U);
    auto const part = rows(large, 700, 40);
    auto const of_w = on.by(y, multiply(w)), of_part = on.by(y, multiply(part)),
               of_columns = on.by(y, multiply(columns<48, 48>(wide))),
               shifted = on.by(y, multiply(columns<4, 48>(wide)));
    BOOST_TEST(of_w.second == 2);
    auto const ask = [&] {  // in a dry run
        on.ctx.set_dry_run(true);
        auto const scope = copies.use(on.ctx);
        matmul(on.ctx, y, x, transposed(w));
        matmul(on.ctx, y, x, transposed(part));
        on.ctx.set_dry_run(false);
    };
    ask();
    BOOST_TEST(copies.bytes() == 2U * 48 * (1000 + 40));
    {
        auto const scope = copies.use(on.ctx);
        BOOST_TEST(on.by(y, multiply(columns<48, 48>(wide))).second == 2);  // requests the copy
    }
    BOOST_TEST(copies.bytes() == 2U * 48 * (1000 + 40 + 80));
    {
        auto const before = on.ctx.counts();
        auto const scope = copies.use(on.ctx);
        BOOST_TEST((on.ctx.counts() - before).launches == 1);
        auto const same = [&](auto const& want, auto const& found, index_t launches) {
            BOOST_TEST(found.first == want.first, boost::test_tools::per_element());
            BOOST_TEST(found.second == launches);
        };
        same(of_w, on.by(y, multiply(w)), 1);
        same(of_part, on.by(y, multiply(part)), 1);
        same(of_columns, on.by(y, multiply(columns<48, 48>(wide))), 1);
        same(shifted, on.by(y, multiply(columns<4, 48>(wide))), 2);  // does not start at a group of the copy
    }
    BOOST_TEST(on.by(y, multiply(w)).second == 2);

    // A matrix that has changed is copied again.
    fill(on.ctx, w, 0.5F);
    auto const want = on.by(y, multiply(w));
    auto const scope = copies.use(on.ctx);
    BOOST_TEST(on.by(y, multiply(w)).first == want.first, boost::test_tools::per_element());
}

// Not copied: rows that are not multiples of 16 bytes, memory outside the matrices, and anything in fp32.
BOOST_AUTO_TEST_CASE(other_factors_are_left_alone) {
    device on;
    auto const w = drawn_rows<48>(on.ctx, 40, 2);
    auto const odd = drawn_rows<45>(on.ctx, 40, 3);
    bf16_copies<emulated> copies;
    copies.add(odd.data(), 40, 45);
    copies.add(w.data(), 40, 48);
    copies.add(nullptr, 0, 48);
    (void)copies.use(on.ctx);
    BOOST_TEST(copies.of(odd.data()) == nullptr);
    BOOST_TEST(copies.of(w.data()) == nullptr);
    (void)copies.use(on.ctx);
    BOOST_TEST(copies.of(w.data()) != nullptr);
    BOOST_TEST(copies.of(w.data() + 8) == copies.of(w.data()) + 8);
    BOOST_TEST(copies.of(w.data() + 4) == nullptr);
    BOOST_TEST(copies.of(w.data() + 40 * 48) == nullptr);
    BOOST_TEST(copies.of(w.data() - 8) == nullptr);

    context<emulated> plain(1, 2);
    bf16_copies<emulated> none;
    none.add(w.data(), 40, 48);
    auto const nothing = none.use(plain);
    BOOST_TEST((plain.copies == nullptr));
    BOOST_TEST(none.bytes() == 0U);
}

// Definition of stochastic rounding: element l of group i, counted over all matrices, uses 16 bits of RNG block i of
// the step. This holds on every device.
BOOST_AUTO_TEST_CASE(copies_at_random_are_a_function_of_seed_step_and_place) {
    using both = two_matrices<cpu>;
    auto all = both::numbers(both::first_rows, 2);
    for (float const x : both::numbers(both::second_rows, 3)) all.push_back(x);
    auto const want = [&](std::uint64_t seed, std::uint32_t step) {
        std::vector<std::uint32_t> bits;
        for (std::size_t i = 0; i < all.size(); ++i) {
            auto const words = philox(key{seed, stream::rounding, step}, i / 8);
            float const rounded = bf16::at_random(all[i], words.v[i % 8 / 2] >> (i % 2 == 0 ? 0 : 16));
            bits.push_back(std::bit_cast<std::uint32_t>(rounded));
        }
        return bits;
    };
    auto const same = [&]<class Backend>(context<Backend> ctx, std::uint64_t seed) {
        two_matrices<Backend> matrices(ctx);
        for (std::uint32_t const step : {7U, 8U, 7U})
            BOOST_TEST((matrices.at(ctx, step) == want(seed, step)), seed << ", step " << step);
    };
    for (int const threads : {1, 2}) {
        same(in_bf16<cpu>(0, threads), 1);
        same(in_bf16<emulated>(0, threads), 1);
    }
    same(in_bf16<cpu>(0, 2, 9), 9);
    for (auto const order : {thread_order::descending, thread_order::permuted}) {
        auto ctx = in_bf16<emulated>();
        ctx.order = order;
        same(std::move(ctx), 1);
    }
    BOOST_TEST((want(1, 7) != want(1, 8) && want(1, 7) != want(9, 7)));
}

// Over many steps each copy is a neighbour of its weight, and the mean of the copies is the weight within 5 standard
// errors, plus an allowance for rare events. The total deviation is within 5 standard errors.
BOOST_AUTO_TEST_CASE(the_mean_of_copies_over_the_steps_is_the_weight) {
    constexpr int steps = 1000;
    auto ctx = in_bf16<cpu>();
    auto const w = drawn_rows<48>(ctx, 40, 2);
    auto const n = static_cast<std::size_t>(w.size());
    bf16_copies<cpu> copies;
    copies.add(w.data(), 40, 48);
    static_cast<void>(copies.use(ctx, weight_rounding::stochastic));
    static_cast<void>(copies.of(w.data()));
    std::vector<int> farther(n);
    for (ctx.step = 0; ctx.step < steps; ++ctx.step) {
        auto const scope = copies.use(ctx, weight_rounding::stochastic);
        float const* const copy = copies.of(w.data());
        for (std::size_t i = 0; i < n; ++i) {
            auto const apart =
                std::bit_cast<std::uint32_t>(copy[i]) - (std::bit_cast<std::uint32_t>(w.data()[i]) & ~0xFFFFU);
            BOOST_REQUIRE((apart == 0 || apart == 0x10000U));
            farther[i] += apart == 0 ? 0 : 1;
        }
    }
    double off = 0, variance = 0, worst = 0;
    for (std::size_t i = 0; i < n; ++i) {
        double const share = (std::bit_cast<std::uint32_t>(w.data()[i]) & 0xFFFFU) * 0x1p-16;
        double const one = farther[i] - steps * share, of_one = steps * share * (1 - share);
        worst = std::max(worst, std::abs(one) / (5 * std::sqrt(of_one) + 5));
        off += one;
        variance += of_one;
    }
    BOOST_TEST(worst < 1);
    BOOST_TEST(std::abs(off) < 5 * std::sqrt(variance));
}

// All products within one step read one copy, transposed or not, exactly as if it were the weight.
BOOST_AUTO_TEST_CASE_TEMPLATE(products_of_a_step_read_one_copy, Backend, multiplying) {
    auto ctx = in_bf16<Backend>(3), other = in_bf16<Backend>(3);
    auto const w = drawn_rows<48>(ctx, 40, 2);  // (40, 48)
    auto const x = drawn_rows<48>(ctx, 70, 3);
    auto const dy = drawn_rows<40>(ctx, 70, 4);
    auto const y = drawn_rows<40>(ctx, 70, 5);
    auto const dx = drawn_rows<48>(ctx, 70, 6);
    auto const products = [&](context<Backend>& by, auto const& weight) {
        matmul(by, y, x, transposed(weight));
        matmul(by, dx, dy, weight);
        auto all = values_of(by, y);
        for (float const each : values_of(by, dx)) all.push_back(each);
        return all;
    };
    auto const nearest = products(ctx, w);
    bf16_copies<Backend> copies;
    copies.add(w.data(), 40, 48);
    ctx.set_dry_run(true);
    {
        auto const scope = copies.use(ctx, weight_rounding::stochastic);
        matmul(ctx, y, x, transposed(w));
    }
    ctx.set_dry_run(false);
    BOOST_TEST(copies.bytes() == sizeof(typename bf16_copies<Backend>::number) * 40 * 48);
    std::vector<std::vector<float>> found;
    for (ctx.step = 3; ctx.step < 5; ++ctx.step) {
        auto const scope = copies.use(ctx, weight_rounding::stochastic);
        found.push_back(products(ctx, w));
        BOOST_TEST(found.back() == products(other, copy_of(other, copies, w)), boost::test_tools::per_element());
    }
    BOOST_TEST((found[0] != found[1] && found[0] != nearest));
    BOOST_TEST((products(ctx, w) == nearest));
}

// The cpu makes copies only for stochastic rounding, and none in fp32.
BOOST_AUTO_TEST_CASE(the_cpu_copies_nothing_to_nearest) {
    auto ctx = in_bf16<cpu>();
    auto const w = drawn_rows<48>(ctx, 40, 2);
    bf16_copies<cpu> copies;
    copies.add(w.data(), 40, 48);
    auto const is_used = [&](context<>& by, weight_rounding rounding) {
        auto const scope = copies.use(by, rounding);
        return by.copies != nullptr;
    };
    context<> plain(1, 1);
    BOOST_TEST(!is_used(ctx, weight_rounding::nearest));
    BOOST_TEST(!is_used(plain, weight_rounding::stochastic));
    BOOST_TEST(is_used(ctx, weight_rounding::stochastic));
    BOOST_TEST((ctx.copies == nullptr));
    BOOST_TEST(copies.bytes() == 0U);
}
