#pragma once
// Tensors as stored in weight files (name, type, shape, bytes), and their conversion to values.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/base/bf16.hpp"
#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "calm/io/detail/bounded_reader.hpp"
#include "calm/tensor/core/extents.hpp"
#include "calm/tensor/detail/ops/int8_blocks.hpp"

namespace calm {

// The element types that this library reads from and writes to weight files.
enum class stored_type : std::uint8_t { boolean, u8, i8, u16, i16, f16, bf16, u32, i32, f32, u64, i64, f64 };

// One tensor of a file, read or to be written: row-major, little-endian. The bytes are not owned.
struct stored_tensor {
    std::string name;                     // as in the file
    stored_type type = stored_type::f32;  // of an element
    std::vector<index_t> shape;           // size of each dimension, at least 0
    std::span<std::byte const> bytes;     // of all elements
    // Of weights in int8: a BF16 for every 32 elements, and an element is its byte times that. Otherwise empty.
    std::span<std::byte const> scales = {};

    // The number of elements.
    [[nodiscard]] std::size_t count() const;
};

namespace detail {

struct stored_type_facts {
    stored_type type;
    std::string_view name;
    std::uint64_t bytes;
};
inline constexpr std::array<stored_type_facts, 13> stored_types{{{stored_type::boolean, "BOOL", 1},
                                                                 {stored_type::u8, "U8", 1},
                                                                 {stored_type::i8, "I8", 1},
                                                                 {stored_type::u16, "U16", 2},
                                                                 {stored_type::i16, "I16", 2},
                                                                 {stored_type::f16, "F16", 2},
                                                                 {stored_type::bf16, "BF16", 2},
                                                                 {stored_type::u32, "U32", 4},
                                                                 {stored_type::i32, "I32", 4},
                                                                 {stored_type::f32, "F32", 4},
                                                                 {stored_type::u64, "U64", 8},
                                                                 {stored_type::i64, "I64", 8},
                                                                 {stored_type::f64, "F64", 8}}};

}  // namespace detail

// The name of a type in a file: "F32".
inline std::string_view name_of(stored_type type) {
    return detail::stored_types[static_cast<std::size_t>(type)].name;
}
// Bytes of one element.
inline std::uint64_t bytes_of(stored_type type) {
    return detail::stored_types[static_cast<std::size_t>(type)].bytes;
}

// "[3, 4]"
inline std::string text_of(std::span<index_t const> shape) {
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    return text + "]";
}

inline std::size_t stored_tensor::count() const {
    return bytes.size() / bytes_of(type);
}

// The stored type of a C++ arithmetic type.
template <class T> constexpr stored_type stored_type_of() {
    if constexpr (std::is_same_v<T, bool>)
        return stored_type::boolean;
    else if constexpr (std::is_same_v<T, float>)
        return stored_type::f32;
    else if constexpr (std::is_same_v<T, double>)
        return stored_type::f64;
    else if constexpr (std::is_same_v<T, bf16>)
        return stored_type::bf16;
    else {
        static_assert(std::is_integral_v<T>, "calm::stored_type_of: expected bool, an integer, bf16, float or double");
        constexpr std::array<stored_type, 4> with_sign{stored_type::i8, stored_type::i16, stored_type::i32,
                                                       stored_type::i64};
        constexpr std::array<stored_type, 4> without{stored_type::u8, stored_type::u16, stored_type::u32,
                                                     stored_type::u64};
        constexpr auto at = static_cast<std::size_t>(std::bit_width(sizeof(T)) - 1);
        return std::is_signed_v<T> ? with_sign[at] : without[at];
    }
}

// A tensor to be written, over values that the caller owns.
template <class T> stored_tensor to_store(std::string name, std::vector<index_t> shape, std::span<T const> values) {
    return {std::move(name), stored_type_of<T>(), std::move(shape), std::as_bytes(values)};
}

namespace detail {

static_assert(std::endian::native == std::endian::little,
              "calm::safetensors: expected a little-endian machine: files are read without conversion");

inline float from_bf16(std::uint16_t bits) {
    return bf16::of(bits);
}

inline float from_f16(std::uint16_t bits) {
    std::uint32_t const sign = std::uint32_t{bits & 0x8000U} << 16;
    std::uint32_t const exponent = (bits >> 10) & 0x1FU;
    std::uint32_t const fraction = bits & 0x3FFU;
    if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
        float const magnitude = static_cast<float>(fraction) * 0x1p-24F;
        return sign != 0 ? -magnitude : magnitude;
    }
    std::uint32_t const wide = exponent == 31 ? 255U : exponent + 112U;
    return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

template <class From, class Out, class Convert>
void convert_elements(std::span<std::byte const> bytes, std::span<Out> to, Convert convert) {
    for (std::size_t i = 0; i < to.size(); ++i) {
        From value;  // the bytes need not be aligned
        std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
        to[i] = convert(value);
    }
}

// The bytes of a shape, or nullopt on 64-bit overflow.
inline std::optional<std::uint64_t> bytes_of(stored_type type, std::span<index_t const> shape) {
    std::optional<std::uint64_t> product = calm::bytes_of(type);
    for (index_t const size : shape)
        if (product) product = checked_multiply(*product, static_cast<std::uint64_t>(size));
    return product;
}

// The index of the first element whose exponent bits are all set (NaN or infinity), or the number of elements.
template <class Bits> std::size_t first_not_finite(std::span<std::byte const> bytes, Bits exponent) {
    constexpr std::size_t block = 4096;
    std::size_t const count = bytes.size() / sizeof(Bits);
    auto const is_finite = [&](std::size_t i) {
        Bits element;  // the bytes need not be aligned
        std::memcpy(&element, bytes.data() + i * sizeof(Bits), sizeof(Bits));
        return (element & exponent) != exponent;
    };
    for (std::size_t begin = 0; begin < count; begin += block) {
        std::size_t const end = std::min(count, begin + block);
        bool all = true;
        for (std::size_t i = begin; i < end; ++i) all &= is_finite(i);
        for (std::size_t i = begin; i < end && !all; ++i)
            if (!is_finite(i)) return i;
    }
    return count;
}

[[noreturn]] inline void fail_at(stored_tensor const& tensor, std::string const& path, std::string const& sentence) {
    throw error(errc::model_file, path, "tensor " + in_quotes(tensor.name), sentence);
}

}  // namespace detail

namespace detail {

// The first NaN or infinite element of a floating-point tensor, for messages; nullopt if there is none.
inline std::optional<std::string> place_not_finite(stored_tensor const& tensor) {
    if (!tensor.scales.empty()) {
        auto const block = first_not_finite<std::uint16_t>(tensor.scales, 0x7F80);
        if (block == tensor.scales.size() / sizeof(bf16)) return std::nullopt;
        return "tensor " + in_quotes(tensor.name) + ", scale " + std::to_string(block);
    }
    auto const first = [&]() -> std::size_t {
        switch (tensor.type) {
        case stored_type::f16:
            return first_not_finite<std::uint16_t>(tensor.bytes, 0x7C00);
        case stored_type::bf16:
            return first_not_finite<std::uint16_t>(tensor.bytes, 0x7F80);
        case stored_type::f32:
            return first_not_finite<std::uint32_t>(tensor.bytes, 0x7F80'0000);
        case stored_type::f64:
            return first_not_finite<std::uint64_t>(tensor.bytes, 0x7FF0'0000'0000'0000);
        default:
            return tensor.count();
        }
    }();
    if (first == tensor.count()) return std::nullopt;
    std::vector<index_t> place(tensor.shape.size());
    auto rest = static_cast<index_t>(first);
    for (std::size_t r = place.size(); r-- > 0; rest /= tensor.shape[r]) place[r] = rest % tensor.shape[r];
    return "tensor " + in_quotes(tensor.name) + ", element " + text_of(place);
}

inline bool is_float(stored_type type) {
    return type == stored_type::f16 || type == stored_type::bf16 || type == stored_type::f32 ||
           type == stored_type::f64;
}

// Whether a tensor holds numbers that weights can have: floating-point ones, or int8 with scales.
inline bool is_weight(stored_tensor const& tensor) {
    return is_float(tensor.type) || !tensor.scales.empty();
}

// The elements of weights in int8. Exact in float.
template <class T> void read_int8(stored_tensor const& tensor, std::span<T> to) {
    constexpr auto block = static_cast<std::size_t>(int8_block);
    for (std::size_t i = 0; i < to.size(); ++i) {
        std::uint16_t scale;  // the bytes need not be aligned
        std::memcpy(&scale, tensor.scales.data() + i / block * sizeof(scale), sizeof(scale));
        to[i] = static_cast<T>(static_cast<float>(static_cast<std::int8_t>(tensor.bytes[i])) * from_bf16(scale));
    }
}

}  // namespace detail

// Checks a tensor that was read. Throws errc::non_finite with path, tensor and element for NaN or infinity.
inline void require_finite(stored_tensor const& read, std::string const& path) {
    if (auto const place = detail::place_not_finite(read))
        throw error(errc::non_finite, path, *place,
                    "expected a finite number, found NaN or infinity: the training that wrote it had failed, or the "
                    "file is damaged; use another file");
}

// Checks a tensor to be written. Throws errc::non_finite with tensor and element.
inline void require_finite(stored_tensor const& unwritten) {
    if (auto const place = detail::place_not_finite(unwritten))
        throw error(errc::non_finite, *place + ": expected a finite number to write, found NaN or infinity; it was not "
                                               "written");
}

// Converts all elements of a floating-point tensor (rounded to nearest, ties to even, if T is narrower). Throws
// errc::model_file with the path if the number of elements differs, the type is not F16, BF16, F32 or F64, or a finite
// element overflows T.
template <class T>
requires(std::is_same_v<T, bf16> || std::is_same_v<T, float> ||
         std::is_same_v<T, double>) void read_into(stored_tensor const& tensor, std::span<T> to,
                                                   std::string const& path) {
    if (tensor.count() != to.size())
        detail::fail_at(tensor, path,
                        "expected " + std::to_string(to.size()) + " elements, found " + std::to_string(tensor.count()) +
                            " of shape " + text_of(tensor.shape));
    auto const narrowed = [&](auto value) {
        auto const converted = static_cast<T>(value);
        if (std::isfinite(value) && !std::isfinite(static_cast<double>(converted)))
            detail::fail_at(tensor, path,
                            "expected values that a " + std::string(std::is_same_v<T, bf16> ? "bf16" : "float") +
                                " can hold, found a larger one");
        return converted;
    };
    switch (tensor.type) {
    case stored_type::f16:
        return detail::convert_elements<std::uint16_t>(
            tensor.bytes, to, [](std::uint16_t bits) { return static_cast<T>(detail::from_f16(bits)); });
    case stored_type::bf16:
        if constexpr (std::is_same_v<T, bf16>)
            return detail::convert_elements<bf16>(tensor.bytes, to, [](bf16 value) { return value; });
        else
            return detail::convert_elements<std::uint16_t>(
                tensor.bytes, to, [](std::uint16_t bits) { return static_cast<T>(detail::from_bf16(bits)); });
    case stored_type::f32:
        if constexpr (std::is_same_v<T, bf16>)
            return detail::convert_elements<float>(tensor.bytes, to, narrowed);
        else
            return detail::convert_elements<float>(tensor.bytes, to, [](float value) { return static_cast<T>(value); });
    case stored_type::f64:
        return detail::convert_elements<double>(tensor.bytes, to, narrowed);
    case stored_type::i8:
        if (!tensor.scales.empty()) return detail::read_int8(tensor, to);
        [[fallthrough]];
    default:
        detail::fail_at(tensor, path,
                        "expected type F16, BF16, F32 or F64, found " + std::string(name_of(tensor.type)));
    }
}

// All elements of an integer or boolean tensor. Throws errc::model_file with the path for other types, and for a U64
// above 2^63 - 1.
inline std::vector<std::int64_t> integers_of(stored_tensor const& tensor, std::string const& path) {
    std::vector<std::int64_t> values(tensor.count());
    std::span<std::int64_t> const to(values);
    auto const plain = [](auto value) { return static_cast<std::int64_t>(value); };
    auto const& bytes = tensor.bytes;
    switch (tensor.type) {
    case stored_type::boolean:
        detail::convert_elements<std::uint8_t>(bytes, to, [](std::uint8_t v) { return std::int64_t{v != 0}; });
        break;
    case stored_type::u8:
        detail::convert_elements<std::uint8_t>(bytes, to, plain);
        break;
    case stored_type::i8:
        detail::convert_elements<std::int8_t>(bytes, to, plain);
        break;
    case stored_type::u16:
        detail::convert_elements<std::uint16_t>(bytes, to, plain);
        break;
    case stored_type::i16:
        detail::convert_elements<std::int16_t>(bytes, to, plain);
        break;
    case stored_type::u32:
        detail::convert_elements<std::uint32_t>(bytes, to, plain);
        break;
    case stored_type::i32:
        detail::convert_elements<std::int32_t>(bytes, to, plain);
        break;
    case stored_type::i64:
        detail::convert_elements<std::int64_t>(bytes, to, plain);
        break;
    case stored_type::u64:
        detail::convert_elements<std::int64_t>(bytes, to, plain);
        if (std::any_of(values.begin(), values.end(), [](std::int64_t value) { return value < 0; }))
            detail::fail_at(tensor, path, "expected integers below 2^63, found a larger one");
        break;
    default:
        detail::fail_at(tensor, path, "expected integers or booleans, found " + std::string(name_of(tensor.type)));
    }
    return values;
}

}  // namespace calm
