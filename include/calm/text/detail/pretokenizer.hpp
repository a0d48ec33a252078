#pragma once
// Cuts text into pieces (pre-tokens), within which byte pairs merge.

#ifndef PCRE2_CODE_UNIT_WIDTH
// Selects PCRE2's API for bytes.
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "calm/base/detail/utf8.hpp"
#include "calm/base/error.hpp"
#include "calm/text/detail/ascii_pieces.hpp"
#include "calm/text/detail/piece_limit.hpp"
#include "calm/text/detail/piece_syntax.hpp"
#include "calm/text/detail/text_callbacks.hpp"

namespace calm {

// Llama 3's published pattern of a piece. \s means Unicode's White_Space property.
inline constexpr std::string_view piece_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// GPT-2's pattern, implied by a tokenizer.json with ByteLevel alone.
inline constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Qwen 2's pattern.
inline constexpr std::string_view qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// o200k's pattern.
inline constexpr std::string_view o200k_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What the pre-tokenizer Digits isolates: single digits, or runs of them.
inline constexpr std::string_view digit_pattern = R"(\p{N})";
inline constexpr std::string_view number_pattern = R"(\p{N}+)";
// The first of DeepSeek's patterns.
inline constexpr std::string_view three_digits_pattern = R"(\p{N}{1,3})";

// Published patterns. They backtrack over single characters only, so they take linear time, however long a run of
// spaces is.
inline constexpr std::array<std::string_view, 9> linear_patterns{
    piece_pattern, gpt2_pattern, qwen2_pattern, o200k_pattern, digit_pattern, number_pattern, three_digits_pattern,
    // DeepSeek's second and third, the latter with line ends as such
    "[一-龥぀-ゟ゠-ヿ]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
    "\r\n"
    R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
    "\r\n"
    R"(]*|\s*[)"
    "\r\n"
    R"(]+|\s+(?!\S)|\s+)"};

// PCRE2's version of Unicode, e.g. "14.0.0", which decides what \p{L} and \p{N} match. Throws errc::tokenizer if PCRE2
// does not report it.
[[nodiscard]] inline std::string unicode_version() {
    int const size = pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, nullptr);  // including the final zero
    require(size > 0, errc::tokenizer, "expected a PCRE2 that reports its Unicode version, found one that does not");
    std::string text(static_cast<std::size_t>(size), '\0');
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, text.data());
    text.pop_back();
    return text;
}

// A compiled pattern. Immutable, so any number of threads may cut text with one object.
class pretokenizer {
public:
    // Patterns come from untrusted files, so only regular expression syntax with the same meaning everywhere is
    // accepted: alternatives, groups, look-ahead, (?i: ), classes, repetitions, \s, \S, \d, \p, \r, \n, \t and escaped
    // punctuation. Throws errc::tokenizer for anything else, and for a pattern that can match the empty string.
    explicit pretokenizer(std::string_view pattern = piece_pattern) :
        pattern_(pattern),
        is_linear_(std::find(linear_patterns.begin(), linear_patterns.end(), pattern) != linear_patterns.end()),
        ascii_digits_(pattern == piece_pattern   ? 3
                      : pattern == qwen2_pattern ? 1
                                                 : 0),
        only_digits_(pattern == digit_pattern || pattern == number_pattern || pattern == three_digits_pattern) {
        std::string const spelled = detail::spelled_out(pattern);
        int code = 0;
        PCRE2_SIZE offset = 0;
        code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NO_START_OPTIMIZE, &code, &offset,
                                  nullptr));
        require(code_ != nullptr, errc::tokenizer, "PCRE2 does not compile the pattern of pieces (error ", code,
                "): expected a regular expression");
        std::uint32_t nothing = 0;
        pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &nothing);
        require(nothing == 0, errc::tokenizer, "expected a pattern that matches no empty piece, found one that does");
        // Without JIT, matching is slower but correct.
        pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    }

    // The instance for piece_pattern, shared by this process.
    [[nodiscard]] static std::shared_ptr<pretokenizer const> shared() {
        static auto const instance = std::make_shared<pretokenizer const>();
        return instance;
    }

    // The pattern as given.
    [[nodiscard]] std::string const& pattern() const { return pattern_; }

    // Calls `piece` for every piece in order; concatenated, the pieces are the text. Text between two matches is a
    // piece, and so is a run of bytes that are not valid UTF-8. Throws as piece_stream, but accepts pieces of any
    // length.
    void cut(std::string_view text, detail::text_callback piece) const;

private:
    friend class piece_stream;
    struct code_deleter {
        void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    };

    std::string pattern_;
    bool is_linear_;            // one of linear_patterns
    std::size_t ascii_digits_;  // per number, if ascii_piece applies; or 0
    bool only_digits_;          // every match begins with a digit
    std::unique_ptr<pcre2_code, code_deleter> code_;
};

// Cuts text that comes in parts as if it came whole. A pattern outside linear_patterns may backtrack a lot, so the
// steps of all matches of a text together are bounded: a number per byte plus a constant. So a pattern that takes
// linear time always cuts a run of some 10,000 spaces, but perhaps not a longer one.
class piece_stream {
public:
    // The pattern must outlive it.
    explicit piece_stream(pretokenizer const& pattern) :
        pattern_(&pattern), match_(pcre2_match_data_create(1, nullptr)), limits_(pcre2_match_context_create(nullptr)) {
        require(match_ != nullptr && limits_ != nullptr, errc::memory, "no memory to match a pattern");
        pcre2_set_match_limit(limits_.get(), 0xffffffffu);
        if (!pattern.is_linear_) pcre2_set_heap_limit(limits_.get(), 64 << 10);  // KiB
    }

    // Calls `piece` for the pieces that end in the text so far. Throws errc::data for a piece longer than
    // longest_piece, errc::tokenizer for a pattern that takes too many steps, errc::memory if the matcher runs out of
    // memory.
    void push(std::string_view part, detail::text_callback piece) {
        add(part, whole_pieces, [&](std::string_view text, bool) { piece(text); });
    }
    // Cuts the rest at the end of the text; another may then begin. Throws as push.
    void finish(detail::text_callback piece) {
        end([&](std::string_view text, bool) { piece(text); });
        renew();
    }

    // For a pattern that another one follows. As push, but calls `out` as soon as text belongs to a piece. So text
    // without a match is not held.
    void pass(std::string_view part, detail::piece_part_callback out) { add(part, early_pieces, out); }
    // Ends the text of which the last piece is, but not the count of steps. Calls out as pass does.
    void end(detail::piece_part_callback out) {
        cut(held_, true, whole_pieces, out);
        held_.clear();
        enough_ = 0;
        begun_ = false;
    }
    // Begins another text: its steps are counted anew.
    void renew() { steps_ = steps_a_text; }

private:
    friend class pretokenizer;
    struct match_deleter {
        void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
    };
    struct context_deleter {
        void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
    };

    static constexpr std::uint64_t steps_a_byte = std::uint64_t{1} << 13;
    static constexpr std::uint64_t steps_a_text = std::uint64_t{1} << 30;
    static constexpr std::size_t more = ~std::size_t{0};
    static constexpr bool whole_pieces = true;
    static constexpr bool early_pieces = false;

    void add(std::string_view part, bool whole, detail::piece_part_callback out) {
        steps_ += steps_a_byte * part.size();
        if (held_.empty()) {
            hold(part, cut(part, false, whole, out));
        } else if (held_ += part; held_.size() >= enough_) {
            std::string const all = std::move(held_);
            hold(all, cut(all, false, whole, out));
        }
    }

    // Keeps the uncut rest. If nothing was cut, the next attempt waits for twice as much text.
    void hold(std::string_view text, std::size_t done) {
        held_.assign(text.substr(done));
        detail::require_piece(held_.size() > detail::longest_piece && done > 0 ? 0 : held_.size());
        enough_ = done > 0 ? 0 : 2 * held_.size();
    }

    // Cuts off the pieces whose end is certain and, unless they must be `whole`, the text before the next match.
    // Returns where the rest begins. For a text that has ended, that is its end.
    std::size_t cut(std::string_view text, bool ended, bool whole, detail::piece_part_callback out) {
        std::size_t gap = 0;  // the end of the last piece: nothing matches between it and `at`
        auto const end_gap = [&](std::size_t at) {
            if (at > gap || begun_) out(text.substr(gap, at - gap), true);
            begun_ = false;
        };
        auto const rest = [&](std::size_t at) {
            if (whole || at == gap) return gap;
            out(text.substr(gap, at - gap), false);
            begun_ = true;
            return at;
        };
        for (std::size_t at = 0; at < text.size();) {
            std::size_t const valid = at + valid_prefix(text.substr(at));
            std::size_t const end = valid + invalid_prefix(text.substr(valid));
            bool const open = !ended && end == text.size();  // the characters up to `valid` may continue
            while (at < valid) {
                std::size_t const size = match_at(text.substr(at, valid - at), open && !starts_invalid(text, valid));
                if (size == more) return rest(at);
                if (size == 0) {
                    at += first_character(text.substr(at)).size;
                    continue;
                }
                end_gap(at);
                out(text.substr(at, size), true);
                gap = at += size;
            }
            if (open && gap < text.size()) return rest(at);
            end_gap(at);
            if (end > valid) out(text.substr(valid, end - valid), true);
            gap = at = end;
        }
        return gap;
    }
    static bool starts_invalid(std::string_view text, std::size_t at) {
        return at < text.size() && first_character(text.substr(at)).kind == utf8_kind::invalid;
    }

    // The length of the match at the beginning of the text, 0 for none, `more` if it depends on what follows.
    std::size_t match_at(std::string_view text, bool open) {
        if (pattern_->only_digits_) {
            auto const kind = detail::kind_of_byte(text[0]);
            if (kind != detail::byte_kind::digit && kind != detail::byte_kind::beyond_ascii) return 0;
        }
        if (std::size_t const digits = pattern_->ascii_digits_; digits > 0)
            if (std::size_t const size = detail::ascii_piece(text, open, digits); size > 0) return size;
        return pattern_->is_linear_ ? matched(run(text, open)) : match_in_steps(text, open);
    }

    // Matches an untrusted pattern: starts with few characters and little backtracking, then allows more of both. Each
    // backtracking step may scan all characters shown, so the cost is the product.
    std::size_t match_in_steps(std::string_view text, bool open) {
        std::size_t shown = 64;
        for (std::uint32_t back = 64;;) {
            bool const all = shown >= text.size();
            std::size_t size = std::min(shown, text.size());
            while (!all && (static_cast<std::uint8_t>(text[size]) & 0xc0) == 0x80) --size;
            std::uint64_t const cost = std::uint64_t{back} * size;
            if (cost > steps_) refuse_pattern();
            steps_ -= cost;
            pcre2_set_match_limit(limits_.get(), back);
            int const code = run(text.substr(0, size), open || !all);
            if (code == PCRE2_ERROR_PARTIAL && !all) {
                shown *= 4;
            } else if (code == PCRE2_ERROR_MATCHLIMIT) {
                back *= 4;  // the steps are used up long before this overflows
            } else if (code == PCRE2_ERROR_HEAPLIMIT || code == PCRE2_ERROR_DEPTHLIMIT) {
                refuse_pattern();
            } else {
                return matched(code);
            }
        }
    }
    [[noreturn, gnu::cold]] static void refuse_pattern() {
        throw error(errc::tokenizer, "the pattern of pieces tries too many ways to match this text: expected one whose "
                                     "time is proportional to the length of the text, as in published tokenizers");
    }

    // PCRE2's return code.
    int run(std::string_view text, bool open) {
        auto const* const at = reinterpret_cast<PCRE2_SPTR>(text.data());
        std::uint32_t const partial = open ? PCRE2_PARTIAL_HARD : 0;
        auto const* const code = pattern_->code_.get();
        int const found = pcre2_jit_match(code, at, text.size(), 0, partial, match_.get(), limits_.get());
        if (found != PCRE2_ERROR_JIT_STACKLIMIT && found != PCRE2_ERROR_JIT_BADOPTION) return found;
        // The interpreter allocates its stack on the heap.
        return pcre2_match(code, at, text.size(), 0, partial | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match_.get(),
                           limits_.get());
    }
    std::size_t matched(int code) const {
        if (code == PCRE2_ERROR_PARTIAL) return more;
        if (code == PCRE2_ERROR_NOMATCH) return 0;
        require(code >= 0, errc::memory, "PCRE2 could not match a piece of text (error ", code, ")");
        return pcre2_get_ovector_pointer(match_.get())[1];
    }

    pretokenizer const* pattern_;
    std::unique_ptr<pcre2_match_data, match_deleter> match_;
    std::unique_ptr<pcre2_match_context, context_deleter> limits_;
    std::string held_;
    std::size_t enough_ = 0;  // bytes of held_ that justify another attempt
    bool begun_ = false;      // whether out() has the beginning of a piece
    std::uint64_t steps_ = steps_a_text;
};

inline void pretokenizer::cut(std::string_view text, detail::text_callback piece) const {
    piece_stream whole(*this);
    whole.steps_ += piece_stream::steps_a_byte * text.size();
    whole.cut(text, true, piece_stream::whole_pieces, [&](std::string_view one, bool) { piece(one); });
}

}  // namespace calm
