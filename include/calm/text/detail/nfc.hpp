#pragma once
// Unicode's normalization form C (NFC), by ICU: CALM_ICU says that the program links it.

#ifdef CALM_ICU
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>
#include <unicode/uversion.h>
#endif

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "calm/base/detail/utf8.hpp"
#include "calm/base/error.hpp"
#include "calm/text/detail/piece_limit.hpp"
#include "calm/text/detail/text_callbacks.hpp"

namespace calm::detail {

#ifdef CALM_ICU
inline constexpr bool has_nfc = true;

// Throws errc::tokenizer if ICU finds no data.
inline icu::Normalizer2 const& nfc() {
    UErrorCode code = U_ZERO_ERROR;
    auto const* const instance = icu::Normalizer2::getNFCInstance(code);
    require(U_SUCCESS(code), errc::tokenizer, "ICU has no data for NFC (", u_errorName(code), ")");
    return *instance;
}

// ICU's version of Unicode, e.g. "14.0", which decides what composes.
inline std::string nfc_unicode_version() {
    UVersionInfo version{};
    u_getUnicodeVersion(version);
    char text[U_MAX_VERSION_STRING_LENGTH];
    u_versionToString(version, text);
    return text;
}

// The NFC of valid UTF-8 of less than 2 GiB, which ICU's lengths can count.
inline std::string nfc_of(std::string_view text) {
    std::string out;
    icu::StringByteSink<std::string> sink(&out);
    UErrorCode code = U_ZERO_ERROR;
    nfc().normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())), sink, nullptr, code);
    require(U_SUCCESS(code), errc::memory, "ICU could not normalize a text (", u_errorName(code), ")");
    return out;
}

// Whether the first character of a text, a valid one, composes with no character before it.
inline bool begins_nfc(std::string_view text) {
    UChar32 c = 0;
    std::size_t at = 0;
    U8_NEXT_UNSAFE(text.data(), at, c);
    return nfc().hasBoundaryBefore(c) != 0;
}
#else
inline constexpr bool has_nfc = false;
inline std::string nfc_unicode_version() {
    return {};
}
inline std::string nfc_of(std::string_view) {
    throw error(errc::tokenizer, "NFC needs ICU: install libicu-dev and build again with CALM_ICU");
}
inline bool begins_nfc(std::string_view) {
    return true;
}
#endif

// Normalizes text that comes in parts as if it came whole. Bytes that are not valid UTF-8 stay as they are.
class nfc_stream {
public:
    // Calls `out` for normalized text up to the last character that a following one cannot change.
    // Throws errc::data for a longer run of combining characters than longest_piece, errc::tokenizer without ICU.
    void push(std::string_view part, text_callback out) {
        held_ += part;
        std::size_t const ready = last_boundary(held_);
        require_piece(held_.size() - ready > longest_piece ? held_.size() - ready : 0);
        std::string const all = std::move(held_);
        held_ = all.substr(ready);
        normalize(std::string_view(all).substr(0, ready), out);
    }
    // Calls `out` for the rest; another text may then begin. Throws as push.
    void finish(text_callback out) {
        std::string const all = std::move(held_);
        held_.clear();
        normalize(all, out);
    }

private:
    // Where the last character begins that composes with none before it; 0 if there is none.
    static std::size_t last_boundary(std::string_view text) {
        for (std::size_t at = text.size(); at > 0;) {
            --at;
            while (at > 0 && (static_cast<std::uint8_t>(text[at]) & 0xc0) == 0x80) --at;
            auto const head = first_character(text.substr(at));
            if (head.kind == utf8_kind::invalid) return at;
            if (head.kind == utf8_kind::character && begins_nfc(text.substr(at))) return at;
        }
        return 0;
    }

    // Bytes that ICU gets at a time, far below the 2 GiB that it can count.
    static constexpr std::size_t portion = std::size_t{16} << 20;
    static_assert(portion > longest_piece);

    static void normalize(std::string_view text, text_callback out) {
        while (!text.empty()) {
            std::size_t const valid = valid_prefix(text);
            for (std::string_view rest = text.substr(0, valid); !rest.empty();) {
                std::size_t const size = rest.size() <= portion ? rest.size() : last_boundary(rest.substr(0, portion));
                require_piece(size > 0 ? 0 : portion);
                out(nfc_of(rest.substr(0, size)));
                rest.remove_prefix(size);
            }
            text.remove_prefix(valid);
            std::size_t const invalid = invalid_prefix(text);
            if (invalid > 0) out(text.substr(0, invalid));
            text.remove_prefix(invalid);
        }
    }

    std::string held_;
};

}  // namespace calm::detail
