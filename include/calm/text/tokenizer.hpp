#pragma once
// Byte-level BPE (spec 2): the published Llama-3 vocabulary, or one trained here. Any byte string survives the round
// trip. Or the symbols of the markov source, a character each.

#include <array>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/tensor/error.hpp"
#include "calm/text/base64.hpp"
#include "calm/text/bpe.hpp"
#include "calm/text/bpe_trainer.hpp"
#include "calm/text/markov.hpp"
#include "calm/text/pretokenizer.hpp"
#include "calm/text/sha256.hpp"
#include "calm/text/special_tokens.hpp"
#include "calm/text/token.hpp"

namespace calm {

// A vocabulary of V tokens: ranks, then BOS, EOS and PAD, which follow from the number of ranks; symbols have no
// specials. A value; const members may be called from any number of threads.
class tokenizer {
public:
    static constexpr std::string_view bos_name = "<|begin_of_text|>";
    static constexpr std::string_view eos_name = "<|end_of_text|>";
    static constexpr std::string_view pad_name = "[PAD]";
    // The smallest vocabulary: 256 bytes and three specials.
    static constexpr token_id byte_vocabulary = 259;

    // The byte vocabulary, V = 259.
    tokenizer() : tokenizer(bpe_trainer().train(0)) {}

    // The vocabulary of the markov source: its 64 symbols and nothing else, V = 64. Any other text is refused.
    [[nodiscard]] static tokenizer markov() {
        token_table table;
        for (std::size_t i = 0; i < markov_alphabet.size(); ++i) table.add(markov_alphabet.substr(i, 1));
        return tokenizer(std::move(table));
    }

    // V tokens learned from what the trainer was given. Throws errc::usage for V < 259 and errc::tokenizer if the text
    // has fewer merges than asked.
    [[nodiscard]] static tokenizer train(bpe_trainer const& trainer, token_id vocabulary) {
        require(vocabulary >= byte_vocabulary, errc::usage, [&] {
            return "a vocabulary of " + std::to_string(vocabulary) +
                   " tokens is too small: 256 bytes and 3 special tokens need 259; ask for 259 or more";
        });
        token_table table = trainer.train(vocabulary - byte_vocabulary);
        token_id const possible = table.size() - 256;
        require(possible == vocabulary - byte_vocabulary, errc::tokenizer, [&] {
            return "the text yields only " + std::to_string(possible) + " merges, but a vocabulary of " +
                   std::to_string(vocabulary) + " needs " + std::to_string(vocabulary - byte_vocabulary) +
                   ": give more text or ask for a vocabulary of at most " + std::to_string(possible + byte_vocabulary);
        });
        return tokenizer(std::move(table));
    }

    // The same from a range of documents.
    template <std::ranges::input_range Documents>
    requires std::convertible_to<std::ranges::range_reference_t<Documents>, std::string_view>
    [[nodiscard]] static tokenizer train(Documents&& documents, token_id vocabulary) {
        bpe_trainer trainer;
        for (auto&& document : documents) trainer.add(document);
        return train(trainer, vocabulary);
    }

    // Reads `base64 rank` lines; those of markov().save() give markov(). Throws errc::tokenizer with path and line for
    // a malformed file, errc::storage if it cannot be read.
    [[nodiscard]] static tokenizer load(std::string const& path);

    // Writes `base64 rank` lines, one a rank. Throws errc::storage if it cannot.
    void save(std::string const& path) const {
        std::ofstream file(path, std::ios::binary);
        file << lines();
        file.flush();
        if (!file) throw error(errc::storage, path, "", "cannot be written: check that the folder exists and has room");
    }

    // What save writes.
    [[nodiscard]] std::string lines() const {
        std::string text;
        for (token_id id = 0; id < table_.size(); ++id)
            text += base64_encode(table_.bytes(id)) + ' ' + std::to_string(id) + '\n';
        return text;
    }

    // The ids of a text, without specials: their names inside a text are text.
    [[nodiscard]] std::vector<token_id> encode(std::string_view text) const {
        std::vector<token_id> ids;
        encode(text, ids);
        return ids;
    }
    // The same, appended to `ids`. Of the markov source's vocabulary: throws errc::tokenizer for a character that is no
    // symbol.
    void encode(std::string_view text, std::vector<token_id>& ids) const {
        if (is_markov()) {
            for (std::size_t i = 0; i < text.size(); ++i) {
                token_id const id = table_.find(text.substr(i, 1));
                require(id >= 0, errc::tokenizer, [&] {
                    return "byte " + std::to_string(i) + " of the text is no symbol of the markov source: expected " +
                           std::string(markov_alphabet);
                });
                ids.push_back(id);
            }
            return;
        }
        pattern_->cut(text, [&](std::string_view piece) { bpe_merge(table_, piece, ids); });
    }

    // The text of ids; specials print nothing. Throws errc::tokenizer for an id outside 0..V-1.
    [[nodiscard]] std::string decode(std::span<token_id const> ids) const {
        std::string text;
        for (token_id const id : ids) text += bytes(id);
        return text;
    }

    // The bytes of one token, none for a special; valid as long as the tokenizer. Throws errc::tokenizer outside
    // 0..V-1.
    [[nodiscard]] std::string_view bytes(token_id id) const {
        require(id >= 0 && id < vocabulary_size(), errc::tokenizer, [&] {
            return "token id " + std::to_string(id) + " is outside 0.." + std::to_string(vocabulary_size() - 1) +
                   ": the ids come from another tokenizer";
        });
        return id < table_.size() ? table_.bytes(id) : std::string_view{};
    }

    // V, specials included.
    [[nodiscard]] token_id vocabulary_size() const { return is_markov() ? table_.size() : pad() + 1; }
    // -1 where there are no specials.
    [[nodiscard]] token_id bos() const { return is_markov() ? -1 : table_.size(); }
    [[nodiscard]] token_id eos() const { return is_markov() ? -1 : table_.size() + 1; }
    [[nodiscard]] token_id pad() const { return is_markov() ? -1 : table_.size() + (is_llama3() ? 256 : 2); }
    // Whether it is the vocabulary of the markov source. Every other has the 256 bytes.
    [[nodiscard]] bool is_markov() const { return table_.size() < 256; }

    // All three.
    [[nodiscard]] special_tokens specials() const { return {bos(), eos(), pad()}; }

    // SHA-256 in hexadecimal of what makes the ids mean what they mean (spec 12): for id 0..V-1 length (32-bit
    // little-endian) and bytes, nothing for a special; for BOS, EOS, PAD the length and bytes of the name and the id;
    // the pattern. The same whatever file the tokenizer came from.
    [[nodiscard]] std::string fingerprint() const {
        sha256 hash;
        auto const sized = [&](std::string_view bytes) {
            hash.add_u32(static_cast<std::uint32_t>(bytes.size()));
            hash.add(bytes);
        };
        for (token_id id = 0; id < vocabulary_size(); ++id) sized(bytes(id));
        for (auto const& [name, id] : {std::pair{bos_name, bos()}, {eos_name, eos()}, {pad_name, pad()}}) {
            if (id < 0) continue;
            sized(name);
            hash.add_u32(static_cast<std::uint32_t>(id));
        }
        hash.add(pattern());
        return hash.hex();
    }

    // The pattern of a piece, for config.json; symbols have none.
    [[nodiscard]] std::string_view pattern() const { return is_markov() ? std::string_view() : piece_pattern; }

private:
    explicit tokenizer(token_table table) : table_(std::move(table)) {}

    // Llama 3 reserves 256 ids between its ranks and the added PAD. Its bytes are not in numeric order, ours are, so a
    // vocabulary of 128,000 ranks trained here is not mistaken for it.
    [[nodiscard]] bool is_llama3() const {
        return table_.size() == 128000 && table_.bytes(0) != std::string_view("\0", 1);
    }

    token_table table_;
    std::shared_ptr<pretokenizer const> pattern_ = pretokenizer::shared();
};

inline tokenizer tokenizer::load(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file)
        throw error(errc::storage, path, "",
                    "cannot be opened: give the path of a tokenizer file (`base64 rank` lines)");
    token_table table;
    std::string line;
    for (std::size_t number = 1; std::getline(file, line); ++number) {
        auto const fail = [&](std::string const& sentence) {
            throw error(errc::tokenizer, path, "line " + std::to_string(number), sentence);
        };
        if (line.ends_with('\r')) line.pop_back();
        if (line.empty()) continue;
        std::size_t const space = line.find(' ');
        if (space == std::string::npos) fail("expected `base64 rank`, found no space: this is no tokenizer file");
        auto const token = base64_decode(std::string_view(line).substr(0, space));
        if (!token || token->empty())
            fail("expected a token in base64 before the space: the file is damaged, copy it again");
        token_id rank = -1;
        char const* const end = line.data() + line.size();
        auto const parsed = std::from_chars(line.data() + space + 1, end, rank);
        if (parsed.ec != std::errc{} || parsed.ptr != end)
            fail("expected a number after the space, found \"" + line.substr(space + 1, 20) + "\"");
        if (rank != table.size())
            fail("expected rank " + std::to_string(table.size()) + ", found " + std::to_string(rank) +
                 ": ranks count up from 0, a line is missing or out of order");
        if (table.add(*token) < 0)
            fail("the token of rank " + std::to_string(rank) + " is that of rank " +
                 std::to_string(table.find(*token)) + " again: remove one of them and renumber");
    }
    if (!file.eof()) throw error(errc::storage, path, "", "reading failed before the end of the file");
    if (tokenizer symbols = markov(); table.size() == symbols.table_.size()) {
        bool equal = true;
        for (token_id id = 0; id < table.size(); ++id) equal = equal && table.bytes(id) == symbols.table_.bytes(id);
        if (equal) return symbols;
    }
    for (int byte = 0; byte < 256; ++byte)
        if (table.find(std::string(1, static_cast<char>(byte))) < 0)
            throw error(
                errc::tokenizer, path, "line " + std::to_string(table.size() + 1),
                "the file ends, but byte " + std::to_string(byte) +
                    " is no token: a byte-level vocabulary has all 256; the file is cut short or of another kind");
    return tokenizer(std::move(table));
}

}  // namespace calm
