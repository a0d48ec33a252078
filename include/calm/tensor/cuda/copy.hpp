#pragma once
// Between the host and a device. Each of these waits: the host may use what it gave or got.

#ifdef __CUDACC__

#include <vector>

#include "calm/tensor/cuda/launch.hpp"
#include "calm/tensor/rows.hpp"

namespace calm {

namespace detail {

template <class T, class U, class E1, class E2, class B1, class B2>
void copy_across(context<cuda> const& ctx, view<T, E1, B1> const& dst, view<U, E2, B2> const& src) {
    static_assert(std::is_same_v<T, std::remove_const_t<U>>, "calm::copy: both sides must have the same element type");
    require(dst.size() == src.size(), errc::usage, "calm::copy: expected equal sizes, found ", dst.extents(), " and ",
            src.extents());
    if (ctx.rehearsing()) return;
    check_cuda(cudaMemcpyAsync(dst.data(), src.data(), static_cast<std::size_t>(dst.size()) * sizeof(T),
                               cudaMemcpyDefault, ctx.queue()),
               "copying between host and device");
    ctx.wait();
}

}  // namespace detail

// dst = src from the host to the device, elements in order. Throws errc::usage for unequal sizes, errc::device where it
// fails.
template <class T, class U, class E1, class E2, host_memory Host>
void copy(context<cuda> const& ctx, view<T, E1, cuda> const& dst, view<U, E2, Host> const& src) {
    detail::copy_across(ctx, dst, src);
}
// From the device to the host; otherwise the same.
template <class T, class U, class E1, class E2, host_memory Host>
void copy(context<cuda> const& ctx, view<T, E1, Host> const& dst, view<U, E2, cuda> const& src) {
    detail::copy_across(ctx, dst, src);
}

// As in rows.hpp: the host numbers the ids.
template <class Id>
vector_view<Id const, dyn, cuda> distinct_rows(context<cuda>& ctx, vector_view<Id const, dyn, cuda> const& ids,
                                               index_t V, vector_view<Id, dyn, cuda> const& places) {
    auto const distinct = ctx.saved.take<Id>(extents<dyn>(std::min(V, ids.size())));
    detail::check_ids(ctx, ids, V);
    if (ctx.rehearsing()) return distinct;
    auto const n = static_cast<std::size_t>(ids.size());
    std::vector<Id> given(n), first(n), place(n), numbers(static_cast<std::size_t>(V));
    copy(ctx, vector_view<Id>(given.data(), ids.extents()), ids);
    index_t const count = detail::number_ids(given.data(), ids.size(), V, first.data(), place.data(), numbers.data());
    copy(ctx, places, vector_view<Id>(place.data(), ids.extents()));
    auto const found = rows(distinct, 0, count);
    copy(ctx, found, vector_view<Id>(first.data(), found.extents()));
    return found;
}

}  // namespace calm

#endif
