#pragma once
// One rank's view of data-parallel training.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "calm/tensor/core/extents.hpp"

namespace calm {

struct training_recipe;
struct training_state;

// One rank's part of data-parallel training. In each step it does some micro-batches, a subtree of the tree in which
// gradients add up; it updates a shard of the parameters and keeps that shard's optimizer state. The result is
// bit-identical to one rank. All ranks make the same calls in the same order; any call throws if another rank failed.
// Training and optimizer access ranks only through this interface, a null pointer for one rank. sharded_optimizer.hpp
// implements it on a process group and is compiled only for callers that have one.
class data_parallel {
public:
    // Elements begin .. end - 1 of a parameter.
    struct part {
        index_t begin;  // first element
        index_t end;    // one past the last
    };

    data_parallel() = default;
    virtual ~data_parallel() = default;
    data_parallel(data_parallel const&) = delete;
    data_parallel& operator=(data_parallel const&) = delete;

    // This rank's number, in [0, count()).
    [[nodiscard]] virtual int rank() const = 0;
    // Number of ranks.
    [[nodiscard]] virtual int count() const = 0;
    // Micro-batches per rank, given their number in a whole step. Throws errc::usage unless they form a subtree.
    [[nodiscard]] virtual index_t micro_batches(index_t of_a_step) const = 0;

    // From here until destruction the ranks work together, with timeouts. Throws errc::distributed unless all begin
    // with equal values and equal arguments.
    virtual void begin_run(std::uint64_t seed, training_state const& state, training_recipe const& recipe,
                           index_t tokens) = 0;
    // Seconds of rank 0's clock, the same on all ranks, so that all decide alike. Error messages then report
    // `steps_done`.
    virtual double sync_clock(index_t steps_done) = 0;
    // Gradients add up in buckets of neighbouring parameters: (G + 1) the first parameter of each, then the number of
    // parameters.
    [[nodiscard]] virtual std::vector<std::size_t> const& bucket_begins() const = 0;
    // Starts the exchange of a bucket whose gradients are complete on this rank, while backward computes other buckets.
    // All ranks begin the buckets in the same order.
    virtual void begin_reduce(std::size_t bucket) = 0;
    // Advances exchanges in flight, without waiting.
    virtual void make_progress() = 0;
    // Sums the gradients of all ranks, also of buckets already begun, in the tree of the ranks' numbers. Afterwards
    // this rank's shard has the sums, and gradients elsewhere are zero. `losses`, in device memory, has one equal part
    // per rank: this rank's part is filled on entry, all parts on return.
    virtual void reduce_gradients(std::span<std::byte> losses) = 0;
    // After each rank has updated its shard of the values, gathers all shards on all ranks.
    virtual void all_gather_values() = 0;
    // After each rank has changed its shard of the gradients, gathers the shards of marked parameters on all ranks.
    virtual void all_gather_gradients(std::vector<bool> const& marked) = 0;
    // Bytes of device memory for exchange buffers.
    [[nodiscard]] virtual std::size_t buffer_bytes() const = 0;

    // This rank's part of parameter i, possibly empty.
    [[nodiscard]] virtual part own(std::size_t i) const = 0;
    // Number of ranges of all parameters.
    [[nodiscard]] virtual index_t ranges() const = 0;
    // Sums of squares of the gradients in every range, in order, from the sums of this rank's ranges; valid until the
    // next call.
    virtual std::span<double const> all_gather_squares(std::span<double const> own_ranges) = 0;
    // After all_gather_squares(): the first parameter whose gradient is not finite, or the number of parameters.
    [[nodiscard]] virtual std::size_t first_nonfinite() const = 0;
    // Gathers tensors of the parameters' sizes, such as optimizer state, on rank 0. from[i], in device memory, is this
    // rank's part own(i). On rank 0, to[i] receives the whole tensor in host memory; nullptr leaves it out.
    virtual void gather_on_rank_0(std::span<void const* const> from, std::span<void* const> to) = 0;
};

}  // namespace calm
