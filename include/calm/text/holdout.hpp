#pragma once
/// \file
/// The split of documents into training and held-out.
/// \shows{tests/text/documents_test.cpp,stories_end_after_n_tokens_and_splits_differ}

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "calm/base/error.hpp"

namespace calm {

/// The two uses of documents. Generated sources depend on the numbers: never change them.
enum class split : std::uint32_t { train = 0, heldout = 1 };

/// Holds out the documents whose number, counted from 0, is r modulo m: training skips them, evaluation uses only them.
class holdout {
public:
    /// The largest modulus: with fewer than a million documents, one in a million may be none.
    static constexpr std::uint64_t most = 1'000'000;

    /// Reads "m:r", e.g. "6:5". Throws errc::usage unless 2 <= m <= most and 0 <= r < m.
    [[nodiscard]] static holdout parse(std::string_view text) {
        auto const fail = [&](std::string const& sentence) {
            throw error(errc::usage, "holdout \"" + std::string(text) + "\": " + sentence);
        };
        auto const number = [&](std::string_view digits) {
            std::uint64_t value = 0;
            auto const result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
            if (result.ec != std::errc{} || result.ptr != digits.data() + digits.size())
                fail("expected two whole numbers m:r; 6:5 holds out the documents whose number is 5 modulo 6");
            return value;
        };
        std::size_t const colon = text.find(':');
        if (colon == std::string_view::npos)
            fail("expected m:r; 6:5 holds out the documents whose number is 5 modulo 6");
        holdout const parsed(number(text.substr(0, colon)), number(text.substr(colon + 1)));
        if (parsed.modulus_ < 2)
            fail("the modulus must be at least 2, or nothing is left to train on; 10:0 holds out a tenth");
        if (parsed.modulus_ > most)
            fail("the modulus must be at most " + std::to_string(most) + ", or hardly anything is held out");
        if (parsed.remainder_ >= parsed.modulus_)
            fail("the remainder must be less than the modulus " + std::to_string(parsed.modulus_) +
                 ", or nothing is held out");
        return parsed;
    }

    /// Whether document i is held out.
    [[nodiscard]] bool contains(std::uint64_t i) const { return i % modulus_ == remainder_; }
    /// "m:r".
    [[nodiscard]] std::string text() const { return std::to_string(modulus_) + ':' + std::to_string(remainder_); }

    friend bool operator==(holdout const&, holdout const&) = default;

private:
    holdout(std::uint64_t modulus, std::uint64_t remainder) : modulus_(modulus), remainder_(remainder) {}

    std::uint64_t modulus_;
    std::uint64_t remainder_;
};

}  // namespace calm
