#pragma once
/// \file
/// RNG counters: where the draws of a micro-batch begin within its step.
/// \shows{examples/07_head.hpp,guessing_head}

#include <concepts>
#include <cstdint>

#include "calm/base/host_device.hpp"
#include "calm/tensor/core/extents.hpp"

namespace calm {

/// A counter into a keyed sequence: `first` for micro-batch 0, and `apart` more for each later one. Device kernels may
/// read the micro-batch when they run, so that a replay draws for its own micro-batch.
struct rng_counter {
    std::uint64_t first = 0;                     ///< counter in micro-batch 0
    std::uint64_t apart = 0;                     ///< increase per micro-batch
    std::uint64_t micro_batch = 0;               ///< index in the step
    std::uint32_t const* live_number = nullptr;  ///< where kernels read the micro-batch; null: they use micro_batch

    constexpr rng_counter() = default;
    /// Equal in every micro-batch.
    template <std::integral I> CALM_HD constexpr rng_counter(I number) : first(static_cast<std::uint64_t>(number)) {}
    /// Begins at 0 and advances by `apart` per micro-batch.
    constexpr rng_counter(index_t apart_, index_t micro_batch_, std::uint32_t const* live = nullptr) :
        apart(static_cast<std::uint64_t>(apart_)), micro_batch(static_cast<std::uint64_t>(micro_batch_)),
        live_number(live) {}

    /// The counter, for kernels.
    [[nodiscard]] CALM_HD constexpr std::uint64_t now() const {
        return first + apart * (live_number != nullptr ? *live_number : micro_batch);
    }
    /// The counter, for the host, which cannot read device memory.
    [[nodiscard]] constexpr std::uint64_t by_value() const { return first + apart * micro_batch; }

    /// Advanced by `more`.
    friend CALM_HD constexpr rng_counter operator+(rng_counter n, std::integral auto more) {
        n.first += static_cast<std::uint64_t>(more);
        return n;
    }
    /// Converts a counter of items to a counter of numbers, with `times` numbers per item.
    friend CALM_HD constexpr rng_counter operator*(rng_counter n, std::integral auto times) {
        n.first *= static_cast<std::uint64_t>(times);
        n.apart *= static_cast<std::uint64_t>(times);
        return n;
    }
};

}  // namespace calm
