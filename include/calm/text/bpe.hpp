#pragma once
// Byte-pair merging of one piece: while two neighbours together are a token, the pair of the lowest rank merges, the
// leftmost first (spec 2). A piece that is itself a token is not merged.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <queue>
#include <string_view>
#include <tuple>
#include <vector>

#include "calm/text/token_table.hpp"

namespace calm {

namespace detail {

// Few parts: a scan for the lowest rank after every merge, all in cache.
inline void merge_short(token_table const& table, std::string_view piece, std::vector<token_id>& out) {
    struct part {
        std::size_t begin;
        token_id pair;  // rank of this part joined with the next, or -1
    };
    static constexpr token_id none = -1;
    part parts[65];  // one a byte and the end
    std::size_t count = piece.size();
    auto const rank = [&](std::size_t i) {
        return i + 2 > count ? none : table.find(piece.substr(parts[i].begin, parts[i + 2].begin - parts[i].begin));
    };
    for (std::size_t i = 0; i <= count; ++i) parts[i] = {i, none};
    for (std::size_t i = 0; i + 1 < count; ++i) parts[i].pair = rank(i);
    while (true) {
        std::size_t best = count;
        for (std::size_t i = 0; i + 1 < count; ++i)
            if (parts[i].pair >= 0 && (best == count || parts[i].pair < parts[best].pair)) best = i;
        if (best == count) break;
        std::copy(parts + best + 2, parts + count + 1, parts + best + 1);
        --count;
        parts[best].pair = rank(best);
        if (best > 0) parts[best - 1].pair = rank(best - 1);
    }
    for (std::size_t i = 0; i < count; ++i)
        out.push_back(table.find(piece.substr(parts[i].begin, parts[i + 1].begin - parts[i].begin)));
}

// Many parts: a heap of candidates over a linked list, O(n log n). A candidate is stale when its two parts are no
// longer neighbours; a span has one rank however it is parted, so comparing the span's ends is enough.
inline void merge_long(token_table const& table, std::string_view piece, std::vector<token_id>& out) {
    using candidate = std::tuple<token_id, std::size_t, std::size_t>;  // rank, begin, end
    std::size_t const size = piece.size();
    std::vector<std::size_t> next(size + 1);  // the begin of the following part; 0 for a begin that was merged away
    std::vector<std::size_t> previous(size + 1);
    for (std::size_t i = 0; i <= size; ++i) next[i] = i + 1, previous[i] = i - (i > 0);
    std::priority_queue<candidate, std::vector<candidate>, std::greater<>> heap;
    auto const offer = [&](std::size_t begin) {
        if (begin >= size || next[begin] >= size) return;
        std::size_t const end = next[next[begin]];
        token_id const rank = table.find(piece.substr(begin, end - begin));
        if (rank >= 0) heap.emplace(rank, begin, end);
    };
    for (std::size_t i = 0; i < size; ++i) offer(i);
    while (!heap.empty()) {
        auto const [rank, begin, end] = heap.top();
        heap.pop();
        std::size_t const middle = next[begin];
        if (middle == 0 || middle >= size || next[middle] != end) continue;
        next[begin] = end;
        next[middle] = 0;
        previous[end] = begin;
        offer(begin);
        if (begin > 0) offer(previous[begin]);
    }
    for (std::size_t begin = 0; begin < size; begin = next[begin])
        out.push_back(table.find(piece.substr(begin, next[begin] - begin)));
}

}  // namespace detail

// Appends the tokens of a piece that is not empty. Every single byte is a token of the table.
inline void bpe_merge(token_table const& table, std::string_view piece, std::vector<token_id>& out) {
    if (token_id const whole = table.find(piece); whole >= 0) {
        out.push_back(whole);
    } else if (piece.size() <= 64) {
        detail::merge_short(table, piece, out);
    } else {
        detail::merge_long(table, piece, out);
    }
}

}  // namespace calm
