#include "calm/tensor/detail/core/group.hpp"

#include <array>
#include <bit>

#include "calm/base/bf16.hpp"
#include "calm/tensor/expr/expr.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

// The high two bytes of a float: a storage type that differs from the compute type.
struct brief {
    std::uint16_t high{};
    brief() = default;
    explicit brief(float x) : high(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16U)) {}
    explicit operator float() const { return std::bit_cast<float>(std::uint32_t{high} << 16U); }
};

// x, whose first element is `apart` elements after a multiple of 64 bytes.
template <class T> struct placed_numbers {
    alignas(64) std::array<T, 64> all{};
    T* at;
    explicit placed_numbers(std::size_t apart) : at(all.data() + apart) {}
};

// y = 3 x + 1 for numbers stored in 16 bits and computed in 32.
struct stored_in_16_bits {
    static constexpr int threads = detail::element_threads;
    struct shared {};
    bf16 const* x;
    bf16* y;
    index_t n;
    template <class Block> void operator()(Block& b, shared&, index_t block) const {
        detail::for_elements<float>(b, block, n,
                                    [&]<class V>(index_t i) { store(y + i, load<V>(x + i) * 3.0F + 1.0F); });
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(lanes_are_neighbours_at_any_alignment, T, scalars) {
    using V = group_of<T>;
    static_assert(sizeof(V) == 16 && lanes<V> * sizeof(T) == 16 && !packed<V>);
    for (std::size_t apart = 0; apart < 9; ++apart) {
        placed_numbers<T> x(apart), y(apart / 2);
        for (std::size_t i = 0; i < x.all.size(); ++i) x.all[i] = static_cast<T>(i) + T(0.5);
        y.all.fill(-1);
        auto const v = load<V>(x.at + 3);
        store(y.at + 5, v);
        for (int l = 0; l < lanes<V>; ++l) BOOST_TEST(v.lane[l] == static_cast<T>(apart) + 3 + T(l) + T(0.5));
        for (int l = 0; l < lanes<V>; ++l) BOOST_TEST(y.at[5 + l] == v.lane[l]);
        BOOST_TEST(std::count(y.all.begin(), y.all.end(), T(-1)) == 64 - lanes<V>);
    }
}

BOOST_AUTO_TEST_CASE(storage_and_computation_types_may_differ) {
    using V = group<float, 8>;
    for (std::size_t apart = 0; apart < 9; ++apart) {
        placed_numbers<brief> x(apart), y(apart / 3);
        for (std::size_t i = 0; i < x.all.size(); ++i) x.all[i] = brief(static_cast<float>(i) / 4);
        store(y.at + 1, load<V>(x.at) * 3.0F + 1.0F);
        for (std::size_t l = 0; l < 8; ++l)
            BOOST_TEST(static_cast<float>(y.at[1 + l]) == static_cast<float>(apart + l) * 0.75F + 1);
        BOOST_TEST(y.at[9].high == 0);
        BOOST_TEST(load<float>(x.at + 1) == static_cast<float>(apart + 1) / 4);
    }
    // A tree reads the stored type and computes in the requested type.
    std::array<brief, 8> stored{};
    for (std::size_t i = 0; i < 8; ++i) stored[i] = brief(static_cast<float>(i));
    tree::unary<op::squared, tree::input<brief>> const squares{{stored.data()}};
    auto const v = squares.forward<V>(0).value;
    for (int l = 0; l < 8; ++l) BOOST_TEST(v.lane[l] == static_cast<float>(l * l));
}

// Device kernels, in full groups and in the tail, at any alignment, agree with plain conversions.
BOOST_AUTO_TEST_CASE(kernels_of_a_device_read_and_write_bf16) {
    using squared = tree::unary<op::squared, tree::input<bf16>>;
    context<emulated> ctx(0, 1);
    for (index_t const n : {1, 3, 4, 255, 1025, 2500})
        for (std::size_t const apart : {0U, 1U, 2U, 7U}) {
            std::vector<bf16> x;
            for (index_t i = 0; i < n + 8; ++i) x.emplace_back(drawn(1, i));
            auto const there = placed<emulated>(x);
            device_numbers<bf16, emulated> y(x.size(), bf16(7.0F));
            device_numbers<float, emulated> squares(x.size(), 7);
            launch(ctx, detail::element_blocks<float>(n), stored_in_16_bits{there.data() + apart, y.data() + apart, n});
            detail::run_evaluate(ctx, squared{{there.data() + apart}}, squares.data() + apart, n);
            std::vector<bf16> const got = y;
            std::vector<float> const got_squares = squares;
            bool same = true;
            for (std::size_t i = 0; i < x.size(); ++i) {
                bool const computed = i >= apart && i < apart + static_cast<std::size_t>(n);
                auto const one = static_cast<float>(x[i]);
                same = same && got[i].bits == bf16(computed ? one * 3.0F + 1.0F : 7.0F).bits &&
                       got_squares[i] == (computed ? one * one : 7.0F);
            }
            BOOST_TEST(same, n << " numbers, " << apart << " apart");
        }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_lane_is_computed_as_a_number, T, scalars) {
    using V = group_of<T>;
    auto const x = draws<T>(lanes<V>, 1);
    auto const y = draws<T>(lanes<V>, 2);
    auto const u = load<V>(x.data());
    auto const w = load<V>(y.data());
    auto const check = [&](V const& v, auto const& f) {
        for (int l = 0; l < lanes<V>; ++l)
            BOOST_TEST(v.lane[l] == f(x[static_cast<std::size_t>(l)], y[static_cast<std::size_t>(l)]));
    };
    check(u + w, [](T a, T b) { return a + b; });
    check(u - w, [](T a, T b) { return a - b; });
    check(u * w, [](T a, T b) { return a * b; });
    check(u / w, [](T a, T b) { return a / b; });
    check(-u, [](T a, T) { return -a; });
    check(T{1} - u, [](T a, T) { return 1 - a; });
    check(math::max(u, w), [](T a, T b) { return std::max(a, b); });
    check(math::min(u, w), [](T a, T b) { return std::min(a, b); });
    check(math::abs(u), [](T a, T) { return std::abs(a); });
    check(math::exp(u), [](T a, T) { return std::exp(a); });
    check(math::log(math::abs(u)), [](T a, T) { return std::log(std::abs(a)); });
    check(math::sqrt(math::abs(u)), [](T a, T) { return std::sqrt(std::abs(a)); });
    check(math::tanh(u), [](T a, T) { return std::tanh(a); });
    check(math::sigmoid(u), [](T a, T) { return 1 / (1 + std::exp(-a)); });
    check(op::maximum::value(u, w), [](T a, T b) { return std::max(a, b); });
    T total{};
    for (T const v : x) total += v;
    BOOST_TEST(std::abs(sum(u) - total) < T(1e-6));
}

// An element has the same bits in a full group and in the tail.
BOOST_AUTO_TEST_CASE_TEMPLATE(tails_equal_whole_groups, T, scalars) {
    context<blocks> ctx(0, 1);
    for (index_t const n : {1, 3, 4, 5, 255, 1023, 1024, 1025, 2500})
        for (index_t const apart : {0, 1, 2, 3}) {
            auto const x = draws<T>(n + apart, 1);
            std::vector<T> y(x.size() + 1, 7), one(1);
            auto const at = [&](T const* p, index_t count) {
                return vector_view<T const, dyn, blocks>(p, extents<dyn>(count));
            };
            evaluate(ctx, vector_view<T, dyn, blocks>(y.data() + apart, extents<dyn>(n)),
                     silu(at(x.data() + apart, n)) * 2.0);
            bool same = true;
            for (index_t i = 0; i < n; ++i) {
                evaluate(ctx, vector_view<T, dyn, blocks>(one.data(), extents<dyn>(1)),
                         silu(at(x.data() + apart + i, 1)) * 2.0);
                same = same && y[static_cast<std::size_t>(apart + i)] == one[0];
            }
            BOOST_TEST(same);
            BOOST_TEST(y.back() == 7);
            BOOST_TEST(std::count(y.begin(), y.begin() + apart, T(7)) == apart);
        }
}
