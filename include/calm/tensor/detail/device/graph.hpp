#pragma once
// Graph capture: work that a device repeats is captured once and then launched as one graph. Launching a single kernel
// costs the host some microseconds, more than many small kernels take to run.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/tensor/core/context.hpp"

namespace calm {

// The captured device operations of some work. Each device specialises it with these members:
//     device_graph(ctx, work, room)   captures the operations that work() launches, without running them
//     update(ctx, work)               calls work() again for the new bytes of its copies; nothing runs
//     launch(ctx)                     runs the graph, after all operations launched earlier
// Kernels, fills and copies from the host can be captured; all copies together have at most `room` bytes, as
// context::uploaded counts them. Taking memory, copying to the host or waiting throws errc::device.
template <class Backend> class device_graph;

// A number or an address that is part of a graph's cache key.
class graph_key {
public:
    // From any arithmetic or pointer type of at most eight bytes.
    template <class T>
    requires(std::is_arithmetic_v<T> || std::is_pointer_v<T>)
        graph_key(T x) {  // NOLINT(google-explicit-constructor): a key is written as a list of plain values
        static_assert(sizeof(T) <= sizeof word_);
        std::memcpy(&word_, &x, sizeof x);
    }
    operator std::uint64_t() const { return word_; }  // NOLINT(google-explicit-constructor): for comparison

private:
    std::uint64_t word_ = 0;
};

// Work that repeats. On a device it runs eagerly while it still allocates memory, is then captured, and later runs
// replay the graph; the host part of the work runs every time. On a host backend it always runs eagerly.
template <class Backend> class captured_graph {
public:
    static constexpr std::size_t most_kept = 4;  // graphs kept at once

    // Runs work(), eagerly or as a graph. `of` is the cache key: it holds all sizes and addresses that the kernels
    // depend on, but no memory contents. work must give its arena memory back and must not wait for the device. Throws
    // what work throws; errc::device for work that cannot be captured or that differs from its capture.
    template <class Work>
    void operator()(context<Backend>& ctx, [[maybe_unused]] std::initializer_list<graph_key> of, Work const& work) {
        if constexpr (device_memory<Backend>)
            if (!ctx.is_dry_run() && ctx.records()) return ask(ctx, of, work);
        work();
    }

private:
    struct nothing {};
    using graph = std::conditional_t<device_memory<Backend>, device_graph<Backend>, nothing>;
    struct kind {
        std::vector<std::uint64_t> of;  // the key, with the state of the arenas
        std::size_t room;               // bytes of its copies
        std::unique_ptr<graph> recorded;
    };

    template <class Work> void ask(context<Backend>& ctx, std::initializer_list<graph_key> of, Work const& work) {
        std::vector<std::uint64_t> now(of.begin(), of.end());
        for (auto const* memory : {&ctx.saved, &ctx.workspace}) {
            auto const at = memory->here();
            now.insert(now.end(), {at.block, at.used, at.total, memory->allocations()});
        }
        ctx.sync_step_again();
        auto const found = std::find_if(kinds_.begin(), kinds_.end(), [&](kind const& k) { return k.of == now; });
        if (found == kinds_.end()) {
            auto const before = ctx.uploaded();
            work();
            if (kinds_.size() == most_kept) kinds_.erase(kinds_.begin());
            kinds_.push_back({std::move(now), ctx.uploaded() - before, {}});
            return;
        }
        std::rotate(found, found + 1, kinds_.end());
        auto& own = kinds_.back();
        try {
            if (own.recorded)
                own.recorded->update(ctx, work);
            else
                own.recorded = std::make_unique<graph>(ctx, work, own.room);
        } catch (...) {
            kinds_.pop_back();
            throw;
        }
        own.recorded->launch(ctx);
    }

    std::vector<kind> kinds_;  // most recently used last
};

}  // namespace calm
