#pragma once
// The capture log of repeated work: operations are noted when it is recorded, and compared when it is replayed.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/tensor/core/extents.hpp"

namespace calm::detail {

// The kernels, fills and copies of repeated work, in order. Copies take their bytes from a host buffer, each at a fixed
// offset, so that the next replay can have new bytes.
class graph_capture {
public:
    // room: bytes of that buffer; each copy takes a multiple of `line`.
    explicit graph_capture(std::size_t room) : room_(room) {}

    static constexpr std::size_t line = 64;
    static constexpr std::size_t lines_of(std::size_t bytes) { return (bytes + line - 1) / line * line; }

    // Whether this is the first run, which is recorded; later runs are compared with it.
    [[nodiscard]] bool is_new() const { return !is_recorded_; }

    // Notes or compares a kernel, with its name and blocks, or a fill or copy, with its bytes; `word` is compared too.
    // Throws errc::device if it differs from the recording.
    void check(char const* what, index_t size, std::uint64_t word = 0) {
        operation const now{what, size, word};
        if (is_new()) return all_.push_back(now);
        require(next_ < all_.size() && now == all_[next_], errc::device, [&] {
            return sentence("calm: graph replay mismatch: operation ", next_ + 1, " is ", what, " (", size, "), but ",
                            next_ < all_.size() ? sentence(all_[next_].what, " (", all_[next_].size, ")")
                                                : std::string("nothing"),
                            " was captured; add the value that changed to the key of the graph (calm::captured_graph)");
        });
        ++next_;
    }
    // Notes or compares a fill of p.
    void check_fill(void const* p, std::size_t bytes) {
        check("a fill", static_cast<index_t>(bytes), reinterpret_cast<std::uintptr_t>(p));
    }
    // Notes or compares a copy to dst. Returns the offset in the buffer where its bytes belong.
    std::size_t check_copy(void const* dst, std::size_t bytes) {
        check("a copy from the host", static_cast<index_t>(bytes), reinterpret_cast<std::uintptr_t>(dst));
        require(lines_of(bytes) <= room_ - used_, errc::device,
                "calm: graph capture mismatch: a copy to the device needs more than the ", room_,
                " bytes of the first run");
        return std::exchange(used_, used_ + lines_of(bytes));
    }

    // Ends a run. Throws errc::device if the recording had more operations.
    void end() {
        require(is_new() || next_ == all_.size(), errc::device, "calm: graph replay mismatch: expected ", all_.size(),
                " kernels, fills and copies, as captured, found ", next_);
        is_recorded_ = true;
        next_ = used_ = 0;
    }
    // Ends a run that failed.
    void give_up() noexcept { next_ = used_ = 0; }

private:
    struct operation {
        char const* what;
        index_t size;
        std::uint64_t word;
        bool operator==(operation const& other) const {
            return std::strcmp(what, other.what) == 0 && size == other.size && word == other.word;
        }
    };
    std::size_t room_;
    std::vector<operation> all_;
    std::size_t next_ = 0;  // index into all_, in a replay
    std::size_t used_ = 0;  // bytes of the buffer
    bool is_recorded_ = false;
};

}  // namespace calm::detail
