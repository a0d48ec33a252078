#pragma once
// Adapts a configuration's recipes to a drafted head.

#include "registry.hpp"

namespace calm::apps {

// Most of the learning signal is the cross-entropy of the drafts, so few samples are enough.
inline recipes recipes_of_drafts(recipes r) {
    r.calm.objective = drafted_objective{.samples = 2, .targets = 4};
    return r;
}

}  // namespace calm::apps
