#pragma once
// Work that a device is given again and again: what it asks for is recorded once and then asked for at once, as a
// graph. A kernel by itself takes the host some microseconds, which many a small one does not take to run.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>
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

// A number, or an address, by which kinds of work differ.
class kind_number {
public:
    // Of any type of at most eight bytes.
    template <class T>
    requires(std::is_arithmetic_v<T> || std::is_pointer_v<T>)
        kind_number(T x) {  // NOLINT(google-explicit-constructor): a list of them is written as what they are
        static_assert(sizeof(T) <= sizeof word_);
        std::memcpy(&word_, &x, sizeof x);
    }
    operator std::uint64_t() const { return word_; }  // NOLINT(google-explicit-constructor): to be compared

private:
    std::uint64_t word_ = 0;
};

// A piece of work that is done many times. Where the executor is a device it is done as it is until all its memory is
// there, and recorded then; from there on the host still does its part of it, and the device's is one graph.
template <class Backend> class repeated_work {
public:
    static constexpr std::size_t most_kept = 4;  // kinds of it that are recorded at once

    // Asks for what work() asks for. The numbers of `of` say which kind of work it is: they stand for all that kernels
    // follow from but the contents of memory, sizes and addresses. What work takes of the context's arenas it gives
    // back, and it waits for nothing. Throws what work throws, and errc::device for work that no graph can hold, or
    // that asks for something else than it did.
    template <class Work>
    void operator()(context<Backend>& ctx, [[maybe_unused]] std::initializer_list<kind_number> of, Work const& work) {
        if constexpr (device_memory<Backend>)
            if (!ctx.rehearsing() && ctx.records()) return ask(ctx, of, work);
        work();
    }

private:
    struct nothing {};
    using graph = std::conditional_t<device_memory<Backend>, device_graph<Backend>, nothing>;
    struct kind {
        std::vector<std::uint64_t> of;  // and where the arenas stood
        std::size_t room;               // for its copies
        std::unique_ptr<graph> recorded;
    };

    template <class Work> void ask(context<Backend>& ctx, std::initializer_list<kind_number> of, Work const& work) {
        std::vector<std::uint64_t> now(of.begin(), of.end());
        for (auto const* memory : {&ctx.saved, &ctx.scratch}) {
            auto const at = memory->here();
            now.insert(now.end(), {at.block, at.used, at.total, memory->allocations()});
        }
        ctx.bring_step_again();
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
                own.recorded->put(ctx, work);
            else
                own.recorded = std::make_unique<graph>(ctx, work, own.room);
        } catch (...) {
            kinds_.pop_back();
            throw;
        }
        own.recorded->launch(ctx);
    }

    std::vector<kind> kinds_;  // what was asked for last is the last
};

}  // namespace calm
