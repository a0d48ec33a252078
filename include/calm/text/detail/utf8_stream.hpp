#pragma once
// Prints tokens as they come without splitting a character.

#include <string>
#include <string_view>

#include "calm/base/detail/utf8.hpp"

namespace calm {

// Collects the bytes of tokens and returns text that ends with a complete character. Output equals input: bytes that
// are not UTF-8 pass unchanged as soon as they can no longer become a character.
class utf8_stream {
public:
    // Adds bytes; returns what can be printed now. Holds back at most three bytes.
    [[nodiscard]] std::string push(std::string_view bytes) {
        pending_ += bytes;
        std::string_view const all = pending_;
        std::size_t at = 0;
        while (at < all.size()) {
            utf8_head const head = first_character(all.substr(at));
            if (head.kind == utf8_kind::prefix) break;
            at += head.size;
        }
        std::string complete = pending_.substr(0, at);
        pending_.erase(0, at);
        return complete;
    }

    // Returns the bytes of an unfinished character, and resets.
    [[nodiscard]] std::string flush() {
        std::string rest;
        rest.swap(pending_);
        return rest;
    }

private:
    std::string pending_;
};

}  // namespace calm
