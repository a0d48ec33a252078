// The smallest configuration that learns to generate text; the quickstart uses it.

#include "tiny.hpp"
#include "compiled_configuration.hpp"
#include "sizes.hpp"

namespace {

bool const registered = calm::apps::compile_configuration<calm::apps::sizes::tiny>("tiny", calm::apps::tiny_recipes(4));

}  // namespace
