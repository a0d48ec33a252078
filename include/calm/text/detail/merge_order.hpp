#pragma once
// Decides whether a merge list is implied by the order of token ids.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "calm/text/detail/bpe.hpp"
#include "calm/text/detail/merge_list.hpp"
#include "calm/text/detail/token_table.hpp"

namespace calm::detail {

// How a merge list compares with merging by id.
struct merge_order {
    bool by_id;        // both give the same ids for every text
    bool all_reached;  // merging the bytes of any token gives that token
};

// Compares. Two parts whose concatenation is a token t meet in a text only as they do when t's bytes are merged alone:
// no merge crossed their ends, so the steps between were equal. There, one pair is left just before t, or t is never
// made. So if the list has that pair for every such token, in order of ids, its other pairs never meet and it merges
// identically.
[[nodiscard]] inline merge_order order_of(merge_list const& merges, token_table const& table) {
    struct all_but {
        token_table const& table;
        token_id const& one;
        [[nodiscard]] std::int32_t rank(token_id, token_id, std::string_view joined) const {
            token_id const id = table.find(joined);
            return id == one ? -1 : id;
        }
        [[nodiscard]] token_id merged(std::int32_t rank) const { return rank; }
        [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(table.size()); }
    };
    merge_order order{.by_id = true, .all_reached = true};
    token_id id = 0;
    bpe_merger merger(table, all_but{table, id});
    std::int32_t last = -1;
    std::vector<token_id> parts;
    for (; id < table.size() && order.by_id; ++id) {
        std::string_view const token = table.bytes(id);
        if (token.size() < 2 || table.find(token) != id) continue;
        if (!table.has_bytes_of(token)) {  // no merge begins with a byte that is not a token
            order.all_reached = false;
            continue;
        }
        parts.clear();
        merger.merge(token, parts);
        if (parts.size() > 2) {
            order.all_reached = false;
            continue;
        }
        std::int32_t const rank = merges.rank(parts[0], parts[1]);
        order.by_id = rank > last;
        last = rank;
    }
    return order;
}

}  // namespace calm::detail
