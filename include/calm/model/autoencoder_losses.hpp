#pragma once
// What an autoencoder is trained on: the settings of its objective, and its losses.

#include "calm/tensor/extents.hpp"

namespace calm {

// Run-time settings of the training objective.
struct autoencoder_objective {
    double dropout = 0.15;    // of input tokens (they become id 0) and of the latent
    double kl_clamp = 0.5;    // a dimension's divergence below it is not pushed further
    double kl_weight = 1e-3;  // of the divergence in the loss; the reconstruction has K
};

// Means over a batch, in nats where they are likelihoods.
struct autoencoder_losses {
    double loss = 0;           // K * cross_entropy + kl_weight * kl
    double cross_entropy = 0;  // mean over tokens
    double kl = 0;             // mean over patches
    double posterior_std = 0;  // mean of exp(log_std)
};

namespace detail {
// The losses of a batch from sums over `tokens` tokens, `patches` patches and their dimensions.
struct mean_losses {
    autoencoder_losses* losses;
    double const* cross_entropy;
    double const* kl;
    double const* std;
    double tokens, patches, dimensions;
    double K, kl_weight;
    CALM_HD void operator()(index_t) const {
        losses->cross_entropy = *cross_entropy / tokens;
        losses->kl = *kl / patches;
        losses->posterior_std = *std / dimensions;
        losses->loss = K * losses->cross_entropy + kl_weight * losses->kl;
    }
};
}  // namespace detail

}  // namespace calm
