#pragma once
/// \file
/// Arrays of random numbers, on the cpu sixteen Philox blocks at a time. Element i is the function of key and i defined
/// in random.hpp. Its bits do not depend on where a range starts or which thread draws it.
/// \shows{examples/02_tensor.cpp,main}

#include <algorithm>
#include <concepts>

#include "calm/tensor/core/context.hpp"
#include "calm/tensor/core/math.hpp"
#include "calm/tensor/core/view.hpp"
#include "calm/tensor/detail/kernels/block/fill.hpp"

namespace calm {

namespace detail {

// Elements 4 first .. 4 first + 63 of the normals or uniforms, float or double. Never inlined, so that all callers get
// the same bits.
template <class T> [[gnu::noinline]] void normals64(T* out, key k, std::uint64_t first);
template <class T> [[gnu::noinline]] void uniforms64(T* out, key k, std::uint64_t first);

#ifndef __CUDA_ARCH__  // host only: packets are vectors

using words = bits_t<packet<float>>;        // sixteen 32-bit words
using wide_words = bits_t<packet<double>>;  // eight, each in the low half of 64 bits
using native_words __attribute__((vector_size(native_bytes))) = std::uint64_t;

// Products of the low 32 bits.
[[gnu::always_inline]] inline native_words multiply_low(native_words a, std::uint32_t b) {
#if defined(__AVX512F__)
    return std::bit_cast<native_words>(
        _mm512_maskz_mul_epu32(__mmask8(-1), std::bit_cast<__m512i>(a), _mm512_set1_epi64(b)));
#elif defined(__AVX2__)
    return std::bit_cast<native_words>(_mm256_mul_epu32(std::bit_cast<__m256i>(a), _mm256_set1_epi64x(b)));
#elif defined(__SSE2__)
    return std::bit_cast<native_words>(_mm_mul_epu32(std::bit_cast<__m128i>(a), _mm_set1_epi64x(b)));
#else
    return (a & 0xFFFFFFFFU) * std::uint64_t{b};
#endif
}

// The words of sixteen blocks, even and odd ones apart. High halves are not cleared.
struct philox_packet {
    wide_words even[4];
    wide_words odd[4];
};

[[gnu::always_inline]] inline void philox_round(native_words (&c)[4], std::uint32_t k0, std::uint32_t k1) {
    native_words const a = multiply_low(c[0], 0xD2511F53U);
    native_words const b = multiply_low(c[2], 0xCD9E8D57U);
    c[0] = (b >> 32U) ^ c[1] ^ std::uint64_t{k0};
    c[1] = b;
    c[2] = (a >> 32U) ^ c[3] ^ std::uint64_t{k1};
    c[3] = a;
}

// Blocks first .. first + 15 of the keyed sequence.
[[gnu::always_inline]] inline philox_packet philox16(key k, std::uint64_t first) {
    constexpr int count = native_bytes / 8;
    native_words at{};
    for (int i = 0; i < count; ++i) at[i] = 2 * static_cast<std::uint64_t>(i);
    at += first;
    native_words const step = std::uint64_t{k.step} - native_words{};
    native_words const who = static_cast<std::uint64_t>(k.stream) - native_words{};
    philox_packet p;
    for (int i = 0; i < 8; i += count, at += std::uint64_t{2 * count}) {
        native_words even[4] = {at, at >> 32U, step, who};
        native_words odd[4] = {at + 1U, (at + 1U) >> 32U, step, who};
        auto k0 = static_cast<std::uint32_t>(k.seed);
        auto k1 = static_cast<std::uint32_t>(k.seed >> 32);
        for (int round = 0; round < 10; ++round) {
            philox_round(even, k0, k1);
            philox_round(odd, k0, k1);
            k0 += 0x9E3779B9U;
            k1 += 0xBB67AE85U;
        }
        for (int word = 0; word < 4; ++word) {
            std::memcpy(reinterpret_cast<std::uint64_t*>(&p.even[word]) + i, &even[word], native_bytes);
            std::memcpy(reinterpret_cast<std::uint64_t*>(&p.odd[word]) + i, &odd[word], native_bytes);
        }
    }
    return p;
}

// Word i of the sixteen blocks, in order.
[[gnu::always_inline]] inline words word_of(philox_packet const& p, int i) {
    return std::bit_cast<words>((p.even[i] & 0xFFFFFFFFU) | (p.odd[i] << 32U));
}

[[gnu::always_inline]] inline packet<float> to_float(words w) {
#ifdef __AVX512F__
    return __builtin_convertvector(w, packet<float>);
#else  // no unsigned conversion: two halves, rounded once
    using integers = std::int32_t __attribute__((vector_size(64)));
    auto const high = __builtin_convertvector(std::bit_cast<integers>(w >> 16U), packet<float>);
    auto const low = __builtin_convertvector(std::bit_cast<integers>(w & 0xFFFFU), packet<float>);
    return high * 65536.0F + low;
#endif
}

// Exact: at most 32 bits.
[[gnu::always_inline]] inline packet<double> to_double(wide_words w) {
    return std::bit_cast<packet<double>>((w & 0xFFFFFFFFU) | 0x4330000000000000U) - 0x1p52;
}

// out[4 b + i] = lane b of v[i], in pieces that every instruction set can shuffle.
[[gnu::always_inline]] inline void store_interleaved(float* out, packet<float> const (&v)[4]) {
    if constexpr (native_bytes == 64) {
        using pairs = packet<double>;
        pairs low[2];
        pairs high[2];
        for (int i = 0; i < 2; ++i) {
            packet<float> const a = v[2 * i];
            packet<float> const b = v[2 * i + 1];
            low[i] = std::bit_cast<pairs>(
                __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
            high[i] = std::bit_cast<pairs>(
                __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
        }
        store(out, std::bit_cast<packet<float>>(__builtin_shufflevector(low[0], low[1], 0, 8, 1, 9, 2, 10, 3, 11)));
        store(out + 16,
              std::bit_cast<packet<float>>(__builtin_shufflevector(low[0], low[1], 4, 12, 5, 13, 6, 14, 7, 15)));
        store(out + 32,
              std::bit_cast<packet<float>>(__builtin_shufflevector(high[0], high[1], 0, 8, 1, 9, 2, 10, 3, 11)));
        store(out + 48,
              std::bit_cast<packet<float>>(__builtin_shufflevector(high[0], high[1], 4, 12, 5, 13, 6, 14, 7, 15)));
    } else {
        using quad = float __attribute__((vector_size(16)));
        quad piece[4][4];
        std::memcpy(piece, v, sizeof(piece));
        for (int i = 0; i < 4; ++i) {
            quad const a = __builtin_shufflevector(piece[0][i], piece[1][i], 0, 4, 1, 5);
            quad const b = __builtin_shufflevector(piece[2][i], piece[3][i], 0, 4, 1, 5);
            quad const c = __builtin_shufflevector(piece[0][i], piece[1][i], 2, 6, 3, 7);
            quad const d = __builtin_shufflevector(piece[2][i], piece[3][i], 2, 6, 3, 7);
            quad const rows[4] = {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
                                  __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
            std::memcpy(out + 16 * i, rows, sizeof(rows));
        }
    }
}

// sqrt(-2 log((w + 1) 2^-32)). Near 1 the logarithm is taken of 1 - ~w 2^-32, where w + 1 would round.
[[gnu::always_inline]] inline packet<float> radius(words w) {
    using V = packet<float>;
    auto const [mantissa, exponent] = math::detail::split(to_float(w + 1U));
    auto const near_one = w >= 0xB504F334U;  // sqrt(1/2) 2^32
    V const f = select(near_one, to_float(~w) * -0x1p-32F, mantissa - 1.0F);
    V const e = select(near_one, V{}, exponent - 32.0F);
    return math::sqrt(math::detail::log_of_parts(f, e) * -2.0F);
}

// Cosine and sine of 2 pi w 2^-32; the angle is reduced exactly, as an integer.
[[gnu::always_inline]] inline math::cosine_sine<packet<float>> turn_of(words w) {
    using integers = std::int32_t __attribute__((vector_size(64)));
    words const quadrant = (w + (1U << 29U)) >> 30U;
    auto const rest = std::bit_cast<integers>(w - (quadrant << 30U));
    return math::detail::turn(__builtin_convertvector(rest, packet<float>) * 0x1p-32F, quadrant);
}

template <class T> void normals64(T* out, key k, std::uint64_t first) {
    philox_packet const p = philox16(k, first);
    if constexpr (std::same_as<T, float>) {
        packet<float> v[4];
        for (int pair = 0; pair < 2; ++pair) {
            packet<float> const r = radius(word_of(p, 2 * pair));
            auto const [cosine, sine] = turn_of(word_of(p, 2 * pair + 1));
            v[2 * pair] = r * cosine;
            v[2 * pair + 1] = r * sine;
        }
        store_interleaved(out, v);
    } else {
        for (int pair = 0; pair < 2; ++pair)
            for (int odd = 0; odd < 2; ++odd) {
                auto const& w = odd == 1 ? p.odd : p.even;
                packet<double> const u = (to_double(w[2 * pair]) + 1.0) * 0x1p-32;
                packet<double> const r = math::sqrt(math::log(u) * -2.0);
                auto const [cosine, sine] = math::sin_cos_turns(to_double(w[2 * pair + 1]) * 0x1p-32);
                packet<double> const c = r * cosine;
                packet<double> const s = r * sine;
                for (int lane = 0; lane < 8; ++lane) {
                    out[8 * lane + 4 * odd + 2 * pair] = c[lane];
                    out[8 * lane + 4 * odd + 2 * pair + 1] = s[lane];
                }
            }
    }
}

template <class T> void uniforms64(T* out, key k, std::uint64_t first) {
    philox_packet const p = philox16(k, first);
    packet<float> v[4];
    for (int i = 0; i < 4; ++i) v[i] = to_float(word_of(p, i) >> 8U) * 0x1p-24F;
    store_interleaved(out, v);
}

#endif

// Calls put(index, value) for n elements of a keyed sequence from `first` on; group(Draw*, key, block) makes 64 at a
// time.
template <class Draw, class Group, class Put>
void draw(index_t n, key k, std::uint64_t first, Group const& group, Put const& put) {
    alignas(64) Draw buffer[64];
    for (index_t done = 0; done < n;) {
        std::uint64_t const at = first + static_cast<std::uint64_t>(done);
        auto const skip = static_cast<index_t>(at % 4);
        group(buffer, k, at / 4);
        index_t const count = std::min<index_t>(n - done, 64 - skip);
        for (index_t i = 0; i < count; ++i) put(done + i, buffer[skip + i]);
        done += count;
    }
}

inline constexpr index_t fill_grain = 16384;

}  // namespace detail

/// out[i] = normal(k, first + i) for i < n, within 1e-6 in float and 1e-14 in double, on the calling thread. T: float,
/// double, or a type that a double converts to.
template <class T> void normals(T* out, index_t n, key k, std::uint64_t first = 0) {
    if constexpr (std::same_as<T, float> || std::same_as<T, double>)
        for (; first % 4 == 0 && n >= 64; n -= 64, out += 64, first += 64) detail::normals64(out, k, first / 4);
    using draw_type = std::conditional_t<std::same_as<T, float>, float, double>;
    detail::draw<draw_type>(
        n, k, first, [](draw_type* to, key at, std::uint64_t block) { detail::normals64(to, at, block); },
        [out](index_t i, draw_type value) { out[i] = static_cast<T>(value); });
}

namespace detail {

// run_draw for the cpu; for block backends see detail/kernels/block/fill.hpp.
template <class T>
void run_draw(context<cpu> const& ctx, draw_normals<T> const&, T* x, index_t n, key k, rng_counter number) {
    std::uint64_t const first = number.by_value();
    ctx.parallel_ranges(n, fill_grain, [&](index_t begin, index_t end) {
        normals(x + begin, end - begin, k, first + static_cast<std::uint64_t>(begin));
    });
}
template <class T>
void run_draw(context<cpu> const& ctx, draw_uniforms<T> const& uniform, T* x, index_t n, key k, rng_counter number) {
    std::uint64_t const first = number.by_value();
    ctx.parallel_ranges(n, fill_grain, [&](index_t begin, index_t end) {
        draw<float>(end - begin, k, first + static_cast<std::uint64_t>(begin), uniforms64<float>,
                    [to = x + begin, low = uniform.low](index_t i, float u) { to[i] = static_cast<T>(u) + low; });
    });
}
template <class T>
void run_draw(context<cpu> const& ctx, draw_kept<T> const& kept, T* x, index_t n, key k, rng_counter number) {
    std::uint64_t const first = number.by_value();
    ctx.parallel_ranges(n, fill_grain, [&](index_t begin, index_t end) {
        draw<float>(end - begin, k, first + static_cast<std::uint64_t>(begin), uniforms64<float>,
                    [to = x + begin, kept](index_t i, float u) { to[i] = u >= kept.rate ? kept.value : T{}; });
    });
}

}  // namespace detail

/// x[i] = normal(k, first + i), within 1e-6 in float and 1e-14 in double.
template <class Backend, class T, class Extents>
void fill_normal(context<Backend> const& ctx, view<T, Extents, Backend> x, key k, rng_counter first = 0) {
    detail::run_draw(ctx, detail::draw_normals<T>{}, x.data(), x.size(), k, first);
}

/// x[i] = low + uniform(k, first + i), in [low, low + 1); low -1/2 centres it on 0.
template <class Backend, class T, class Extents>
void fill_uniform(context<Backend> const& ctx, view<T, Extents, Backend> x, key k, rng_counter first = 0,
                  std::type_identity_t<T> low = T{}) {
    detail::run_draw(ctx, detail::draw_uniforms<T>{low}, x.data(), x.size(), k, first);
}

/// x[i] = value where uniform(k, first + i) >= rate, else 0. With value = 1 / (1 - rate) it is a dropout mask.
template <class Backend, class T, class Extents>
void fill_bernoulli_keep(context<Backend> const& ctx, view<T, Extents, Backend> x, key k, float rate,
                         std::type_identity_t<T> value = T(1), rng_counter first = 0) {
    detail::run_draw(ctx, detail::draw_kept<T>{rate, value}, x.data(), x.size(), k, first);
}

}  // namespace calm
