#pragma once
// What a piece of work asks a device for: noted when it is recorded, compared when it is asked for again.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/tensor/extents.hpp"

namespace calm::detail {

// The kernels, fills and copies of a piece of work, in order. The copies' bytes go by a room of the host's memory, each
// at its place there, so that others can be put in for the next time.
class recording {
public:
    // With a room of so many bytes, each copy a multiple of `line`.
    explicit recording(std::size_t room) : room_(room) {}

    static constexpr std::size_t line = 64;
    static constexpr std::size_t lines_of(std::size_t bytes) { return (bytes + line - 1) / line * line; }

    // Whether it is recorded now; then what is asked for is new, and else as it was.
    [[nodiscard]] bool is_new() const { return !is_recorded_; }

    // A kernel of this name and of so many blocks, or a fill or a copy of so many bytes, and what else is to be the
    // same. Throws errc::device where something else was asked for when it was recorded.
    void ask(char const* what, index_t size, std::uint64_t word = 0) {
        asked const now{what, size, word};
        if (is_new()) return all_.push_back(now);
        require(next_ < all_.size() && now == all_[next_], errc::device, [&] {
            return sentence("calm: work that is done again asked a device for ", what, " (", size, ") as number ",
                            next_ + 1, ", expected ",
                            next_ < all_.size() ? sentence(all_[next_].what, " (", all_[next_].size, ")")
                                                : std::string("nothing"),
                            ", as when it was recorded; give what its kernels follow from as numbers of the work "
                            "(calm::repeated_work)");
        });
        ++next_;
    }
    // A fill of p.
    void ask_fill(void const* p, std::size_t bytes) {
        ask("a fill", static_cast<index_t>(bytes), reinterpret_cast<std::uintptr_t>(p));
    }
    // A copy to dst from the room: where its bytes are to be put there.
    std::size_t ask_copy(void const* dst, std::size_t bytes) {
        ask("a copy from the host", static_cast<index_t>(bytes), reinterpret_cast<std::uintptr_t>(dst));
        require(lines_of(bytes) <= room_ - used_, errc::device, "calm: work that is done again copies more than ",
                room_, " bytes to a device, which it did the first time");
        return std::exchange(used_, used_ + lines_of(bytes));
    }

    // Between two times.
    void end() {
        require(is_new() || next_ == all_.size(), errc::device, "calm: work that is done again asked a device for ",
                next_, " kernels, fills and copies, expected ", all_.size(), ", as when it was recorded");
        is_recorded_ = true;
        next_ = used_ = 0;
    }
    // The same where it failed on the way.
    void give_up() noexcept { next_ = used_ = 0; }

private:
    struct asked {
        char const* what;
        index_t size;
        std::uint64_t word;
        bool operator==(asked const& other) const {
            return std::strcmp(what, other.what) == 0 && size == other.size && word == other.word;
        }
    };
    std::size_t room_;
    std::vector<asked> all_;
    std::size_t next_ = 0;  // of them, when it is asked for again
    std::size_t used_ = 0;  // of the room
    bool is_recorded_ = false;
};

}  // namespace calm::detail
