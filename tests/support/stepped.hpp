#pragma once
// An optimizer step that waits for its result.

#include "calm/train/optimizer.hpp"

namespace calm::test {

// Returns the gradient norm before clipping. Throws the error of the step, also where a device detects it.
template <class Optimizer, class Backend>
double stepped(Optimizer& optimizer, context<Backend>& ctx, double rate, double loss = 0) {
    if constexpr (host_memory<Backend>) {
        return optimizer.step(ctx, rate, loss);
    } else {
        optimizer.step(ctx, rate, loss);
        return optimizer.last_outcome(ctx).norm;
    }
}

}  // namespace calm::test
