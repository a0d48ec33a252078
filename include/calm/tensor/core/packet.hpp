#pragma once
/// \file
/// Packets: vectors of 64 bytes that a kernel handles as one value. `packet<float>` has 16 lanes and `packet<double>`
/// 8, under every instruction set; for other types, and on devices, a packet is the type itself. Block kernels use
/// groups (group.hpp), by the same functions.
/// \shows{tests/tensor/packet_test.cpp,load_and_store}

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "calm/base/host_device.hpp"
#include "calm/tensor/detail/core/group.hpp"

// Packets are passed only between inlined functions, so their calling convention does not matter. Where vectors are
// wider than the instruction set, clang++ warns wherever a header passes one. g++ warns at the end of the source file,
// when it compiles templates, so this setting is never popped. One note of g++ remains, which only -Wno-psabi silences;
// the package's targets set it. With AVX-512 neither warns, and a source file keeps its own setting.
#ifndef __AVX512F__
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace calm {

namespace detail {

// Bytes that one instruction handles.
#if defined(__AVX512F__)
inline constexpr int native_bytes = 64;
#elif defined(__AVX2__)
inline constexpr int native_bytes = 32;
#else
inline constexpr int native_bytes = 16;
#endif

template <class T> struct packet_of {
    using type = T;
    using piece = T;
};
#ifndef __CUDA_ARCH__
template <> struct packet_of<float> {
    using type = float __attribute__((vector_size(64)));
    using piece = float __attribute__((vector_size(native_bytes)));
};
template <> struct packet_of<double> {
    using type = double __attribute__((vector_size(64)));
    using piece = double __attribute__((vector_size(native_bytes)));
};
#endif

template <class V> struct lanes_of {
    using type = V;
    using bits = V;
    static constexpr int count = 1;
};
template <class T, int N> struct lanes_of<group<T, N>> {
    using type = T;
    using bits = group<T, N>;
    static constexpr int count = N;
};
#ifndef __CUDA_ARCH__
template <> struct lanes_of<packet_of<float>::type> {
    using type = float;
    using bits = std::uint32_t __attribute__((vector_size(64)));
    static constexpr int count = 16;
};
template <> struct lanes_of<packet_of<double>::type> {
    using type = double;
    using bits = std::uint64_t __attribute__((vector_size(64)));
    static constexpr int count = 8;
};
#ifndef __AVX512F__  // where native vectors are not packets
template <> struct lanes_of<float __attribute__((vector_size(native_bytes)))> {
    using type = float;
    using bits = std::uint32_t __attribute__((vector_size(native_bytes)));
    static constexpr int count = native_bytes / 4;
};
template <> struct lanes_of<double __attribute__((vector_size(native_bytes)))> {
    using type = double;
    using bits = std::uint64_t __attribute__((vector_size(native_bytes)));
    static constexpr int count = native_bytes / 8;
};
#endif
#endif

// Narrower vectors of T. (Written out: nvcc loses the attribute of a vector that depends on a template.)
template <class T> struct vectors_of;
template <> struct vectors_of<float> {
    using native = float __attribute__((vector_size(native_bytes)));
    using half = float __attribute__((vector_size(32)));
    using quarter = float __attribute__((vector_size(16)));
};
template <> struct vectors_of<double> {
    using native = double __attribute__((vector_size(native_bytes)));
    using half = double __attribute__((vector_size(32)));
    using quarter = double __attribute__((vector_size(16)));
};
template <> struct vectors_of<std::uint64_t> {
    using native = std::uint64_t __attribute__((vector_size(native_bytes)));
};

template <class T, class V> [[gnu::always_inline]] inline T sum_of_lanes(V v) {
    static_assert(sizeof(V) == 64, "calm::sum: expected a whole packet of 64 bytes");
    typename vectors_of<T>::half half[2];
    std::memcpy(half, &v, sizeof(V));
    half[0] += half[1];
    typename vectors_of<T>::quarter quarter[2];
    std::memcpy(quarter, half, sizeof(quarter));
    quarter[0] += quarter[1];
    if constexpr (sizeof(T) == 8)
        return quarter[0][0] + quarter[0][1];
    else
        return (quarter[0][0] + quarter[0][2]) + (quarter[0][1] + quarter[0][3]);
}

// A vector with t in every lane. Compilers build one that is wider than the instruction set in memory, lane by lane, so
// its native pieces are filled instead.
template <class V, class T> [[gnu::always_inline]] inline V broadcast(T t) {
    if constexpr (sizeof(V) <= native_bytes)
        return t - V{};  // t - 0 is t, also for -0
    else {
        using piece = typename vectors_of<T>::native;
        piece const p = t - piece{};
        piece pieces[sizeof(V) / sizeof(piece)];
        for (auto& each : pieces) each = p;
        V v;
        std::memcpy(&v, pieces, sizeof(V));
        return v;
    }
}

// f on each piece of v, for instruction sets with no wider vectors.
template <class Piece, class V, class F> [[gnu::always_inline]] inline V by_pieces(V v, F f) {
    Piece pieces[sizeof(V) / sizeof(Piece)];  // NOLINT(bugprone-sizeof-expression): both are vectors
    std::memcpy(pieces, &v, sizeof(V));
    for (auto& piece : pieces) piece = f(piece);
    std::memcpy(&v, pieces, sizeof(V));
    return v;
}

}  // namespace detail

/// What a kernel handles as one value: 64 bytes of float or double on the host, T itself otherwise.
template <class T> using packet = typename detail::packet_of<T>::type;

/// The native vector: the values of float or double that one instruction handles, T itself otherwise. Lane-wise work
/// uses pieces: equal bits with a fraction of the code. Sums use packets.
template <class T> using piece_of_packet = typename detail::packet_of<T>::piece;

/// Number of values in a V: 16 or 8 for a packet, fewer for a piece, N for a group, 1 for anything else.
template <class V> inline constexpr int lanes = detail::lanes_of<V>::count;

/// The type of one lane.
template <class V> using lane_t = typename detail::lanes_of<V>::type;
/// Unsigned integers, one per lane and of its width.
template <class V> using bits_t = typename detail::lanes_of<V>::bits;

/// A vector of lanes. A type that is neither this nor a group is a scalar.
template <class V>
concept packed = (lanes<V> > 1) && !grouped<V>;

/// Loads lanes p[0] .. p[lanes<V> - 1], at any alignment. A group or a scalar converts from the stored type.
template <class V, class T> [[gnu::always_inline]] CALM_HD inline V load(T const* p) {
    static_assert(!packed<V> || std::is_same_v<T, lane_t<V>>,
                  "calm::load: the lanes of V must be of the type pointed to");
    if constexpr (packed<V>) {
        V v;
        std::memcpy(&v, p, sizeof(V));
        return v;
    } else if constexpr (grouped<V>)
        return detail::load_group<lane_t<V>, lanes<V>>(p);
    else
        return static_cast<V>(*p);
}

/// Stores the lanes of v to p[0] .. p[lanes<V> - 1], at any alignment. A group or a scalar converts to the stored type.
template <class T, class V> [[gnu::always_inline]] CALM_HD inline void store(T* p, V v) {
    static_assert(!packed<V> || std::is_same_v<T, lane_t<V>>,
                  "calm::store: the lanes of V must be of the type pointed to");
    if constexpr (packed<V>)
        std::memcpy(p, &v, sizeof(V));
    else if constexpr (grouped<V>)
        detail::store_group(p, v);
    else
        *p = static_cast<T>(v);
}

/// A V with t in every lane. Run-time scalars need splat to combine with packets; constants do not.
template <class V> [[gnu::always_inline]] CALM_HD inline V splat(lane_t<V> t) {
    if constexpr (packed<V>)
        return detail::broadcast<V>(t);
    else
        return t;
}

/// The sum of the lanes: halves are added until one lane is left, in the same order under every instruction set.
template <class V> [[gnu::always_inline]] CALM_HD inline lane_t<V> sum(V v) {
    if constexpr (packed<V>) {
        return detail::sum_of_lanes<lane_t<V>>(v);
    } else if constexpr (grouped<V>) {
        for (int half = lanes<V> / 2; half > 0; half /= 2)
            for (int l = 0; l < half; ++l) v.lane[l] += v.lane[l + half];
        return v.lane[0];
    } else
        return v;
}

/// Lanes of a where the mask (a comparison of packets) holds, else of b.
template <class Mask, class V> [[gnu::always_inline]] CALM_HD inline V select(Mask mask, V a, V b) {
    if constexpr (packed<V>) {
#ifdef __AVX512F__
        return mask ? a : b;
#else  // compilers split a wide ?: into lanes
        auto const m = std::bit_cast<bits_t<V>>(mask);
        return std::bit_cast<V>((std::bit_cast<bits_t<V>>(a) & m) | (std::bit_cast<bits_t<V>>(b) & ~m));
#endif
    } else if constexpr (grouped<V>) {
        for (int l = 0; l < lanes<V>; ++l) a.lane[l] = mask.lane[l] ? a.lane[l] : b.lane[l];
        return a;
    } else
        return mask ? a : b;
}

}  // namespace calm
