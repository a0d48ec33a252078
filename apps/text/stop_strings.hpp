#pragma once
// Strings that end a generated text.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/sample/generate.hpp"
#include "calm/text/tokenizer.hpp"

namespace calm::apps {

// A text ends at the first byte with which it contains one of the strings; of several that end with this byte the
// longest counts. The end therefore does not depend on tokens and patches.
class stop_strings {
public:
    // Requires that no string is empty.
    explicit stop_strings(std::vector<std::string> const& strings = {});

private:
    friend class stopped_text;
    friend class stop_watch;
    // A string with its failure function (Knuth, Morris and Pratt).
    struct pattern {
        std::string text;
        std::vector<std::size_t> shorter;  // after n + 1 matched bytes: the next longest prefix that also matches
    };
    std::vector<pattern> patterns_;
};

// A text that grows up to a stop string.
class stopped_text {
public:
    // Starts empty; keeps a reference.
    explicit stopped_text(stop_strings const& strings) :
        strings_(&strings), matched_(strings.patterns_.size(), std::size_t{0}) {}

    // Adds bytes; returns those that certainly belong to the text, also of earlier calls. Holds back the bytes that may
    // begin a stop string. After the end, returns nothing.
    [[nodiscard]] std::string push(std::string_view bytes);
    // The bytes held back, which belong to a text that has not ended.
    [[nodiscard]] std::string flush();
    // The stop string that ended the text, or null.
    [[nodiscard]] std::string const* stop() const { return stop_; }

private:
    // Adds a byte to the matches; returns the longest string that it completes, or null.
    std::string const* completed_by(char byte);

    stop_strings const* strings_;
    std::vector<std::size_t> matched_;  // per string: how many of its bytes the text ends with
    std::string held_;
    std::string const* stop_ = nullptr;
};

// Watches texts while they are generated.
class stop_watch {
public:
    // For this many texts; keeps references.
    stop_watch(stop_strings const& strings, tokenizer const& tokenizer, std::size_t texts) :
        tokenizer_(tokenizer), texts_(strings.patterns_.empty() ? 0 : texts, stopped_text(strings)) {}
    // Adds new tokens to a text; false once it has ended.
    [[nodiscard]] bool continues(std::size_t text, std::span<token_id const> fresh);

private:
    tokenizer const& tokenizer_;
    std::vector<stopped_text> texts_;  // none if no string can end them
};

// A generated text as users see it.
struct shown_text {
    std::string text;                   // without the stop string
    std::string const* stop = nullptr;  // of `strings`, or null
};
// Drops the tokens after the one that completes a stop string. The text then ended at that string and not at EOS.
shown_text end_at_stop(generation_result& made, tokenizer const& tokenizer, stop_strings const& strings);

}  // namespace calm::apps
