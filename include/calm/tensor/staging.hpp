#pragma once
// How numbers of the host go to a device that reads them later than the host goes on.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace calm::detail {

// Two rooms of host memory that a device reads by itself (pinned): while what is in the one is on its way, the other is
// filled. A Queue has copy(dst, src, bytes), which is done some time after what it was asked for before; mark(room),
// and wait(room), after which all is done that came before the last mark of that room.
template <std::size_t RoomBytes = std::size_t{4} << 20> class staging {
public:
    static constexpr std::size_t bytes = 2 * RoomBytes;  // of the memory that it needs

    explicit staging(void* memory) :
        rooms_{static_cast<std::byte*>(memory), static_cast<std::byte*>(memory) + RoomBytes} {}

    // dst on the device = the bytes of src, which are taken when it returns.
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
    std::size_t used_ = 0;  // bytes of it
};

}  // namespace calm::detail
