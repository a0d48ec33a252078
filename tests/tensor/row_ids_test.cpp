// Ids for one training step: validated and made unique on the host, uploaded in one copy, and not read again.
#include "calm/emulated.hpp"

#include "calm/tensor/ops/rows.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using backends = boost::mpl::list<cpu, blocks, emulated>;
using ids_type = std::vector<row_id>;

template <class Backend> ids_type brought(context<Backend> const& ctx, row_ids<Backend> const& ids) {
    ids_type room;
    auto const all = to_host(ctx, ids.view(), room);
    return {all.begin(), all.end()};
}

template <class Backend> unique_ids<Backend> uploaded(context<Backend>& ctx, ids_type const& ids, index_t V) {
    auto const n = std::ssize(ids);
    id_upload<Backend> upload(ctx, V, n + id_upload<Backend>::room_for_unique(n, V));
    auto const place = upload.take(n);
    if (!ctx.is_dry_run()) std::copy(ids.begin(), ids.end(), place.begin());
    auto const all = upload.unique(place);
    upload.send();
    return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(they_are_numbered_in_order_of_appearance, Backend, backends) {
    context<Backend> ctx(1, 1);
    ids_type const ids{7, 2, 7, 0, 2, 9};
    auto const found = uploaded(ctx, ids, 10);
    BOOST_TEST(brought(ctx, found.ids) == ids, boost::test_tools::per_element());
    BOOST_TEST(brought(ctx, found.inverse) == (ids_type{0, 1, 0, 2, 1, 3}), boost::test_tools::per_element());
    ids_type want{7, 2, 0, 9};
    if (device_memory<Backend>) want.insert(want.end(), {1, 3});  // padded to the maximum, each id once
    BOOST_TEST(brought(ctx, found.unique) == want, boost::test_tools::per_element());
    BOOST_CHECK((found.ids.limit() == 10 && found.unique.limit() == 10));
    BOOST_TEST(found.inverse.limit() == found.unique.size());
    BOOST_CHECK((found.ids.are_validated() && found.unique.are_validated() && found.inverse.are_validated()));
    BOOST_TEST((ctx.workspace.used() == 0U && ctx.staging.used() == 0U));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(bad_ones_are_refused_before_they_go_anywhere, Backend, backends) {
    context<Backend> ctx(1, 1);
    for (row_id const bad : {-1, 10})
        for (ids_type const& ids : {ids_type{bad, 1, 2}, ids_type{3, 4, bad}}) {
            auto const before = context<emulated>::counts();
            BOOST_CHECK_EXCEPTION(uploaded(ctx, ids, 10), error,
                                  says(errc::tokenizer, "calm: token id " + std::to_string(bad) + " is outside",
                                       "vocabulary of 10", "another tokenizer"));
            arena_scope const scope(ctx.saved);
            id_upload<Backend> upload(ctx, 10, 3);
            BOOST_CHECK_EXCEPTION(upload.given(ids), error, says(errc::tokenizer, "token id " + std::to_string(bad)));
            BOOST_TEST(context<emulated>::counts().uploads == before.uploads);
        }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_dry_run_takes_the_memory_of_the_worst, Backend, backends) {
    ids_type const all{5, 4, 3, 2, 1, 0}, few(6, 3), bad(6, 99);
    context<Backend> worst(1, 1), dry(1, 1), other(1, 1);
    BOOST_TEST(uploaded(worst, all, 6).unique.size() == 6);
    uploaded(other, few, 6);
    dry.set_dry_run(true);
    BOOST_TEST(uploaded(dry, bad, 6).unique.size() == 6);  // does not read ids
    BOOST_TEST(dry.saved.peak() == worst.saved.peak());
    BOOST_TEST(dry.workspace.peak() == worst.workspace.peak());
    BOOST_TEST(other.saved.peak() == worst.saved.peak());
}

// On a device nothing depends on the ids: sizes, copies and launches are constant, and nothing waits.
BOOST_AUTO_TEST_CASE(launches_do_not_depend_on_the_ids) {
    constexpr index_t V = 40, n = 30;
    context<emulated> ctx(1, 1);
    tensor<float, extents<dyn, 3>, emulated> table{extents<dyn, 3>(V)}, y{extents<dyn, 3>(n)};
    auto const asked = [&](row_id different) {
        ids_type ids;
        for (row_id i = 0; i < n; ++i) ids.push_back(i % different);
        arena_scope const scope(ctx.saved);
        auto const before = ctx.counts();
        auto const found = uploaded(ctx, ids, V);
        gather_rows(ctx, y.view(), view<float const, extents<dyn, 3>, emulated>(table), found.ids);
        auto const after = ctx.counts();
        BOOST_TEST(after.uploads - before.uploads == 1);
        BOOST_TEST(after.waits == before.waits);
        BOOST_TEST(after.launches - before.launches == 1);
        return found.unique.size();
    };
    BOOST_TEST(asked(30) == n);
    BOOST_TEST(asked(2) == n);
}

// The cpu reads ids in place.
BOOST_AUTO_TEST_CASE(nothing_is_copied_on_the_cpu) {
    context<> ctx(1, 1);
    ids_type const ids{3, 1, 2};
    id_upload<cpu> upload(ctx, 4, 0);
    BOOST_TEST(upload.given(ids).data() == ids.data());
}

// Ids validated for one table are refused for a smaller one.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_check_holds_for_the_table_it_was_made_for, Backend, backends) {
    context<Backend> ctx(1, 1);
    tensor<float, extents<dyn, 3>, Backend> table{extents<dyn, 3>(9)}, larger{extents<dyn, 3>(11)},
        y{extents<dyn, 3>(2)};
    auto const known = uploaded(ctx, {7, 2}, 10).ids;
    auto const part = known.part(1, 1);
    BOOST_TEST((part.size() == 1 && part.limit() == 10 && part.data() == known.data() + 1));
    view<float const, extents<dyn, 3>, Backend> const small = table.view(), large = larger.view();
    gather_rows(ctx, y.view(), large, known);
    BOOST_CHECK_EXCEPTION(gather_rows(ctx, y.view(), small, known), error,
                          says(errc::usage, "at most 9 rows", "checked for 10 rows"));
    ctx.wait();
}
