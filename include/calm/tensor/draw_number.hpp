#pragma once
// Where the draws of a micro-batch begin among those of its step.

#include <concepts>
#include <cstdint>

#include "calm/base/host_device.hpp"
#include "calm/tensor/extents.hpp"

namespace calm {

// A number of a keyed sequence that goes on with the micro-batches of a step: `first` of the first one, and `apart`
// more of each that follows. Kernels of a device may read which micro-batch it is where they run, so that they can be
// run again in another one.
struct draw_number {
    std::uint64_t first = 0;                     // of micro-batch 0
    std::uint64_t apart = 0;                     // from one micro-batch to the next
    std::uint64_t micro_batch = 0;               // of the step
    std::uint32_t const* live_number = nullptr;  // where kernels read the micro-batch instead; null: nowhere

    constexpr draw_number() = default;
    // The same number in every micro-batch.
    template <std::integral I> CALM_HD constexpr draw_number(I number) : first(static_cast<std::uint64_t>(number)) {}
    // `apart` numbers a micro-batch, from 0 on.
    constexpr draw_number(index_t apart_, index_t micro_batch_, std::uint32_t const* live = nullptr) :
        apart(static_cast<std::uint64_t>(apart_)), micro_batch(static_cast<std::uint64_t>(micro_batch_)),
        live_number(live) {}

    // The number, as kernels see it.
    [[nodiscard]] CALM_HD constexpr std::uint64_t now() const {
        return first + apart * (live_number != nullptr ? *live_number : micro_batch);
    }
    // The number for the host, which cannot read a device's memory.
    [[nodiscard]] constexpr std::uint64_t by_value() const { return first + apart * micro_batch; }

    // So much further on.
    friend CALM_HD constexpr draw_number operator+(draw_number n, std::integral auto more) {
        n.first += static_cast<std::uint64_t>(more);
        return n;
    }
    // Of sequences with so many numbers for each.
    friend CALM_HD constexpr draw_number operator*(draw_number n, std::integral auto times) {
        n.first *= static_cast<std::uint64_t>(times);
        n.apart *= static_cast<std::uint64_t>(times);
        return n;
    }
};

}  // namespace calm
