#pragma once
// The byte strings of a vocabulary, indexed by id and by bytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "calm/base/token.hpp"
#include "calm/text/detail/keyed_hash.hpp"

namespace calm::detail {

// Tokens numbered from 0 in order of addition. A token of one or two bytes is found by an array look-up, a longer one
// by a keyed hash of its bytes.
class token_table {
public:
    // The number of ids.
    [[nodiscard]] token_id size() const { return static_cast<token_id>(ends_.size()); }
    // The length in bytes of the longest token.
    [[nodiscard]] std::size_t longest() const { return longest_; }

    // The bytes of token 0 <= id < size(), empty for a special token; valid until the next add.
    [[nodiscard]] std::string_view bytes(token_id id) const {
        auto const i = static_cast<std::size_t>(id);
        std::size_t const begin = i == 0 ? 0 : ends_[i - 1];
        return {text_.data() + begin, ends_[i] - begin};
    }

    // The id of a token, or -1.
    [[nodiscard]] token_id find(std::string_view token) const {
        if (token.size() > longest_ || token.empty()) return none;
        return token.size() <= 2 ? short_[short_slot(token)] : slots_[slot_of(token, hash_of(token))].id;
    }

    // Whether each byte of a text is a token.
    [[nodiscard]] bool has_bytes_of(std::string_view text) const {
        return std::all_of(text.begin(), text.end(), [&](char const& byte) { return find({&byte, 1}) >= 0; });
    }

    // Adds a non-empty token and returns its id. Returns -1 and changes nothing if it already exists.
    token_id add(std::string_view token) {
        if (find(token) >= 0) return none;
        if (short_.empty()) short_.assign(256 + 256 * 256, none);
        if (2 * (ends_.size() + 1) > slots_.size()) grow();
        token_id const id = size();
        append(token, true);
        longest_ = std::max(longest_, token.size());
        enter(id);
        return id;
    }

    // Adds an id that find() never returns: a special token without bytes, or one that pieces never merge into. Returns
    // the id.
    token_id add_special(std::string_view token = {}) {
        append(token, false);
        return size() - 1;
    }

    // Removes the last id, one of add_special() without bytes.
    void remove_last() {
        ends_.pop_back();
        found_.pop_back();
    }

private:
    static constexpr token_id none = -1;

    struct entry {
        std::uint32_t hash;
        token_id id;
    };

    void append(std::string_view token, bool found) {
        text_ += token;
        ends_.push_back(text_.size());
        found_.push_back(found);
    }

    static std::size_t short_slot(std::string_view token) {
        auto const byte = [&](std::size_t i) { return std::size_t{static_cast<std::uint8_t>(token[i])}; };
        return token.size() == 1 ? byte(0) : 256 + 256 * byte(0) + byte(1);
    }

    [[nodiscard]] std::uint32_t hash_of(std::string_view token) const {
        return static_cast<std::uint32_t>(hash_(token));
    }

    // The slot that holds a token, or the free slot for it. The number of slots is a power of two.
    [[nodiscard]] std::size_t slot_of(std::string_view token, std::uint32_t hash) const {
        std::size_t const mask = slots_.size() - 1;
        std::size_t at = hash & mask;
        while (slots_[at].id >= 0 && (slots_[at].hash != hash || bytes(slots_[at].id) != token)) at = (at + 1) & mask;
        return at;
    }

    // Makes find() return an id for its bytes.
    void enter(token_id id) {
        if (!found_[static_cast<std::size_t>(id)]) return;
        std::string_view const token = bytes(id);
        if (token.size() <= 2) {
            short_[short_slot(token)] = id;
        } else {
            std::uint32_t const hash = hash_of(token);
            slots_[slot_of(token, hash)] = {hash, id};
        }
    }

    void grow() {
        slots_.assign(std::max<std::size_t>(1024, 2 * slots_.size()), entry{0, none});
        for (token_id id = 0; id < size(); ++id) enter(id);
    }

    keyed_hash hash_;
    std::string text_;               // all tokens, concatenated
    std::vector<std::size_t> ends_;  // end of each token in text_
    std::vector<bool> found_;        // whether find() returns a token
    std::vector<token_id> short_;    // ids of one-byte tokens, then of two-byte tokens
    std::vector<entry> slots_;       // of longer tokens: open addressing, id -1 is free
    std::size_t longest_ = 0;
};

}  // namespace calm::detail
