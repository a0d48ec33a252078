#pragma once
// C++ source text of configurations. It contains sizes, type names of heads and nothing that a file states otherwise.

#include <string>

#include "registry.hpp"

namespace calm::apps {

using any_sizes = decltype(entry::sizes);

// A complete source file for apps/configs/ that registers the sizes under a name.
std::string unit_of(any_sizes const& sizes, std::string const& name);

// A complete source file of a plug-in: its function `calm_plugin` makes the work of the sizes on a device, a key of
// entry::work. Compiling it fails if compiler or instruction sets differ from the program's. The vocabulary is left
// out, since the work takes it from the tokenizer.
std::string plugin_source(any_sizes sizes, std::string const& device);

}  // namespace calm::apps
