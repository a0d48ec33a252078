#pragma once
// Tokens as text that can be printed as they come.

#include <span>
#include <string>

#include "calm/base/token.hpp"
#include "calm/text/utf8_stream.hpp"

namespace calm {

// The text of tokens as they come, never ending within a character. The vocabulary, a tokenizer, says the bytes of a
// token (none for BOS, EOS, PAD) and outlives it.
template <class Vocabulary> class streamed_text {
public:
    // Nothing has come yet. Keeps a reference.
    explicit streamed_text(Vocabulary const& vocabulary) : vocabulary_(vocabulary) {}

    // What can be printed after these tokens.
    [[nodiscard]] std::string push(std::span<token_id const> tokens) {
        std::string bytes;
        for (token_id const id : tokens) bytes += vocabulary_.bytes(id);
        return stream_.push(bytes);
    }
    // What is left at the end: an unfinished character, as its bytes.
    [[nodiscard]] std::string flush() { return stream_.flush(); }

private:
    Vocabulary const& vocabulary_;
    utf8_stream stream_;
};

}  // namespace calm
