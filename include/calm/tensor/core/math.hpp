#pragma once
/// \file
/// Element-wise functions: one overload set for float, double, std::complex<double> (complex step), packets and groups.
/// Packets of float and double are within 2 ulp of the exact exp and log, infinities, NaN and denormals included.
/// Complex arguments are compared by their real parts, so every function supports complex-step differentiation.
/// \shows{examples/04_gradient.cpp,softplus}

#include <cmath>
#include <complex>
#include <concepts>
#include <limits>

#ifdef __AVX__
#include <immintrin.h>
#elif defined(__SSE2__)  // compiles in a twentieth of the time
#include <emmintrin.h>
#endif

#include "calm/tensor/core/packet.hpp"

/// Element-wise functions of float, double, std::complex<double>, packets and groups.
namespace calm::math {

namespace detail {

// c[0] x^n + c[1] x^(n-1) + ... + c[n]
template <class V, class... C> [[gnu::always_inline]] inline V polynomial(V x, lane_t<V> first, C... rest) {
    V p = splat<V>(first);
    ((p = p * x + static_cast<lane_t<V>>(rest)), ...);
    return p;
}

// Constants of a floating-point type.
template <class T> struct format;
template <> struct format<float> {
    using bits = std::uint32_t;
    static constexpr int mantissa = 23;
    static constexpr bits bias = 127;
    static constexpr float round = 0x1.8p23F;  // x + round - round is x to the nearest integer
    static constexpr float ln2_high = 0x1.63p-1F;
    static constexpr float ln2_low = -0x1.bd0106p-13F;
    static constexpr float exp_least = -104.0F;
    static constexpr float exp_most = 89.0F;
};
template <> struct format<double> {
    using bits = std::uint64_t;
    static constexpr int mantissa = 52;
    static constexpr bits bias = 1023;
    static constexpr double round = 0x1.8p52;
    static constexpr double ln2_high = 0x1.62e42feep-1;
    static constexpr double ln2_low = 0x1.a39ef35793c76p-33;
    static constexpr double exp_least = -746.0;
    static constexpr double exp_most = 710.0;
};

// 2^k for integers k in the normal range, as bit patterns.
template <class V> [[gnu::always_inline]] inline V power_of_two(bits_t<V> k) {
    using f = format<lane_t<V>>;
    return std::bit_cast<V>((k + f::bias) << f::mantissa);
}

}  // namespace detail

/// float and double.
template <class V>
concept real_scalar = std::floating_point<V>;
/// For complex-step differentiation.
template <class V>
concept complex_scalar = std::same_as<V, std::complex<double>>;

/// x where a > b, else y.
template <class V> [[gnu::always_inline]] CALM_HD inline V where_greater(V a, V b, V x, V y) {
    if constexpr (complex_scalar<V>)
        return a.real() > b.real() ? x : y;
    else
        return calm::select(a > b, x, y);
}

/// a where a > b, else b.
template <class V> [[gnu::always_inline]] CALM_HD inline V max(V a, V b) {
    return where_greater(a, b, a, b);
}
/// b where a > b, else a.
template <class V> [[gnu::always_inline]] CALM_HD inline V min(V a, V b) {
    return where_greater(a, b, b, a);
}
/// x^2.
template <class V> [[gnu::always_inline]] CALM_HD inline V square(V x) {
    return x * x;
}

/// |x|; a complex x is multiplied by the sign of its real part.
template <class V> [[gnu::always_inline]] CALM_HD inline V abs(V x) {
    if constexpr (packed<V>) {
        auto const sign = std::bit_cast<bits_t<V>>(-V{});
        return std::bit_cast<V>(std::bit_cast<bits_t<V>>(x) & ~sign);
    } else if constexpr (grouped<V>)
        return V::by_lanes(x, x, [](auto a, auto) { return std::abs(a); });
    else if constexpr (complex_scalar<V>)
        return x.real() >= 0.0 ? x : -x;
    else
        return std::abs(x);
}

template <real_scalar V> CALM_HD inline V exp(V x) {
    return std::exp(x);
}
template <real_scalar V> CALM_HD inline V log(V x) {
    return std::log(x);
}
template <real_scalar V> CALM_HD inline V sqrt(V x) {
    return std::sqrt(x);
}
/// The hyperbolic tangent.
template <real_scalar V> CALM_HD inline V tanh(V x) {
    return std::tanh(x);
}

template <grouped V> [[gnu::always_inline]] CALM_HD inline V exp(V x) {
    return V::by_lanes(x, x, [](auto a, auto) { return math::exp(a); });
}
template <grouped V> [[gnu::always_inline]] CALM_HD inline V log(V x) {
    return V::by_lanes(x, x, [](auto a, auto) { return math::log(a); });
}
template <grouped V> [[gnu::always_inline]] CALM_HD inline V sqrt(V x) {
    return V::by_lanes(x, x, [](auto a, auto) { return math::sqrt(a); });
}
template <grouped V> [[gnu::always_inline]] CALM_HD inline V tanh(V x) {
    return V::by_lanes(x, x, [](auto a, auto) { return math::tanh(a); });
}

template <complex_scalar V> inline V exp(V x) {
    return std::exp(x);
}
template <complex_scalar V> inline V log(V x) {
    return std::log(x);
}
template <complex_scalar V> inline V sqrt(V x) {
    return std::sqrt(x);
}
template <complex_scalar V> inline V tanh(V x) {
    return std::tanh(x);
}

/// e^x with x = k ln 2 + r: a polynomial in r times 2^k, which is split in two factors so that results may be denormal.
template <packed V> [[gnu::always_inline]] inline V exp(V x) {
    using T = lane_t<V>;
    using f = detail::format<T>;
    x = where_greater(splat<V>(f::exp_least), x, splat<V>(f::exp_least), x);
    x = where_greater(x, splat<V>(f::exp_most), splat<V>(f::exp_most), x);
    V const shifted = x * static_cast<T>(1.4426950408889634) + f::round;
    V const n = shifted - f::round;
    V const r = x - n * f::ln2_high - n * f::ln2_low;
    V p;
    if constexpr (std::same_as<T, float>)
        p = detail::polynomial(r, 1.989103065e-4F, 1.393368586e-3F, 8.33331089e-3F, 4.16664646e-2F, 0.1666666668F,
                               0.5000000013F);
    else
        p = detail::polynomial(r, 2.0914717341716375952e-9, 2.5105259538448493419e-8, 2.7557273570102139673e-7,
                               2.7557255297969644392e-6, 2.4801587325605322782e-5, 1.9841269874901259234e-4,
                               1.3888888888883731828e-3, 8.3333333333261120526e-3, 4.1666666666666669767e-2,
                               0.16666666666666671008, 0.5);
    p = r * r * p + r + T{1};
    using bits = bits_t<V>;
    bits const k = std::bit_cast<bits>(shifted) - std::bit_cast<bits>(splat<V>(f::round));
    bits const half = ((k + 2048U) >> 1U) - 1024U;
    return p * detail::power_of_two<V>(half) * detail::power_of_two<V>(k - half);
}

namespace detail {

template <class V> struct parts {
    V mantissa;
    V exponent;
};

// x = mantissa * 2^exponent for normal x > 0, the mantissa in [sqrt(1/2), sqrt(2)).
template <packed V> [[gnu::always_inline]] inline parts<V> split(V x) {
    using T = lane_t<V>;
    using c = format<T>;
    using word = typename c::bits;
    constexpr word origin = c::bias + 1U;  // keeps exponents positive
    auto const root = std::bit_cast<bits_t<V>>(splat<V>(static_cast<T>(0.70710678118654752)));
    bits_t<V> const b = std::bit_cast<bits_t<V>>(x) - root;
    bits_t<V> const exponent = (b + (origin << c::mantissa)) >> static_cast<word>(c::mantissa);
    return {std::bit_cast<V>((b & ((word{1} << c::mantissa) - 1U)) + root),
            std::bit_cast<V>(exponent + std::bit_cast<bits_t<V>>(splat<V>(c::round))) - (c::round + T(origin))};
}

// log(1 + f) + e ln 2, f in [sqrt(1/2) - 1, sqrt(2) - 1].
template <packed V> [[gnu::always_inline]] inline V log_of_parts(V f, V e) {
    using T = lane_t<V>;
    using c = format<T>;
    V const h = f * f * T(0.5);
    if constexpr (std::same_as<T, float>) {
        V const p = polynomial(f, 0.06971611471F, -0.1147973385F, 0.1168541992F, -0.1242568733F, 0.1424905765F,
                               -0.1666780232F, 0.2000071575F, -0.2499999696F, 0.3333333118F);
        return f - (h - (f * f * (f * p) + e * c::ln2_low)) + e * c::ln2_high;
    } else {
        V const s = f / (f + T{2});
        V const z = s * s;
        V const p =
            polynomial(z, 0.14617037548791650146, 0.15331674030167861852, 0.18182890556695603528,
                       0.22222211115144161503, 0.28571428626095891537, 0.39999999999899238978, 0.66666666666666696955);
        return f - (h - (s * (h + z * p) + e * c::ln2_low)) + e * c::ln2_high;
    }
}

}  // namespace detail

/// Natural logarithm: -inf at 0, NaN below.
template <packed V> [[gnu::always_inline]] inline V log(V x) {
    using T = lane_t<V>;
    using c = detail::format<T>;
    using limits = std::numeric_limits<T>;
    V const tiny = splat<V>(limits::min());
    constexpr auto scale = static_cast<T>(typename c::bits{1} << c::mantissa);
    V const y = where_greater(tiny, x, x * scale, x);
    V const shift = where_greater(tiny, x, splat<V>(static_cast<T>(c::mantissa)), V{});
    auto const [m, e] = detail::split(y);
    V r = detail::log_of_parts(m - T{1}, e - shift);
    r = select(x < limits::infinity(), r, x);  // infinity and NaN stay
    r = select(x == T{0}, splat<V>(-limits::infinity()), r);
    return select(x < T{0}, splat<V>(limits::quiet_NaN()), r);
}

/// Correctly rounded.
template <packed V> [[gnu::always_inline]] inline V sqrt(V x) {
    constexpr bool is_float = std::same_as<lane_t<V>, float>;
#if defined(__AVX512F__)
    if constexpr (is_float)
        return std::bit_cast<V>(_mm512_maskz_sqrt_ps(__mmask16(-1), std::bit_cast<__m512>(x)));
    else
        return std::bit_cast<V>(_mm512_maskz_sqrt_pd(__mmask8(-1), std::bit_cast<__m512d>(x)));
#elif defined(__AVX2__)
    if constexpr (is_float)
        return calm::detail::by_pieces<__m256>(x, [](__m256 piece) { return _mm256_sqrt_ps(piece); });
    else
        return calm::detail::by_pieces<__m256d>(x, [](__m256d piece) { return _mm256_sqrt_pd(piece); });
#elif defined(__SSE2__)
    if constexpr (is_float)
        return calm::detail::by_pieces<__m128>(x, [](__m128 piece) { return _mm_sqrt_ps(piece); });
    else
        return calm::detail::by_pieces<__m128d>(x, [](__m128d piece) { return _mm_sqrt_pd(piece); });
#else
    return calm::detail::by_pieces<lane_t<V>>(x, [](lane_t<V> piece) { return std::sqrt(piece); });
#endif
}

/// 1 / (1 + e^-x).
template <class V> [[gnu::always_inline]] CALM_HD inline V sigmoid(V x) {
    if constexpr (complex_scalar<V>) {
        V const e = exp(x.real() >= 0.0 ? -x : x);
        return (x.real() >= 0.0 ? V(1.0) : e) / (V(1.0) + e);
    } else
        return lane_t<V>{1} / (lane_t<V>{1} + exp(-x));
}

/// x / (1 + e^-x).
template <class V> [[gnu::always_inline]] CALM_HD inline V silu(V x) {
    if constexpr (complex_scalar<V>)
        return x * sigmoid(x);
    else
        return x / (lane_t<V>{1} + exp(-x));
}

template <packed V> [[gnu::always_inline]] inline V tanh(V x) {
    using T = lane_t<V>;
    V const z = x * x;
    V p;
    if constexpr (std::same_as<T, float>)
        p = detail::polynomial(z, 0.002269501684F, -0.008323187058F, 0.02176250291F, -0.05395846163F, 0.1333330015F,
                               -0.3333333315F);
    else
        p = detail::polynomial(z, 6.3543408148597192105e-6, -3.0929125473864670152e-5, 9.2327497080853709566e-5,
                               -2.3746756586598223251e-4, 5.8962214868720598625e-4, -1.4557676940659454624e-3,
                               3.5921207608708409922e-3, -8.8632350243061059836e-3, 2.1869488515352346926e-2,
                               -5.3968253967810539973e-2, 0.13333333333332962279, -0.33333333333333332818);
    V const near = x + x * z * p;
    V const a = math::abs(x);
    V const far = T{1} - T{2} / (exp(a + a) + T{1});
    return select(a < T(0.625), near, where_greater(V{}, x, -far, far));
}

/// Cosine and sine.
template <class V> struct cosine_sine {
    V cosine;  ///< in [-1, 1]
    V sine;    ///< in [-1, 1]
};

namespace detail {

// cos and sin of 2 pi (quadrant / 4 + r), |r| <= 1/8; only the low two bits of the quadrant matter.
template <packed V> [[gnu::always_inline]] inline cosine_sine<V> turn(V r, bits_t<V> quadrant) {
    using T = lane_t<V>;
    using bits = bits_t<V>;
    V const z = r * r;
    V s, c;
    if constexpr (std::same_as<T, float>) {
        s = polynomial(z, 41.47277503F, -76.69786476F, 81.6052047F, -41.34170215F, 6.283185307F) * r;
        c = polynomial(z, 59.42402445F, -85.4488185F, 64.93936904F, -19.73920879F, 1.0F);
    } else {
        s = polynomial(z, -0.71163516320464644239, 3.8197880873621680945, -15.094640403240985313, 42.058693928982429688,
                       -76.705859752998095138, 81.605249276074930594, -41.341702240399760142, 6.2831853071795864769) *
            r;
        c = polynomial(z, 0.2797405604199679669, -1.7143332579614862724, 7.9035356121116786985, -26.426256777815180495,
                       60.244641371854552285, -85.456817206693684557, 64.939394022668291459, -19.739208802178717238,
                       1.0);
    }
    constexpr typename format<T>::bits top = 8 * sizeof(T) - 1;
    bits const odd = quadrant & 1U;
    V const cosine = select(odd != 0U, s, c);
    V const sine = select(odd != 0U, c, s);
    // cos is negative in quadrants 1 and 2, sin in 2 and 3.
    bits const cosine_sign = ((quadrant + 1U) >> 1U) << top;
    bits const sine_sign = (quadrant >> 1U) << top;
    return {std::bit_cast<V>(std::bit_cast<bits>(cosine) ^ cosine_sign),
            std::bit_cast<V>(std::bit_cast<bits>(sine) ^ sine_sign)};
}

}  // namespace detail

/// Cosine and sine of 2 pi u, u in [0, 1].
template <packed V> [[gnu::always_inline]] inline cosine_sine<V> sin_cos_turns(V u) {
    using T = lane_t<V>;
    using f = detail::format<T>;
    V const shifted = u * T{4} + f::round;
    V const r = u - (shifted - f::round) * T(0.25);
    return detail::turn(r, std::bit_cast<bits_t<V>>(shifted));
}
template <real_scalar V> CALM_HD inline cosine_sine<V> sin_cos_turns(V u) {
#ifdef __CUDA_ARCH__  // a GPU's sin and cos need more registers, to reduce large angles
    cosine_sine<V> at;
    ::sincospi(2 * u, &at.sine, &at.cosine);
    return at;
#else
    V const angle = u * static_cast<V>(6.283185307179586);
    return {std::cos(angle), std::sin(angle)};
#endif
}

}  // namespace calm::math
