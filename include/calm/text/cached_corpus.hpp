#pragma once
// Corpora whose ids stay on disk.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "calm/text/build_corpus.hpp"
#include "calm/text/token_cache.hpp"

namespace calm {

// Like the other build_corpus, but the cache keeps the ids of the files that it accepts: they are tokenised once and
// mapped. If the remaining files have many ids, these are mapped from an unnamed file. Throws as the other
// build_corpus.
[[nodiscard]] inline corpus build_corpus(std::span<std::string const> specs, tokenizer const& words,
                                         document_selection const& selection, token_cache& cache) {
    return detail::build_corpus(
        specs, words, selection,
        [&](corpus& made, std::string const& file, std::uint64_t& number, document_parts const& add) {
            auto const kept = cache.tokens_of(file, words, selection);
            document_parts const bounded = [&](std::string_view part, bool ends) {
                auto const count = add(part, ends);
                if (ends) cache.spill(made, file, words.vocabulary_size());
                return count;
            };
            if (!kept) return document_source::visit_file(file, selection, number, bounded);
            made.add(kept, [&](std::size_t i) { return detail::takes_entry(*kept, i, selection, number); });
        });
}

}  // namespace calm
