#pragma once
// Work that a device is given again and again: its kernels are recorded once and then asked for at once, as a graph. A
// kernel by itself takes the host some microseconds, which many a small one does not take to run.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "calm/tensor/context.hpp"

namespace calm {

// What work asked a device for, kept to be asked for again. That of a device has
//     static device_graph record(context<Backend> const& ctx, work)   work() is called, and what it asks for does not
//                                                                     run; errc::device for what no graph can hold
//     void launch(context<Backend> const& ctx) const                  all of it, after what was asked for before
// Kernels and fills alone can be recorded: no memory, no copies from the host or to it, no waits. What the kernels read
// in the device's memory is what stands there when the graph runs.
template <class Backend> class device_graph;

// One piece of work that is done many times. Where the executor is a device it is called until all its memory is there,
// once more to be recorded, and then no more: so it has no other effect than kernels and what is known from before.
template <class Backend> class repeated_work {
public:
    // Asks for what work() asks for; whether that was without calling it. Where the numbers of `of` are others than
    // before it is other work, and begins anew: they stand for all that kernels follow from but the contents of
    // memory, sizes and addresses. What it takes of the context's arenas it gives back. Throws what work throws, and
    // errc::device for work that no graph can hold.
    template <class Work>
    bool operator()(context<Backend>& ctx, [[maybe_unused]] std::initializer_list<std::uint64_t> of, Work const& work) {
        if constexpr (device_memory<Backend>) {
            if (!ctx.rehearsing() && ctx.records()) return ask(ctx, of, work);
            forget();
        }
        work();
        return false;
    }

private:
    struct nothing {};
    using graph = std::conditional_t<device_memory<Backend>, device_graph<Backend>, nothing>;

    void forget() {
        known_.clear();
        graph_.reset();
    }
    template <class Work>
    bool ask(context<Backend>& ctx, std::initializer_list<std::uint64_t> of, Work const& work) {
        std::vector<std::uint64_t> now(of);
        for (auto const* memory : {&ctx.saved, &ctx.scratch}) {
            auto const at = memory->here();
            now.insert(now.end(), {at.block, at.used, at.total, memory->allocations()});
        }
        ctx.bring_step_again();
        if (now != known_) {
            graph_.reset();
            work();
            known_ = std::move(now);
            return false;
        }
        bool const is_recorded = graph_.has_value();
        if (!is_recorded) graph_.emplace(graph::record(ctx, work));
        graph_->launch(ctx);
        return is_recorded;
    }

    std::vector<std::uint64_t> known_;  // of the work that was done last
    std::optional<graph> graph_;        // of it
};

}  // namespace calm
