#pragma once
// Compiles a configuration to a plug-in, shared libraries that the program loads: one for generation, or one for
// evaluation too, and one for training. Plug-ins are kept in a private cache directory: CALM_PLUGINS, else calm in
// XDG_CACHE_HOME or ~/.cache.

#include <string>

#include "registry.hpp"

namespace calm::apps {

// Throws errc::config if this program cannot compile plug-ins for a device, a key of entry::work.
void require_compiled_device(entry const& one, std::string const& device);

// Adds what is needed of a configuration's work on a device, a key of entry::work, unless `to` has it. Returns whether
// something was added. What the cache lacks is compiled, all parts at once, which takes many seconds and is reported in
// one line. A cached library is loaded only if its stored SHA-256 matches, and is compiled again otherwise. Throws
// errc::config if it cannot be compiled here, and errc::storage if the cache cannot be used.
bool load_on_demand(entry const& one, std::string const& device, needed_work needed, compiled_functions& to);

}  // namespace calm::apps
