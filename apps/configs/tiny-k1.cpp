// tiny with one token per patch.

#include "compiled_configuration.hpp"
#include "sizes.hpp"
#include "tiny.hpp"

namespace {

bool const registered =
    calm::apps::compile_configuration<calm::apps::sizes::tiny_k1>("tiny-k1", calm::apps::tiny_recipes(1));

}  // namespace
