#pragma once
// How a program loads stored models of a configuration.

#include <functional>
#include <memory>
#include <string>

#include "calm/tensor/core/extents.hpp"

namespace calm {
class loaded_model;     // calm/runs/detail/loaded_model.hpp
struct model_place;     // there too
struct special_tokens;  // calm/text/special_tokens.hpp
struct stored_model;    // calm/io/stored_model.hpp
}  // namespace calm

namespace calm::apps {

// Compiled for one device. A plug-in compiles it apart from training.
struct loading {
    std::unique_ptr<loaded_model> (*load)(stored_model const&, index_t vocabulary, special_tokens const&,
                                          model_place const&) = nullptr;
    // Why this machine, with the GPU of that number, cannot run it; empty if it can.
    std::function<std::string(int)> unavailable_reason = {};
    // What training calls to score and to sample: measures_of_calm or measures_of_autoregressive
    // (compiled_loading.hpp).
    void const* measures = nullptr;
};

}  // namespace calm::apps
