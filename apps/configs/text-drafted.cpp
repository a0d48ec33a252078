// text with the drafted head instead of the energy head.

#include "compiled_configuration.hpp"
#include "drafted.hpp"
#include "sizes.hpp"
#include "text.hpp"

namespace {

bool const registered = calm::apps::compile_configuration<calm::apps::sizes::text_drafted>(
    "text-drafted", calm::apps::recipes_of_drafts(calm::apps::text_recipes()));

}  // namespace
