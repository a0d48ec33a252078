#pragma once
// What models do with token ids, in portable block form.

#include "calm/tensor/kernel.hpp"
#include "calm/text/token.hpp"

namespace calm::detail {

// shown (n): tokens (n), or id 0 where number first + i of the key's uniforms is below the rate.
struct hide_tokens {
    token_id* shown;
    token_id const* tokens;
    index_t n;
    key draws;
    std::uint64_t first;
    double rate;
    CALM_HD void at(index_t i) const {
        bool const hidden = static_cast<double>(uniform(draws, first + static_cast<std::uint64_t>(i))) < rate;
        shown[i] = hidden ? 0 : tokens[i];
    }
};

// Of sequences of `length` tokens: all but the last `patch` into inputs, all but the first into labels.
struct shift_tokens {
    token_id* inputs;
    token_id* labels;
    token_id const* tokens;
    index_t n;  // of inputs and of labels
    index_t length;
    index_t patch;
    CALM_HD void at(index_t i) const {
        index_t const kept = length - patch;
        index_t const from = i / kept * length + i % kept;
        inputs[i] = tokens[from];
        labels[i] = tokens[from + patch];
    }
};

// One of these, element by element.
template <class Each> struct tokens_kernel {
    static constexpr int threads = 256;
    struct shared {};
    Each each;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            if (index_t const i = block * threads + t; i < each.n) each.at(i);
        });
    }
};

template <block_executor Backend, class Each> void run_tokens(context<Backend> const& ctx, Each const& each) {
    launch(ctx, blocks_for(each.n, 256), tokens_kernel<Each>{each});
}
template <class Each> void run_tokens(context<cpu> const& ctx, Each const& each) {
    ctx.parallel_ranges(each.n, 1024, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) each.at(i);
    });
}

}  // namespace calm::detail
