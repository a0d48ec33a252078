// Trains a tokenizer, encodes a sentence, and identifies the vocabulary by its fingerprint.
#include <cstdio>

#include "calm/text/stories.hpp"
#include "calm/text/tokenizer.hpp"

int main() {
    calm::bpe_trainer seen;
    for (std::uint64_t i = 0; i < 500; ++i) seen.add(calm::story(1, calm::split::train, i));
    auto const tokenizer = calm::tokenizer::train(seen, 400);

    std::string const sentence = "Mia was a little girl who met a walrus.";
    auto const ids = tokenizer.encode(sentence);
    std::printf("%zu bytes, %zu tokens:", sentence.size(), ids.size());
    for (calm::token_id const id : ids) std::printf(" [%s]", std::string(tokenizer.bytes(id)).c_str());
    std::printf("\nback again: %s\n", tokenizer.decode(ids).c_str());

    // Any bytes survive, even invalid UTF-8.
    std::string const bytes("\xFF\x00\xC3", 3);
    std::printf("three odd bytes are %s\n", tokenizer.decode(tokenizer.encode(bytes)) == bytes ? "the same" : "lost");

    // Ids are meaningless without their vocabulary, so a model stores the vocabulary's fingerprint.
    std::printf("V = %d, of which BOS %d, EOS %d, PAD %d; fingerprint %.16s...\n", tokenizer.vocabulary_size(),
                tokenizer.bos(), tokenizer.eos(), tokenizer.pad(), tokenizer.fingerprint().c_str());
    try {
        (void)tokenizer.decode(std::vector<calm::token_id>{7, 400});
    } catch (calm::error const& e) {
        std::printf("%s\n", e.what());
    }
}
