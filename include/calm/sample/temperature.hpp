#pragma once
/// \file
/// Temperatures, and which of them a rule supports (CALM, temperature from samples alone).
/// \shows{tests/sample/temperature_test.cpp,only_one_over_n_has_an_integer_inverse_and_others_name_the_two_nearest}

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "calm/base/detail/number_text.hpp"
#include "calm/base/error.hpp"

namespace calm {

/// A temperature T: the target distribution is P(x)^(1/T), normalised.
struct temperature {
    double value = 1.0;    ///< T, at least 0
    double inverse = 1.0;  ///< 1 / T; infinite at T = 0
    std::int64_t n = 1;    ///< 1 / T if that is an integer (to 1e-6), else 0

    /// From a number of at least 0; throws errc::usage otherwise. T = 0 has an infinite inverse; rules that count draws
    /// reject it.
    static temperature of(double T) {
        require(T >= 0.0 && std::isfinite(T), errc::usage,
                [&] { return "temperature: expected a number of at least 0, or 1/n, found " + shortest(T); });
        double const inverse = T == 0.0 ? std::numeric_limits<double>::infinity() : 1.0 / T;
        double const nearest = std::round(inverse);
        bool const integer = nearest >= 1.0 && nearest < 0x1p53 && std::abs(inverse - nearest) < 1e-6;
        return {T, integer ? nearest : inverse, integer ? static_cast<std::int64_t>(nearest) : 0};
    }
};

/// Parses "0.5" or "1/2". Throws errc::usage for anything else.
inline temperature parse_temperature(std::string_view text) {
    auto const fail = [&](char const* why) -> temperature {
        throw error(errc::usage,
                    "temperature: expected a decimal of at least 0, such as 0.5, or 1/n with an integer n, "
                    "such as 1/2; found '" +
                        std::string(text) + "'" + why);
    };
    auto const read = [](std::string_view digits, auto& value) {
        auto const [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        return code == std::errc{} && end == digits.data() + digits.size();
    };
    if (auto const slash = text.find('/'); slash != std::string_view::npos) {
        std::int64_t n = 0;
        if (text.substr(0, slash) != "1") return fail(", whose numerator is not 1; write it as a decimal");
        if (!read(text.substr(slash + 1), n) || n < 1) return fail("");
        return {1.0 / static_cast<double>(n), static_cast<double>(n), n};
    }
    double T = 0.0;
    if (!read(text, T)) return fail("");
    if (!std::isfinite(T) || T < 0.0) return fail(", which is negative or not finite");
    return temperature::of(T);
}

/// n for T = 1/n. Throws errc::usage for another T, naming the two temperatures 1/n around it.
inline std::int64_t integer_inverse(temperature T) {
    if (T.n > 0) return T.n;
    auto const name = [](double n) {
        auto const whole = std::to_string(static_cast<std::int64_t>(n));
        return "1/" + whole + " (" + six_digits(1.0 / n) + ")";
    };
    std::string nearest = T.value > 0.0 ? "a larger one" : "a positive one";
    if (T.value > 0.0 && T.inverse < 0x1p53) {
        double const below = std::max(1.0, std::floor(T.inverse));
        nearest = name(below) + " or " + name(below + 1.0);
        nearest += T.value < 1.0 ? ", or another sampler: noise (one draw per patch), or exact (up to 100000)" : "";
    }
    throw error(errc::usage, "temperature: this sampler needs T = 1/n with an integer n, found T = " +
                                 shortest(T.value) + "; take " + nearest);
}

}  // namespace calm
