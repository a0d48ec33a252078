#pragma once
// Work in parts that share nothing: where a product is too small to be shared by threads, each takes its own.

#include <algorithm>
#include <exception>
#include <vector>

#include "calm/tensor/context.hpp"

namespace calm {

// A context of one thread, with arenas of its own, for every thread of another context of the host; a device has one,
// which is not for parts. Worth it for work that is done again and again: the arenas keep their memory.
template <class Backend> class separate_contexts {
public:
    // With the seed, step and order that ctx has now. It refers to nothing of ctx.
    explicit separate_contexts(context<Backend> const& ctx) {
        if constexpr (host_memory<Backend>)
            for (int i = 0; i < ctx.threads(); ++i) {
                own_.emplace_back(ctx.seed, 1);
                own_.back().step = ctx.step;
                own_.back().order = ctx.order;
            }
    }
    // How many work at once: the threads of ctx, on a device 1.
    [[nodiscard]] index_t size() const { return std::max<index_t>(1, static_cast<index_t>(own_.size())); }

    // Calls f(context, begin, end) on even parts of n items, of whole grains but for the last, a part a thread of ctx.
    // What a part throws, this throws.
    template <class F>
    void in_parts(context<Backend> const& ctx, index_t n, index_t grain, F const& f) requires host_memory<Backend> {
        if (n <= 0) return;
        index_t const grains = (n + grain - 1) / grain;
        index_t const part = (grains + size() - 1) / size() * grain;
        std::vector<std::exception_ptr> failed(own_.size());
        ctx.parallel_ranges(n, part, [&](index_t begin, index_t end) {
            auto const i = static_cast<std::size_t>(begin / part);
            try {
                f(own_[i], begin, end);
            } catch (...) {
                failed[i] = std::current_exception();
            }
        });
        for (auto const& one : failed)
            if (one) std::rethrow_exception(one);
    }

private:
    std::vector<context<Backend>> own_;
};

}  // namespace calm
