#pragma once
// Losses of the micro-batches of one step, in device memory.

#include "calm/model/autoencoder_losses.hpp"
#include "calm/tensor/detail/core/for_each.hpp"
#include "calm/tensor/ops/total.hpp"

namespace calm::detail {

// Where a micro-batch leaves its losses in device memory. On a device this is always the same place, so that the work
// can be replayed. A language model has only the first loss.
template <class Backend> using losses_view = vector_view<autoencoder_losses, 1, Backend>;
template <class Backend> total_view<Backend> loss_alone(losses_view<Backend> const& losses) {
    return {&losses.data()->loss, extents<1>()};
}

// loss = mean over the micro-batches.
struct loss_of_step {
    double* loss;
    autoencoder_losses const* losses;
    index_t count;  // number of micro-batches
    CALM_HD void operator()(index_t) const {
        double const weight = 1.0 / static_cast<double>(count);
        *loss = 0;
        for (index_t i = 0; i < count; ++i) *loss += weight * losses[i].loss;
    }
};

// *kept = *newest
struct keep_losses {
    autoencoder_losses* kept;
    autoencoder_losses const* newest;
    CALM_HD void operator()(index_t) const { *kept = *newest; }
};

}  // namespace calm::detail
