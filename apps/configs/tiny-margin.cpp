// tiny with the margin head, a control.

#include "compiled_configuration.hpp"
#include "sizes.hpp"
#include "tiny.hpp"

namespace {

bool const registered = calm::apps::compile_configuration<calm::apps::sizes::tiny_margin>(
    "tiny-margin", calm::apps::tiny_recipes_of_pairs());

}  // namespace
