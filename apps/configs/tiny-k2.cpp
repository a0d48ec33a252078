// tiny with 2 tokens per patch.

#include "compiled_configuration.hpp"
#include "sizes.hpp"
#include "tiny.hpp"

namespace {

bool const registered =
    calm::apps::compile_configuration<calm::apps::sizes::tiny_k2>("tiny-k2", calm::apps::tiny_recipes(2));

}  // namespace
