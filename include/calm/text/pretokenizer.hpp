#pragma once
// Cutting text into the pieces inside which byte pairs merge.

#ifndef PCRE2_CODE_UNIT_WIDTH
// PCRE2's functions for bytes.
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "calm/tensor/error.hpp"
#include "calm/tensor/utf8.hpp"

namespace calm {

// Llama 3's pattern of a piece, as published. \s means Unicode's White_Space property.
inline constexpr std::string_view piece_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// GPT-2's, which a tokenizer.json means by ByteLevel alone.
inline constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The version of Unicode whose tables decide what \p{L} and \p{N} match, "14.0.0": PCRE2's own. Throws errc::tokenizer
// where it does not tell.
[[nodiscard]] inline std::string unicode_version() {
    int const size = pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, nullptr);  // with the zero at the end
    require(size > 0, errc::tokenizer, "expected a PCRE2 that tells its version of Unicode, found another one");
    std::string text(static_cast<std::size_t>(size), '\0');
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, text.data());
    text.pop_back();
    return text;
}

// A pattern, compiled once. Immutable, so any number of threads may cut text with one object.
class pretokenizer {
public:
    // Patterns come from files: of the regular expressions' language only what means the same everywhere is taken, that
    // is alternatives, groups, look-ahead, (?i: ), classes, repetitions, \s, \S, \d, \p, \r, \n, \t and escaped signs.
    // Throws errc::tokenizer for another, and for one that may match nothing.
    explicit pretokenizer(std::string_view pattern = piece_pattern) : pattern_(pattern) {
        std::string const spelled = spelled_out(pattern);
        int code = 0;
        PCRE2_SIZE offset = 0;
        code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(), PCRE2_UTF | PCRE2_UCP,
                                  &code, &offset, nullptr));
        require(code_ != nullptr, errc::tokenizer, "PCRE2 does not compile the pattern of pieces (error ", code,
                "): expected a regular expression");
        std::uint32_t nothing = 0;
        pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &nothing);
        require(nothing == 0, errc::tokenizer, "expected a pattern whose pieces have characters, found one of none");
        pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // without JIT it is slower, not wrong
        limits_.reset(pcre2_match_context_create(nullptr));
        require(limits_ != nullptr, errc::memory, "no memory to match a pattern");
        // These go back over single characters only: in proportion to the text, however long a run of spaces is.
        if (pattern == piece_pattern || pattern == gpt2_pattern) pcre2_set_match_limit(limits_.get(), 0xffffffffu);
    }

    // The one of piece_pattern in this process.
    [[nodiscard]] static std::shared_ptr<pretokenizer const> shared() {
        static auto const instance = std::make_shared<pretokenizer const>();
        return instance;
    }

    // As it was given.
    [[nodiscard]] std::string const& pattern() const { return pattern_; }

    // Calls piece(std::string_view) for every piece, in order; the pieces concatenated are the text. What lies between
    // two matches is a piece, and so is a run of bytes that are no valid UTF-8. Throws errc::memory if the matcher runs
    // out of it, or of patience with a pattern that is neither of those above.
    void cut(std::string_view text, std::function<void(std::string_view)> const& piece) const {
        std::unique_ptr<pcre2_match_data, match_deleter> const match(pcre2_match_data_create(1, nullptr));
        require(match != nullptr, errc::memory, "no memory to match a pattern");
        while (!text.empty()) {
            std::size_t const valid = valid_prefix(text);
            for (std::size_t at = 0; at < valid;) {
                span const found = match_from(text.substr(0, valid), at, match.get());
                if (found.begin > at) piece(text.substr(at, found.begin - at));
                if (found.end > found.begin) piece(text.substr(found.begin, found.end - found.begin));
                at = found.end;
            }
            std::size_t const invalid = invalid_prefix(text.substr(valid));
            if (invalid > 0) piece(text.substr(valid, invalid));
            text.remove_prefix(valid + invalid);
        }
    }

private:
    struct span {
        std::size_t begin;
        std::size_t end;
    };
    struct code_deleter {
        void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    };
    struct match_deleter {
        void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
    };
    struct context_deleter {
        void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
    };

    // The pattern with \s and \S spelled out, since PCRE2's own \s differs from White_Space. Refuses what other regular
    // expressions understand otherwise or not at all.
    static std::string spelled_out(std::string_view pattern) {
        std::string const space =
            R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
        auto const refuse = [](std::string_view what) {
            throw error(errc::tokenizer, "\"" + std::string(what) +
                                             "\" in the pattern of pieces is not understood: expected alternatives, "
                                             "groups, classes, \\s, \\S, \\d, \\p{..} and repetitions");
        };
        require(pattern.size() <= 4096, errc::tokenizer, "expected a pattern of pieces of at most 4096 bytes");
        require(valid_prefix(pattern) == pattern.size(), errc::tokenizer, "the pattern of pieces is no valid UTF-8");
        std::string out;
        bool in_class = false;
        for (std::size_t i = 0; i < pattern.size(); ++i) {
            char const c = pattern[i];
            std::string_view const rest = pattern.substr(i);
            if (c == '\\') {
                char const escaped = rest.size() > 1 ? rest[1] : 'z';
                bool const letter = (escaped >= 'a' && escaped <= 'z') || (escaped >= 'A' && escaped <= 'Z');
                bool const digit = escaped >= '0' && escaped <= '9';
                bool const known = std::string_view("sSdpPrnt").find(escaped) != std::string_view::npos;
                bool const ascii = static_cast<std::uint8_t>(escaped) < 0x80;
                if (digit || !ascii || (letter && !known) || (escaped == 'S' && in_class)) refuse(rest.substr(0, 2));
                ++i;
                if (rest.starts_with("\\p{") || rest.starts_with("\\P{")) {
                    std::string_view const property = rest.substr(0, rest.find('}') + 1);
                    if (property.empty()) refuse(rest.substr(0, 3));
                    out += property;
                    i += property.size() - 2;
                } else if (escaped != 's' && escaped != 'S') {
                    out += rest.substr(0, 2);
                } else {
                    out += in_class ? space : (escaped == 'S' ? "[^" : "[") + space + "]";
                }
                continue;
            }
            if (in_class) {
                if (c == '[' || rest.starts_with("&&")) refuse(rest.substr(0, 2));
                in_class = c != ']';
            } else if (c == '[') {
                in_class = true;
                if (rest.starts_with("[]") || rest.starts_with("[^]")) refuse(rest.substr(0, 3));
            } else if (c == '^' || c == '$' || c == '.' || rest.starts_with("(*") || rest.starts_with("}+")) {
                refuse(rest.substr(0, 2));
            } else if (rest.starts_with("(?") && !rest.starts_with("(?:") && !rest.starts_with("(?i:") &&
                       !rest.starts_with("(?=") && !rest.starts_with("(?!")) {
                refuse(rest.substr(0, 4));
            }
            out += c;
        }
        return out;
    }

    // The first match that begins at `at` or later; none is an empty one at the end.
    span match_from(std::string_view text, std::size_t at, pcre2_match_data* match) const {
        auto const run = [&](std::uint32_t options) {
            return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, options, match,
                               limits_.get());
        };
        int code = run(PCRE2_NO_UTF_CHECK);
        if (code == PCRE2_ERROR_NOMATCH) return {text.size(), text.size()};
        if (code < 0) code = run(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);  // the interpreter takes its stack from the heap
        require(code >= 0, errc::memory, "PCRE2 could not match a piece of text (error ", code, ")");
        auto const* const ends = pcre2_get_ovector_pointer(match);
        return {ends[0], ends[1]};
    }

    std::string pattern_;
    std::unique_ptr<pcre2_code, code_deleter> code_;
    std::unique_ptr<pcre2_match_context, context_deleter> limits_;
};

}  // namespace calm
