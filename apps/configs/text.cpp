// For real text: twice as wide as tiny, and twice as deep.

#include "text.hpp"
#include "compiled_configuration.hpp"
#include "sizes.hpp"

namespace {

bool const registered = calm::apps::compile_configuration<calm::apps::sizes::text>("text", calm::apps::text_recipes());

}  // namespace
