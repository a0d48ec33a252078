// tiny with the drafted head instead of the energy head.

#include "compiled_configuration.hpp"
#include "sizes.hpp"
#include "tiny.hpp"

namespace {

calm::apps::recipes defaults() {
    calm::apps::recipes r = calm::apps::tiny_recipes(4);
    r.calm.rate = 2e-3;
    r.calm.objective = calm::drafted_objective{.samples = 8, .targets = 32};
    return r;
}

bool const registered = calm::apps::compile_configuration<calm::apps::sizes::tiny_drafted>("tiny-drafted", defaults());

}  // namespace
