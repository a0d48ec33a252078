#pragma once
// How host data reaches a device that reads it later, while the host continues.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace calm::detail {

// Two buffers of pinned host memory, which a device reads directly: while one is being copied, the host fills the
// other. A Queue has copy(dst, src, bytes), which runs after earlier work; mark(room); and wait(room), which returns
// when everything before the last mark of that buffer is done.
template <std::size_t RoomBytes = std::size_t{4} << 20> class staging {
public:
    static constexpr std::size_t bytes = 2 * RoomBytes;  // of the memory that it needs

    explicit staging(void* memory) :
        rooms_{static_cast<std::byte*>(memory), static_cast<std::byte*>(memory) + RoomBytes} {}

    // Copies src to dst on the device; src may change after it returns.
    template <class Queue> void upload(Queue const& queue, void* dst, void const* src, std::size_t count) {
        auto* to = static_cast<std::byte*>(dst);
        auto const* from = static_cast<std::byte const*>(src);
        while (count > 0) {
            if (used_ == RoomBytes) change_rooms(queue);
            std::size_t const n = std::min(count, RoomBytes - used_);
            std::byte* const here = rooms_[room_] + used_;
            std::memcpy(here, from, n);
            queue.copy(to, here, n);
            used_ += std::min((n + line - 1) / line * line, RoomBytes - used_);
            to += n;
            from += n;
            count -= n;
        }
    }

private:
    static constexpr std::size_t line = 64;

    template <class Queue> void change_rooms(Queue const& queue) {
        queue.mark(room_);
        room_ = 1 - room_;
        queue.wait(room_);
        used_ = 0;
    }

    std::array<std::byte*, 2> rooms_;
    std::size_t room_ = 0;
    std::size_t used_ = 0;  // bytes of the current buffer
};

}  // namespace calm::detail
