#pragma once

#include "calm/text/token.hpp"

namespace calm {

// The tokens that stand for no text: begin and end of a document, and padding (spec 2).
struct special_tokens {
    token_id bos;
    token_id eos;
    token_id pad;
    friend bool operator==(special_tokens const&, special_tokens const&) = default;
};

}  // namespace calm
