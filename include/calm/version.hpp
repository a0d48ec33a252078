#pragma once
/// \file
/// The version of these headers, by semver.org: before 1.0 a new minor version may change interfaces.
/// \shows{tests/consumer/project/expression.cpp}

#include <compare>
#include <tuple>

/// `major * 10000 + minor * 100 + patch`, for `#if`. The version is defined only here, also for CMake and pkg-config.
#define CALM_VERSION 200

/// Continuous autoregressive language models: the whole library. calm::detail is private.
namespace calm {

/// A version; compares in version order.
struct version_number {
    int major;  ///< CALM_VERSION / 10000
    int minor;  ///< a new one may change interfaces while major is 0
    int patch;  ///< a new one changes no interface
    /// Equality.
    friend constexpr bool operator==(version_number const&, version_number const&) = default;
    /// Version order.
    friend constexpr auto operator<=>(version_number const& a, version_number const& b) {
        return std::tie(a.major, a.minor, a.patch) <=> std::tie(b.major, b.minor, b.patch);
    }
};

/// The version of these headers.
inline constexpr version_number version{CALM_VERSION / 10000, CALM_VERSION / 100 % 100, CALM_VERSION % 100};

}  // namespace calm
