#pragma once
// File names of a model directory, and where its files are complete while they are being replaced.

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/error.hpp"

namespace calm {

inline constexpr std::string_view config_file = "config.json";         // in every model directory
inline constexpr std::string_view weights_file = "model.safetensors";  // in directories written here
// The counts of tokens and pairs next to a CALM.
inline constexpr std::string_view bigram_file = "bigram.counts";
// Exists while a model's files are replaced one by one; names a directory inside with the complete new files.
inline constexpr std::string_view successor_file = "replaced-by";

// The directory in which a model's files are complete: the directory itself or, if a replacement was interrupted or is
// in progress, the successor directory that it names. Throws errc::model_file if that is not a directory inside.
inline std::string whole_directory(std::string const& directory) {
    namespace fs = std::filesystem;
    auto const mark = (fs::path(directory) / successor_file).string();
    if (!is_there(mark)) return directory;
    constexpr std::size_t longest = 100;  // names of checkpoints have some 30 bytes
    auto const file =
        mapped_file::of(detail::open_regular(mark, O_RDONLY | O_NOFOLLOW, errc::model_file, "cannot be opened"), mark,
                        errc::model_file);
    fs::path const name(file.text().substr(0, longest + 1));
    auto inside = (fs::path(directory) / name).string();
    std::error_code unknown;
    if (name.empty() || name.native().size() > longest || name.is_absolute() || name != name.lexically_normal() ||
        *name.begin() == ".." || !fs::is_directory(inside, unknown) || detail::leads_outside(directory, inside))
        throw error(errc::model_file, mark, "", "expected the name of a directory inside; remove this file");
    return inside;
}

// The path of a file in a directory.
inline std::string in_directory(std::string const& directory, std::string_view file) {
    return (std::filesystem::path(directory) / file).string();
}

namespace detail {

// The sorted names in a directory; if it cannot be read to its end, `failed` has the reason.
inline std::vector<std::string> names_in(std::filesystem::path const& directory, std::error_code& failed) {
    std::vector<std::string> names;
    std::filesystem::directory_iterator entry(directory, failed);
    for (; !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed))
        names.push_back(entry->path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}
// Throws errc::storage if the directory cannot be read.
inline std::vector<std::string> names_in(std::filesystem::path const& directory) {
    std::error_code failed;
    auto names = names_in(directory, failed);
    if (failed) throw error(errc::storage, directory.string(), "", "its files cannot be listed: " + failed.message());
    return names;
}

// Throws errc::model_file if a file of a model directory is a link out of it: only paths given by the user may lead
// anywhere. In a Hugging Face cache, snapshots/REVISION may link to the blobs next to `snapshots`.
inline void refuse_links_to_outside(std::string const& directory) {
    namespace fs = std::filesystem;
    std::error_code failed;
    auto const real = fs::canonical(directory, failed);
    auto const above = real.parent_path();
    auto const root = above.filename() == "snapshots" ? above.parent_path() : real;
    for (auto const& name : failed ? std::vector<std::string>{} : names_in(real, failed)) {
        std::error_code unknown;
        auto const path = real / name;
        if (fs::is_symlink(path, unknown) && !fs::is_directory(path, unknown) &&
            leads_outside(root.string(), path.string()))
            throw error(errc::model_file, (fs::path(directory) / name).string(), "",
                        "is a link to a file outside of the model's directory, which is not followed; to use such a "
                        "model, copy it with the files themselves (cp -rL)");
    }
    if (failed) throw error(errc::model_file, directory, "", "its files cannot be listed: " + failed.message());
}

}  // namespace detail

}  // namespace calm
