#pragma once
// The parts of a tokenizer, independent of the file that it came from.

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/text/detail/added_tokens.hpp"
#include "calm/text/detail/merge_list.hpp"
#include "calm/text/detail/pretokenizer.hpp"
#include "calm/text/detail/token_table.hpp"
#include "calm/text/special_tokens.hpp"

namespace calm {

// What tiktoken's lines of a published vocabulary do not say. tiktoken 0.14 writes the patterns of gpt2 and cl100k in a
// newer form. It gives the same ids, because these vocabularies were made with the older form.
struct rank_family {
    std::string_view name;     // in options
    std::string_view pattern;  // of a piece
    token_id eos;              // its id, counted from the first after the ranks
    token_id more;             // ids after the ranks, all special
    bool own_bos = false;      // whether the first of them is BOS; else EOS begins texts too
    bool is_nfc = false;       // whether text is normalized to NFC first
};
inline constexpr std::array<rank_family, 5> rank_families{{{"llama3", piece_pattern, 1, 256, true},
                                                           {"gpt2", gpt2_pattern, 0, 1},
                                                           {"cl100k", piece_pattern, 1, 21},
                                                           {"o200k", o200k_pattern, 1, 21},
                                                           {"qwen", qwen2_pattern, 0, 208, false, true}}};

// Their names: "llama3, gpt2, cl100k, o200k or qwen".
inline std::string names_of_rank_families() {
    std::string all;
    for (auto const& one : rank_families)
        all.append(all.empty() ? "" : &one == &rank_families.back() ? " or " : ", ").append(one.name);
    return all;
}

// V tokens, and how text is tokenised.
struct vocabulary {
    detail::token_table tokens;           // ids 0 .. V-1; special tokens have no bytes
    special_tokens specials{-1, -1, -1};  // their ids
    std::array<std::string, 3> names{"<|begin_of_text|>", "<|end_of_text|>", "[PAD]"};  // of BOS, EOS, PAD
    bool bos_first = true;            // whether text begins with BOS, by the rule of the file
    bool added_pad = false;           // whether PAD is an id that the file does not have
    bool is_nfc = false;              // whether text is normalized to NFC first
    added_tokens added{};             // matched in text before it is normalized
    added_tokens added_normalized{};  // matched between those; the normalizer leaves them alone
    // Cut text into pieces, each the pieces of the one before it; at least one.
    std::vector<std::shared_ptr<pretokenizer const>> patterns{pretokenizer::shared()};
    std::optional<detail::merge_list> merges = std::nullopt;  // if their order is not that of the ids
    bool whole_pieces = true;                                 // a piece that is a token needs no merging
    std::string file = "tokenizer.model";                     // usual file name of its format
    bool is_pattern_known = true;                             // false: ranks whose file does not tell the pattern

    // Tokens numbered by rank, then BOS, EOS and PAD, as vocabularies are trained here. Those begin with byte 0.
    [[nodiscard]] static vocabulary of_ranks(detail::token_table ranks) {
        vocabulary v{.tokens = std::move(ranks)};
        v.is_pattern_known = v.tokens.bytes(0) == std::string_view("\0", 1);
        v.specials.bos = v.tokens.add_special();
        v.specials.eos = v.tokens.add_special();
        v.specials.pad = v.tokens.add_special();
        return v;
    }
    // Tokens numbered by rank, then the special tokens of a published family and an added PAD.
    [[nodiscard]] static vocabulary of_ranks(detail::token_table ranks, rank_family const& family) {
        vocabulary v{.tokens = std::move(ranks)};
        token_id const first = v.tokens.size();
        for (token_id i = 0; i < family.more; ++i) v.tokens.add_special();
        v.specials.eos = first + family.eos;
        v.specials.bos = family.own_bos ? first : v.specials.eos;
        v.specials.pad = v.tokens.add_special();
        if (!family.own_bos) v.names[0] = v.names[1] = "<|endoftext|>";
        v.bos_first = family.own_bos;
        v.added_pad = true;
        v.is_nfc = family.is_nfc;
        if (family.pattern != piece_pattern) v.patterns = {std::make_shared<pretokenizer const>(family.pattern)};
        return v;
    }
};

namespace detail {

// Maximum bytes of a token in a file; longer ones indicate damage.
inline constexpr std::size_t longest_token = std::size_t{1} << 20;

// Throws errc::tokenizer if a file of `bytes` bytes is too large for a tokenizer.
inline void require_tokenizer_size(std::string const& path, std::size_t bytes) {
    if (bytes > limits::tokenizer_file)
        throw error(errc::tokenizer, path, "",
                    sentence("expected a tokenizer of at most ", limits::tokenizer_file, " bytes, found ", bytes,
                             ": the file is of another kind"));
}

// The first byte from `from` on that is not a token of a table, or -1.
inline int missing_byte(token_table const& table, int from = 0) {
    for (int byte = from; byte < 256; ++byte)
        if (char const c = static_cast<char>(byte); table.find({&c, 1}) < 0) return byte;
    return -1;
}

}  // namespace detail

}  // namespace calm
