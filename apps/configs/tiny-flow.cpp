// tiny with flow matching instead of the energy head.

#include "compiled_configuration.hpp"
#include "sizes.hpp"
#include "tiny.hpp"

namespace {

bool const registered =
    calm::apps::compile_configuration<calm::apps::sizes::tiny_flow>("tiny-flow", calm::apps::tiny_recipes_of_pairs());

}  // namespace
