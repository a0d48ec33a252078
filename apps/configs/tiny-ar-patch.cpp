// tiny-ar, trained patch level first: half of the cost of a token.

#include "compiled_autoregressive.hpp"
#include "sizes.hpp"
#include "tiny.hpp"

namespace {

bool const registered = calm::apps::compile_autoregressive<calm::apps::sizes::tiny_ar>(
    "tiny-ar-patch", calm::apps::tiny_autoregressive_recipes({.patch = 4, .share = 2.0 / 3}));

}  // namespace
