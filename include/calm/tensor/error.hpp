#pragma once
// Errors are sentences: what was expected, what was found, what to do. The library prints nothing.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace calm {

// What went wrong. Programs exit with the number of the code.
enum class errc : int {
    usage = 2,        // a call, an option or a shape that cannot be
    config = 3,       // a configuration that cannot be, or does not fit
    data = 4,         // text or corpora
    model_file = 5,   // weights, config.json
    tokenizer = 6,    // tokenizer files, ids out of range
    memory = 7,       // not enough of it
    non_finite = 8,   // NaN or infinity where a number was needed
    distributed = 9,  // collectives
    storage = 10,     // reading, writing, renaming
    device = 11,      // a GPU that is missing or fails
};

// An error with a code, a sentence and, where a file is to blame, its path and the place in it ("line 3", "byte 17").
class error : public std::runtime_error {
public:
    error(errc code, std::string const& sentence) : std::runtime_error(sentence), code_(code) {}
    error(errc code, std::string path, std::string place, std::string const& sentence) :
        std::runtime_error(path + (place.empty() ? "" : ", " + place) + ": " + sentence), code_(code),
        path_(std::move(path)), place_(std::move(place)) {}

    [[nodiscard]] errc code() const noexcept { return code_; }
    [[nodiscard]] std::string const& path() const noexcept { return path_; }
    [[nodiscard]] std::string const& place() const noexcept { return place_; }

private:
    errc code_;
    std::string path_;
    std::string place_;
};

namespace detail {
// Apart from the code that asks, and compiled for size: what builds a sentence is longer than what runs.
template <class Sentence> [[noreturn, gnu::cold, gnu::noinline]] void throw_error(errc code, Sentence const& sentence) {
    if constexpr (std::is_invocable_v<Sentence const&>)
        throw error(code, sentence());
    else
        throw error(code, sentence);
}
}  // namespace detail

// Throws error(code, sentence) unless the condition holds. The sentence is built only when it is needed: pass a
// callable returning a string where building it costs.
inline void require(bool condition, errc code, char const* sentence) {
    if (!condition) [[unlikely]]
        detail::throw_error(code, sentence);
}
template <class Sentence>
requires std::is_invocable_r_v<std::string, Sentence>
void require(bool condition, errc code, Sentence&& sentence) {
    if (!condition) [[unlikely]]
        detail::throw_error(code, sentence);
}

}  // namespace calm
