#pragma once
/// \file
/// Tokens as text that can be printed as they arrive.
/// \shows{tests/sample/streamed_text_test.cpp,streamed_text_never_splits_a_character}

#include <span>
#include <string>

#include "calm/base/token.hpp"
#include "calm/text/detail/utf8_stream.hpp"

namespace calm {

/// Turns arriving tokens into text that never ends inside a character. The vocabulary, a tokenizer, gives the bytes of
/// each token (none for BOS, EOS, PAD) and outlives it.
template <class Vocabulary> class streamed_text {
public:
    /// Starts empty; keeps a reference.
    explicit streamed_text(Vocabulary const& vocabulary) : vocabulary_(vocabulary) {}

    /// The text that can be printed after these tokens.
    [[nodiscard]] std::string push(std::span<token_id const> tokens) {
        std::string bytes;
        for (token_id const id : tokens) bytes += vocabulary_.bytes(id);
        return stream_.push(bytes);
    }
    /// The rest at the end: the bytes of an unfinished character.
    [[nodiscard]] std::string flush() { return stream_.flush(); }

private:
    Vocabulary const& vocabulary_;
    utf8_stream stream_;
};

}  // namespace calm
