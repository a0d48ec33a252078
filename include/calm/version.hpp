#pragma once
// The version of these headers, semantic as of semver.org: before 1.0 a new minor version may change an interface.

#include <compare>
#include <tuple>

// major * 10000 + minor * 100 + patch, for #if. The number stands here alone: CMake and pkg-config read it from this
// line.
#define CALM_VERSION 100

// Continuous autoregressive language models: all of the library. What stands in calm::detail is nobody's interface.
namespace calm {

// A version, compared as versions are.
struct version_number {
    int major;  // CALM_VERSION / 10000
    int minor;  // a new one may change an interface while major is 0
    int patch;  // a new one changes none
    // Whether they are the same.
    friend constexpr bool operator==(version_number const&, version_number const&) = default;
    // Which came first.
    friend constexpr auto operator<=>(version_number const& a, version_number const& b) {
        return std::tie(a.major, a.minor, a.patch) <=> std::tie(b.major, b.minor, b.patch);
    }
};

// That of these headers.
inline constexpr version_number version{CALM_VERSION / 10000, CALM_VERSION / 100 % 100, CALM_VERSION % 100};

}  // namespace calm
