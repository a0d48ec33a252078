// tiny with the drafted head instead of the energy head.

#include "compiled_configuration.hpp"
#include "drafted.hpp"
#include "sizes.hpp"
#include "tiny.hpp"

namespace {

bool const registered = calm::apps::compile_configuration<calm::apps::sizes::tiny_drafted>(
    "tiny-drafted", calm::apps::recipes_of_drafts(calm::apps::tiny_recipes(4)));

}  // namespace
