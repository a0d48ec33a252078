#pragma once
// What a configuration compiles for a program: how it loads stored models, and how it makes models for training.

#include <functional>
#include <memory>
#include <string>

#include "calm/model/head.hpp"
#include "calm/tensor/core/extents.hpp"

namespace calm {
class loaded_model;      // calm/runs/detail/loaded_model.hpp
struct model_placement;  // there too
struct special_tokens;   // calm/text/special_tokens.hpp
struct stored_model;     // calm/io/stored_model.hpp
}  // namespace calm

namespace calm::apps {

class autoencoder_in_training;     // model_in_training.hpp
class autoregressive_in_training;  // there too
class calm_in_training;            // there too
struct training_placement;         // there too

// Compiled for one device. A plug-in compiles it apart from training.
struct loading {
    std::unique_ptr<loaded_model> (*load)(stored_model const&, index_t vocabulary, special_tokens const&,
                                          model_placement const&) = nullptr;
    // Why this machine, with the GPU of that number, cannot run it; empty if it can.
    std::function<std::string(int)> unavailable_reason = {};
    // What training calls to score and to sample: measures_of_calm or measures_of_autoregressive
    // (compiled_loading.hpp). Null where a plug-in was compiled to generate text only; its models are not evaluated.
    void const* measures = nullptr;
};

// Makes models of a configuration for training on one device. Functions of the other kind of model are null, and all
// are if weights are held in bf16. `measures` is loading::measures of the same configuration.
struct training {
    std::unique_ptr<autoencoder_in_training> (*make_autoencoder)(training_placement const&, index_t vocabulary,
                                                                 void const* measures) = nullptr;
    std::unique_ptr<calm_in_training> (*make_calm)(training_placement const&, index_t vocabulary,
                                                   void const* measures) = nullptr;
    std::unique_ptr<autoregressive_in_training> (*make_autoregressive)(training_placement const&, index_t vocabulary,
                                                                       void const* measures) = nullptr;
    // FLOPs of Muon's products per update; they do not depend on the vocabulary.
    double (*muon_of_autoencoder)() = nullptr;
    double (*muon_of_model)() = nullptr;
    // Gives fields that are missing the values of the head's objective type.
    void (*complete_objective)(any_objective&) = nullptr;
    bool on_device = false;
};

// What a configuration has compiled for one device.
struct compiled_functions : loading, training {};

}  // namespace calm::apps
