// tiny with flow matching instead of the energy head.

#include "compiled_configuration.hpp"
#include "sizes.hpp"
#include "tiny.hpp"

namespace {

calm::apps::recipes defaults() {
    auto r = calm::apps::tiny_recipes_of_pairs();
    r.calm.rate = 2e-3;
    r.calm.optimizer.muon = 2;
    return r;
}

bool const registered = calm::apps::compile_configuration<calm::apps::sizes::tiny_flow>("tiny-flow", defaults());

}  // namespace
