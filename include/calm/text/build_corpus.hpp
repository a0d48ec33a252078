#pragma once
// Builds corpora and vocabularies from text sources.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/text/corpus.hpp"
#include "calm/text/documents.hpp"
#include "calm/text/tokenizer.hpp"

namespace calm {

// Whether the SPECs name the Markov source, whose symbols are its tokens.
[[nodiscard]] inline bool is_markov(std::span<std::string const> specs) {
    return !specs.empty() && specs.front().starts_with("markov:");
}

namespace detail {

// Throws errc::tokenizer if only one of source and vocabulary is the Markov one.
inline void require_vocabulary(std::span<std::string const> specs, tokenizer const& encoder) {
    require(is_markov(specs) == encoder.is_markov(), errc::tokenizer,
            encoder.is_markov()
                ? "the vocabulary belongs to the markov source: give markov:N as text, or another vocabulary"
                : "the symbols of markov:N are its tokens: give the vocabulary `markov`, not one of text");
}

// `add_file` adds the selected documents of a file, numbered from `number` on.
template <class AddFile>
corpus build_corpus(std::span<std::string const> specs, tokenizer const& encoder, document_selection const& selection,
                    AddFile const& add_file) {
    require_vocabulary(specs, encoder);
    corpus made(encoder.specials());
    token_stream stream(encoder);
    document_parts const add = [&](std::string_view part, bool ends) {
        stream.push(part, made.open());
        if (!ends) return std::size_t{0};
        stream.finish(made.open());
        return made.close();
    };
    std::uint64_t number = 0;
    for (auto const& source : document_sources(specs)) {
        if (source.is_generated()) source.visit(selection, number, add);
        for (auto const& file : source.files()) add_file(made, file, number, add);
    }
    require_documents(made.documents() > 0, number, selection);
    return made;
}

}  // namespace detail

// The selected documents of a list of SPECs as ids. Documents are streamed, ids held in memory (on disk:
// cached_corpus.hpp). Throws errc::data if no document is selected, errc::tokenizer if only one of source and
// vocabulary is the Markov one, otherwise as visit_documents.
[[nodiscard]] inline corpus build_corpus(std::span<std::string const> specs, tokenizer const& words,
                                         document_selection const& selection) {
    return detail::build_corpus(
        specs, words, selection,
        [&](corpus&, std::string const& file, std::uint64_t& number, document_parts const& add) {
            document_source::visit_file(file, selection, number, add);
        });
}

// Counts the pieces of the selected documents, to train a vocabulary. For stories:N, four bytes count as a token.
// Throws as visit_documents and bpe_trainer.
[[nodiscard]] inline bpe_trainer counted_pieces(std::span<std::string const> specs,
                                                document_selection const& selection) {
    require(!is_markov(specs), errc::usage, "the symbols of markov:N are its tokens: there is no vocabulary to learn");
    bpe_trainer trainer;
    visit_documents(specs, selection, [&](std::string_view part, bool ends) {
        trainer.add_part(part);
        if (ends) trainer.end_document();
        return part.size() / 4 + 1;
    });
    return trainer;
}

// Trains a vocabulary of V tokens on the selected documents. Throws as counted_pieces and tokenizer::train.
[[nodiscard]] inline tokenizer train_tokenizer(std::span<std::string const> specs, token_id vocabulary,
                                               document_selection const& selection) {
    return tokenizer::train(counted_pieces(specs, selection), vocabulary);
}

}  // namespace calm
