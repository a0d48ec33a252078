#pragma once

#include "calm/base/token.hpp"

namespace calm {

// The tokens that stand for no text: begin and end of a document, and padding. A vocabulary of symbols has none: all
// are -1, which no token is.
struct special_tokens {
    token_id bos;                                          // begins a document
    token_id eos;                                          // ends one
    token_id pad;                                          // fills patches up
    [[nodiscard]] bool exist() const { return bos >= 0; }  // whether there are any
    friend bool operator==(special_tokens const&, special_tokens const&) = default;
};

}  // namespace calm
