#pragma once
/// \file
/// Distributes the pieces of an evaluation over ranks: piece n belongs to rank n mod R. The pieces do not depend on the
/// ranks, each is done by one rank, and results are taken in the order of the pieces: the outcome is bit-identical to
/// one rank. All ranks make the same calls in the same order; any call throws if another rank failed. A null process
/// group means one rank.
/// \shows{tests/ranks/evaluation_test.cpp,an_autoencoder_is_scored_equally_by_any_number_of_ranks}

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/ranks/detail/message.hpp"
#include "calm/ranks/detail/patient_wait.hpp"
#include "calm/ranks/process_group.hpp"
#include "calm/tensor/core/extents.hpp"

namespace calm::detail {

// Whether this rank does a piece.
inline bool is_done_here(process_group* ranks, index_t number) {
    if (ranks == nullptr) return true;
    ranks->heartbeat();  // between pieces
    return number % ranks->ranks() == ranks->rank();
}

// Replaces each count by its sum over all ranks. Throws errc::distributed for an invalid count.
inline void all_reduce(process_group* ranks, std::span<index_t> counts) {
    if (ranks == nullptr) return;
    patient_wait const patience(*ranks);
    std::vector<index_t> all(counts.size() * static_cast<std::size_t>(ranks->ranks()));
    ranks->all_gather(std::span<index_t const>(counts), std::span(all));
    constexpr index_t most = index_t{1} << 40;  // also the most in total
    std::ranges::fill(counts, 0);
    for (std::size_t i = 0; i < all.size(); ++i) {
        auto& sum = counts[i % counts.size()];
        require(all[i] >= 0 && all[i] <= most - sum, errc::distributed, "rank ", i / counts.size(),
                ": expected a count from 0 to ", most - sum, ", found ", all[i],
                "; do all ranks run the same program?");
        sum += all[i];
    }
}

// The result of a piece.
template <class T> struct piece_result {
    static_assert(std::is_trivially_copyable_v<T>);
    index_t number;  // of the piece
    T result;
};

// Reads the results of all ranks from their bytes and sorts them by piece. Throws errc::distributed for a piece that
// comes twice or is not one of `pieces`, and for a result that `can_be` refuses.
template <class T>
std::vector<piece_result<T>> results_in(std::span<std::byte const> bytes, index_t pieces, bool (*can_be)(T const&)) {
    using numbered = piece_result<T>;
    require(bytes.size() % sizeof(numbered) == 0, errc::distributed, "calm::piece_results: expected results of ",
            sizeof(numbered), " bytes each from all ranks, found ", bytes.size(),
            " bytes; do all ranks run the same program?");
    std::vector<numbered> all(bytes.size() / sizeof(numbered));
    if (!bytes.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
    std::ranges::sort(all, {}, &numbered::number);
    index_t next = 0;
    for (auto const& one : all) {
        require(one.number >= next && one.number < pieces && can_be(one.result), errc::distributed,
                "calm::piece_results: expected at most one result for each of ", pieces,
                " pieces, found another one of piece ", one.number, "; do all ranks run the same program?");
        next = one.number + 1;
    }
    return all;
}

// Delivers results in the order of their pieces: at once with one rank, after all pieces are done with several.
template <class T> class piece_results {
public:
    using taker = std::function<void(T const&)>;  // receives a result
    using check = bool (*)(T const&);             // whether a result of another rank is valid

    piece_results(
        process_group* ranks, taker take, check can_be = [](T const&) { return true; }) :
        ranks_(ranks),
        take_(std::move(take)), can_be_(can_be) {}
    piece_results(piece_results const&) = delete;  // the taker refers to its owner
    piece_results& operator=(piece_results const&) = delete;

    // Adds the result of this rank's next piece; numbers ascend.
    void add(index_t number, T const& result) {
        if (ranks_ == nullptr)
            take_(result);
        else
            own_.push_back({number, result});
    }
    // Called when all `pieces` are done; with several ranks, delivers the results of all ranks. Throws as results_in.
    void end(index_t pieces) {
        if (ranks_ == nullptr) return;
        patient_wait const patience(*ranks_);
        auto const most = static_cast<std::uint64_t>(pieces) * sizeof(piece_result<T>);
        auto all = gather_messages(*ranks_, std::as_bytes(std::span(own_)), most, most);
        own_.clear();
        for (auto const& one : results_in<T>(all.all(), pieces, can_be_)) take_(one.result);
    }

private:
    process_group* ranks_;
    taker take_;
    check can_be_;
    std::vector<piece_result<T>> own_;
};

}  // namespace calm::detail
