#pragma once
// Groups: small vectors that a device thread handles as one value, like packets on the cpu. Every lane has the same
// bits as if computed alone; memory is read and written 16 bytes at a time.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "calm/base/host_device.hpp"

#ifdef __CUDACC__
#include <vector_types.h>
#endif

namespace calm {

// N values in registers. A scalar converts to a group with that value in every lane.
template <class T, int N> struct group {
    T lane[N];  // in memory order

    group() = default;
    // t in every lane.
    [[gnu::always_inline]] CALM_HD inline group(T t) {
        for (T& each : lane) each = t;
    }

    // Each lane of a and of b added.
    [[gnu::always_inline]] CALM_HD friend inline group operator+(group a, group b) {
        return by_lanes(a, b, [](T x, T y) { return x + y; });
    }
    // Subtracted.
    [[gnu::always_inline]] CALM_HD friend inline group operator-(group a, group b) {
        return by_lanes(a, b, [](T x, T y) { return x - y; });
    }
    // Multiplied.
    [[gnu::always_inline]] CALM_HD friend inline group operator*(group a, group b) {
        return by_lanes(a, b, [](T x, T y) { return x * y; });
    }
    // Divided.
    [[gnu::always_inline]] CALM_HD friend inline group operator/(group a, group b) {
        return by_lanes(a, b, [](T x, T y) { return x / y; });
    }
    // Each lane negated.
    [[gnu::always_inline]] CALM_HD friend inline group operator-(group a) {
        return by_lanes(a, a, [](T x, T) { return -x; });
    }
    // Lane by lane, whether a is above b.
    [[gnu::always_inline]] CALM_HD friend inline group<bool, N> operator>(group a, group b) {
        return by_lanes<bool>(a, b, [](T x, T y) { return x > y; });
    }
    // Lane by lane, whether a equals b.
    [[gnu::always_inline]] CALM_HD friend inline group<bool, N> operator==(group a, group b) {
        return by_lanes<bool>(a, b, [](T x, T y) { return x == y; });
    }
    // Adds b, lane by lane.
    [[gnu::always_inline]] CALM_HD inline group& operator+=(group b) { return *this = *this + b; }

    // f(x, y) for each pair of lanes.
    template <class R = T, class F>
    [[gnu::always_inline]] CALM_HD static inline group<R, N> by_lanes(group const& a, group const& b, F const& f) {
        group<R, N> y;
        for (int l = 0; l < N; ++l) y.lane[l] = f(a.lane[l], b.lane[l]);
        return y;
    }
};

namespace detail {

template <class V> inline constexpr bool is_group = false;
template <class T, int N> inline constexpr bool is_group<group<T, N>> = true;

// to = from, where `memory` is the one of them that is in memory. If it is aligned, a device moves 16 or 8 bytes at
// once.
template <int N, class T> [[gnu::always_inline]] CALM_HD inline void copy_group(T* to, T const* from, T const* memory) {
#ifdef __CUDA_ARCH__
    constexpr std::size_t bytes = N * sizeof(T);
    using word = std::conditional_t<bytes % 16 == 0, uint4, uint2>;
    if constexpr (bytes % sizeof(word) == 0)
        if (reinterpret_cast<std::uintptr_t>(memory) % sizeof(word) == 0) {
            for (int i = 0; i < static_cast<int>(bytes / sizeof(word)); ++i)
                reinterpret_cast<word*>(to)[i] = reinterpret_cast<word const*>(from)[i];
            return;
        }
#endif
    static_cast<void>(memory);
    for (int l = 0; l < N; ++l) to[l] = from[l];
}

// p[0] .. p[N - 1] converted to T, at any alignment.
template <class T, int N, class Stored> [[gnu::always_inline]] CALM_HD inline group<T, N> load_group(Stored const* p) {
    alignas(16) Stored stored[N];
    copy_group<N>(stored, p, p);
    group<T, N> v;
    for (int l = 0; l < N; ++l) v.lane[l] = static_cast<T>(stored[l]);
    return v;
}
template <class T, int N, class Stored>
[[gnu::always_inline]] CALM_HD inline void store_group(Stored* p, group<T, N> const& v) {
    alignas(16) Stored stored[N];
    for (int l = 0; l < N; ++l) stored[l] = static_cast<Stored>(v.lane[l]);
    copy_group<N>(p, stored, p);
}

}  // namespace detail

// V is a group.
template <class V>
concept grouped = detail::is_group<V>;

// A group of 16 bytes.
template <class T> using group_of = group<T, 16 / static_cast<int>(sizeof(T))>;

namespace detail {

// p, which the caller promises is aligned for a group V: to its size, at most 16 bytes. Loads and stores then skip the
// check.
template <class V, class T> [[gnu::always_inline]] CALM_HD inline T* place_of(T* p) {
    if constexpr (is_group<V>) {
        constexpr std::size_t bytes = std::extent_v<decltype(V::lane)> * sizeof(T);
        return static_cast<T*>(__builtin_assume_aligned(p, bytes < 16 ? bytes : 16));
    }
    return p;
}

}  // namespace detail

}  // namespace calm
