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

// V tokens, and how text is tokenised.
struct vocabulary {
    token_table tokens;                   // ids 0 .. V-1; special tokens have no bytes
    special_tokens specials{-1, -1, -1};  // their ids
    std::array<std::string, 3> names{"<|begin_of_text|>", "<|end_of_text|>", "[PAD]"};  // of BOS, EOS, PAD
    bool bos_first = true;            // whether text begins with BOS, by the rule of the file
    bool added_pad = false;           // whether PAD is an id that the file does not have
    bool is_nfc = false;              // whether text is normalized to NFC first
    added_tokens added{};             // matched in text before it is normalized
    added_tokens added_normalized{};  // matched between those; the normalizer leaves them alone
    // Cut text into pieces, each the pieces of the one before it; at least one.
    std::vector<std::shared_ptr<pretokenizer const>> patterns{pretokenizer::shared()};
    std::optional<merge_list> merges = std::nullopt;  // if their order is not that of the ids
    bool whole_pieces = true;                         // a piece that is a token needs no merging
    std::string file = "tokenizer.model";             // usual file name of its format
    bool is_pattern_known = true;                     // false: ranks whose file does not tell the pattern

    // Tokens numbered by rank; the ids of BOS, EOS and PAD follow from their number.
    [[nodiscard]] static vocabulary of_ranks(token_table ranks) {
        vocabulary v{.tokens = std::move(ranks)};
        // Vocabularies trained here begin with byte 0. Of the published ones only Llama 3's is known to have the
        // default pattern. It has 256 special ids between its ranks and the added PAD.
        bool const ours = v.tokens.bytes(0) == std::string_view("\0", 1);
        bool const llama3 = !ours && v.tokens.size() == 128000;
        v.is_pattern_known = ours || llama3;
        v.specials.bos = v.tokens.add_special();
        v.specials.eos = v.tokens.add_special();
        for (int reserved = 2; llama3 && reserved < 256; ++reserved) v.tokens.add_special();
        v.specials.pad = v.tokens.add_special();
        v.added_pad = llama3;
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
