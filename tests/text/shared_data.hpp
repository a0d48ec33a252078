#pragma once
// Where the tests of text find the shared files. A case that finds one missing is skipped, and returns.

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "support/skipped.hpp"
#include "support/temporary_folder.hpp"

namespace calm::test {

// The path of a file of the shared folder; the case is skipped where it is not there.
inline std::optional<std::string> shared_file(std::string const& name) {
    auto const path = std::filesystem::path(CALM_SHARED_DIR) / name;
    if (std::filesystem::exists(path)) return path.string();
    skip("there is no " + path.string());
    return std::nullopt;
}

// The path of a fixture: under CALM_FIXTURES if that is set, else in the shared folder; skipped likewise.
inline std::optional<std::string> fixture(std::string const& name) {
    if (char const* folder = std::getenv("CALM_FIXTURES")) {
        auto const path = std::filesystem::path(folder) / name;
        if (std::filesystem::exists(path)) return path.string();
    }
    return shared_file("fixtures/" + name);
}

// A file in a folder of its own, removed with the object.
class temporary_file {
public:
    explicit temporary_file(std::string name, std::string_view content = {}) : name_(std::move(name)) {
        static_cast<void>(folder_.with(name_, content));
    }

    [[nodiscard]] std::string path() const { return folder_.path(name_); }
    [[nodiscard]] std::string content() const { return folder_.content(name_); }

private:
    temporary_folder folder_;
    std::string name_;
};

}  // namespace calm::test
