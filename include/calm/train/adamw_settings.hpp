#pragma once
// What an optimizer is told.

namespace calm {

// The published recipe, of an optimizer by itself; a recipe of a language model (train/recipe.hpp) begins with Muon.
struct adamw_settings {
    double beta1 = 0.9;         // of the mean of gradients, in [0, 1)
    double beta2 = 0.95;        // of the mean of their squares, in [0, 1)
    double eps = 1e-8;          // beside the root, above 0
    double weight_decay = 0.1;  // of matrices, not of biases and norms
    double clip = 1.0;          // largest norm of all gradients together; 0 leaves them as they are
    double muon = 0;  // what the rate is multiplied by for matrices between hidden states, which then take the steps of
                      // train/muon.hpp; 0: there are none
};

}  // namespace calm
