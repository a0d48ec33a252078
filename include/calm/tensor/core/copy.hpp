#pragma once
/// \file
/// Data transfer between the host and a backend. Host backends use the data in place; devices get copies. Copies within
/// one backend are in tensor/ops/rows.hpp.
/// \shows{tests/emulated/device_test.cpp,numbers_are_copied_to_the_device_and_back}

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "calm/tensor/core/context.hpp"
#include "calm/tensor/core/view.hpp"

namespace calm {

namespace detail {

template <class D, class S> void check_sizes(D const& dst, S const& src) {
    require(dst.size() == src.size(), errc::usage, "calm::copy: expected equal sizes, found ", dst.extents(), " and ",
            src.extents());
}
// Host values converted to another type.
template <class T, class U> std::vector<T> converted(U const* x, index_t n) {
    std::vector<T> y(static_cast<std::size_t>(n));
    std::transform(x, x + n, y.begin(), [](U value) { return static_cast<T>(value); });
    return y;
}

}  // namespace detail

/// dst = src from the host to a device, in element order; the host converts to T where the types differ. src may change
/// once this returns. Throws errc::usage for unequal sizes, errc::device if the copy fails.
template <class T, class U, class E1, class E2, device_memory Device>
void copy(context<Device> const& ctx, view<T, E1, Device> const& dst, view<U, E2, cpu> const& src) {
    static_assert(std::is_trivially_copyable_v<T>);
    detail::check_sizes(dst, src);
    if (ctx.is_dry_run()) return;
    auto const bytes = static_cast<std::size_t>(dst.size()) * sizeof(T);
    if constexpr (std::is_same_v<T, std::remove_const_t<U>>)
        ctx.upload(dst.data(), src.data(), bytes);
    else
        ctx.upload(dst.data(), detail::converted<T>(src.data(), src.size()).data(), bytes);
}
/// dst = src from a device to the host, which waits for all work launched earlier. Converts and throws as above.
template <class T, class U, class E1, class E2, device_memory Device>
void copy(context<Device> const& ctx, view<T, E1, cpu> const& dst, view<U, E2, Device> const& src) {
    using stored = std::remove_const_t<U>;
    static_assert(std::is_trivially_copyable_v<T>);
    detail::check_sizes(dst, src);
    if (ctx.is_dry_run()) return;
    auto const bytes = static_cast<std::size_t>(src.size()) * sizeof(stored);
    if constexpr (std::is_same_v<T, stored>) {
        ctx.download(dst.data(), src.data(), bytes);
    } else {
        std::vector<stored> room(static_cast<std::size_t>(src.size()));
        ctx.download(room.data(), src.data(), bytes);
        std::transform(room.begin(), room.end(), dst.data(), [](stored value) { return static_cast<T>(value); });
    }
}

/// The value at p; T{} in a dry run.
template <host_memory Backend, class T> T copy_to_host(context<Backend> const& ctx, T const* p) {
    return ctx.is_dry_run() ? T{} : *p;
}
/// The value at p on a device, after waiting for the device; T{} in a dry run.
template <device_memory Device, class T> T copy_to_host(context<Device> const& ctx, T const* p) {
    T value{};
    if (!ctx.is_dry_run()) ctx.download(&value, p, sizeof(T));
    return value;
}

/// Reads here.size() values from `there`, after waiting if that is on a device; does nothing in a dry run.
template <class T, class Backend> void copy_to_host(context<Backend> const& ctx, std::span<T> here, T const* there) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (ctx.is_dry_run() || here.empty()) return;
    if constexpr (host_memory<Backend>)
        std::copy_n(there, here.size(), here.data());
    else
        ctx.download(here.data(), there, here.size_bytes());
}
/// Writes host values to `there` in the backend's memory; does nothing in a dry run. `here` may change once this
/// returns.
template <class T, class Backend> void copy_to_device(context<Backend> const& ctx, T* there, std::span<T const> here) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (ctx.is_dry_run() || here.empty()) return;
    if constexpr (host_memory<Backend>)
        std::copy_n(here.data(), here.size(), there);
    else
        ctx.upload(there, here.data(), here.size_bytes());
}
/// Writes one value.
template <class T, class Backend> void copy_to_device(context<Backend> const& ctx, T* there, T const& value) {
    copy_to_device(ctx, there, std::span<T const>(&value, 1));
}

/// Host values where the backend reads them: in place, or on a device a copy in ctx.workspace.
template <class T, class Backend>
vector_view<T const, dyn, Backend> upload(context<Backend>& ctx, std::span<T> numbers) {
    extents<dyn> const shape(static_cast<index_t>(numbers.size()));
    if constexpr (host_memory<Backend>) {
        return {numbers.data(), shape};
    } else {
        auto const there = ctx.workspace.template take<std::remove_const_t<T>>(shape);
        copy(ctx, there, vector_view<T const>(numbers.data(), shape));
        return there;
    }
}

/// Values on the host and where the backend's kernels read them.
template <class T, class Backend> struct mirrored_span {
    std::span<T const> here;  ///< (n), on the host
    T const* there;           ///< (n), the host values or a device copy

    [[nodiscard]] index_t size() const { return static_cast<index_t>(here.size()); }  ///< n
};

/// From values that must outlive the result; a device copy is in ctx.workspace.
template <class T, class Backend>
mirrored_span<std::remove_const_t<T>, Backend> to_device(context<Backend>& ctx, std::span<T> numbers) {
    return {numbers, upload(ctx, numbers).data()};
}

/// Constant host rows where kernels read them: in place, or on a device a copy made now. Valid as long as both the rows
/// and the arena's memory last.
template <class T, class Backend> T const* device_table(arena<Backend>& memory, std::vector<T> const& rows) {
    static_assert(std::is_trivially_copyable_v<T>);
    if constexpr (host_memory<Backend>) {
        return rows.data();
    } else {
        T* const there = memory.template take<T>(extents<dyn>(static_cast<index_t>(rows.size()))).data();
        detail::memory_of<Backend>::put(there, rows.data(), rows.size() * sizeof(T));
        return there;
    }
}

/// The elements of x on the host: in place, or copied from a device to `room`, which grows as needed.
template <class T, class E, class Backend>
std::span<std::remove_const_t<T> const> to_host(context<Backend> const& ctx, view<T, E, Backend> const& x,
                                                std::vector<std::remove_const_t<T>>& room) {
    auto const n = static_cast<std::size_t>(x.size());
    if constexpr (host_memory<Backend>) {
        return {x.data(), n};
    } else {
        room.resize(std::max(room.size(), n));
        copy(ctx, vector_view<std::remove_const_t<T>>(room.data(), extents<dyn>(x.size())), x);
        return std::span(room).first(n);
    }
}

/// Where the backend writes values for the host: `numbers` in place, or on a device a buffer in ctx.workspace, which
/// `download` copies back.
template <class T, class Backend>
vector_view<T, dyn, Backend> output_buffer(context<Backend>& ctx, std::span<T> numbers) {
    extents<dyn> const shape(static_cast<index_t>(numbers.size()));
    if constexpr (host_memory<Backend>)
        return {numbers.data(), shape};
    else
        return ctx.workspace.template take<T>(shape);
}
/// Copies the buffer from output_buffer back to `numbers`.
template <class T, class Backend>
void download(context<Backend> const& ctx, std::span<T> numbers, vector_view<T, dyn, Backend> const& room) {
    if constexpr (device_memory<Backend>) copy(ctx, vector_view<T>(numbers.data(), room.extents()), room);
}

}  // namespace calm
