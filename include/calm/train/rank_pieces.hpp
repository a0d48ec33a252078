#pragma once
// Pieces of a job that ranks share: piece n is rank n mod R's.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "calm/ranks/collective.hpp"
#include "calm/train/shared_pieces.hpp"

namespace calm {

// This rank's end; the collective outlives it.
class rank_pieces final : public shared_pieces {
public:
    explicit rank_pieces(collective& ranks) : ranks_(ranks) {}  // all of them

    [[nodiscard]] bool is_own(index_t number) const override { return number % ranks_.ranks() == ranks_.rank(); }
    std::vector<std::byte> gather(std::span<std::byte const> own) override {
        std::vector<std::size_t> sizes(static_cast<std::size_t>(ranks_.ranks()));
        auto const size = own.size();
        ranks_.all_gather(std::span<std::size_t const>(&size, 1), std::span(sizes));
        std::vector<std::size_t> starts{0};
        for (auto const each : sizes) starts.push_back(starts.back() + each);
        std::vector<std::byte> all(starts.back());
        ranks_.all_gather(own, std::span(all), starts);
        return all;
    }
    void add_up(std::span<index_t> counts) override { ranks_.all_reduce(counts); }
    void require_alike(std::span<std::uint64_t const> words) override {
        std::vector<std::uint64_t> all(words.size() * static_cast<std::size_t>(ranks_.ranks()));
        ranks_.all_gather(words, std::span(all));
        auto const of = [&](int rank) {
            return std::span(all).subspan(words.size() * static_cast<std::size_t>(rank), words.size());
        };
        // All ranks compare all with rank 0, so that whichever speaks first says the same.
        for (int rank = 1; rank < ranks_.ranks(); ++rank)
            require(
                std::ranges::equal(of(rank), of(0)), errc::distributed, "rank ", rank,
                " has another text or other options than rank 0: give all ranks the same command and the same files");
    }

private:
    collective& ranks_;
};

// This rank's end of several, or null: there is one rank.
inline std::unique_ptr<shared_pieces> pieces_of(collective* ranks) {
    if (ranks == nullptr || ranks->ranks() == 1) return nullptr;
    return std::make_unique<rank_pieces>(*ranks);
}

}  // namespace calm
