#pragma once
/// \file
/// Byte-level BPE: the published Llama-3 vocabulary, one trained here, or any of a tokenizer.json. Any byte string
/// survives the round trip. Alternatively symbols of one byte each, without special tokens.
/// \shows{examples/09_tokenizer.cpp}

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/detail/sha256.hpp"
#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "calm/base/token.hpp"
#include "calm/text/bpe_trainer.hpp"
#include "calm/text/corpus.hpp"
#include "calm/text/detail/added_tokens.hpp"
#include "calm/text/detail/bpe.hpp"
#include "calm/text/detail/nfc.hpp"
#include "calm/text/detail/piece_cache.hpp"
#include "calm/text/detail/piece_cutter.hpp"
#include "calm/text/detail/rank_lines.hpp"
#include "calm/text/detail/vocabulary.hpp"
#include "calm/text/special_tokens.hpp"

namespace calm {

/// A vocabulary of V tokens including BOS, EOS and PAD; a vocabulary of symbols has no special tokens. A value type;
/// any number of threads may call const members.
class tokenizer {
public:
    /// The smallest vocabulary: 256 bytes and three special tokens.
    static constexpr token_id byte_vocabulary = 259;

    /// The byte vocabulary, V = 259.
    tokenizer() : tokenizer(vocabulary::of_ranks(bpe_trainer().train(0))) {}

    /// One token per byte of the alphabet and no special tokens, for a source whose symbols are its tokens. Throws
    /// errc::usage for a repeated byte.
    [[nodiscard]] static tokenizer of_symbols(std::string_view alphabet) {
        vocabulary symbols;
        for (char const& symbol : alphabet)
            require(symbols.tokens.add({&symbol, 1}) >= 0, errc::usage, "expected distinct symbols, found ",
                    in_quotes({&symbol, 1}), " twice");
        return tokenizer(std::move(symbols));
    }

    /// Trains V tokens on the counts of the trainer. Throws errc::usage for V < 259, errc::tokenizer if the text yields
    /// too few merges.
    [[nodiscard]] static tokenizer train(bpe_trainer const& trainer, token_id size) {
        require(size >= byte_vocabulary, errc::usage, "a vocabulary of ", size,
                " tokens is too small: 256 bytes and 3 special tokens need 259; ask for 259 or more");
        detail::token_table table = trainer.train(size - byte_vocabulary);
        token_id const possible = table.size() - 256;
        require(possible == size - byte_vocabulary, errc::tokenizer, "the text yields only ", possible,
                " merges, but a vocabulary of ", size, " needs ", size - byte_vocabulary,
                ": give more text or ask for a vocabulary of at most ", possible + byte_vocabulary);
        return tokenizer(vocabulary::of_ranks(std::move(table)));
    }

    /// Trains on a range of documents.
    template <class Documents>
    requires requires(Documents& d) {
        { *std::begin(d) } -> std::convertible_to<std::string_view>;
    }
    [[nodiscard]] static tokenizer train(Documents&& documents, token_id size) {
        bpe_trainer trainer;
        for (auto&& document : documents) trainer.add(document);
        return train(trainer, size);
    }

    /// Parses `base64 rank` lines. Lines of a published vocabulary need its pattern, a name of rank_families; Llama 3's
    /// own are recognised. Fewer than 256 tokens of one byte, the first not byte 0, are symbols. Throws errc::tokenizer
    /// with path and line, errc::usage for another pattern. For files of either format see load_tokenizer.hpp.
    [[nodiscard]] static tokenizer parse_lines(std::string_view text, std::string const& path,
                                               std::string_view pattern = {});

    /// From a vocabulary that was read.
    explicit tokenizer(vocabulary v) : v_(std::move(v)), lacks_bytes_(detail::missing_byte(v_.tokens) >= 0) {}

    /// Whether published() fits the vocabulary to a table of so many rows.
    [[nodiscard]] bool fits(token_id rows) const {
        token_id const least = lacks_pad_in(rows) ? rows : v_.tokens.size();
        constexpr token_id most_spare = 1024;  // tables are rounded up to a multiple of up to this
        return least <= rows && rows - least < most_spare;
    }
    /// For a model that another program trained, with `rows` rows in its embedding table: its prompts begin with BOS if
    /// `bos_first`, by default as the file says. Rows above the tokens are ids without text. Without a row for the PAD
    /// that the file lacks there is none, pad() == -1. Throws errc::tokenizer for another number of tokens.
    [[nodiscard]] tokenizer published(token_id rows, std::optional<bool> bos_first) const {
        require(fits(rows), errc::tokenizer, "expected a vocabulary of ", rows, " tokens or a few less, found ",
                v_.tokens.size(), "; the file belongs to another model");
        vocabulary v = v_;
        v.specials.bos_first = bos_first.value_or(v_.bos_first);
        if (lacks_pad_in(rows)) {
            v.tokens.remove_last();
            v.specials.pad = -1;
        }
        while (v.tokens.size() < rows) v.tokens.add_special();
        return tokenizer(std::move(v));
    }

    /// Writes lines() to a file, atomically. Throws errc::storage on failure.
    void save(std::string const& path) const { replace_file(path, lines()); }

    /// `base64 rank` lines, one per rank. Throws errc::usage if a reader that knows no pattern would not get this
    /// tokenizer from them: its file may have another pattern, other special tokens, or a first token other than byte
    /// 0.
    [[nodiscard]] std::string lines() const {
        std::string text = detail::rank_lines(v_.tokens);
        auto const is_kept = [&] {
            if (v_.specials.exist() && lacks_bytes_) return false;
            auto const read = parse_lines(text, "the lines");
            return read.is_pattern_known() && read.fingerprint() == fingerprint();
        };
        require(is_kept(), errc::usage,
                "rank lines cannot represent this tokenizer: copy its tokenizer.json, or the lines that it came from");
        return text;
    }

    /// The ids of a text, without special tokens: their names inside a text are ordinary text.
    [[nodiscard]] std::vector<token_id> encode(std::string_view text) const {
        std::vector<token_id> ids;
        encode(text, ids);
        return ids;
    }
    /// Appends the ids to `ids`. Throws errc::data for a byte that is not a token of the vocabulary, as token_stream.
    void encode(std::string_view text, std::vector<token_id>& ids) const;

    /// The text of ids; special tokens print nothing. Throws errc::tokenizer for an id outside 0..V-1.
    [[nodiscard]] std::string decode(std::span<token_id const> ids) const {
        std::string text;
        for (token_id const id : ids) text += bytes(id);
        return text;
    }

    /// The bytes of one token, empty for a special token; valid as long as the tokenizer. Throws errc::tokenizer
    /// outside 0..V-1.
    [[nodiscard]] std::string_view bytes(token_id id) const {
        require(id >= 0 && id < vocabulary_size(), errc::tokenizer, "token id ", id, " is outside 0..",
                vocabulary_size() - 1, ": the ids come from another tokenizer");
        return v_.tokens.bytes(id);
    }

    /// V, including special tokens.
    [[nodiscard]] token_id vocabulary_size() const { return v_.tokens.size(); }
    /// Begin of a document; -1 without special tokens.
    [[nodiscard]] token_id bos() const { return v_.specials.bos; }
    [[nodiscard]] token_id eos() const { return v_.specials.eos; }  ///< end of a document, or -1
    [[nodiscard]] token_id pad() const { return v_.specials.pad; }  ///< pads patches, or -1

    /// BOS, EOS and PAD.
    [[nodiscard]] special_tokens specials() const { return v_.specials; }

    /// SHA-256 in hexadecimal of everything that gives ids their meaning. For id 0..V-1, the length (32-bit
    /// little-endian) and bytes, length 0 for a special token. For BOS, EOS and PAD, the length and bytes of the name,
    /// and the id. The pattern; of several each again with its length. "NFC" if text is normalized. For tokens that are
    /// matched in text, the length and bytes, and the id; "normalized" before those of a second search. Unless merging
    /// is by id with look-up of whole pieces, also whether these are looked up, and the merges in order. Independent of
    /// the format of the file.
    [[nodiscard]] std::string fingerprint() const {
        sha256 hash;
        auto const number = [&](auto value) { hash.add_u32(static_cast<std::uint32_t>(value)); };
        auto const sized = [&](std::string_view bytes) {
            number(bytes.size());
            hash.add(bytes);
        };
        for (token_id id = 0; id < vocabulary_size(); ++id) sized(bytes(id));
        auto const ids = {bos(), eos(), pad()};
        for (std::size_t i = 0; i < 3 && v_.specials.exist(); ++i) {
            sized(v_.names[i]);
            number(ids.begin()[i]);
        }
        hash.add(pattern());
        if (v_.patterns.size() > 1)
            for (auto const& one : v_.patterns) sized(one->pattern());
        if (v_.is_nfc) hash.add("NFC");
        auto const matched = [&](added_tokens const& tokens) {
            for (added_token const& one : tokens.all()) {
                sized(one.text);
                number(one.id);
            }
        };
        matched(v_.added);
        if (!v_.added_normalized.all().empty()) hash.add("normalized");
        matched(v_.added_normalized);
        if (!v_.merges && v_.whole_pieces) return hash.hex();
        number(v_.whole_pieces);
        for (std::int32_t rank = 0; v_.merges && rank < static_cast<std::int32_t>(v_.merges->size()); ++rank) {
            number(v_.merges->left(rank));
            number(v_.merges->right(rank));
        }
        return hash.hex();
    }

    /// The pattern of a piece, for config.json; of several patterns one per line.
    [[nodiscard]] std::string pattern() const {
        std::string lines;
        for (auto const& one : v_.patterns) lines += (lines.empty() ? "" : "\n") + one->pattern();
        return lines;
    }

    /// Whether text is changed to Unicode's normalization form C first; decode(encode(text)) may then differ from text.
    [[nodiscard]] bool normalizes() const { return v_.is_nfc; }

    /// Whether pattern() is that of its file; false for rank lines of an unknown program, which do not have it.
    [[nodiscard]] bool is_pattern_known() const { return v_.is_pattern_known; }

    /// The usual name of the file it came from: tokenizer.json or tokenizer.model.
    [[nodiscard]] std::string const& file_name() const { return v_.file; }

private:
    friend class token_stream;

    [[nodiscard]] bool lacks_pad_in(token_id rows) const { return v_.added_pad && v_.tokens.size() == rows + 1; }

    // State shared by the pieces of a text.
    struct piece_work {
        detail::bpe_merger<detail::merge_rules> merger;
        detail::piece_cache cache;
    };
    [[nodiscard]] piece_work working() const {
        return {{v_.tokens, detail::merge_rules{v_.tokens, v_.merges ? &*v_.merges : nullptr}}, {}};
    }
    void encode_piece(std::string_view piece, piece_work& work, std::vector<token_id>& ids) const {
        if (work.cache.find(piece, ids)) return;
        std::size_t const before = ids.size();
        token_id const whole = v_.whole_pieces ? v_.tokens.find(piece) : -1;
        if (whole >= 0) {
            ids.push_back(whole);
        } else {
            if (lacks_bytes_) require_bytes(piece);
            work.merger.merge(piece, ids);
        }
        work.cache.keep(piece, std::span(ids).subspan(before));
    }

    // Other programs drop such a byte without a word.
    void require_bytes(std::string_view piece) const {
        for (char const& byte : piece)
            require(
                v_.tokens.find({&byte, 1}) >= 0, errc::data, "byte ", int{static_cast<std::uint8_t>(byte)},
                " of the text has no token in this vocabulary: remove it from the text or choose another tokenizer");
    }

    vocabulary v_;
    bool lacks_bytes_;
};

/// Encodes text that comes in parts, with the ids that tokenizer::encode gives for the whole. Holds only what may still
/// become one piece. The tokenizer must outlive it.
class token_stream {
public:
    /// Begins a text. Throws errc::memory.
    explicit token_stream(tokenizer const& tokenizer) :
        tokenizer_(tokenizer), work_(tokenizer.working()), added_(tokenizer.v_.added),
        added_normalized_(tokenizer.v_.added_normalized), pieces_(tokenizer.v_.patterns) {}

    /// Appends the ids that the parts so far determine. Throws as tokenizer::encode, as piece_stream and as nfc_stream.
    void push(std::string_view part, std::vector<token_id>& ids) { search(part, false, ids); }
    /// Appends the remaining ids; another text may then begin.
    void finish(std::vector<token_id>& ids) {
        search({}, true, ids);
        if (tokenizer_.v_.is_nfc) normalized_.finish([&](std::string_view text) { cut(text, ids); });
        pieces_.finish([&](std::string_view piece) { tokenizer_.encode_piece(piece, work_, ids); });
    }

private:
    void search(std::string_view part, bool ends, std::vector<token_id>& ids) {
        added_.push(
            part, ends, [&](std::string_view text) { search_between(text, false, ids); },
            [&](token_id id) {
                search_between({}, true, ids);
                add(id, ids);
            });
        if (ends) search_between({}, true, ids);
    }
    // Searches the text between the tokens of the first search.
    void search_between(std::string_view part, bool ends, std::vector<token_id>& ids) {
        added_normalized_.push(
            part, ends, [&](std::string_view text) { add(text, ids); }, [&](token_id id) { add(id, ids); });
    }
    void add(std::string_view text, std::vector<token_id>& ids) {
        if (tokenizer_.v_.is_nfc)
            normalized_.push(text, [&](std::string_view part) { cut(part, ids); });
        else
            cut(text, ids);
    }
    // An added token: the text before it ends.
    void add(token_id id, std::vector<token_id>& ids) {
        if (tokenizer_.v_.is_nfc) normalized_.finish([&](std::string_view text) { cut(text, ids); });
        pieces_.end([&](std::string_view piece) { tokenizer_.encode_piece(piece, work_, ids); });
        ids.push_back(id);
    }
    void cut(std::string_view text, std::vector<token_id>& ids) {
        pieces_.push(text, [&](std::string_view piece) { tokenizer_.encode_piece(piece, work_, ids); });
    }

    tokenizer const& tokenizer_;
    tokenizer::piece_work work_;
    added_token_stream added_;
    added_token_stream added_normalized_;
    detail::nfc_stream normalized_;
    detail::piece_cutter pieces_;
};

inline void tokenizer::encode(std::string_view text, std::vector<token_id>& ids) const {
    token_stream stream(*this);
    stream.push(text, ids);
    stream.finish(ids);
}

namespace detail {
// SHA-256 of Llama 3's published vocabulary, as fingerprint() has it.
inline constexpr std::string_view llama3_fingerprint =
    "adb67458c314f5a218d4ae572ae6a1531f027d724595907227302c25bde7563b";

// Whether a table has only symbols. Vocabularies of text that are trained here begin with byte 0.
inline bool are_symbols(token_table const& table) {
    if (table.size() == 0 || table.size() >= 256 || table.bytes(0) == std::string_view("\0", 1)) return false;
    for (token_id id = 0; id < table.size(); ++id)
        if (table.bytes(id).size() != 1) return false;
    return true;
}

// Throws errc::usage for an unknown pattern, errc::tokenizer if the vocabulary would be too large or needs NFC in a
// program that was built without.
inline vocabulary vocabulary_of(token_table ranks, std::string_view pattern, std::string const& path) {
    auto const family = std::find_if(rank_families.begin(), rank_families.end(),
                                     [&](rank_family const& one) { return one.name == pattern; });
    if (family == rank_families.end())
        throw error(errc::usage, sentence("pattern '", pattern, "': expected ", names_of_rank_families()));
    if (static_cast<std::size_t>(ranks.size() + family->more) >= limits::vocabulary)  // PAD follows
        throw error(errc::tokenizer, path, "",
                    sentence("expected fewer than ", limits::vocabulary, " tokens with the special ones of ", pattern,
                             ", found ", ranks.size() + family->more));
    if (family->is_nfc && !has_nfc)
        throw error(errc::tokenizer, path, "",
                    sentence("the pattern ", pattern,
                             " needs NFC of ICU, and this program was built without: install libicu-dev, build again"));
    return vocabulary::of_ranks(std::move(ranks), *family);
}
}  // namespace detail

inline tokenizer tokenizer::parse_lines(std::string_view text, std::string const& path, std::string_view pattern) {
    detail::token_table table = detail::parse_rank_lines(text, path);
    if (pattern.empty() && detail::are_symbols(table)) return tokenizer(vocabulary{.tokens = std::move(table)});
    if (int const byte = detail::missing_byte(table); byte >= 0)
        throw error(
            errc::tokenizer, path, "line " + std::to_string(table.size() + 1),
            "the file ends, but byte " + std::to_string(byte) +
                " is not a token: a byte-level vocabulary has all 256; the file is cut short or of another kind");
    if (!pattern.empty()) return tokenizer(detail::vocabulary_of(std::move(table), pattern, path));
    if (table.size() == 128000)
        if (tokenizer llama3(detail::vocabulary_of(table, "llama3", path));
            llama3.fingerprint() == detail::llama3_fingerprint)
            return llama3;
    return tokenizer(vocabulary::of_ranks(std::move(table)));
}

/// Encodes texts in memory. For files see build_corpus.hpp.
template <class Documents> [[nodiscard]] corpus corpus_of(Documents const& documents, tokenizer const& tokenizer) {
    corpus text(tokenizer.specials());
    for (auto const& document : documents)
        text.add([&](std::vector<token_id>& ids) { tokenizer.encode(document, ids); });
    return text;
}

}  // namespace calm
