#pragma once
// One rank's view of a job made of pieces, such as a distributed evaluation.

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
#include "calm/ranks/setting.hpp"
#include "calm/tensor/core/extents.hpp"

namespace calm {

// One rank's part of a job whose pieces are numbered from 0. The pieces do not depend on the ranks, each is done by one
// rank, and results are taken in the order of the pieces: the outcome is bit-identical to one rank. All ranks make the
// same calls in the same order; any call throws if another rank failed. A job accesses ranks only through this
// interface, a null pointer for one rank; process_group_evaluation.hpp implements it on a process group.
class distributed_evaluation {
public:
    distributed_evaluation() = default;
    virtual ~distributed_evaluation() = default;
    distributed_evaluation(distributed_evaluation const&) = delete;
    distributed_evaluation& operator=(distributed_evaluation const&) = delete;

    // Whether this rank does a piece. Throws if another rank failed or has ended.
    [[nodiscard]] virtual bool is_own(index_t number) const = 0;
    // Called within long pieces: shows the other ranks that this rank is alive. Throws as is_own().
    virtual void heartbeat() = 0;
    // Concatenates the bytes of all ranks in rank order, with the same result on all. The bytes are not validated.
    // Throws errc::distributed for more than `most` bytes in total.
    virtual std::vector<std::byte> gather(std::span<std::byte const> own, std::uint64_t most) = 0;
    // Replaces each count by its sum over all ranks. Throws errc::distributed for an invalid count.
    virtual void add_up(std::span<index_t> counts) = 0;
    // Throws errc::distributed, the same on all ranks, if a rank has another setting than rank 0.
    virtual void require_same_settings(std::span<setting const> settings) = 0;
};

namespace detail {

inline bool is_done_here(distributed_evaluation const* ranks, index_t number) {
    return ranks == nullptr || ranks->is_own(number);
}

// Delivers results in the order of their pieces: at once with one rank, after all pieces are done with several.
template <class T> class piece_results {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    using taker = std::function<void(T const&)>;  // receives a result
    using check = bool (*)(T const&);             // whether a result of another rank is valid

    piece_results(
        distributed_evaluation* ranks, taker take, check can_be = [](T const&) { return true; }) :
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
    // Called when all `pieces` are done; with several ranks, delivers the results of all ranks. Throws
    // errc::distributed if another rank's results are invalid.
    void end(index_t pieces) {
        if (ranks_ == nullptr) return;
        auto const bytes = ranks_->gather(std::as_bytes(std::span<numbered const>(own_)),
                                          static_cast<std::uint64_t>(pieces) * sizeof(numbered));
        require(bytes.size() % sizeof(numbered) == 0, errc::distributed, "calm::piece_results: expected results of ",
                sizeof(numbered), " bytes each from all ranks, found ", bytes.size(),
                " bytes; do all ranks run the same program?");
        own_.resize(bytes.size() / sizeof(numbered));
        if (!bytes.empty()) std::memcpy(own_.data(), bytes.data(), bytes.size());
        std::ranges::sort(own_, {}, &numbered::number);
        index_t next = 0;
        for (auto const& one : own_) {
            require(one.number >= next && one.number < pieces && can_be_(one.result), errc::distributed,
                    "calm::piece_results: expected at most one result for each of ", pieces,
                    " pieces, found another one of piece ", one.number, "; do all ranks run the same program?");
            next = one.number + 1;
        }
        for (auto const& one : own_) take_(one.result);
        own_.clear();
    }

private:
    struct numbered {
        index_t number;
        T result;
    };
    distributed_evaluation* ranks_;
    taker take_;
    check can_be_;
    std::vector<numbered> own_;
};

}  // namespace detail

}  // namespace calm
