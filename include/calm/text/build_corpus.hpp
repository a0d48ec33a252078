#pragma once
/// \file
/// Builds corpora and vocabularies from text sources.
/// \shows{tests/text/corpus_test.cpp,stories_are_counted_in_tokens_and_never_shared}

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/detail/sha256.hpp"
#include "calm/base/error.hpp"
#include "calm/text/corpus.hpp"
#include "calm/text/detail/pretokenizer.hpp"
#include "calm/text/detail/token_file.hpp"
#include "calm/text/detail/token_file_writer.hpp"
#include "calm/text/documents.hpp"
#include "calm/text/tokenizer.hpp"

namespace calm {

/// Whether all SPECs name generated text.
[[nodiscard]] inline bool is_generated(std::span<std::string const> specs) {
    return std::all_of(specs.begin(), specs.end(),
                       [](auto const& spec) { return document_source::parse(spec).is_generated(); });
}

namespace detail {

// Throws errc::tokenizer if only one of source and vocabulary has symbols.
inline void require_vocabulary(std::span<std::string const> specs, tokenizer const& encoder) {
    if (has_own_symbols(specs) != encoder.specials().exist()) return;
    throw error(errc::tokenizer,
                encoder.specials().exist()
                    ? "expected the vocabulary of the symbols of " + specs.front() + ", found one of text; give theirs"
                    : "expected the source of the vocabulary's symbols, found text; give that source, or another "
                      "vocabulary");
}

// Adds the ids of the selected documents to a corpus or token_file_writer.
template <class Added>
void add_documents(std::span<std::string const> specs, tokenizer const& encoder, document_selection const& selection,
                   Added& added) {
    require_vocabulary(specs, encoder);
    token_stream stream(encoder);
    visit_documents(specs, selection, [&](std::string_view part, bool ends) {
        stream.push(part, added.open());
        if (!ends) return std::size_t{0};
        stream.finish(added.open());
        return added.close();
    });
}

// The versions of Unicode by which a tokenizer matches text, and normalizes it if it does.
inline std::string unicode_versions(tokenizer const& tokenizer) {
    return unicode_version() + (tokenizer.normalizes() ? " NFC " + nfc_unicode_version() : "");
}

// The size and a checksum of a file's bytes.
inline std::string content_of(std::string const& path) {
    auto const file = open_for_reading(path);
    std::vector<std::byte> portion(checksum_portion);
    checksum sum;
    std::uint64_t size = 0;
    for (bool ended = false; !ended;) {
        std::size_t held = 0;
        while (!ended && held < portion.size()) {
            auto const count =
                uninterrupted([&] { return ::read(file.get(), portion.data() + held, portion.size() - held); });
            if (count < 0) fail_with_errno(errc::storage, path, "cannot be read");
            ended = count == 0;
            held += static_cast<std::size_t>(count);
        }
        sum.add(std::span(portion).first(held));
        size += held;
    }
    return std::to_string(size) + ' ' + std::to_string(sum.value());
}

}  // namespace detail

/// The selected documents of a list of SPECs as ids. Documents are streamed, ids held in memory. Throws errc::data if
/// no document is selected, errc::tokenizer if only one of source and vocabulary has symbols, otherwise as
/// visit_documents.
[[nodiscard]] inline corpus build_corpus(std::span<std::string const> specs, tokenizer const& tokenizer,
                                         document_selection const& selection) {
    corpus made(tokenizer.specials());
    detail::add_documents(specs, tokenizer, selection, made);
    return made;
}

/// A digest of everything that determines the ids of build_corpus: tokenizer, selection, names and bytes of the files.
/// Reads every file once; the checksums in it detect accidents, not attacks. Throws as visit_documents.
[[nodiscard]] inline std::string digest_of(std::span<std::string const> specs, tokenizer const& tokenizer,
                                           document_selection const& selection) {
    sha256 hash;
    auto const add = [&](std::string_view fact) {
        hash.add(fact);
        hash.add(std::string_view("\0", 1));
    };
    add(tokenizer.fingerprint());
    add(detail::unicode_versions(tokenizer));
    for (std::uint64_t const number :
         {std::uint64_t{selection.use == split::train}, std::uint64_t{selection.skip != nullptr},
          std::uint64_t{selection.limits.line}, std::uint64_t{selection.limits.file},
          std::uint64_t{training_pieces::most_spaces}, std::uint64_t{training_pieces::longest}})
        add(std::to_string(number));
    add(selection.held ? selection.held->text() : "");
    for (auto const& spec : specs) {
        auto const source = document_source::parse(spec);
        if (source.is_generated()) add(spec + ' ' + std::to_string(selection.data_seed));
        for (auto const& file : source.files()) {
            add(std::filesystem::path(file).filename().string());  // its end is the format
            add(detail::content_of(file));
        }
    }
    return hash.hex();
}

/// The corpus in a token file with this digest, mapped. Returns nothing and sets `why` if the file is missing, damaged
/// or of another text or tokenizer.
[[nodiscard]] inline std::optional<corpus> stored_corpus(std::string const& path, std::string_view digest,
                                                         tokenizer const& tokenizer, token_file::reason& why) {
    auto file = token_file::open(path, tokenizer.vocabulary_size(), why);
    if (!file) return std::nullopt;
    auto const& found = file->facts().digest;
    if (std::string_view(found.data(), found.size()) != digest) {
        why = "it belongs to another text or tokenizer";
        return std::nullopt;
    }
    return corpus(tokenizer.specials(), std::move(file));
}

/// As build_corpus, but writes the ids to a token file with this digest, from digest_of, and maps it. Throws as
/// build_corpus, and errc::storage.
[[nodiscard]] inline corpus store_corpus(std::string const& path, std::string_view digest,
                                         std::span<std::string const> specs, tokenizer const& tokenizer,
                                         document_selection const& selection) {
    detail::token_file_writer writer(path);
    std::uint64_t const before = selection.skip != nullptr ? selection.skip->count : 0;
    detail::add_documents(specs, tokenizer, selection, writer);
    writer.commit(digest, selection.skip != nullptr ? selection.skip->count - before : 0);
    token_file::reason why;
    if (auto made = stored_corpus(path, digest, tokenizer, why)) return *std::move(made);
    throw error(errc::storage, path, "", "was not read as it was written: " + why);
}

/// Counts the pieces of the selected documents, to train a vocabulary. For stories:N, four bytes count as a token.
/// Throws as visit_documents and bpe_trainer.
[[nodiscard]] inline bpe_trainer counted_pieces(std::span<std::string const> specs,
                                                document_selection const& selection) {
    require(!has_own_symbols(specs), errc::usage, "the symbols of ", specs.front(),
            " are its tokens: there is no vocabulary to learn");
    bpe_trainer trainer;
    visit_documents(specs, selection, [&](std::string_view part, bool ends) {
        trainer.add_part(part);
        if (ends) trainer.end_document();
        return part.size() / 4 + 1;
    });
    return trainer;
}

/// Trains a vocabulary of V tokens on the selected documents. Throws as counted_pieces and tokenizer::train.
[[nodiscard]] inline tokenizer train_tokenizer(std::span<std::string const> specs, token_id vocabulary,
                                               document_selection const& selection) {
    return tokenizer::train(counted_pieces(specs, selection), vocabulary);
}

}  // namespace calm
