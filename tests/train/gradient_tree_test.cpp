#include "calm/train/detail/gradient_tree.hpp"

#include "support/typed.hpp"

using namespace calm;
using calm::test::copied;
using calm::test::draws;
using calm::test::opened;
using calm::test::test_devices;

namespace {

// A matrix longer than one range, a vector, and an empty parameter.
template <class E> struct small_model {
    using T = typename E::scalar;
    using backend = typename E::backend;
    using space_type = space<backend, T>;
    param<extents<dyn, 3>, space_type> matrix =
        make_param<extents<dyn, 3>, space_type>(role::weight, extents<dyn, 3>(7001));
    param<extents<5>, space_type> bias = make_param<extents<5>, space_type>(role::bias);
    param<extents<dyn>, space_type> empty = make_param<extents<dyn>, space_type>(role::gain, extents<dyn>(0));
    arena<backend> values{"values"};
    arena<backend> gradients{"gradients"};

    small_model() { allocate(*this, values, &gradients); }
    template <class Visitor> void visit(Visitor& visitor) {
        visitor("matrix", matrix);
        visitor("bias", bias);
        visitor("empty", empty);
    }
};

constexpr index_t size = 7001 * 3 + 5;

// The tree sum of micro-batches first .. first + n - 1, by definition.
template <class T> std::vector<T> tree_sum(index_t first, index_t n) {
    if (n == 1) return draws<T>(size, static_cast<std::uint64_t>(first));
    index_t half = 1;
    while (2 * half < n) half *= 2;
    auto sum = tree_sum<T>(first, half);
    auto const rest = tree_sum<T>(first + half, n - half);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += rest[i];
    return sum;
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(gradients_add_up_in_the_tree_of_their_numbers, E, test_devices) {
    using T = typename E::scalar;
    for (index_t const n : {1, 2, 3, 4, 5, 6, 7, 8, 13}) {
        small_model<E> model;
        gradient_tree<typename small_model<E>::space_type> const tree(parameters_of(model), n);
        context<typename E::backend> ctx(1, 3);
        ctx.order = thread_order::permuted;
        std::vector<T> in_turn(size);
        for (int step = 0; step < 2; ++step)  // no pending sums remain after a step
            for (index_t i = 0; i < n; ++i) {
                auto const g = draws<T>(size, static_cast<std::uint64_t>(i));
                auto const matrix = opened(model.matrix.grad);
                auto const bias = opened(model.bias.grad);
                for (index_t j = 0; j < size; ++j) {
                    auto& to = j < size - 5 ? matrix[j] : bias[j - (size - 5)];
                    to += g[static_cast<std::size_t>(j)];
                    in_turn[static_cast<std::size_t>(j)] += g[static_cast<std::size_t>(j)];
                }
                tree.add(ctx, i);
                bool const last = i + 1 == n;
                auto const is_zero = [](auto const& x) { return std::ranges::count(x, T{}) == std::ssize(x); };
                auto got = copied(model.matrix.grad);
                auto const of_bias = copied(model.bias.grad);
                BOOST_TEST(last != is_zero(got));
                BOOST_TEST(last != is_zero(of_bias));
                if (!last) continue;
                auto const want = tree_sum<T>(0, n);
                got.insert(got.end(), of_bias.begin(), of_bias.end());
                BOOST_TEST((got == want), n << " micro-batches");
                if (step == 0) BOOST_TEST((got == in_turn) == (n <= 3));
                fill(ctx, model.matrix.grad, T{});
                fill(ctx, model.bias.grad, T{});
            }
    }
}

BOOST_AUTO_TEST_CASE(as_many_sums_wait_as_a_number_of_the_step_has_ones) {
    using tree = gradient_tree<space<>>;
    index_t most = 0;
    for (index_t n = 1; n < 300; ++n) {
        BOOST_TEST(tree::max_pending(n) == most);
        most = std::max<index_t>(most, std::popcount(static_cast<std::uint64_t>(n)));
    }
    BOOST_TEST(tree::max_pending(256) == 8);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_dry_run_changes_no_gradient, E, test_devices) {
    small_model<E> model;
    gradient_tree<typename small_model<E>::space_type> const tree(parameters_of(model), 2);
    context<typename E::backend> ctx(1, 1);
    opened(model.bias.grad)[2] = 3;
    ctx.set_dry_run(true);
    tree.add(ctx, 0);
    BOOST_TEST(opened(model.bias.grad)[2] == 3);
}
