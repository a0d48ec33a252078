#pragma once
// The byte strings of a vocabulary, found by id and by bytes.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "calm/text/token.hpp"

namespace calm {

// Tokens numbered from 0 in the order they are added. Finding one costs a hash of its bytes.
class token_table {
public:
    // How many tokens there are.
    [[nodiscard]] token_id size() const { return static_cast<token_id>(ends_.size()); }
    // The length in bytes of the longest token.
    [[nodiscard]] std::size_t longest() const { return longest_; }

    // The bytes of token 0 <= id < size(); valid until the next add.
    [[nodiscard]] std::string_view bytes(token_id id) const {
        auto const i = static_cast<std::size_t>(id);
        std::size_t const begin = i == 0 ? 0 : ends_[i - 1];
        return std::string_view(text_).substr(begin, ends_[i] - begin);
    }

    // The id of a token, or -1.
    [[nodiscard]] token_id find(std::string_view token) const {
        return token.size() > longest_ || slots_.empty() ? -1 : slots_[slot_of(token)];
    }

    // Adds a token and returns its id; -1, and nothing changes, if it is there already.
    token_id add(std::string_view token) {
        if (2 * (ends_.size() + 1) > slots_.size()) grow();
        std::size_t const slot = slot_of(token);
        if (slots_[slot] >= 0) return -1;
        slots_[slot] = size();
        text_ += token;
        ends_.push_back(text_.size());
        longest_ = std::max(longest_, token.size());
        return size() - 1;
    }

private:
    // The slot that holds a token, or the free one where it belongs. The number of slots is a power of two.
    [[nodiscard]] std::size_t slot_of(std::string_view token) const {
        std::size_t const mask = slots_.size() - 1;
        std::size_t slot = std::hash<std::string_view>{}(token)&mask;
        while (slots_[slot] >= 0 && bytes(slots_[slot]) != token) slot = (slot + 1) & mask;
        return slot;
    }

    void grow() {
        slots_.assign(std::max<std::size_t>(1024, 2 * slots_.size()), -1);
        for (token_id id = 0; id < size(); ++id) slots_[slot_of(bytes(id))] = id;
    }

    std::string text_;               // all tokens, one after another
    std::vector<std::size_t> ends_;  // where each ends in text_
    std::vector<token_id> slots_;    // open addressing, -1 is free
    std::size_t longest_ = 0;
};

}  // namespace calm
