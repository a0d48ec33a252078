#pragma once
// The story model that comes with the programs. They use it where no model is named.

#include <string>

namespace calm::apps {

// Its directory: share/calm/models/stories of the installation that the program is part of, wherever that was moved to,
// else models/stories of the sources. Throws errc::usage if both are missing.
std::string shipped_model();

}  // namespace calm::apps
