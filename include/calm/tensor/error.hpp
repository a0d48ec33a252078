#pragma once
// Errors are sentences: what was expected, what was found, what to do. The library prints nothing.

#include <bit>
#include <concepts>
#include <cstdint>
#include <initializer_list>
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

// A piece of a sentence: words, to which it refers, or a number. Two registers, as every check holds some.
class sentence_part {
public:
    constexpr sentence_part(std::string_view words) : words_(words.empty() ? "" : words.data()), value_(words.size()) {}
    constexpr sentence_part(char const* words) : sentence_part(std::string_view(words)) {}
    constexpr sentence_part(std::string const& words) : sentence_part(std::string_view(words)) {}
    template <std::integral T>
    requires(sizeof(T) > 1) constexpr sentence_part(T number) :
        words_(std::is_signed_v<T> ? nullptr : natural), value_(static_cast<std::uint64_t>(number)) {}
    constexpr sentence_part(double number) : words_(real), value_(std::bit_cast<std::uint64_t>(number)) {}

    void append_to(std::string& text) const {
        if (words_ == nullptr)
            text += std::to_string(static_cast<std::int64_t>(value_));
        else if (words_ == natural)
            text += std::to_string(value_);
        else if (words_ == real)
            text += std::to_string(std::bit_cast<double>(value_));
        else
            text += std::string_view(words_, value_);
    }

private:
    // By their addresses: an integer without sign, a real number.
    static constexpr char natural[] = "natural";
    static constexpr char real[] = "real";

    char const* words_ = nullptr;  // nothing: an integer
    std::uint64_t value_;          // the number, or how many characters
};

[[gnu::cold, gnu::noinline]] inline std::string joined(std::initializer_list<sentence_part> parts) {
    std::string text;
    for (auto const& part : parts) part.append_to(text);
    return text;
}

[[noreturn, gnu::cold, gnu::noinline]] inline void throw_parts(errc code, std::initializer_list<sentence_part> parts) {
    throw error(code, joined(parts));
}

// Apart from the code that asks, and compiled for size: what builds a sentence is longer than what runs.
template <class Sentence> [[noreturn, gnu::cold, gnu::noinline]] void throw_error(errc code, Sentence const& sentence) {
    if constexpr (std::is_invocable_v<Sentence const&>)
        throw error(code, sentence());
    else
        throw error(code, sentence);
}
}  // namespace detail

// The parts, words and numbers, as one text: what a chain of + gives, in a fraction of its code.
template <class... Parts> std::string sentence(Parts const&... parts) {
    return detail::joined({detail::sentence_part(parts)...});
}

// Throws error(code, sentence) unless the condition holds. The sentence is words, or parts as sentence() takes them, or
// a callable that returns it, where a part costs something: it is built only when it is needed.
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

template <class... Parts>
requires(sizeof...(Parts) > 1) void require(bool condition, errc code, Parts const&... parts) {
    if (!condition) [[unlikely]]
        detail::throw_parts(code, {detail::sentence_part(parts)...});
}

}  // namespace calm
