#pragma once
/// \file
/// Packs documents into one sequence of patches.
/// \shows{tests/text/packing_test.cpp,symbols_are_packed_unbroken}

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/base/random.hpp"
#include "calm/text/corpus.hpp"

namespace calm {

/// What surrounds a document.
enum class packing {
    padded,                    ///< PAD^o BOS document EOS PAD^r, offset o uniform in 0..K-1, r pads to a multiple of K
    published_autoencoder,     ///< BOS document EOS PAD^r
    published_language_model,  ///< BOS document
    unbroken,                  ///< document, from a source without special tokens
};

/// How documents are packed, and the seed of the random streams.
struct packing_rule {
    packing mode = packing::padded;  ///< what surrounds a document
    std::size_t K = 4;               ///< tokens per patch, > 0
    std::uint64_t seed = 0;          ///< of the offsets and of the order of documents

    /// The offset o of document i in an epoch: stream::alignment at position (epoch, i).
    [[nodiscard]] std::size_t offset(std::uint64_t epoch, std::uint64_t i) const {
        if (mode != packing::padded) return 0;
        key const k{seed, stream::alignment, static_cast<std::uint32_t>(epoch)};
        return below(philox(k, i).v[0], static_cast<std::uint32_t>(K));
    }

    /// The number of tokens of a packed document with `size` ids at an offset.
    [[nodiscard]] std::size_t packed_size(std::size_t size, std::size_t offset) const {
        if (mode == packing::unbroken) return size;
        return mode == packing::published_language_model ? size + 1 : (offset + size + 2 + K - 1) / K * K;
    }

    /// Appends what precedes the ids of document i of an epoch.
    void open(special_tokens const& special, std::uint64_t epoch, std::uint64_t i, std::vector<token_id>& out) const {
        out.insert(out.end(), offset(epoch, i), special.pad);
        if (mode != packing::unbroken) out.push_back(special.bos);
    }
    /// Appends what follows its `size` ids.
    void close(special_tokens const& special, std::uint64_t epoch, std::uint64_t i, std::size_t size,
               std::vector<token_id>& out) const {
        if (mode != packing::padded && mode != packing::published_autoencoder) return;
        std::size_t const left = offset(epoch, i);
        out.push_back(special.eos);
        out.insert(out.end(), packed_size(size, left) - (left + size + 2), special.pad);
    }

    /// Appends document i of a corpus, packed for an epoch.
    void append(corpus const& documents, std::uint64_t epoch, std::size_t i, std::vector<token_id>& out) const {
        auto const ids = documents.document(i);
        open(documents.specials(), epoch, i, out);
        out.insert(out.end(), ids.begin(), ids.end());
        close(documents.specials(), epoch, i, ids.size(), out);
    }
};

/// The model to train; decides how mode `published` packs.
enum class packed_for { autoencoder, language_model };

/// The packing for a mode name, "padded" or "published", and for documents with these special tokens; without special
/// tokens it is unbroken. Throws errc::usage for another name.
[[nodiscard]] inline packing packing_of(std::string_view mode, packed_for use, special_tokens const& specials) {
    require(mode == "padded" || mode == "published" || mode == "unbroken", errc::usage, "packing '", mode,
            "': expected padded, published (as the published models) or unbroken (without BOS, EOS and PAD)");
    if (!specials.exist()) return packing::unbroken;
    require(mode != "unbroken", errc::usage,
            "packing 'unbroken' is for a source without BOS, EOS and PAD: choose padded");
    if (mode == "padded") return packing::padded;
    return use == packed_for::autoencoder ? packing::published_autoencoder : packing::published_language_model;
}

/// The mode name of a packing, for config.json.
[[nodiscard]] inline std::string_view mode_name(packing p) {
    return p == packing::padded ? "padded" : p == packing::unbroken ? "unbroken" : "published";
}

/// All documents packed for an epoch in corpus order, up to the document that reaches `enough` tokens.
[[nodiscard]] inline std::vector<token_id> packed_tokens(corpus const& documents, packing_rule const& rule,
                                                         std::uint64_t epoch = 0,
                                                         std::size_t enough = std::numeric_limits<std::size_t>::max()) {
    std::vector<token_id> out;
    for (std::size_t i = 0; i < documents.documents() && out.size() < enough; ++i)
        rule.append(documents, epoch, i, out);
    return out;
}

namespace detail {
// Throws unless documents with these special tokens can be packed into blocks by the rule.
inline void require_rule(special_tokens const& special, packing_rule const& rule, std::size_t block_tokens) {
    require(special.exist() != (rule.mode == packing::unbroken), errc::usage,
            "calm::packing_rule: expected packing::unbroken for symbols without BOS, EOS and PAD, and only for them");
    require(rule.K > 0 && block_tokens > 0 && block_tokens % rule.K == 0, errc::config, "a block of ", block_tokens,
            " tokens is not a whole number of patches of ", rule.K, " tokens: choose a positive multiple of ", rule.K);
}
// Throws unless documents with at least `least` tokens fill a block.
inline void require_one_block(std::size_t least, std::size_t block_tokens) {
    require(least >= block_tokens, errc::data, "the text has only ", least, " tokens when packed, but a block has ",
            block_tokens, ": give more text or choose shorter blocks");
}
// Throws unless a corpus fills a block in every epoch, whatever the offsets.
inline void require_block(corpus const& documents, packing_rule const& rule, std::size_t block_tokens) {
    require_rule(documents.specials(), rule, block_tokens);
    std::size_t least = 0;
    for (std::size_t i = 0; i < documents.documents(); ++i) least += rule.packed_size(documents.size(i), 0);
    require_one_block(least, block_tokens);
}
}  // namespace detail

/// The concatenated blocks to evaluate on: epoch 0 in corpus order, whole blocks only. Documents after the one that
/// reaches `enough` tokens are left out. Throws errc::data if there is not even one block, errc::config if block_tokens
/// is not a multiple of K.
[[nodiscard]] inline std::vector<token_id>
evaluation_blocks(corpus const& documents, packing_rule const& rule, std::size_t block_tokens,
                  std::size_t enough = std::numeric_limits<std::size_t>::max()) {
    detail::require_block(documents, rule, block_tokens);
    auto tokens = packed_tokens(documents, rule, 0, std::max(enough, block_tokens));
    tokens.resize(tokens.size() / block_tokens * block_tokens);
    return tokens;
}

}  // namespace calm
