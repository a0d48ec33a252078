#pragma once
// The names of a model directory's files, and where they are whole while they are being replaced.

#include <filesystem>
#include <string>
#include <string_view>

#include "calm/io/file.hpp"
#include "calm/tensor/error.hpp"

namespace calm {

inline constexpr std::string_view config_file = "config.json";         // in every model directory
inline constexpr std::string_view weights_file = "model.safetensors";  // in a directory written here
// The counts of tokens and pairs beside a CALM.
inline constexpr std::string_view bigram_file = "bigram.counts";
// While the files of a model are replaced one by one, it names a directory inside that holds all the new ones.
inline constexpr std::string_view successor_file = "replaced-by";

// Where the files of a model directory are whole: in itself, unless it names a successor, whose replacing was
// interrupted or is going on. Throws errc::model_file where that name is not of a directory inside.
inline std::string whole_directory(std::string const& directory) {
    namespace fs = std::filesystem;
    auto const mark = (fs::path(directory) / successor_file).string();
    if (!detail::is_there(mark)) return directory;
    auto const file = mapped_file::open(mark, errc::model_file);
    fs::path const name(file.text().substr(0, 4096));
    auto inside = (fs::path(directory) / name).string();
    if (name.empty() || name.is_absolute() || name != name.lexically_normal() || *name.begin() == ".." ||
        detail::leads_outside(directory, inside))
        throw error(errc::model_file, mark, "", "expected the name of a directory inside; remove this file");
    return inside;
}

namespace detail {

// Throws errc::model_file where a file of a model directory is a link that leads out of it: only what somebody names
// is followed anywhere. In a cache of Hugging Face's hub the links of snapshots/REVISION lead to the blobs beside.
inline void refuse_links_to_outside(std::string const& directory) {
    namespace fs = std::filesystem;
    std::error_code failed;
    auto const real = fs::canonical(directory, failed);
    auto const above = real.parent_path();
    auto const root = above.filename() == "snapshots" ? above.parent_path() : real;
    for (fs::directory_iterator entry(real, failed), end; !failed && entry != end; entry.increment(failed)) {
        std::error_code unknown;
        auto const path = entry->path().string();
        if (entry->is_symlink(unknown) && !entry->is_directory(unknown) && leads_outside(root.string(), path))
            throw error(errc::model_file, (fs::path(directory) / entry->path().filename()).string(), "",
                        "is a link to a file outside of the model's directory, which is not followed; to use such a "
                        "model, copy it with the files themselves (cp -rL)");
    }
    if (failed) throw error(errc::model_file, directory, "", "its files cannot be listed: " + failed.message());
}

}  // namespace detail

}  // namespace calm
