// tiny with 8 tokens per patch.

#include "compiled_configuration.hpp"
#include "sizes.hpp"
#include "tiny.hpp"

namespace {

bool const registered =
    calm::apps::compile_configuration<calm::apps::sizes::tiny_k8>("tiny-k8", calm::apps::tiny_recipes(8));

}  // namespace
