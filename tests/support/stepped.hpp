#pragma once
// A step of an optimizer whose end is waited for.

#include "calm/train/optimizer.hpp"

namespace calm::test {

// The norm of the gradients before clipping. Throws what was wrong with the step, also where a device decides it.
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
