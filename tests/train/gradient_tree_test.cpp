#include "calm/train/gradient_tree.hpp"

#include "support/typed.hpp"

using namespace calm;
using calm::test::draws;
using calm::test::executors;

namespace {

// A matrix longer than a range, a vector, and nothing.
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

// The sum of micro-batches first .. first + n - 1, as the tree is defined.
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

BOOST_AUTO_TEST_CASE_TEMPLATE(gradients_add_up_in_the_tree_of_their_numbers, E, executors) {
    using T = typename E::scalar;
    for (index_t const n : {1, 2, 3, 4, 5, 6, 7, 8, 13}) {
        small_model<E> model;
        gradient_tree<typename small_model<E>::space_type> const tree(parameters_of(model), n);
        context<typename E::backend> ctx(1, 3);
        ctx.order = thread_order::permuted;
        std::vector<T> in_turn(size);
        for (int step = 0; step < 2; ++step)  // what waited once is forgotten
            for (index_t i = 0; i < n; ++i) {
                auto const g = draws<T>(size, static_cast<std::uint64_t>(i));
                for (index_t j = 0; j < size; ++j) {
                    auto& to = j < size - 5 ? model.matrix.grad[j] : model.bias.grad[j - (size - 5)];
                    to += g[static_cast<std::size_t>(j)];
                    in_turn[static_cast<std::size_t>(j)] += g[static_cast<std::size_t>(j)];
                }
                tree.add(ctx, i);
                bool const last = i + 1 == n;
                auto const is_zero = [](T x) { return x == 0; };
                BOOST_TEST(last != std::all_of(model.matrix.grad.begin(), model.matrix.grad.end(), is_zero));
                BOOST_TEST(last != std::all_of(model.bias.grad.begin(), model.bias.grad.end(), is_zero));
                if (!last) continue;
                auto const want = tree_sum<T>(0, n);
                std::vector<T> got(model.matrix.grad.begin(), model.matrix.grad.end());
                got.insert(got.end(), model.bias.grad.begin(), model.bias.grad.end());
                BOOST_TEST((got == want), n << " micro-batches");
                if (step == 0) BOOST_TEST((got == in_turn) == (n <= 3));
                std::fill(model.matrix.grad.begin(), model.matrix.grad.end(), T{});
                std::fill(model.bias.grad.begin(), model.bias.grad.end(), T{});
            }
    }
}

BOOST_AUTO_TEST_CASE(as_many_sums_wait_as_a_number_of_the_step_has_ones) {
    using tree = gradient_tree<space<>>;
    index_t most = 0;
    for (index_t n = 1; n < 300; ++n) {
        BOOST_TEST(tree::most_waiting(n) == most);
        most = std::max<index_t>(most, std::popcount(static_cast<std::uint64_t>(n)));
    }
    BOOST_TEST(tree::most_waiting(256) == 8);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_rehearsal_changes_no_gradient, E, executors) {
    small_model<E> model;
    gradient_tree<typename small_model<E>::space_type> const tree(parameters_of(model), 2);
    context<typename E::backend> ctx(1, 1);
    model.bias.grad[2] = 3;
    ctx.rehearse(true);
    tree.add(ctx, 0);
    BOOST_TEST(model.bias.grad[2] == 3);
}
