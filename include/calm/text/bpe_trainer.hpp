#pragma once
// Learning byte-pair merges from text.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "calm/text/pair_merging.hpp"
#include "calm/text/piece_counts.hpp"
#include "calm/text/pretokenizer.hpp"
#include "calm/text/token_table.hpp"

namespace calm {

// Counts the pieces of documents and merges the most frequent pair again and again. The result depends on the counts of
// pieces alone: neither on the order of the documents nor on how they were added; but for a text whose distinct pieces
// have more than piece_counts::most_bytes, of which the rarest are forgotten as it comes.
class bpe_trainer {
public:
    // Adds a document. Throws as piece_stream.
    void add(std::string_view document) {
        add_part(document);
        end_document();
    }
    // The same of one that comes in parts.
    void add_part(std::string_view part) {
        cutter_.push(part, [&](std::string_view piece) { pieces_.add(piece); });
    }
    // Ends the document that came in parts; then another may begin. Throws as piece_stream.
    void end_document() {
        cutter_.finish([&](std::string_view piece) { pieces_.add(piece); });
    }

    // How many distinct pieces were forgotten.
    [[nodiscard]] std::uint64_t forgotten() const { return pieces_.forgotten(); }

    // The 256 bytes in numeric order, then up to `merges` tokens: each joins the pair of neighbours that is most
    // frequent inside the pieces, of equals the lower pair of ids. Fewer when no pair is left that has at most 1 MiB.
    [[nodiscard]] token_table train(token_id merges) const {
        token_table table;
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
    piece_counts pieces_;
};

}  // namespace calm
