#pragma once
/// \file
/// The special tokens of a vocabulary.
/// \shows{tests/sample/generate_test.cpp,a_text_ends_at_eos_and_drops_the_rest_of_its_patch}

#include "calm/base/token.hpp"

namespace calm {

/// Tokens without text: begin and end of a document, and padding. A vocabulary of symbols has none: all are -1, which
/// is not a valid id.
struct special_tokens {
    token_id bos;                                          ///< begins a document
    token_id eos;                                          ///< ends a document
    token_id pad;                                          ///< pads patches; -1: no patch needs padding
    bool bos_first = true;                                 ///< whether every prompt begins with BOS
    [[nodiscard]] bool exist() const { return bos >= 0; }  ///< whether there are any
    friend bool operator==(special_tokens const&, special_tokens const&) = default;
};

}  // namespace calm
