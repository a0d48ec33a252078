#pragma once
// What a rank of several does of a job that is made of pieces, such as an evaluation.

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
#include "calm/tensor/extents.hpp"

namespace calm {

// One rank's end of a job whose pieces are numbered from 0. Which pieces there are does not depend on the ranks, each
// is done by one of them, and what came of them is taken in the order of their numbers: so the numbers of the job are
// those of one rank, bit for bit. All ranks call the same verbs in the same order, and any of them throws where another
// rank failed. Work knows ranks by this alone, a null pointer where there is one; rank_pieces.hpp makes it of a
// collective.
class shared_pieces {
public:
    shared_pieces() = default;
    virtual ~shared_pieces() = default;
    shared_pieces(shared_pieces const&) = delete;
    shared_pieces& operator=(shared_pieces const&) = delete;

    // Whether this rank does a piece. Throws where another rank failed or has ended.
    [[nodiscard]] virtual bool is_own(index_t number) const = 0;
    // Within a piece that takes long: shows the others that this rank is at it. Throws as is_own().
    virtual void keep_in_touch() = 0;
    // What each rank has, one after another in the order of their numbers: the same on all. The bytes are as other
    // ranks sent them. Throws errc::distributed where they have more than so many bytes together.
    virtual std::vector<std::byte> gather(std::span<std::byte const> own, std::uint64_t most) = 0;
    // Each count becomes the sum of those of all ranks. Throws errc::distributed for a count that is none.
    virtual void add_up(std::span<index_t> counts) = 0;
    // Throws errc::distributed, the same at all ranks, where one has another setting than rank 0.
    virtual void require_alike(std::span<setting const> settings) = 0;
};

namespace detail {

inline bool is_done_here(shared_pieces const* ranks, index_t number) {
    return ranks == nullptr || ranks->is_own(number);
}

// Results of pieces on their way to whoever takes them, one by one in the order of their numbers: at once from one
// rank, and once all pieces are done from several.
template <class T> class piece_results {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    using taker = std::function<void(T const&)>;  // of a result
    using check = bool (*)(T const&);             // whether another rank may have found it

    piece_results(
        shared_pieces* ranks, taker take, check can_be = [](T const&) { return true; }) :
        ranks_(ranks),
        take_(std::move(take)), can_be_(can_be) {}
    piece_results(piece_results const&) = delete;  // the taker knows where its owner is
    piece_results& operator=(piece_results const&) = delete;

    // Of the next piece of this rank; their numbers ascend.
    void add(index_t number, T const& result) {
        if (ranks_ == nullptr)
            take_(result);
        else
            own_.push_back({number, result});
    }
    // All of so many pieces are done: of several ranks, takes the results of all. Throws errc::distributed where those
    // of another rank cannot be.
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
                    "calm::piece_results: expected one result at most of each of ", pieces,
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
    shared_pieces* ranks_;
    taker take_;
    check can_be_;
    std::vector<numbered> own_;
};

}  // namespace detail

}  // namespace calm
