#pragma once
// Corpora whose ids stay on the disk.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "calm/text/build_corpus.hpp"
#include "calm/text/token_cache.hpp"

namespace calm {

// The same corpus, but for files that the cache takes, whose ids it keeps: they are tokenised once and mapped. Those of
// the others are mapped too, from a file without a name, where they are many. Throws as the other build_corpus.
[[nodiscard]] inline corpus build_corpus(std::span<std::string const> specs, tokenizer const& words,
                                         document_selection const& selection, token_cache& cache) {
    return detail::build_corpus(
        specs, words, selection,
        [&](corpus& made, std::string const& file, std::uint64_t& number, document_parts const& add) {
            auto const kept = cache.tokens_of(file, words, selection);
            document_parts const bounded = [&](std::string_view part, bool ends) {
                auto const count = add(part, ends);
                if (ends) cache.relieve(made, file, words.vocabulary_size());
                return count;
            };
            if (!kept) return document_source::visit_file(file, selection, number, bounded);
            made.add(kept, [&](std::size_t i) { return detail::takes_entry(*kept, i, selection, number); });
        });
}

}  // namespace calm
