// tiny-drafted with patches of two tokens.

#include "compiled_configuration.hpp"
#include "drafted.hpp"
#include "sizes.hpp"
#include "tiny.hpp"

namespace {

bool const registered = calm::apps::compile_configuration<calm::apps::sizes::tiny_k2_drafted>(
    "tiny-k2-drafted", calm::apps::recipes_of_drafts(calm::apps::tiny_recipes(2)));

}  // namespace
