// Evaluation of a tree in packets and single elements, in fixed ranges and in portable blocks gives equal results.
#include "calm/tensor/detail/expr/elementwise.hpp"

#include "calm/tensor/expr/expr.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

BOOST_AUTO_TEST_CASE_TEMPLATE(packets_and_single_elements_cover_a_range_once, T, scalars) {
    for (index_t const n : sizes) {
        std::vector<int> covered(static_cast<std::size_t>(n));
        index_t narrow = 0;
        detail::for_packets<T>(0, n, [&]<class V>(index_t i) {
            if constexpr (lanes<V> == 1) ++narrow;
            for (index_t j = i; j < i + lanes<V>; ++j) ++covered[static_cast<std::size_t>(j)];
        });
        BOOST_TEST(std::count(covered.begin(), covered.end(), 1) == n);
        BOOST_TEST(narrow == n % lanes<packet<T>>);
    }
}

BOOST_AUTO_TEST_CASE(a_tree_knows_pointers_only) {
    float x[2] = {1, 2};
    float d[2] = {};
    tree::binary<op::multiply, tree::variable<float>, tree::constant<float>> const t{{x, d, false}, {3}};
    static_assert(std::is_trivially_copyable_v<decltype(t)>);
    static_assert(t.active && !tree::unary<op::silu, tree::input<float>>::active);
    auto const trace = t.forward<float>(1);
    BOOST_TEST(trace.value == 6.0F);
    t.backward<float>(trace, 1, 10.0F);
    BOOST_TEST(d[0] == 0.0F);
    BOOST_TEST(d[1] == 30.0F);
    int tensors = 0;
    int gradients = 0;
    tree::for_each_leaf(t, {1, 2}, [&](tree::leaf<float> const& leaf) {
        ++tensors;
        gradients += leaf.how == tree::written::by_gradients ? 1 : 0;
    });
    BOOST_TEST(tensors == 2);
    BOOST_TEST(gradients == 1);
}

BOOST_AUTO_TEST_CASE(the_block_kernels_agree_with_the_packets) {
    context<cpu> ctx(1, 2);
    context<blocks> in_blocks(1, 2);
    in_blocks.order = thread_order::permuted;
    for (index_t const n : sizes) {
        tensor<float, extents<dyn>> x{extents<dyn>(n)}, y{extents<dyn>(n)}, dy{extents<dyn>(n)}, dx{extents<dyn>(n)};
        draw(x, 1);
        draw(dy, 2);
        using other = view<float, extents<dyn>, blocks>;
        tensor<float, extents<dyn>, blocks> y2{extents<dyn>(n)}, dx2{extents<dyn>(n)};
        other const x2(x.data(), x.extents());
        other const dy2(dy.data(), dy.extents());
        evaluate(ctx, y, tanh(x) * silu(x));
        evaluate(in_blocks, y2, tanh(x2) * silu(x2));
        differentiate(ctx, tanh(wrt(x, dx)) * silu(accumulate(x, dx)), dy);
        differentiate(in_blocks, tanh(wrt(x2, dx2)) * silu(accumulate(x2, dx2)), dy2);
        double worst = 0;
        for (index_t i = 0; i < n; ++i)
            worst = std::max(
                {worst, std::abs(static_cast<double>(y[i] - y2[i])), std::abs(static_cast<double>(dx[i] - dx2[i]))});
        BOOST_TEST(worst <= 2e-6);
    }
}

// A text must not depend on the texts behind it in a batch, whose rows make the range longer.
BOOST_AUTO_TEST_CASE(an_element_has_the_same_bits_wherever_the_range_ends) {
    constexpr index_t longest = 2 * detail::elementwise_grain + 100;
    tensor<float, extents<dyn>> x{extents<dyn>(longest)}, y{extents<dyn>(longest)};
    draw(x, 1);
    context<cpu> ctx(1, 2);
    evaluate(ctx, y, tanh(x) * silu(x) + exp(x) * x);
    for (index_t const n : {16, 17, 23, 31, 32, 47, 100, 1000, static_cast<int>(detail::elementwise_grain) + 7,
                            static_cast<int>(longest) - 1}) {
        tensor<float, extents<dyn>> in{extents<dyn>(n)};
        std::copy_n(x.begin(), n, in.begin());
        evaluate(ctx, in, tanh(in) * silu(in) + exp(in) * in);
        BOOST_TEST(std::equal(in.begin(), in.end(), y.begin()), "of " << n << " elements");
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sums_of_float_are_accumulated_in_double, on, test_devices) {
    constexpr index_t n = 1 << 20;
    typename on::vector x{extents<dyn>(n)};
    std::fill(x.begin(), x.end(), static_cast<typename on::scalar>(0.1F));
    for (int threads : {1, 2, 3}) {
        typename on::context ctx(0, threads);
        BOOST_TEST(near(sum(ctx, x), static_cast<double>(0.1F) * n, 2e-6));
    }
    typename on::context ctx(0, 1);
    ctx.set_dry_run(true);
    BOOST_TEST(sum(ctx, x) == 0.0);
    BOOST_TEST(ctx.workspace.peak() > 0U);
}
