// An autoregressive model with the sizes of tiny, as a baseline.

#include "compiled_configuration.hpp"
#include "sizes.hpp"
#include "tiny.hpp"

namespace {

bool const registered =
    calm::apps::compile_configuration<calm::apps::sizes::tiny_ar>("tiny-ar", calm::apps::tiny_autoregressive_recipes());

}  // namespace
