#pragma once
// The models that come with the programs: stories, used where no model is named, and english.

#include <string>
#include <vector>

namespace calm::apps {

// Their names.
std::vector<std::string> shipped_names();

// The directory of the model `name`, a folder of models/: share/calm/models/`name` of the installation that the program
// is part of, wherever that was moved to, else models/`name` of the sources. Empty if there is no such model.
std::string shipped_model(std::string const& name);

// The story model's directory. Throws errc::usage if it is missing.
std::string story_model();

}  // namespace calm::apps
