#pragma once
// Tokens that text matches before it is cut into pieces: the added tokens of a tokenizer.json that are not special.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/token.hpp"
#include "calm/text/detail/text_callbacks.hpp"

namespace calm {

// A token by the text that it matches.
struct added_token {
    std::string text;
    token_id id;  // -1: a special token. Its text hides the tokens inside it, but stays text
};

// A set of such tokens. In a text the leftmost one matches, of those that begin there the longest.
class added_tokens {
public:
    // Adds a non-empty token.
    void add(std::string text, token_id id) {
        begins_[static_cast<std::uint8_t>(text.front())] = true;
        auto const shorter = [&](added_token const& other) { return other.text.size() < text.size(); };
        auto const place = std::find_if(all_.begin(), all_.end(), shorter);
        all_.insert(place, {std::move(text), id});
    }
    // All tokens, the longest first.
    [[nodiscard]] std::span<added_token const> all() const { return all_; }

private:
    friend class added_token_stream;

    // The token at the beginning of a text.
    struct match {
        std::size_t size = 0;    // 0: none
        token_id id = -1;        // -1: it stays text
        bool undecided = false;  // whether the answer depends on the text that follows
    };

    [[nodiscard]] match at_beginning(std::string_view text, bool open) const {
        if (!begins_[static_cast<std::uint8_t>(text.front())]) return {};
        for (added_token const& one : all_) {
            if (text.starts_with(one.text)) return {.size = one.text.size(), .id = one.id};
            if (open && std::string_view(one.text).starts_with(text)) return {.undecided = true};
        }
        return {};
    }

    std::vector<added_token> all_;
    std::array<bool, 256> begins_{};  // whether a token begins with a byte
};

// Finds the tokens of a set in text that comes in parts as if it came whole.
class added_token_stream {
public:
    // The set must outlive it.
    explicit added_token_stream(added_tokens const& tokens) : tokens_(&tokens) {}

    // Calls `text` and `token` in order for what the parts so far determine. If the text `ends` with this part, for all
    // of it; another text may then begin.
    void push(std::string_view part, bool ends, detail::text_callback text, detail::added_token_callback token) {
        if (tokens_->all().empty()) {
            if (!part.empty()) text(part);
            return;
        }
        held_ += part;
        std::string const all = std::move(held_);
        held_ = all.substr(scan(all, !ends, text, token));
    }

private:
    // Returns where the undecided rest begins.
    std::size_t scan(std::string_view all, bool open, detail::text_callback text,
                     detail::added_token_callback token) const {
        std::size_t begin = 0;  // of the text since the last token
        std::size_t at = 0;
        while (at < all.size()) {
            auto const found = tokens_->at_beginning(all.substr(at), open);
            if (found.undecided) break;
            if (found.id >= 0) {
                if (at > begin) text(all.substr(begin, at - begin));
                token(found.id);
                begin = at + found.size;
            }
            at += std::max<std::size_t>(1, found.size);
        }
        if (at > begin) text(all.substr(begin, at - begin));
        return at;
    }

    added_tokens const* tokens_;
    std::string held_;
};

}  // namespace calm
