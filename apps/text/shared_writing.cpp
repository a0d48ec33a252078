#include "text/shared_writing.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "calm/train/rank_pieces.hpp"
#include "run/ranks.hpp"

namespace calm::apps {

namespace {

using prompts_span = std::span<std::vector<token_id> const>;

void append(std::vector<index_t>& numbers, generation_result const& text) {
    numbers.insert(numbers.end(),
                   {std::ssize(text.tokens), text.stopped_at_eos ? 1 : 0, text.patches, text.draws, text.capped});
    numbers.insert(numbers.end(), text.tokens.begin(), text.tokens.end());
}

std::vector<generation_result> texts_in(std::span<std::byte const> bytes) {
    std::vector<index_t> numbers(bytes.size() / sizeof(index_t));
    if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
    std::vector<generation_result> all;
    for (auto at = numbers.begin(); at != numbers.end();) {
        auto const tokens = at + 5;
        auto const end = tokens + at[0];
        generation_result text{{}, at[1] != 0, at[2], at[3], at[4]};
        text.tokens.reserve(static_cast<std::size_t>(at[0]));
        for (auto id = tokens; id != end; ++id) text.tokens.push_back(static_cast<token_id>(*id));
        at = end;
        all.push_back(std::move(text));
    }
    return all;
}

// What all ranks write of a lot of prompts, which each of them has.
std::vector<generation_result> written_by_all(collective& ranks, prompts_span prompts, std::uint32_t first,
                                              write_and_tell const& write, tell_tokens const& told) {
    auto const count = static_cast<std::size_t>(ranks.ranks());
    auto const begin_of = [&](int rank) {
        return (prompts.size() * static_cast<std::size_t>(rank) + count - 1) / count;
    };
    auto const begin = begin_of(ranks.rank());
    auto const own = prompts.subspan(begin, begin_of(ranks.rank() + 1) - begin);
    std::vector<index_t> numbers;
    if (!own.empty())
        for (auto const& text : write(own, first + static_cast<std::uint32_t>(begin), told)) append(numbers, text);
    return texts_in(rank_pieces(ranks).gather(std::as_bytes(std::span(numbers))));
}

// Rank 0's next lot, for all; an empty one is the last.
std::uint32_t bring(collective& ranks, std::vector<std::vector<token_id>>& prompts, std::uint32_t first) {
    auto const lot = ranks.broadcast(std::array<std::uint64_t, 2>{prompts.size(), first});
    prompts.resize(lot[0]);
    std::vector<std::uint64_t> sizes;
    for (auto const& prompt : prompts) sizes.push_back(prompt.size());
    ranks.broadcast(std::span(sizes));
    std::vector<token_id> ids;
    for (auto const& prompt : prompts) ids.insert(ids.end(), prompt.begin(), prompt.end());
    ids.resize(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
    ranks.broadcast(std::span(ids));
    auto from = ids.begin();
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        auto const to = from + static_cast<std::ptrdiff_t>(sizes[i]);
        prompts[i].assign(from, to);
        from = to;
    }
    return static_cast<std::uint32_t>(lot[1]);
}

}  // namespace

write_texts untold(write_and_tell const& write) {
    return [&write](prompts_span prompts, std::uint32_t first) {
        return write(prompts, first, [](std::size_t, std::span<token_id const>) {});
    };
}

int on_all_ranks(write_and_tell const& write, std::function<int(write_and_tell const&)> const& program) {
    auto* const all = ranks();
    if (all == nullptr) return program(write);
    std::vector<std::vector<token_id>> lot;
    if (!all->is_first()) {
        for (;;) {
            lot.clear();
            auto const first = bring(*all, lot, 0);
            if (lot.empty()) return 0;
            written_by_all(*all, lot, first, write, [](std::size_t, std::span<token_id const>) {});
        }
    }
    int const status = program([&](prompts_span prompts, std::uint32_t first, tell_tokens const& told) {
        lot.assign(prompts.begin(), prompts.end());
        if (!lot.empty()) bring(*all, lot, first);
        return lot.empty() ? std::vector<generation_result>() : written_by_all(*all, lot, first, write, told);
    });
    lot.clear();
    bring(*all, lot, 0);
    return status;
}

}  // namespace calm::apps
