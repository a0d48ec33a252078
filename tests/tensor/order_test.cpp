// Sorting rows by id, compared with std::stable_sort, and sums in that order.
#include "calm/emulated.hpp"

#include <numeric>

#include "calm/tensor/ops/rows.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using backends = boost::mpl::list<blocks, emulated>;
using ids_type = std::vector<row_id>;

// Two ids are frequent, the others occasional.
ids_type ids_of(index_t n, index_t V) {
    ids_type ids;
    random_sequence random({1, stream::choice, 0});
    for (index_t i = 0; i < n; ++i)
        ids.push_back(
            static_cast<row_id>(random.below(static_cast<std::uint32_t>(i % 3 == 0 ? std::min(V, index_t{2}) : V))));
    return ids;
}

ids_type stably_sorted(ids_type const& ids) {
    ids_type order(ids.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](row_id a, row_id b) {
        return ids[static_cast<std::size_t>(a)] < ids[static_cast<std::size_t>(b)];
    });
    return order;
}

template <class Backend, class Do> void in_every_order(Do const& check) {
    using enum thread_order;
    for (auto const order : {ascending, descending, permuted}) {
        context<Backend> ctx(1, 2);
        ctx.order = order;
        check(ctx);
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_are_sorted_by_id_and_stay_as_they_come, Backend, backends) {
    in_every_order<Backend>([](auto& ctx) {
        for (index_t const V : {1, 2, 256, 257, 70000, 20000000})
            for (index_t const n : {1, 3, 2047, 2048, 2049, 5000}) {
                arena_scope const scope(ctx.workspace);
                auto const ids = ids_of(n, V);
                auto const there = upload(ctx, std::span<row_id const>(ids));
                auto const* const order = detail::order_of_rows(ctx, there.data(), n, V);
                ids_type room;
                auto const found = to_host(ctx, vector_view<row_id const, dyn, Backend>(order, extents<dyn>(n)), room);
                auto const want = stably_sorted(ids);
                BOOST_TEST((ids_type(found.begin(), found.end()) == want), "V " << V << ", n " << n);
            }
    });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_of_one_id_are_added_as_they_come, Backend, backends) {
    constexpr index_t D = 200, V = 700, n = 5000;  // more than a block's columns, a pass's ids and a tile's rows
    auto const ids = ids_of(n, V);
    auto const dy = draws<float>(n * D, 1);
    auto const table = draws<float>(V * D, 2);
    auto want = table;
    for (index_t r = 0; r < n; ++r)
        for (index_t j = 0; j < D; ++j)
            want[static_cast<std::size_t>(ids[static_cast<std::size_t>(r)] * D + j)] +=
                dy[static_cast<std::size_t>(r * D + j)];
    in_every_order<Backend>([&](auto& ctx) {
        arena_scope const scope(ctx.workspace);
        auto const sums = ctx.workspace.template take<float>(extents<dyn, D>(V));
        copy(ctx, sums,
             matrix_view<float const, D, Backend>(upload(ctx, std::span<float const>(table)).data(), sums.extents()));
        matrix_view<float const, D, Backend> const rows(upload(ctx, std::span<float const>(dy)).data(),
                                                        extents<dyn, D>(n));
        scatter_add_rows(ctx, sums, rows, upload(ctx, std::span<row_id const>(ids)));
        std::vector<float> room;
        auto const found = to_host(ctx, sums, room);
        BOOST_CHECK(std::equal(found.begin(), found.end(), want.begin(), want.end()));
    });
}

// The launches depend on the sizes alone.
BOOST_AUTO_TEST_CASE(every_eight_bits_take_two_launches) {
    constexpr index_t n = 3000;
    context<emulated> ctx(1, 1);
    arena_scope const scope(ctx.workspace);
    auto const dy = ctx.workspace.take<float>(extents<dyn, 3>(n));
    fill(ctx, dy, 1.0F);
    auto const launched = [&](index_t V, row_id different) {
        arena_scope const of_one(ctx.workspace);
        auto const table = ctx.workspace.take<float>(extents<dyn, 3>(V));
        fill(ctx, table, 0.0F);
        ids_type ids(static_cast<std::size_t>(n));
        for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<row_id>(i) % different;
        auto const there = upload(ctx, std::span<row_id const>(ids));
        auto const before = ctx.counts();
        scatter_add_rows(ctx, table, matrix_view<float const, 3, emulated>(dy), there);
        auto const after = ctx.counts();
        BOOST_TEST(after.waits == before.waits);
        return after.launches - before.launches;
    };
    BOOST_TEST((launched(256, 1) == 3 && launched(256, 256) == 3));
    BOOST_TEST((launched(257, 1) == 5 && launched(65536, 2000) == 5));
    BOOST_TEST((launched(65537, 2000) == 7));
    ctx.wait();
}
