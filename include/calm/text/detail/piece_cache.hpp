#pragma once
// Caches the tokens of pieces that were merged before: most text repeats words.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/token.hpp"
#include "calm/text/detail/byte_words.hpp"

namespace calm::detail {

// A direct-mapped cache of short pieces with few tokens. It grows with use, up to a fixed size, so a short text pays
// for little memory.
class piece_cache {
public:
    // Appends the tokens of a piece if it is cached; returns whether it is.
    bool find(std::string_view piece, std::vector<token_id>& out) const {
        if (slots_.empty() || piece.size() > longest) return false;
        auto const key = key_of(piece);
        slot const& at = slots_[place_of(key)];
        if (at.key != key) return false;
        std::size_t const before = out.size();
        out.resize(before + most_tokens);  // the whole slot: a copy of fixed size
        std::copy(at.tokens.begin(), at.tokens.end(), out.begin() + static_cast<std::ptrdiff_t>(before));
        out.resize(before + at.count);
        return true;
    }
    // Caches the tokens of a piece if both are short.
    void keep(std::string_view piece, std::span<token_id const> tokens) {
        if (piece.size() > longest || tokens.size() > most_tokens) return;
        ++kept_;
        if (slots_.empty() && kept_ < worth_the_memory) return;
        if (slots_.empty() || (kept_ > slots_.size() / 2 && slots_.size() < most_slots)) grow();
        auto const key = key_of(piece);
        slot& at = slots_[place_of(key)];
        at.key = key;
        at.count = static_cast<std::uint8_t>(tokens.size());
        std::copy(tokens.begin(), tokens.end(), at.tokens.begin());
    }

private:
    static constexpr std::size_t worth_the_memory = 256;  // pieces
    static constexpr std::size_t first_slots = 1024;      // 48 kB
    static constexpr std::size_t most_slots = 8192;       // 384 kB
    static constexpr std::size_t longest = 15;            // bytes of a piece
    static constexpr std::size_t most_tokens = 7;         // per piece

    // The bytes, and in the last one their number plus one; a free slot has 0.
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
        std::uint64_t const end = std::uint64_t{piece.size() + 1} << 56;
        if (piece.size() < 8) return {tail_of(piece.data(), piece.size()), end};
        return {word_of<std::uint64_t>(piece.data()), end | tail_of(piece.data() + 8, piece.size() - 8)};
    }
    [[nodiscard]] std::size_t place_of(piece_key const& key) const {
        std::uint64_t const mixed = (key.low ^ std::rotl(key.high, 32)) * 0x9e3779b97f4a7c15U;
        return static_cast<std::size_t>((mixed ^ (key.high * 0xc2b2ae3d27d4eb4fU)) >> shift_);
    }
    void grow() {
        auto const before = std::exchange(slots_, std::vector<slot>(std::max(first_slots, 4 * slots_.size())));
        shift_ = 64 - std::countr_zero(slots_.size());
        for (slot const& one : before)
            if (one.key != piece_key{}) slots_[place_of(one.key)] = one;
    }

    std::vector<slot> slots_;  // empty, or a power of two
    int shift_ = 0;            // from a 64-bit hash to the index of a slot
    std::size_t kept_ = 0;
};

}  // namespace calm::detail
