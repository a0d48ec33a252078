#pragma once
// The tokens of pieces that were merged before: texts are mostly words that come again.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "calm/base/token.hpp"

namespace calm {

// Short pieces of few tokens, one a slot: the last one that belongs there. Whatever the pieces, it takes a fixed
// memory, from the first thousand on.
class piece_cache {
public:
    // Appends the tokens of a piece, if it knows them. Whether it does.
    bool find(std::string_view piece, std::vector<token_id>& out) const {
        if (slots_.empty() || piece.size() > longest) return false;
        auto const key = key_of(piece);
        slot const& at = slots_[place_of(key)];
        if (at.key != key) return false;
        out.insert(out.end(), at.tokens.begin(), at.tokens.begin() + at.count);
        return true;
    }
    // Keeps the tokens of a piece, if both are short.
    void keep(std::string_view piece, std::span<token_id const> tokens) {
        if (piece.size() > longest || tokens.size() > most_tokens) return;
        if (slots_.empty()) {
            if (++seen_ < worth_the_memory) return;
            slots_.resize(std::size_t{1} << bits);
        }
        auto const key = key_of(piece);
        slot& at = slots_[place_of(key)];
        at.key = key;
        at.count = static_cast<std::uint8_t>(tokens.size());
        std::copy(tokens.begin(), tokens.end(), at.tokens.begin());
    }

private:
    static constexpr int bits = 13;                        // slots: 384 kB
    static constexpr std::size_t longest = 15;             // bytes of a piece
    static constexpr std::size_t most_tokens = 7;          // of a piece
    static constexpr std::size_t worth_the_memory = 1000;  // pieces

    // The bytes and, in the last one, one more than there are: a free slot has 0.
    struct piece_key {
        std::uint64_t low = 0, high = 0;
        bool operator==(piece_key const&) const = default;
    };
    struct slot {
        piece_key key;
        std::uint8_t count = 0;
        std::array<token_id, most_tokens> tokens{};
    };

    static piece_key key_of(std::string_view piece) {
        std::array<char, 16> bytes{};
        std::memcpy(bytes.data(), piece.data(), piece.size());
        bytes.back() = static_cast<char>(piece.size() + 1);
        return std::bit_cast<piece_key>(bytes);
    }
    static std::size_t place_of(piece_key const& key) {
        std::uint64_t const mixed = (key.low ^ std::rotl(key.high, 32)) * 0x9e3779b97f4a7c15U;
        return static_cast<std::size_t>((mixed ^ (key.high * 0xc2b2ae3d27d4eb4fU)) >> (64 - bits));
    }

    std::vector<slot> slots_;
    std::size_t seen_ = 0;
};

}  // namespace calm
