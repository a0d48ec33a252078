#pragma once
/// \file
/// Strings that end a generated text.
/// \shows{tests/sample/stop_strings_test.cpp,tokens_after_a_stop_string_are_dropped}

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/sample/generation_settings.hpp"
#include "calm/text/detail/utf8_stream.hpp"

namespace calm {

/// A text ends at the first byte with which it contains one of the strings; of several that end with this byte the
/// longest counts. The end therefore does not depend on tokens and patches.
class stop_strings {
public:
    /// Throws errc::usage if a string is empty.
    explicit stop_strings(std::vector<std::string> const& strings = {}) {
        for (auto const& text : strings) {
            require(!text.empty(), errc::usage, "a stop string is empty: expected at least one character");
            pattern one{text, {0}};
            for (std::size_t at = 1; at < text.size(); ++at)
                one.shorter.push_back(matched_after(text, one.shorter, one.shorter.back(), text[at]));
            patterns_.push_back(std::move(one));
        }
    }

private:
    friend class stopped_text;
    template <class Vocabulary> friend class stop_watch;
    // A string with its failure function (Knuth, Morris and Pratt).
    struct pattern {
        std::string text;
        std::vector<std::size_t> shorter;  // after n + 1 matched bytes: the next longest prefix that also matches
    };
    // How many bytes of a string match after one more byte, if `matched` (not all) matched before it.
    static std::size_t matched_after(std::string const& text, std::span<std::size_t const> shorter, std::size_t matched,
                                     char byte) {
        while (matched > 0 && text[matched] != byte) matched = shorter[matched - 1];
        return matched + (text[matched] == byte ? 1 : 0);
    }
    std::vector<pattern> patterns_;
};

/// A text that grows in whole characters up to a stop string.
class stopped_text {
public:
    /// Starts empty; keeps a reference.
    explicit stopped_text(stop_strings const& strings) :
        strings_(&strings), matched_(strings.patterns_.size(), std::size_t{0}) {}

    /// Adds bytes; returns the characters that certainly belong to the text, also of earlier calls. Holds back the
    /// bytes that may begin a stop string, and those of an unfinished character. After the end, returns nothing.
    [[nodiscard]] std::string push(std::string_view bytes) { return characters_.push(certain(bytes)); }
    /// The bytes held back, which belong to a text that has not ended.
    [[nodiscard]] std::string flush() {
        auto rest = characters_.push(std::exchange(held_, {}));
        return rest += characters_.flush();
    }
    /// The stop string that ended the text, or null.
    [[nodiscard]] std::string const* stop() const { return stop_; }

private:
    // Adds bytes; returns those that no stop string can begin with, also of earlier calls.
    std::string certain(std::string_view bytes) {
        if (stop_ != nullptr) return {};
        for (char const byte : bytes) {
            held_ += byte;
            stop_ = completed_by(byte);
            if (stop_ == nullptr) continue;
            held_.resize(held_.size() - stop_->size());
            return std::exchange(held_, {});
        }
        std::size_t const kept = matched_.empty() ? 0 : *std::max_element(matched_.begin(), matched_.end());
        auto const size = held_.size() - kept;
        std::string text = held_.substr(0, size);
        held_.erase(0, size);
        return text;
    }
    // Adds a byte to the matches; returns the longest string that it completes, or null.
    std::string const* completed_by(char byte) {
        std::string const* longest = nullptr;
        for (std::size_t i = 0; i < matched_.size(); ++i) {
            auto const& [text, shorter] = strings_->patterns_[i];
            matched_[i] = stop_strings::matched_after(text, shorter, matched_[i], byte);
            if (matched_[i] == text.size() && (longest == nullptr || longest->size() < text.size())) longest = &text;
        }
        return longest;
    }

    stop_strings const* strings_;
    std::vector<std::size_t> matched_;  // per string: how many of its bytes the text ends with
    std::string held_;
    utf8_stream characters_;
    std::string const* stop_ = nullptr;
};

/// Watches texts while they are generated. The vocabulary, a tokenizer, gives the bytes of each token.
template <class Vocabulary> class stop_watch {
public:
    /// For this many texts; keeps references.
    stop_watch(stop_strings const& strings, Vocabulary const& vocabulary, std::size_t texts) :
        vocabulary_(vocabulary), texts_(strings.patterns_.empty() ? 0 : texts, stopped_text(strings)) {}
    /// Adds new tokens to a text; false once it has ended.
    [[nodiscard]] bool continues(std::size_t text, std::span<token_id const> fresh) {
        if (texts_.empty()) return true;
        for (token_id const id : fresh) static_cast<void>(texts_[text].push(vocabulary_.bytes(id)));
        return texts_[text].stop() == nullptr;
    }

private:
    Vocabulary const& vocabulary_;
    std::vector<stopped_text> texts_;  // none if no string can end them
};

/// A generated text as users see it.
struct shown_text {
    std::string text;                   ///< without the stop string
    std::string const* stop = nullptr;  ///< of the stop strings, or null
};
/// Drops the tokens after the one that completes a stop string. The text then ended at that string and not at EOS.
template <class Vocabulary>
shown_text end_at_stop(generation_result& made, Vocabulary const& vocabulary, stop_strings const& strings) {
    stopped_text text(strings);
    shown_text shown;
    for (std::size_t i = 0; i < made.tokens.size(); ++i) {
        shown.text += text.push(vocabulary.bytes(made.tokens[i]));
        if (text.stop() == nullptr) continue;
        made.tokens.resize(i + 1);
        made.stopped_at_eos = false;
        break;
    }
    shown.text += text.flush();
    shown.stop = text.stop();
    return shown;
}

}  // namespace calm
