#include "shipped_model.hpp"

#include <filesystem>
#include <system_error>

#include "calm/base/detail/file.hpp"
#include "calm/base/error.hpp"
#include "calm/io/detail/whole_directory.hpp"

namespace calm::apps {

// CMake defines CALM_MODELS_INSTALLED, relative to an installed program's folder, and CALM_MODELS_IN_SOURCES.
std::string shipped_model() {
    std::error_code ignored;  // without /proc there is no such folder
    auto const program = std::filesystem::read_symlink("/proc/self/exe", ignored);
    auto installed = (program.parent_path() / CALM_MODELS_INSTALLED / "stories").lexically_normal().string();
    if (is_there(in_directory(installed, "config.json"))) return installed;
    std::string in_sources = CALM_MODELS_IN_SOURCES "/stories";
    if (is_there(in_directory(in_sources, "config.json"))) return in_sources;
    throw error(errc::usage, "expected --model DIR, found none, and the story model is neither in " + installed +
                                 " nor in " + in_sources +
                                 ": name a model, or install the programs with cmake --install");
}

}  // namespace calm::apps
