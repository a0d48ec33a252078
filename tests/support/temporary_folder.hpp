#pragma once
// A temporary folder for a test and the files in it.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace calm::test {

// An empty folder, removed with its contents by the destructor.
class temporary_folder {
public:
    temporary_folder() {
        auto name = (std::filesystem::temp_directory_path() / "calm-test-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder: " + name);
        path_ = name;
    }
    temporary_folder(temporary_folder const&) = delete;
    temporary_folder& operator=(temporary_folder const&) = delete;
    ~temporary_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    [[nodiscard]] std::string path(std::string_view name) const { return (path_ / name).string(); }

    // Writes a file and returns its path.
    [[nodiscard]] std::string with(std::string_view name, std::string_view content) const {
        std::ofstream(path_ / name, std::ios::binary) << content;
        return path(name);
    }

    [[nodiscard]] std::string content(std::string_view name) const {
        std::ifstream file(path_ / name, std::ios::binary);
        std::ostringstream all;
        all << file.rdbuf();
        return std::move(all).str();
    }

private:
    std::filesystem::path path_;
};

}  // namespace calm::test
