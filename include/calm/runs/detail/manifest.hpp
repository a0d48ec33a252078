#pragma once
// Checks that a directory is complete: its manifest lists the size and SHA-256 of every file.

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "calm/base/detail/file.hpp"
#include "calm/base/detail/sha256.hpp"
#include "calm/base/quoted.hpp"
#include "calm/io/detail/whole_directory.hpp"

namespace calm {

inline constexpr std::string_view manifest_file = "manifest.json";  // written last

// The SHA-256 of a file, as 64 hexadecimal digits. Throws errc::storage if it cannot be read.
inline std::string sha256_of_file(std::string const& path) {
    auto const file = mapped_file::open(path);
    sha256 hash;
    hash.add(file.text());
    return hash.hex();
}

// The manifest that a directory should have: one line per file, by name, without the manifest itself. It is computed
// from the files alone, so a damaged manifest is never trusted. Throws errc::storage for a directory that cannot be
// read, or holds anything but files.
inline std::string manifest_of(std::string const& directory) {
    auto names = detail::names_in(directory);
    std::erase(names, manifest_file);
    std::error_code failed;
    std::string text = "{\n";
    for (auto const& name : names) {
        auto const path = in_directory(directory, name);
        if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, failed)))
            throw error(errc::storage, path, "", "expected a file, found a link");
        auto const size = std::filesystem::file_size(path, failed);
        if (failed) throw error(errc::storage, path, "", "expected a file: " + failed.message());
        text += detail::json_string(name) + ": {\"bytes\": " + std::to_string(size) + ", \"sha256\": \"" +
                sha256_of_file(path) + "\"}" + (name == names.back() ? "\n" : ",\n");
    }
    return text + "}\n";
}

// Writes the manifest of an otherwise complete directory and flushes it. Throws errc::storage.
inline void write_manifest(std::string const& directory) {
    replace_file(in_directory(directory, manifest_file), manifest_of(directory));
}

// Describes the damage to a directory; nothing if it matches its manifest byte for byte.
inline std::optional<std::string> damage_of(std::string const& directory) {
    try {
        auto const path = in_directory(directory, manifest_file);
        auto const stored = mapped_file::open(path);
        auto const found = manifest_of(directory);
        if (stored.text() == found) return std::nullopt;
        // The first line that the stored manifest lacks names the file.
        std::istringstream lines(found);
        for (std::string line; std::getline(lines, line);)
            if (line.size() > 2 && stored.text().find(line) == std::string_view::npos)
                return directory + ": " + line.substr(0, line.find(':')) + " is not the file that its manifest lists";
        return directory + ": a file of its manifest is missing, or the manifest is damaged";
    } catch (error const& problem) {
        return problem.what();
    }
}

}  // namespace calm
