#pragma once
/// \file
/// Trains byte-pair merges on text.
/// \shows{examples/09_tokenizer.cpp}

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "calm/text/detail/pair_merging.hpp"
#include "calm/text/detail/piece_counts.hpp"
#include "calm/text/detail/pretokenizer.hpp"
#include "calm/text/detail/token_table.hpp"

namespace calm {

/// Counts the pieces of documents and repeatedly merges the most frequent pair. The result depends only on the counts
/// of pieces, not on the order of documents or how they were added. Exception: if the distinct pieces have more than
/// piece_counts::most_bytes, the rarest are dropped on the way.
class bpe_trainer {
public:
    /// Adds a document. Throws as piece_stream.
    void add(std::string_view document) {
        add_part(document);
        end_document();
    }
    /// Adds the next part of a document that comes in parts. Throws as piece_stream.
    void add_part(std::string_view part) {
        cutter_.push(part, [&](std::string_view piece) { pieces_.add(piece); });
    }
    /// Ends the document that came in parts; another may begin. Throws as piece_stream.
    void end_document() {
        cutter_.finish([&](std::string_view piece) { pieces_.add(piece); });
    }

    /// The number of distinct pieces dropped to bound memory.
    [[nodiscard]] std::uint64_t forgotten() const { return pieces_.forgotten(); }

    /// The 256 bytes in numeric order, then up to `merges` tokens. Each joins the adjacent pair that is most frequent
    /// within pieces; ties go to the lower pair of ids. Fewer if no pair of at most 1 MiB is left.
    [[nodiscard]] detail::token_table train(token_id merges) const {
        detail::token_table table;
        for (int byte = 0; byte < 256; ++byte) table.add(std::string(1, static_cast<char>(byte)));
        if (merges == 0) return table;
        detail::pair_merging pairs(pieces_);
        while (table.size() < 256 + merges && pairs.merge_best(table)) {
        }
        return table;
    }

private:
    std::shared_ptr<pretokenizer const> pattern_ = pretokenizer::shared();
    piece_stream cutter_{*pattern_};
    detail::piece_counts pieces_;
};

}  // namespace calm
