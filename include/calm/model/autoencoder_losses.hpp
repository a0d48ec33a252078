#pragma once
/// \file
/// The training objective of an autoencoder: its settings and its losses.
/// \shows{tests/model/gradients_test.cpp,the_whole_autoencoder_by_central_differences}

#include "calm/tensor/core/extents.hpp"

namespace calm {

/// Run-time settings of the training objective.
struct autoencoder_objective {
    double dropout = 0.15;    ///< rate for input tokens (replaced by id 0) and for the latent
    double kl_clamp = 0.5;    ///< below it, the KL divergence of a dimension has no gradient
    double kl_weight = 1e-3;  ///< weight of the KL term; the reconstruction term has weight K
};

/// Means over a batch; likelihoods in nats.
struct autoencoder_losses {
    double loss = 0;           ///< K * cross_entropy + kl_weight * kl
    double cross_entropy = 0;  ///< mean over tokens
    double kl = 0;             ///< mean over patches
    double posterior_std = 0;  ///< mean of exp(log_std)
};

namespace detail {
// Computes the losses of a batch from sums over `tokens` tokens, `patches` patches and their dimensions.
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
