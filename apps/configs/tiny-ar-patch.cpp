// tiny-ar with patch-level training first, at half the cost per token.

#include "compiled_configuration.hpp"
#include "sizes.hpp"
#include "tiny.hpp"

namespace {

bool const registered = calm::apps::compile_configuration<calm::apps::sizes::tiny_ar>(
    "tiny-ar-patch", calm::apps::tiny_autoregressive_recipes({.patch = 4, .share = 2.0 / 3}));

}  // namespace
