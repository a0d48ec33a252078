#pragma once
// Tokenised documents in memory.

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/text/special_tokens.hpp"
#include "calm/text/token.hpp"

namespace calm {

// Documents as ids, without specials, one after another, and the specials to pack them with.
class corpus {
public:
    explicit corpus(special_tokens specials) : specials_(specials) {}

    // Adds a document at the end: `append` is called with the vector of all ids and appends those of the document.
    // Returns the number of ids appended.
    template <class Append>
    requires std::is_invocable_v < Append, std::vector<token_id>
    & > std::size_t add(Append&& append) {
        std::forward<Append>(append)(ids_);
        ends_.push_back(ids_.size());
        return document(documents() - 1).size();
    }
    // The same from ids.
    std::size_t add(std::span<token_id const> ids) {
        return add([&](std::vector<token_id>& all) { all.insert(all.end(), ids.begin(), ids.end()); });
    }

    // How many documents there are.
    [[nodiscard]] std::size_t documents() const { return ends_.size(); }
    // How many ids they have together.
    [[nodiscard]] std::size_t tokens() const { return ids_.size(); }
    // The ids of document 0 <= i < documents().
    [[nodiscard]] std::span<token_id const> document(std::size_t i) const {
        std::size_t const begin = i == 0 ? 0 : ends_[i - 1];
        return std::span(ids_).subspan(begin, ends_[i] - begin);
    }
    [[nodiscard]] special_tokens const& specials() const { return specials_; }

private:
    special_tokens specials_;
    std::vector<token_id> ids_;
    std::vector<std::size_t> ends_;  // where each document ends in ids_
};

}  // namespace calm
