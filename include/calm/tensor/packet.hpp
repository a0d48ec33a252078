#pragma once
// Packets: 64 bytes of lanes that a kernel handles as one value. `packet<float>` has 16 lanes and `packet<double>` 8,
// under every instruction set; for other types, and on devices, a packet is the type itself. Blocks of threads take
// groups (group.hpp), by the same functions.

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "calm/base/host_device.hpp"
#include "calm/tensor/group.hpp"

// Packets are passed between inlined functions only, so their calling convention does not matter. Where vectors are
// wider than the instruction set, clang++ warns of it wherever a header passes one, and g++ at the end of the unit,
// where it compiles what was instantiated: so nothing can pop this. A note of g++ remains, which only -Wno-psabi
// silences: the package's targets have it. With AVX-512 both say nothing, and a unit's own setting stands.
#ifndef __AVX512F__
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace calm {

namespace detail {

// What one instruction handles.
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
#ifndef __AVX512F__  // where the native vectors are no packets
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
    static_assert(sizeof(V) == 64, "calm::sum: a sum is one of whole packets");
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

// Every lane t. Compilers build a vector wider than the instruction set's in memory, lane by lane: fill its pieces
// instead.
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

// f on each piece of v, where an instruction set has nothing wider.
template <class Piece, class V, class F> [[gnu::always_inline]] inline V by_pieces(V v, F f) {
    Piece pieces[sizeof(V) / sizeof(Piece)];  // NOLINT(bugprone-sizeof-expression): both are vectors
    std::memcpy(pieces, &v, sizeof(V));
    for (auto& piece : pieces) piece = f(piece);
    std::memcpy(&v, pieces, sizeof(V));
    return v;
}

}  // namespace detail

// What a kernel handles as one value: 64 bytes of float or double on the host, T itself otherwise.
template <class T> using packet = typename detail::packet_of<T>::type;

// What one instruction handles of a packet: as many bytes of float or double as the instruction set has, T itself
// otherwise. What is computed lane by lane takes pieces: the same bits in a fraction of the code. Sums take packets.
template <class T> using piece_of_packet = typename detail::packet_of<T>::piece;

// Number of values in a V: 16 or 8 of a packet, fewer of a piece, N of a group, 1 of anything else.
template <class V> inline constexpr int lanes = detail::lanes_of<V>::count;

// The type of one lane.
template <class V> using lane_t = typename detail::lanes_of<V>::type;
// Unsigned integers, one a lane and of its width.
template <class V> using bits_t = typename detail::lanes_of<V>::bits;

// A vector of lanes; what is neither that nor a group is a scalar.
template <class V>
concept packed = (lanes<V> > 1) && !grouped<V>;

// Lanes p[0] .. p[lanes<V> - 1], at any alignment. A group or a scalar computes in its own type, whatever type is
// stored.
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

// The lanes of v to p[0] .. p[lanes<V> - 1], at any alignment, as what is stored there.
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

// The first n lanes from memory and zeros behind them, 0 < n <= lanes<V>.
template <packed V, class T> [[gnu::always_inline]] inline V load_first(T const* p, std::int64_t n) {
    V v{};
    std::memcpy(&v, p, static_cast<std::size_t>(n) * sizeof(T));
    return v;
}
// The first n lanes to memory, 0 < n <= lanes<V>.
template <class T, packed V> [[gnu::always_inline]] inline void store_first(T* p, V v, std::int64_t n) {
    std::memcpy(p, &v, static_cast<std::size_t>(n) * sizeof(T));
}

// All lanes t. Run-time scalars meet packets through splat; constants need not.
template <class V> [[gnu::always_inline]] CALM_HD inline V splat(lane_t<V> t) {
    if constexpr (packed<V>)
        return detail::broadcast<V>(t);
    else
        return t;
}

// The sum of the lanes: halves are added until one is left, the same tree under every instruction set.
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

// Lanes of a where the mask (a comparison of packets) holds, else of b.
template <class Mask, class V> [[gnu::always_inline]] CALM_HD inline V select(Mask mask, V a, V b) {
    if constexpr (packed<V>) {
#ifdef __AVX512F__
        return mask ? a : b;
#else  // compilers take a wide ?: apart lane by lane
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
