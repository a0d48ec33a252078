#pragma once
/// \file
/// Hyperparameters of the optimizer.
/// \shows{examples/06_network.cpp,main}

namespace calm {

/// AdamW hyperparameters; the defaults are the published recipe. Language model recipes (train/recipe.hpp) default to
/// Muon.
struct adamw_settings {
    double beta1 = 0.9;         ///< decay of the mean of gradients, in [0, 1)
    double beta2 = 0.95;        ///< decay of the mean of squared gradients, in [0, 1)
    double eps = 1e-8;          ///< added to the root, above 0
    double weight_decay = 0.1;  ///< for matrices, not for biases and norms
    double clip = 1.0;          ///< largest norm of all gradients together; 0: no clipping
    double muon = 0;            ///< factor on the learning rate for hidden matrices, which Muon then updates
                                ///< (train/detail/muon.hpp); 0: AdamW for all
};

}  // namespace calm
