#pragma once
// Separate contexts for threads, where a product is too small to split: each thread then works on its own part.

#include <algorithm>
#include <exception>
#include <vector>

#include "calm/tensor/core/context.hpp"

namespace calm {

// A single-threaded context with its own arenas for every thread of a host context; a device has no parts. Worthwhile
// for repeated work, because the arenas keep their memory.
template <class Backend> class thread_contexts {
public:
    // Copies seed, step and order of ctx; keeps no reference but to its weights in int8.
    explicit thread_contexts(context<Backend> const& ctx) {
        if constexpr (host_memory<Backend>)
            for (int i = 0; i < ctx.threads(); ++i) {
                own_.emplace_back(ctx.seed, 1);
                own_.back().step = ctx.step;
                own_.back().order = ctx.order;
            }
    }
    // How many parts run at once: the threads of ctx, 1 on a device.
    [[nodiscard]] index_t size() const { return std::max<index_t>(1, static_cast<index_t>(own_.size())); }

    // Calls f(context, begin, end) on equal parts of n items, one per thread of ctx; parts are multiples of `grain`,
    // except the last. Rethrows the exception of a part.
    template <class F>
    void in_parts(context<Backend> const& ctx, index_t n, index_t grain, F const& f) requires host_memory<Backend> {
        if (n <= 0) return;
        index_t const grains = (n + grain - 1) / grain;
        index_t const part = (grains + size() - 1) / size() * grain;
        std::vector<std::exception_ptr> failed(own_.size());
        ctx.parallel_ranges(n, part, [&](index_t begin, index_t end) {
            auto const i = static_cast<std::size_t>(begin / part);
            own_[i].independent_rows = ctx.independent_rows;
            own_[i].int8 = ctx.int8;
            own_[i].multiply_int8 = ctx.multiply_int8;
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
