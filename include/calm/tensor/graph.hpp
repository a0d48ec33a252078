#pragma once
// Work that a device is given again and again: what it asks for is recorded once and then asked for at once, as a
// graph. A kernel by itself takes the host some microseconds, which many a small one does not take to run.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <type_traits>
#include <vector>

#include "calm/tensor/context.hpp"

namespace calm {

// What work asks a device for, kept to be asked for again. That of a device has
//     device_graph(ctx, work, room)   records it: work() is called, and what it asks for does not run
//     put(ctx, work)                  work() is called for the bytes of its copies, and nothing runs
//     launch(ctx)                     runs it, after what was asked for before
// Kernels, fills and copies from the host can be recorded, copies of at most `room` bytes, as context::uploaded counts
// them; memory, copies to the host and waits cannot: errc::device.
template <class Backend> class device_graph;

// One piece of work that is done many times. Where the executor is a device it is done as it is until all its memory is
// there, and recorded then; from there on the host still does its part of it, and the device's is one graph.
template <class Backend> class repeated_work {
public:
    // Asks for what work() asks for. Where the numbers of `of` are others than before it is other work, and begins
    // anew: they stand for all that kernels follow from but the contents of memory, sizes and addresses. What work
    // takes of the context's arenas it gives back, and it waits for nothing. Throws what work throws, and errc::device
    // for work that no graph can hold, or that asks for something else than it did.
    template <class Work>
    void operator()(context<Backend>& ctx, [[maybe_unused]] std::initializer_list<std::uint64_t> of, Work const& work) {
        if constexpr (device_memory<Backend>) {
            if (!ctx.rehearsing() && ctx.records()) return ask(ctx, of, work);
            known_.clear();
        }
        work();
    }

private:
    struct nothing {};
    using graph = std::conditional_t<device_memory<Backend>, device_graph<Backend>, nothing>;

    template <class Work>
    void ask(context<Backend>& ctx, std::initializer_list<std::uint64_t> of, Work const& work) {
        std::vector<std::uint64_t> now(of);
        for (auto const* memory : {&ctx.saved, &ctx.scratch}) {
            auto const at = memory->here();
            now.insert(now.end(), {at.block, at.used, at.total, memory->allocations()});
        }
        ctx.bring_step_again();
        if (now != known_) {
            graph_.reset();
            auto const before = ctx.uploaded();
            work();
            room_ = ctx.uploaded() - before;
            known_ = std::move(now);
            return;
        }
        try {
            if (graph_)
                graph_->put(ctx, work);
            else
                graph_.emplace(ctx, work, room_);
        } catch (...) {
            known_.clear();
            throw;
        }
        graph_->launch(ctx);
    }

    std::vector<std::uint64_t> known_;  // of the work that was done last
    std::size_t room_ = 0;              // for the copies of it
    std::optional<graph> graph_;        // of it
};

}  // namespace calm
