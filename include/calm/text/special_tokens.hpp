#pragma once

#include "calm/text/token.hpp"

namespace calm {

// The tokens that stand for no text: begin and end of a document, and padding (spec 2). A vocabulary of symbols has
// none: all are -1, which no token is.
struct special_tokens {
    token_id bos;
    token_id eos;
    token_id pad;
    [[nodiscard]] bool exist() const { return bos >= 0; }
    friend bool operator==(special_tokens const&, special_tokens const&) = default;
};

}  // namespace calm
