#pragma once
// ZeRO stage 1 (Rajbhandari et al. 2020): each rank sums the gradients of its shard of the parameters, updates it and
// keeps its optimizer state. Shards are whole ranges of detail/block/ranges.hpp, so sums over ranges are bit-identical
// for any number of ranks.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/base/detail/checksum.hpp"
#include "calm/nn/param.hpp"
#include "calm/ranks/detail/message.hpp"
#include "calm/ranks/process_group.hpp"
#include "calm/tensor/core/copy.hpp"
#include "calm/train/detail/data_parallel.hpp"
#include "calm/train/detail/packing.hpp"
#include "calm/train/detail/rank_settings.hpp"
#include "calm/train/detail/shard_layout.hpp"
#include "calm/train/detail/throughput.hpp"
#include "calm/train/recipe.hpp"
#include "calm/train/training_callbacks.hpp"

namespace calm {

// When ranks add up gradients: bucket by bucket during backward, or all together after it.
enum class gradient_exchange { during_backward, after_backward };

// Sharded parameters (shard_layout.hpp). Keeps pointers to the parameters, as the optimizer does. One chunk of a shard
// at a time is packed in device memory. Chunks of a device go directly to other ranks if the process group has a device
// transport (process_group::devices), otherwise through host memory.
template <class Space> class sharded_optimizer final : public data_parallel {
    using T = typename Space::scalar;
    using Backend = typename Space::backend;

public:
    // Context and ranks outlive it. Up to most_in_flight exchanges are in flight, each with at most `chunk` elements
    // per shard; a bucket has at least `bucket` elements.
    sharded_optimizer(context<Backend> const& ctx, std::vector<any_parameter<Space>> const& parameters,
                      process_group& ranks, index_t chunk, index_t bucket) :
        ctx_(ctx),
        ranks_(ranks), layout_(sizes_of(parameters), ranks.rank(), ranks.ranks(), chunk, bucket),
        sums_(layout_.ranges().size()) {
        for (auto const& p : parameters) {
            value_slots_.push_back({p.value.data(), 0});
            gradient_slots_.push_back({p.grad.data(), 0});
        }
        for (int r = 0; r < ranks.ranks(); ++r) {
            auto const own = layout_.ranges_of_rank(static_cast<std::size_t>(r));
            range_numbers_.insert(range_numbers_.end(), own.begin(), own.end());
            range_starts_.push_back(range_numbers_.size());
        }
        extents<dyn> const room(index_t{ranks.ranks()} * layout_.chunk());
        for (auto& one : buffers_) one = {memory_.template take<T>(room).data(), memory_.template take<T>(room).data()};
        values_ = device_table(memory_, value_slots_);
        gradients_ = device_table(memory_, gradient_slots_);
        set_plan(whole_, std::vector<bool>(parameters.size(), true));
        begun_.resize(whole_.all.bucket_ends.size());
    }
    // Exchanges in flight at once. A device has one, which is waited for.
    static constexpr std::size_t most_in_flight = host_memory<Backend> ? 4 : 1;
    // Default sizes: an exchange fills some MB over all ranks, unless many ranks would make messages too small; each
    // rank has several ranges of a bucket.
    sharded_optimizer(context<Backend> const& ctx, std::vector<any_parameter<Space>> const& parameters,
                      process_group& ranks, gradient_exchange when = gradient_exchange::during_backward) :
        sharded_optimizer(ctx, parameters, ranks,
                          std::max<index_t>((index_t{1} << 20) / ranks.ranks(), detail::range_grain),
                          when == gradient_exchange::during_backward && host_memory<Backend>
                              ? std::max<index_t>(index_t{1} << 20, 4 * detail::range_grain * ranks.ranks())
                              : std::numeric_limits<index_t>::max()) {}
    // Waits for exchanges in flight, because they use its memory.
    ~sharded_optimizer() override {
        try {
            while (ranks_.in_flight() > 0) ranks_.wait_exchange();
        } catch (error const&) {  // the error that led here is more informative
        }
        ranks_.timeout_active = false;
    }

    [[nodiscard]] int rank() const override { return ranks_.rank(); }
    [[nodiscard]] int count() const override { return ranks_.ranks(); }
    [[nodiscard]] index_t micro_batches(index_t of_a_step) const override {
        index_t const each = of_a_step / count();
        require(count() == 1 || (each * count() == of_a_step && std::has_single_bit(static_cast<std::uint64_t>(each))),
                errc::usage, "training: expected a step of ", count(), " times 1, 2, 4, ... micro-batches for ",
                count(), " ranks, found ", of_a_step, " (--accumulation)");
        return each;
    }

    void begin_run(std::uint64_t seed, training_state const& state, training_recipe const& r, index_t tokens) override {
        auto all = detail::settings_of(r);
        for (auto& one : detail::settings_of(state)) all.push_back(std::move(one));
        all.push_back({"seed", std::to_string(seed)});
        all.push_back({"tokens per step", std::to_string(tokens)});
        require_same_settings(std::move(all));
        ranks_.timeout_active = true;
    }
    double sync_clock(index_t steps_done) override {
        ranks_.steps_done = steps_done;
        double const now = ranks_.broadcast(steady_seconds());
        require(std::isfinite(now) && now >= clock_, errc::distributed, "rank 0: expected a time of at least ", clock_,
                " s, found ", now, "; do all ranks run the same program?");
        return clock_ = now;
    }
    void reduce_gradients(std::span<std::byte> losses) override {
        sum_gradients();
        auto const size = losses.size() / static_cast<std::size_t>(count());
        auto const first = static_cast<std::size_t>(rank()) * size;
        std::vector<std::byte> all(losses.size());
        auto const own = std::span(all).subspan(first, size);
        copy_to_host(ctx_, own, losses.data() + first);
        ranks_.all_gather(std::span<std::byte const>(own), std::span(all));
        copy_to_device(ctx_, losses.data(), std::span<std::byte const>(all));
    }
    [[nodiscard]] part own(std::size_t i) const override { return layout_.own(i); }
    [[nodiscard]] std::size_t buffer_bytes() const override { return memory_.peak(); }

    [[nodiscard]] std::vector<std::size_t> const& bucket_begins() const override { return layout_.bucket_begins(); }
    void begin_reduce(std::size_t bucket) override {
        auto const& ends = whole_.all.bucket_ends;
        for (auto step = bucket == 0 ? 0 : ends[bucket - 1]; step < ends[bucket]; ++step) to_add_.push_back(step);
        begun_[bucket] = true;
        make_progress();
    }
    void make_progress() override {
        while (!on_way_.empty() && ranks_.test_exchange()) take_gradients();
        send_gradients();
    }

    // The gradient part of reduce_gradients().
    void sum_gradients() {
        settle_device();
        for (std::size_t bucket = 0; bucket < begun_.size(); ++bucket)
            if (!begun_[bucket]) begin_reduce(bucket);
        while (!on_way_.empty()) {
            take_gradients();
            send_gradients();
        }
        std::fill(begun_.begin(), begun_.end(), false);
        wait_on_devices();
    }
    void all_gather_values() override { gather(whole_, values_); }
    void all_gather_gradients(std::vector<bool> const& marked) override {
        if (some_.marked != marked) set_plan(some_, marked);
        gather(some_, gradients_);
    }
    [[nodiscard]] index_t ranges() const override { return std::ssize(layout_.ranges()); }
    std::span<double const> all_gather_squares(std::span<double const> own_ranges) override {
        std::vector<double> by_rank(sums_.size());
        ranks_.all_gather(own_ranges, std::span(by_rank), range_starts_);
        for (std::size_t i = 0; i < sums_.size(); ++i) sums_[range_numbers_[i]] = by_rank[i];
        return sums_;
    }
    [[nodiscard]] std::size_t first_nonfinite() const override {
        for (std::size_t r = 0; r < sums_.size(); ++r)
            if (!std::isfinite(sums_[r])) return static_cast<std::size_t>(layout_.ranges()[r].slot);
        return value_slots_.size();
    }
    void gather_on_rank_0(std::span<void const* const> from, std::span<void* const> to) override {
        auto const self = static_cast<std::size_t>(ranks_.rank());
        std::vector<detail::packed_slot<T>> slots;  // read only
        for (std::size_t i = 0; i < from.size(); ++i)
            slots.push_back({static_cast<T*>(const_cast<void*>(from[i])), own(i).begin});
        arena_scope const scope(memory_);
        auto const* const own_slots = device_table(memory_, slots);
        for (auto const& step : whole_.all.steps) {
            run(whole_, step.begin, step.own_end, own_slots, detail::pack<T>{buffers_[0].sent});
            auto const own_chunk = step.chunks[self];
            std::vector<T> here(static_cast<std::size_t>(self == 0 ? step.size : own_chunk.end));
            copy_to_host(ctx_, among(here.data(), own_chunk), buffers_[0].sent);
            std::vector<part> sent(step.chunks.size()), received(sent);
            if (self != 0) sent[0] = own_chunk;
            if (self == 0) received = step.chunks;
            ranks_.exchange(sends(here.data(), sent), receive_buffers(here.data(), received));
            for (index_t i = step.begin; self == 0 && i < step.end; ++i) {
                auto const& one = whole_.all.parts[static_cast<std::size_t>(i)];
                if (auto* const place = static_cast<T*>(to[static_cast<std::size_t>(one.slot)]); place != nullptr)
                    std::copy_n(here.data() + one.at, one.end - one.begin, place + one.begin);
            }
        }
    }
    // Throws errc::distributed, the same on all ranks, unless all begin with these settings and equal weights.
    void require_same_settings(std::vector<setting> settings) {
        checksum sum;
        std::vector<T> values;
        for (std::size_t i = 0; i < value_slots_.size(); ++i) {
            values.resize(static_cast<std::size_t>(layout_.size(i)));
            copy_to_host(ctx_, std::span(values), value_slots_[i].data);
            sum.add(std::as_bytes(std::span<T const>(values)));
        }
        settings.push_back({"checksum of the weights", std::to_string(sum.value())});
        calm::require_same_settings(ranks_, settings);
    }

private:
    static std::vector<index_t> sizes_of(std::vector<any_parameter<Space>> const& parameters) {
        std::vector<index_t> sizes;
        for (auto const& p : parameters) sizes.push_back(p.value.size());
        return sizes;
    }
    // Buffers of an exchange, in device memory.
    struct buffers {
        T* sent;  // (R, chunk)
        T* received;
    };
    // An exchange in flight.
    struct on_way {
        std::size_t step;
        buffers in;
    };
    // What to send for some parameters; the parts are also in device memory.
    struct device_plan {
        std::vector<bool> marked;
        detail::exchange_plan all;
        detail::packed_part const* there = nullptr;  // the parts, in device memory
    };
    void set_plan(device_plan& of, std::vector<bool> const& marked) {
        of.marked = marked;
        of.all = layout_.plan_of(marked);
        of.there = device_table(memory_, of.all.parts);
    }
    // Applies `what` to parts begin .. end - 1 of the tensors in `slots`.
    template <class Do>
    void run(device_plan const& of, index_t begin, index_t end, detail::packed_slot<T> const* slots,
             Do const& what) const {
        detail::run_packing(ctx_, detail::packed_parts<T>{of.there + begin, end - begin, slots}, what);
    }
    // Starts the next gradient exchanges, up to most_in_flight.
    void send_gradients() {
        auto const self = static_cast<std::size_t>(ranks_.rank());
        while (!to_add_.empty() && on_way_.size() < most_in_flight) {
            auto const& step = whole_.all.steps[to_add_.front()];
            auto const& in = buffers_[sent_steps_++ % most_in_flight];
            run(whole_, step.begin, step.end, gradients_, detail::pack_away<T>{in.sent});
            auto const size = step.chunks[self].end;  // elements of this rank's chunk, which every other rank sends
            auto to = step.chunks;
            std::vector<part> from(to.size());
            index_t place = 0;
            for (std::size_t r = 0; r < from.size(); ++r)
                if (r != self) from[r] = {place, place + size}, place += size;
            to[self] = {};
            start_exchange(in, to, from);
            on_way_.push_back({to_add_.front(), in});
            to_add_.pop_front();
        }
    }
    // Finishes the oldest exchange in flight and adds up its gradients.
    void take_gradients() {
        auto const [number, in] = on_way_.front();
        wait_exchange();
        auto const& step = whole_.all.steps[number];
        auto const size = step.chunks[static_cast<std::size_t>(ranks_.rank())].end;
        run(whole_, step.begin, step.own_end, gradients_,
            detail::sum_of_ranks<T>{in.sent, in.received, size, ranks_.rank(), ranks_.ranks()});
        on_way_.pop_front();
    }
    // Gathers the tensors in `slots` from all ranks' shards, on all ranks.
    void gather(device_plan const& of, detail::packed_slot<T> const* slots) {
        auto const self = static_cast<std::size_t>(ranks_.rank());
        auto const& steps = of.all.steps;
        auto const in = [&](std::size_t step) -> auto const& {
            return buffers_[step % most_in_flight];
        };
        settle_device();
        for (std::size_t next = 0, taken = 0; taken < steps.size(); ++taken) {
            for (; next < steps.size() && next - taken < most_in_flight; ++next) {
                auto const& step = steps[next];
                run(of, step.begin, step.own_end, slots, detail::pack<T>{in(next).sent});
                std::vector<part> to(step.chunks.size(), step.chunks[self]);
                auto from = step.chunks;
                to[self] = from[self] = {};
                start_exchange(in(next), to, from);
            }
            wait_exchange();
            run(of, steps[taken].own_end, steps[taken].end, slots, detail::unpack<T>{in(taken).received});
        }
        wait_on_devices();
    }

    template <class U> static std::span<U> among(U* all, part const& some) {
        return {all + some.begin, static_cast<std::size_t>(some.end - some.begin)};
    }
    static std::vector<process_group::sent> sends(T const* all, std::vector<part> const& to) {
        std::vector<process_group::sent> bytes;
        for (auto const& one : to) bytes.push_back(std::as_bytes(among(all, one)));
        return bytes;
    }
    static std::vector<process_group::received> receive_buffers(T* all, std::vector<part> const& from) {
        std::vector<process_group::received> bytes;
        for (auto const& one : from) bytes.push_back(std::as_writable_bytes(among(all, one)));
        return bytes;
    }
    // Starts to send `to` of the send buffer to each rank, and to receive `from` of the receive buffer from each. On a
    // device the exchange is done on return, or is enqueued on the stream.
    void start_exchange(buffers const& in, std::vector<part> const& to, std::vector<part> const& from) {
        if constexpr (host_memory<Backend>) {
            ranks_.start_exchange(sends(in.sent, to), receive_buffers(in.received, from));
        } else if (ranks_.devices != nullptr) {
            ranks_.exchange_on_devices(sends(in.sent, to), receive_buffers(in.received, from));
        } else {
            auto const sent = all_of(to), received = all_of(from);
            sent_here_.resize(std::max(sent_here_.size(), static_cast<std::size_t>(sent.end)));
            received_here_.resize(std::max(received_here_.size(), static_cast<std::size_t>(received.end)));
            copy_to_host(ctx_, among(sent_here_.data(), sent), in.sent + sent.begin);
            ranks_.exchange(sends(sent_here_.data(), to), receive_buffers(received_here_.data(), from));
            copy_to_device(ctx_, in.received + received.begin,
                           std::span<T const>(among(received_here_.data(), received)));
        }
    }
    void wait_exchange() {
        if constexpr (host_memory<Backend>) ranks_.wait_exchange();
    }
    // The interval that adjacent parts cover.
    static part all_of(std::vector<part> const& parts) {
        part all{};
        for (auto const& one : parts)
            if (one.begin < one.end)
                all = {all.end > 0 ? std::min(all.begin, one.begin) : one.begin, std::max(all.end, one.end)};
        return all;
    }
    // Device exchanges begin only when this device has finished its work, so that no rank waits for one that still
    // computes.
    void settle_device() const {
        if constexpr (device_memory<Backend>)
            if (ranks_.devices != nullptr) ctx_.wait();
    }
    void wait_on_devices() const {
        if (device_memory<Backend> && ranks_.devices != nullptr) ranks_.wait_on_devices();
    }

    context<Backend> const& ctx_;
    process_group& ranks_;
    detail::shard_layout layout_;
    std::vector<double> sums_;  // of squares, per range
    arena<Backend> memory_{"on their way"};
    std::vector<detail::packed_slot<T>> value_slots_, gradient_slots_;  // per parameter
    detail::packed_slot<T> const* values_ = nullptr;                    // in device memory
    detail::packed_slot<T> const* gradients_ = nullptr;
    std::array<buffers, most_in_flight> buffers_{};
    device_plan whole_, some_;
    std::vector<std::size_t> range_numbers_;    // of each rank's ranges, rank by rank
    std::vector<std::size_t> range_starts_{0};  // (R + 1) start of each rank in range_numbers_
    std::vector<bool> begun_;                   // buckets whose exchange began in this training step
    std::deque<std::size_t> to_add_;            // indices of exchange steps still to send
    std::deque<on_way> on_way_;
    std::size_t sent_steps_ = 0;
    double clock_ = std::numeric_limits<double>::lowest();  // of rank 0, last received
    std::vector<T> sent_here_, received_here_;              // in host memory, for a device without a device transport
};

namespace detail {

// This rank's part of data-parallel training, or null for one rank.
template <class Space>
std::unique_ptr<data_parallel> part_of(context<typename Space::backend> const& ctx,
                                       std::vector<any_parameter<Space>> const& parameters, gradient_exchange when,
                                       process_group* ranks) {
    if (ranks == nullptr || ranks->ranks() == 1) return nullptr;
    return std::make_unique<sharded_optimizer<Space>>(ctx, parameters, *ranks, when);
}
// Without ranks, none of the above is compiled.
template <class Space>
std::unique_ptr<data_parallel> part_of(context<typename Space::backend> const&,
                                       std::vector<any_parameter<Space>> const&, gradient_exchange, std::nullptr_t) {
    return nullptr;
}

}  // namespace detail

}  // namespace calm
