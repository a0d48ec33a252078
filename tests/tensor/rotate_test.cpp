// rotate_and_append is bit-identical to rotating and then appending.
#include "calm/emulated.hpp"
#include "calm/tensor/ops/rotate.hpp"

#include <vector>

#include "support/rows.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr double theta = 10000;

// New positions of sequences 2 and 0 in a cache of three, with twice as many query heads as key heads.
template <class T, class Backend, index_t HeadSize, index_t KeyHeads> struct new_positions {
    static constexpr index_t width = HeadSize * KeyHeads, room = 9;
    context<Backend> ctx{1, 2};
    index_t rows;
    std::vector<cached_sequence> sequences{{.sequence = 2, .length = 5}, {.sequence = 0, .length = 0}};
    matrix_view<T, 2 * width, Backend> queries = drawn_rows<2 * width, T>(ctx, rows, 1);
    matrix_view<T, width, Backend> new_keys = drawn_rows<width, T>(ctx, rows, 2);
    matrix_view<T, width, Backend> new_values = drawn_rows<width, T>(ctx, rows, 3);
    view<T, extents<dyn, dyn, width>, Backend> keys = memory(4);
    view<T, extents<dyn, dyn, width>, Backend> values = memory(5);

    explicit new_positions(index_t count, thread_order order = thread_order::ascending) : rows(2 * count) {
        ctx.order = order;
    }
    auto memory(std::uint64_t seed) {
        return reshape(drawn_rows<width, T>(ctx, 3 * room, seed), extents<dyn, dyn, width>(3, room));
    }
    auto brought() { return to_device(ctx, std::span<cached_sequence const>(sequences)); }
    void check_as(new_positions& want) {
        BOOST_TEST(values_of(ctx, queries) == values_of(want.ctx, want.queries), boost::test_tools::per_element());
        BOOST_TEST(values_of(ctx, keys) == values_of(want.ctx, want.keys), boost::test_tools::per_element());
        BOOST_TEST(values_of(ctx, values) == values_of(want.ctx, want.values), boost::test_tools::per_element());
    }
};

template <class T, class Backend, index_t HeadSize, index_t KeyHeads> void check_one_after_another() {
    for (index_t const count : {1, 4})
        for (auto const order : {thread_order::ascending, thread_order::permuted}) {
            new_positions<T, Backend, HeadSize, KeyHeads> found(count, order), want(count);
            rotate_and_append(found.ctx, found.queries, found.keys, found.values, found.new_keys, found.new_values,
                              HeadSize, found.brought(), theta);
            rotate_both(want.ctx, want.queries, want.new_keys, HeadSize, want.brought(), theta);
            detail::append_positions(want.ctx, want.keys, want.values, want.new_keys, want.new_values, want.brought());
            found.check_as(want);
        }
}

template <class T, class Backend> struct on_context {
    using scalar = T;
    using backend = Backend;
};
using all = boost::mpl::list<on_context<float, cpu>, on_context<double, cpu>, on_context<float, blocks>,
                             on_context<float, emulated>, on_context<double, emulated>>;

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(keys_are_turned_on_their_way_into_a_cache, on, all) {
    using T = typename on::scalar;
    check_one_after_another<T, typename on::backend, 2, 1>();
    check_one_after_another<T, typename on::backend, 8, 3>();
    check_one_after_another<T, typename on::backend, 264, 2>();  // more pairs than one kernel block handles
}

BOOST_AUTO_TEST_CASE(rotating_and_appending_is_one_launch) {
    new_positions<float, emulated, 8, 3> of(4);
    auto const sequences = of.brought();
    auto const before = of.ctx.counts();
    rotate_and_append(of.ctx, of.queries, of.keys, of.values, of.new_keys, of.new_values, 8, sequences, theta);
    BOOST_TEST((of.ctx.counts() - before).launches == 1);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(mismatching_rows_are_neither_rotated_nor_appended, on, all) {
    new_positions<typename on::scalar, typename on::backend, 8, 1> of(4);
    auto const advance = [&](auto const& queries, index_t head_size) {
        rotate_and_append(of.ctx, queries, of.keys, of.values, of.new_keys, of.new_values, head_size, of.brought(),
                          theta);
    };
    BOOST_CHECK_EXCEPTION(advance(of.queries, 3), error, says(errc::usage, "whole heads of 3"));
    BOOST_CHECK_EXCEPTION(advance(rows(of.queries, 0, 6), 8), error, says(errc::usage, "as many rows of both"));
    of.sequences[0].length = 6;
    BOOST_CHECK_EXCEPTION(advance(of.queries, 8), error,
                          says(errc::usage, "calm::rotate_and_append", "room for 10 positions", "room for 9"));
}
