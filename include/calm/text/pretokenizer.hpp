#pragma once
// Cutting text into the pieces inside which byte pairs merge.

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "calm/tensor/error.hpp"
#include "calm/text/utf8.hpp"

namespace calm {

// Llama 3's pattern of a piece, as published (spec 2). \s means Unicode's White_Space property.
inline constexpr std::string_view piece_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The pattern, compiled once. Immutable, so any number of threads may cut text with one object.
class pretokenizer {
public:
    pretokenizer() {
        std::string const pattern = spelled_out();
        int code = 0;
        PCRE2_SIZE offset = 0;
        code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_UTF | PCRE2_ANCHORED, &code, &offset, nullptr));
        require(code_ != nullptr, errc::tokenizer, [&] {
            return "PCRE2 does not compile the pattern of pieces (error " + std::to_string(code) + " at " +
                   std::to_string(offset) + "): a PCRE2 with Unicode support, 10.30 or newer, is needed";
        });
        pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // without JIT it is slower, not wrong
    }

    // The one compiled pattern of the process.
    [[nodiscard]] static std::shared_ptr<pretokenizer const> shared() {
        static auto const instance = std::make_shared<pretokenizer const>();
        return instance;
    }

    // Calls piece(std::string_view) for every piece, in order; the pieces concatenated are the text. Bytes that are no
    // valid UTF-8 form pieces of their own. Throws errc::memory if the matcher runs out of it.
    template <class Piece> void cut(std::string_view text, Piece&& piece) const {
        std::unique_ptr<pcre2_match_data, match_deleter> const match(pcre2_match_data_create(1, nullptr));
        require(match != nullptr, errc::memory, "no memory to match a pattern");
        while (!text.empty()) {
            std::size_t const valid = valid_prefix(text);
            for (std::size_t at = 0; at < valid;) {
                std::size_t const end = match_at(text.substr(0, valid), at, match.get());
                piece(text.substr(at, end - at));
                at = end;
            }
            std::size_t const invalid = invalid_prefix(text.substr(valid));
            if (invalid > 0) piece(text.substr(valid, invalid));
            text.remove_prefix(valid + invalid);
        }
    }

private:
    struct code_deleter {
        void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    };
    struct match_deleter {
        void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
    };

    // The published pattern with \s and \S spelled out: PCRE2's own \s differs from White_Space.
    static std::string spelled_out() {
        std::string const space =
            R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
        std::string out;
        bool in_class = false;
        for (std::size_t i = 0; i < piece_pattern.size(); ++i) {
            char const c = piece_pattern[i];
            if (c == '[') in_class = true;
            if (c == ']') in_class = false;
            if (c != '\\' || (piece_pattern[i + 1] != 's' && piece_pattern[i + 1] != 'S')) {
                out += c;
                continue;
            }
            bool const negated = piece_pattern[++i] == 'S';
            out += in_class ? space : (negated ? "[^" : "[") + space + "]";
        }
        return out;
    }

    // The end of the piece that starts at `at`.
    std::size_t match_at(std::string_view text, std::size_t at, pcre2_match_data* match) const {
        auto const run = [&](std::uint32_t options) {
            return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, options, match,
                               nullptr);
        };
        int code = run(PCRE2_NO_UTF_CHECK);
        if (code < 0) code = run(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);  // the interpreter takes its stack from the heap
        require(code >= 0, errc::memory,
                [&] { return "PCRE2 could not match a piece of text (error " + std::to_string(code) + ")"; });
        return pcre2_get_ovector_pointer(match)[1];
    }

    std::unique_ptr<pcre2_code, code_deleter> code_;
};

}  // namespace calm
