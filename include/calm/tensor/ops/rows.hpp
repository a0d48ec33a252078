#pragma once
/// \file
/// Operations on matrix rows (R, D): copy, sum, gather and scatter. Sums use fixed chunks of rows, so that the number
/// of threads does not matter.
/// \shows{tests/tensor/rows_test.cpp,ids_read_rows_of_a_table_and_gradients_go_back}

#include <algorithm>
#include <type_traits>

#include "calm/base/bf16.hpp"
#include "calm/tensor/core/copy.hpp"
#include "calm/tensor/detail/core/for_each.hpp"
#include "calm/tensor/detail/core/tensor_like.hpp"
#include "calm/tensor/detail/kernels/block/rows.hpp"
#include "calm/tensor/detail/kernels/cpu/rows.hpp"
#include "calm/tensor/ops/row_ids.hpp"

namespace calm {

namespace detail {

// CPU implementation of gather and scatter; the one for block backends is in detail/kernels/block/rows.hpp.
template <class T, class W, class Id>
void run_gather_rows(context<cpu>& ctx, T* y, W const* table, Id const* ids, index_t count, index_t width) {
    auto const* const held = in_int8(ctx, table);
    ctx.parallel_ranges(count, 256, [&](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r)
            copy_row(held, table + static_cast<index_t>(ids[r]) * width, width, y + r * width);
    });
}
template <class T, class Id>
void run_scatter_add_rows(context<cpu>& ctx, T* table, T const* dy, Id const* ids, index_t count, index_t width,
                          index_t) {
    constexpr index_t tasks = 16;
    ctx.parallel(tasks, [&](index_t task) {
        for (index_t r = 0; r < count; ++r)
            if (auto const id = static_cast<index_t>(ids[r]); id % tasks == task)
                add_into(table + id * width, dy + r * width, width);
    });
}
template <class Id> index_t run_first_outside(context<cpu> const& ctx, Id const* ids, index_t n, index_t V) {
    if (ctx.is_dry_run()) return n;
    return std::find_if(ids, ids + n, [V](Id id) { return id < 0 || id >= V; }) - ids;
}

template <class E> void check_rows(char const* operation, E const& found, index_t width, index_t ids) {
    require(found[0] == ids && found[1] == width, errc::usage, operation, ": expected one row per id, ",
            extents<dyn, dyn>(ids, width), ", found ", found);
}

// Checks ids that are not validated, except in a dry run, which has no ids.
template <class Backend>
void check_ids(context<Backend>& ctx, row_ids<Backend> const& ids, index_t V, char const* what = "calm: token id ") {
    if (ids.are_validated()) {
        require(ids.limit() <= V, errc::usage, "calm: expected ids checked for a table of at most ", V,
                " rows, found ids checked for ", ids.limit(), " rows; check them for the smaller table");
        return;
    }
    index_t const first = run_first_outside(ctx, ids.data(), ids.size(), V);
    if (!ctx.is_dry_run() && first != ids.size()) fail_for_id(what, copy_to_host(ctx, ids.data() + first), V);
}

}  // namespace detail

/// dst = src, elements in order, converted to T if the types differ. Throws errc::usage for unequal sizes.
template <class T, class U, class E1, class E2, class Backend>
void copy(context<Backend> const& ctx, view<T, E1, Backend> const& dst, view<U, E2, Backend> const& src) {
    detail::check_sizes(dst, src);
    detail::run_copy(ctx, dst.data(), src.data(), dst.size());
}

/// Sets every element of x to value.
template <class T, class E, class Backend>
void fill(context<Backend> const& ctx, view<T, E, Backend> const& x, T value) {
    detail::run_fill(ctx, x.data(), x.size(), value);
}

/// total (D) += the sum over the rows of x (R, D), which on a device may be bf16. Throws errc::usage if total has
/// another size.
template <tensor_like X> void add_sum_axis0(detail::context_of<X>& ctx, detail::row_like<X> const& total, X const& x) {
    detail::rows_like<X, detail::scalar_of<X> const> const summed = detail::as_view(x);
    detail::require_size("calm::add_sum_axis0", "a total", total.size(), summed.extent(1));
    detail::run_add_sum_axis0(ctx, total.data(), summed.data(), summed.extent(0), summed.extent(1));
}

/// y (R, D) = table (V, D) [ids (R)]; a bf16 table gives float. Throws errc::tokenizer for an id outside 0 .. V - 1,
/// errc::usage for a y of another shape. Waits for a device unless the ids are validated.
template <tensor_like Y, tensor_like Table>
void gather_rows(detail::context_of<Y>& ctx, Y&& y, Table const& table,
                 std::type_identity_t<row_ids<detail::backend_of<Y>>> const& ids) {
    using T = detail::scalar_of<Y>;
    using W = detail::scalar_of<Table>;
    static_assert(std::is_same_v<T, W> || (std::is_same_v<W, bf16> && std::is_same_v<T, float>),
                  "calm::gather_rows: expected rows of the table's type, or float rows of a bf16 table");
    auto const out = detail::written_rows(y);
    detail::rows_like<Y, W const> const from = detail::as_view(table);
    index_t const width = from.extent(1);
    detail::check_rows("calm::gather_rows", out.extents(), width, ids.size());
    detail::check_ids(ctx, ids, from.extent(0));
    detail::run_gather_rows(ctx, out.data(), from.data(), ids.data(), ids.size(), width);
}

/// dtable (V, D) [ids (R)] += dy (R, D), with rows of equal ids in order. The ids must be in 0 .. V - 1, which is not
/// checked again. Throws errc::usage for a dy of another shape.
template <tensor_like Table>
void scatter_add_rows(detail::context_of<Table>& ctx, Table&& dtable, detail::rows_read<Table> const& dy,
                      std::type_identity_t<row_ids<detail::backend_of<Table>>> const& ids) {
    auto const out = detail::written_rows(dtable);
    index_t const width = out.extent(1);
    detail::check_rows("calm::scatter_add_rows", dy.extents(), width, ids.size());
    detail::run_scatter_add_rows(ctx, out.data(), dy.data(), ids.data(), ids.size(), width, out.extent(0));
}

namespace detail {
// ids[i] = i
struct count_up {
    row_id* ids;
    CALM_HD void operator()(index_t i) const { ids[i] = static_cast<row_id>(i); }
};
}  // namespace detail

/// Ids (R) with their unique values and the inverse mapping, in ctx.saved. Throws errc::tokenizer for an id outside 0
/// .. V - 1. In host memory it finds the unique ids; a dry run assumes the maximum. On a device `unique` is all ids, or
/// the whole table if that is smaller, and the host waits unless the ids are validated. To find unique ids before they
/// reach a device, use id_upload.
template <class Backend>
unique_ids<Backend> unique(context<Backend>& ctx, std::type_identity_t<row_ids<Backend>> const& ids, index_t V) {
    detail::check_ids(ctx, ids, V);
    auto const good = row_ids<Backend>::validated(ids.view(), V);
    index_t const most = std::min(V, ids.size());
    if constexpr (host_memory<Backend>) {
        auto const unique = ctx.saved.template take<row_id>(extents<dyn>(most));
        auto const inverse = ctx.saved.template take<row_id>(extents<dyn>(ids.size()));
        arena_scope const scope(ctx.workspace);
        auto const numbers = ctx.workspace.template take<row_id>(extents<dyn>(V));
        index_t const count = ctx.is_dry_run()
                                  ? most
                                  : detail::find_unique(detail::on_this_side(ids.view()), detail::on_this_side(numbers),
                                                        unique.data(), inverse.data());
        return {good, row_ids<Backend>::validated(rows(unique, 0, count), V),
                row_ids<Backend>::validated(inverse, count)};
    } else {
        auto const all = ctx.saved.template take<row_id>(extents<dyn>(most));
        for_each(ctx, most, detail::count_up{all.data()});
        auto const counted = row_ids<Backend>::validated(all, V);
        if (ids.size() > V) return {good, counted, good};
        return {good, good, row_ids<Backend>::validated(all, most)};
    }
}

}  // namespace calm
