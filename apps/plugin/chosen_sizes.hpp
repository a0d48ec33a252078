#pragma once
// Sizes chosen by name, as in `--set patch_size=2,latent_size=16`, and the names of configurations that have them.

#include <string>

#include "calm/io/detail/sizes_source.hpp"
#include "registry.hpp"

namespace calm::apps {

// The configuration `base` with some of its sizes replaced: KEY=NUMBER, several separated by commas. Keys are those of
// config.json, with `autoencoder.` before the autoencoder's own; besides, head_type, input and tie_word_embeddings. Its
// name is "base:KEY=VALUE,..." with the changed sizes in a fixed order; without a change it is the base's. Throws
// errc::config for an unknown key, a value beyond its limits and sizes that no model can have.
entry with_sizes(entry const& base, std::string const& assignments);

// The name of the configuration that with_sizes makes of `base` to have these sizes, those of the same kind of model.
std::string name_with_sizes(entry const& base, any_sizes const& sizes);

// The name of a configuration with more assignments; those it has stay. Throws as with_sizes, and as
// configuration_named.
std::string name_with_sizes(std::string const& configuration, std::string const& assignments);

// The name of a folder for a configuration: its own, or, if a file system might refuse one so long, its beginning and a
// digest of all of it.
std::string folder_name(std::string const& configuration);

}  // namespace calm::apps
