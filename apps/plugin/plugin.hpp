#pragma once
// Compiles a configuration to a plug-in, a shared library that the program loads. Plug-ins are kept in a private cache
// directory: CALM_PLUGINS, else calm in XDG_CACHE_HOME or ~/.cache.

#include <string>

#include "registry.hpp"

namespace calm::apps {

// The work of a configuration on a device, a key of entry::work. It is compiled, which takes many seconds and is
// reported in one line, unless the cache has it. A cached plug-in is loaded only if its stored SHA-256 matches, and is
// compiled again otherwise. Throws errc::config if it cannot be compiled here, and errc::storage if the cache cannot be
// used.
compiled_work compiled_on_demand(entry const& one, std::string const& device);

}  // namespace calm::apps
