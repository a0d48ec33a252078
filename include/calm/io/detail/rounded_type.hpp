#pragma once
// Converts floating-point tensors to another floating-point type, rounded to nearest with ties to even, block by block.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/base/bf16.hpp"
#include "calm/base/detail/number_text.hpp"
#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "calm/io/detail/stored_tensor.hpp"

namespace calm {

namespace detail {

template <class To, class Round>
std::span<std::byte const> rounded_block(std::span<double const> from, std::span<std::byte> to, Round round) {
    for (std::size_t i = 0; i < from.size(); ++i) {
        To const value = round(from[i]);
        std::memcpy(to.data() + i * sizeof(To), &value, sizeof(To));
    }
    return to.first(from.size() * sizeof(To));
}

}  // namespace detail

// The bits of x as bfloat16, rounded to nearest with ties to even; overflow gives infinity.
inline std::uint16_t to_bf16(double x) {
    return bf16(x).bits;
}
// The bits of x as IEEE half precision, rounded likewise.
inline std::uint16_t to_f16(double x) {
    return detail::to_16_bits<5>(x);
}

// The type with this name on the command line or in torch_dtype ("f32", "bfloat16"). Throws errc::usage.
inline stored_type float_type_named(std::string_view name) {
    struct named {
        std::string_view name;
        stored_type type;
    };
    constexpr std::array<named, 8> all{{{"f16", stored_type::f16},
                                        {"float16", stored_type::f16},
                                        {"bf16", stored_type::bf16},
                                        {"bfloat16", stored_type::bf16},
                                        {"f32", stored_type::f32},
                                        {"float32", stored_type::f32},
                                        {"f64", stored_type::f64},
                                        {"float64", stored_type::f64}}};
    for (auto const& one : all)
        if (one.name == name) return one.type;
    throw error(errc::usage, "expected a floating-point type, f32, bf16, f16 or f64, found " + in_quotes(name));
}

// The name of a type for torch_dtype in config.json.
inline std::string torch_name_of(stored_type type) {
    return type == stored_type::f16    ? "float16"
           : type == stored_type::bf16 ? "bfloat16"
           : type == stored_type::f64  ? "float64"
                                       : "float32";
}

// Passes the bytes of a tensor, converted to the type `as`, to `put` block by block; needs at most 1 MiB of memory.
// Weights in int8 become floating-point. Integer tensors and tensors of the type itself pass unchanged. Throws
// errc::non_finite with the tensor's name if a finite value overflows the type.
inline void rounded_to(stored_type as, stored_tensor const& tensor,
                       std::function<void(std::span<std::byte const>)> const& put) {
    if (tensor.type == as || !detail::is_weight(tensor)) return put(tensor.bytes);
    constexpr std::size_t block = std::size_t{1} << 16;
    std::vector<double> values(std::min(block, tensor.count()));
    std::vector<std::byte> bytes(values.size() * bytes_of(as));
    // From this magnitude on a value rounds to infinity: half a step above the largest.
    double const limit = as == stored_type::f16    ? 65520
                         : as == stored_type::bf16 ? 0x1.FFp127
                         : as == stored_type::f32  ? 0x1.FFFFFFp127
                                                   : std::numeric_limits<double>::infinity();
    auto const unit = static_cast<std::size_t>(bytes_of(tensor.type));
    for (std::size_t begin = 0; begin < tensor.count(); begin += block) {
        std::size_t const n = std::min(block, tensor.count() - begin);
        stored_tensor part{tensor.name, tensor.type, {}, tensor.bytes.subspan(begin * unit, n * unit)};
        if (!tensor.scales.empty()) part.scales = tensor.scales.subspan(begin / detail::int8_block * sizeof(bf16));
        std::span<double> const from = std::span(values).first(n);
        read_into(part, from, "");
        for (double const x : from)
            if (std::isfinite(x) && std::abs(x) >= limit)
                throw error(errc::non_finite, "tensor " + in_quotes(tensor.name) + ": expected values that " +
                                                  std::string(name_of(as)) + " can hold, found " + shortest(x) +
                                                  "; choose a type of a wider range");
        std::span<std::byte const> made;
        switch (as) {
        case stored_type::f16:
            made = detail::rounded_block<std::uint16_t>(from, bytes, to_f16);
            break;
        case stored_type::bf16:
            made = detail::rounded_block<std::uint16_t>(from, bytes, to_bf16);
            break;
        case stored_type::f32:
            made = detail::rounded_block<float>(from, bytes, [](double x) { return static_cast<float>(x); });
            break;
        default:
            made = detail::rounded_block<double>(from, bytes, [](double x) { return x; });
        }
        put(made);
    }
}

}  // namespace calm
