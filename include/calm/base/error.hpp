#pragma once
/// \file
/// The exception type of the library. Its message names the expected state, the state found, and the remedy. The
/// library prints nothing.
/// \shows{tests/base/error_test.cpp,requirements_are_checked_and_reported}

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "calm/base/quoted.hpp"

namespace calm {

/// The category of an error, also the exit status of a program.
enum class errc : int {
    usage = 2,        ///< invalid call, option or shape
    config = 3,       ///< invalid or mismatching configuration
    data = 4,         ///< text or corpora
    model_file = 5,   ///< weights, config.json
    tokenizer = 6,    ///< tokenizer files, ids out of range
    memory = 7,       ///< out of memory
    non_finite = 8,   ///< unexpected NaN or infinity
    distributed = 9,  ///< another process failed, or takes part with other options
    storage = 10,     ///< reading, writing, renaming
    device = 11,      ///< a missing or failing GPU, a CPU without required instructions
};

namespace detail {

[[gnu::cold, gnu::noinline]] inline std::string shown_place(std::string const& path, std::string const& place) {
    return printable_line(path) + (place.empty() ? "" : ", " + printable_line(place)) + ": ";
}

[[gnu::cold, gnu::noinline]] inline std::string shown_lines(std::string const& sentence,
                                                            std::span<std::string const> more) {
    constexpr std::size_t most = 100;
    auto text = printable_line(sentence);
    for (auto const& line : more.first(std::min(more.size(), most))) (text += '\n') += printable_line(line);
    if (more.size() > most) text += "\n... and " + std::to_string(more.size() - most) + " lines more";
    return text;
}

}  // namespace detail

/// An error with a code and a message. If a file is to blame, it also has its path and the place in it ("line 3", "byte
/// 17"). Its what() is safe to print to a terminal: every line is a printable_line(). Further lines come only from
/// `more`, at most 100.
class error : public std::runtime_error {
public:
    /// An error that no file is to blame for.
    error(errc code, std::string const& sentence, std::span<std::string const> more = {}) :
        std::runtime_error(detail::shown_lines(sentence, more)), code_(code) {}
    /// what() is "path, place: message"; `place` may be empty.
    error(errc code, std::string path, std::string place, std::string const& sentence,
          std::span<std::string const> more = {}) :
        std::runtime_error(detail::shown_place(path, place) + detail::shown_lines(sentence, more)),
        code_(code), reason_at_(detail::shown_place(path, place).size()), path_(std::move(path)),
        place_(std::move(place)) {}

    [[nodiscard]] errc code() const noexcept { return code_; }  ///< also the exit status of a program
    /// Unescaped, not for a terminal; empty if no file is to blame.
    [[nodiscard]] std::string const& path() const noexcept { return path_; }
    /// The place in the file, unescaped; may be empty.
    [[nodiscard]] std::string const& place() const noexcept { return place_; }
    /// what() without path and place.
    [[nodiscard]] char const* reason() const noexcept { return what() + reason_at_; }

private:
    errc code_;
    std::size_t reason_at_ = 0;
    std::string path_;
    std::string place_;
};

namespace detail {

// A part of a message: a number, or a reference to text or to a value that to_string() takes. It fits two registers,
// because every check holds some; the text is built only when the check fails.
class sentence_part {
    union content {
        void const* address;
        std::int64_t integer;
        std::uint64_t natural;
        double real;
    };
    using appender = void (*)(std::string&, content);

public:
    sentence_part(char const* words) :
        content_{.address = words},
        append_([](std::string& text, content c) { text += static_cast<char const*>(c.address); }) {}
    template <std::signed_integral T>
    requires(sizeof(T) > 1) sentence_part(T number) :
        content_{.integer = number}, append_([](std::string& text, content c) { text += std::to_string(c.integer); }) {}
    template <std::unsigned_integral T>
    requires(sizeof(T) > 1) sentence_part(T number) :
        content_{.natural = number}, append_([](std::string& text, content c) { text += std::to_string(c.natural); }) {}
    sentence_part(double number) :
        content_{.real = number}, append_([](std::string& text, content c) { text += std::to_string(c.real); }) {}
    template <class T>
    requires std::convertible_to<T const&, std::string_view> sentence_part(T const& words) :
        content_{.address = &words}, append_([](std::string& text, content c) {
            text += static_cast<std::string_view>(*static_cast<T const*>(c.address));
        }) {}
    template <class T>
    requires requires(T const& t) {
        { to_string(t) } -> std::same_as<std::string>;
    }
    sentence_part(T const& value) :
        content_{.address = &value},
        append_([](std::string& text, content c) { text += to_string(*static_cast<T const*>(c.address)); }) {}

    void append_to(std::string& text) const { append_(text, content_); }

private:
    content content_;
    appender append_;
};

[[gnu::cold, gnu::noinline]] inline std::string joined(std::initializer_list<sentence_part> parts) {
    std::string text;
    for (auto const& part : parts) part.append_to(text);
    return text;
}

[[noreturn, gnu::cold, gnu::noinline]] inline void throw_parts(errc code, std::initializer_list<sentence_part> parts) {
    throw error(code, joined(parts));
}

// Out of line and compiled for size: the code that builds a message is longer than the code that runs.
template <class Sentence> [[noreturn, gnu::cold, gnu::noinline]] void throw_error(errc code, Sentence const& sentence) {
    if constexpr (std::is_invocable_v<Sentence const&>)
        throw error(code, sentence());
    else
        throw error(code, sentence);
}
}  // namespace detail

/// Joins the parts (text, numbers, values that to_string() takes) into one text. Generates a fraction of the code of a
/// sequence of +.
template <class... Parts> std::string sentence(Parts const&... parts) {
    return detail::joined({detail::sentence_part(parts)...});
}

/// Throws error(code, sentence) unless the condition holds. The message is text, parts as sentence() takes them, or a
/// callable that returns it if a part must be computed. It is built only on failure.
inline void require(bool condition, errc code, char const* sentence) {
    if (!condition) [[unlikely]]
        detail::throw_error(code, sentence);
}
/// Overload for a callable that returns the message.
template <class Sentence>
requires std::is_invocable_r_v<std::string, Sentence>
void require(bool condition, errc code, Sentence&& sentence) {
    if (!condition) [[unlikely]]
        detail::throw_error(code, sentence);
}

/// Overload for the parts of the message.
template <class... Parts>
requires(sizeof...(Parts) > 1) void require(bool condition, errc code, Parts const&... parts) {
    if (!condition) [[unlikely]]
        detail::throw_parts(code, {detail::sentence_part(parts)...});
}

}  // namespace calm
