#include "shipped_model.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "calm/base/detail/file.hpp"
#include "calm/base/error.hpp"
#include "calm/io/detail/whole_directory.hpp"

namespace calm::apps {
namespace {

// Where a model may be, the first place first. CMake defines CALM_MODELS_INSTALLED, relative to an installed program's
// folder, and CALM_MODELS_IN_SOURCES.
std::array<std::string, 2> places_of(std::string const& name) {
    std::error_code ignored;  // without /proc there is no such folder
    auto const program = std::filesystem::read_symlink("/proc/self/exe", ignored);
    return {(program.parent_path() / CALM_MODELS_INSTALLED / name).lexically_normal().string(),
            CALM_MODELS_IN_SOURCES "/" + name};
}

}  // namespace

std::vector<std::string> shipped_names() {
    return {"stories", "english"};
}

std::string shipped_model(std::string const& name) {
    bool const is_name =
        !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= 'a' && c <= 'z'; });
    if (is_name)
        for (auto const& place : places_of(name))
            if (is_there(in_directory(place, "config.json"))) return place;
    return {};
}

std::string story_model() {
    auto path = shipped_model("stories");
    if (path.empty()) {
        auto const [installed, in_sources] = places_of("stories");
        throw error(errc::usage, "expected --model DIR, found none, and the story model is neither in " + installed +
                                     " nor in " + in_sources +
                                     ": name a model, or install the programs with cmake --install");
    }
    return path;
}

}  // namespace calm::apps
