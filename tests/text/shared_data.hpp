#pragma once
// Where the tests of text find the shared files, if they are there.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace calm::test {

// The path of a file of the shared folder, or nothing.
inline std::optional<std::string> shared_file(std::string const& name) {
#ifdef CALM_SHARED_DIR
    auto const path = std::filesystem::path(CALM_SHARED_DIR) / name;
    if (std::filesystem::exists(path)) return path.string();
#endif
    (void)name;
    return std::nullopt;
}

// The path of a fixture: under CALM_FIXTURES if that is set, else in the shared folder.
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
    explicit temporary_file(std::string const& name, std::string_view content = {}) {
        std::string folder = (std::filesystem::temp_directory_path() / "calm-text-XXXXXX").string();
        folder_ = mkdtemp(folder.data());
        path_ = folder_ / name;
        std::ofstream(path_, std::ios::binary) << content;
    }
    temporary_file(temporary_file const&) = delete;
    temporary_file& operator=(temporary_file const&) = delete;
    ~temporary_file() { std::filesystem::remove_all(folder_); }

    [[nodiscard]] std::string path() const { return path_.string(); }
    [[nodiscard]] std::string content() const {
        std::ifstream file(path_, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }

private:
    std::filesystem::path folder_;
    std::filesystem::path path_;
};

}  // namespace calm::test
