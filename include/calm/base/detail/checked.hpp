#pragma once
// Overflow-checked addition and multiplication of sizes that come from options and files.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "calm/base/error.hpp"

namespace calm::detail {

// a + b, or nullopt on 64-bit overflow.
constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
    if (b > std::numeric_limits<std::uint64_t>::max() - a) return std::nullopt;
    return a + b;
}
// a * b, or nullopt on 64-bit overflow.
constexpr std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b) {
    if (a != 0 && b > std::numeric_limits<std::uint64_t>::max() / a) return std::nullopt;
    return a * b;
}

// Bytes of an array of these sizes with elements of `unit` bytes. Returns nullopt if a size is negative or the result
// exceeds PTRDIFF_MAX / 2; the margin lets callers count elements and round bytes up safely.
constexpr std::optional<std::size_t> bytes_of_sizes(std::span<std::int64_t const> sizes, std::size_t unit) {
    constexpr std::uint64_t most = std::numeric_limits<std::ptrdiff_t>::max() / 2;
    std::uint64_t bytes = unit;
    for (std::int64_t const size : sizes) {
        auto const product = size < 0 ? std::nullopt : checked_multiply(bytes, static_cast<std::uint64_t>(size));
        if (!product || *product > most) return std::nullopt;
        bytes = *product;
    }
    return static_cast<std::size_t>(bytes);
}

// The product of `sizes`: the number of `what`, each of `unit` bytes. Throws errc::memory if a size is negative or the
// bytes exceed the address space.
inline std::int64_t checked_count(std::string_view what, std::initializer_list<std::int64_t> sizes,
                                  std::size_t unit = 1) {
    auto const bytes = bytes_of_sizes({sizes.begin(), sizes.size()}, unit);
    require(bytes.has_value(), errc::memory, [&] {
        std::string product;
        for (std::int64_t const size : sizes) product += (product.empty() ? "" : " x ") + std::to_string(size);
        return sentence("expected as many ", what, " as memory can hold, found ", product, "; ask for fewer");
    });
    return static_cast<std::int64_t>(*bytes / unit);
}

}  // namespace calm::detail
