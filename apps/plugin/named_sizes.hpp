#pragma once
// Sizes of the configurations in apps/configs, also of those that are not compiled into this program.

#include <string>

#include "calm/io/detail/sizes_source.hpp"

namespace calm::apps {

// The sizes of a configuration, or null for another name.
any_sizes const* sizes_named(std::string const& name);

}  // namespace calm::apps
