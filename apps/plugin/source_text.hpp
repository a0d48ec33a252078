#pragma once
// C++ source files of configurations. They contain sizes, type names of heads and nothing that a file states otherwise.

#include <string>

#include "calm/io/detail/sizes_source.hpp"
#include "registry.hpp"

namespace calm::apps {

// A complete source file for apps/configs/ that registers the sizes under a name.
std::string unit_of(any_sizes const& sizes, std::string const& name);

// What a plug-in is compiled in: generating; loading, for evaluation too; and training, which needs loading.
enum class plugin_part { generating, loading, training };
std::string name_of(plugin_part part);

// A complete source file of one part of a plug-in: its function, such as calm_loading, adds that part to the
// work of the sizes on a device, a key of entry::work. Compiling it fails if compiler or instruction sets differ from
// the program's. The vocabulary is left out, since the work takes it from the tokenizer.
std::string plugin_source(any_sizes const& sizes, std::string const& device, plugin_part part);

}  // namespace calm::apps
