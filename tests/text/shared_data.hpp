#pragma once
// Finds the shared files for the tests of text. A test that misses a file is skipped and must return.

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "support/skipped.hpp"
#include "support/temporary_folder.hpp"

namespace calm::test {

// The path of a file in the shared folder. If it is missing, skips the test and returns nullopt.
inline std::optional<std::string> shared_file(std::string const& name) {
    auto const path = std::filesystem::path(CALM_SHARED_DIR) / name;
    if (std::filesystem::exists(path)) return path.string();
    skip("there is no " + path.string());
    return std::nullopt;
}

// The path of a fixture under CALM_FIXTURES if set and present, else in the shared folder as above.
inline std::optional<std::string> fixture(std::string const& name) {
    if (char const* folder = std::getenv("CALM_FIXTURES")) {
        auto const path = std::filesystem::path(folder) / name;
        if (std::filesystem::exists(path)) return path.string();
    }
    return shared_file("fixtures/" + name);
}

// A file in its own temporary folder, removed with the object.
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
