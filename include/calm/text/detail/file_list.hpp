#pragma once
// The files that a path, a folder or a pattern names.

#include <glob.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/error.hpp"
#include "calm/text/detail/text_file.hpp"

namespace calm::detail {

// The files that a SPEC names.
struct file_list {
    std::vector<std::string> files;     // sorted by the bytes of their paths
    std::vector<std::string> left_out;  // folders of runs and models that were found and skipped
};

inline constexpr char const* known_formats =
    ".txt (one document), .jsonl or .json (one object with \"text\" per line), each also .gz or .zst";

// The suffix of a name, including the one before .gz or .zst; "" if it has none.
inline std::string suffix_of(std::filesystem::path const& path) {
    std::string const last = path.extension().string();
    return last == ".gz" || last == ".zst" ? path.stem().extension().string() + last : last;
}

// Whether a folder is the output of a program of this library, or a model: it has their lock, record or weights.
[[gnu::cold]] inline bool holds_run_or_model(std::filesystem::path const& folder) {
    auto const has = [&](char const* name) { return is_there((folder / name).string()); };
    if (has("run.json") && has("options.toml")) return true;
    constexpr std::array of_runs_and_models{"run.lock",          "text.lock",
                                            "model.safetensors", "model.safetensors.index.json",
                                            "pytorch_model.bin", "pytorch_model.bin.index.json"};
    return std::ranges::any_of(of_runs_and_models, has);
}

inline constexpr char const* no_text_of_runs = "it holds a run or a model, whose files are not text";

[[gnu::cold]] inline file_list files_below(std::string const& folder) {
    namespace fs = std::filesystem;
    if (holds_run_or_model(folder))
        throw error(errc::data, folder, "", std::string(no_text_of_runs) + ": name the files of text themselves");
    file_list found;
    auto& files = found.files;
    try {
        for (fs::recursive_directory_iterator at(folder), end; at != end; ++at)
            if (at->path().filename().string().starts_with('.'))
                at.disable_recursion_pending();
            else if (at->is_directory() && !at->is_symlink() && holds_run_or_model(at->path())) {
                at.disable_recursion_pending();
                found.left_out.push_back(at->path().string());
            } else if (at->is_regular_file() && text_format_of(at->path().string())) {
                if (at->is_symlink() && leads_outside(folder, at->path().string()))
                    throw error(errc::data, at->path().string(), "",
                                "is a link to a file outside of the folder, which is not followed: name that file "
                                "itself, or put a copy here");
                files.push_back(at->path().string());
            }
    } catch (fs::filesystem_error const& wrong) {
        throw error(errc::storage, folder, "", "the folder cannot be read: " + wrong.code().message());
    }
    if (files.empty())
        throw error(errc::data, folder, "",
                    std::string("there is no text in this folder: expected files ") + known_formats);
    return found;
}

// The outermost run or model folder that contains a file, below the folder whose path has `named` bytes; "" if none.
[[gnu::cold]] inline std::string run_or_model_of(std::filesystem::path const& file, std::size_t named,
                                                 std::map<std::string, bool>& known) {
    std::string outermost;
    for (auto at = file.parent_path(); at.native().size() > named; at = at.parent_path()) {
        auto const [entry, is_new] = known.try_emplace(at.native());
        if (is_new) entry->second = holds_run_or_model(at);
        if (entry->second) outermost = at.native();
        if (at == at.parent_path()) break;
    }
    return outermost;
}

[[gnu::cold]] inline file_list files_matching(std::string const& pattern) {
    ::glob_t found{};
    int const code = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
    file_list list;
    auto& files = list.files;
    std::error_code failure;
    auto const wild = pattern.find_first_of("*?[");
    auto const slash = pattern.find_last_of('/', wild);
    std::size_t const named = slash == std::string::npos ? 0 : slash;
    std::map<std::string, bool> known;
    for (std::size_t i = 0; i < found.gl_pathc; ++i) {
        std::string path = found.gl_pathv[i];
        if (!text_format_of(path) || !std::filesystem::is_regular_file(path, failure)) continue;
        if (auto of_run = run_or_model_of(path, named, known); !of_run.empty())
            list.left_out.push_back(std::move(of_run));
        else
            files.push_back(std::move(path));
    }
    std::size_t const all = found.gl_pathc;
    ::globfree(&found);
    if (code == GLOB_NOMATCH) throw error(errc::data, pattern, "", "no file matches the pattern: check the path");
    if (code != 0) throw error(errc::storage, pattern, "", "the files of the pattern cannot be listed");
    if (files.empty())
        throw error(
            errc::data, pattern, "",
            sentence("none of the ", all, " paths that match the pattern is a file of text: expected ", known_formats));
    return list;
}

// The text files that a SPEC names, sorted by the bytes of their paths. A SPEC is a file, a folder (all files of known
// format below it) or, if no file has that name, a shell pattern (* ? [ ]). In a folder, hidden files and links to
// folders are ignored, and links to files must stay below it.
//
// Folders of runs and models are skipped: their .json and .jsonl files are not text, and a model would train on its own
// samples. A file inside one is read if it is named itself.
//
// Throws errc::usage for a file of unknown format, and errc::storage if a folder cannot be read. Throws errc::data if
// nothing is found or a link leads out of the folder.
[[nodiscard, gnu::cold]] inline file_list files_of(std::string const& spec) {
    namespace fs = std::filesystem;
    std::error_code failure;
    file_list found;
    bool const there = fs::exists(spec, failure);
    if (fs::is_directory(spec, failure)) {
        found = files_below(spec);
    } else if (!there && spec.find_first_of("*?[") != std::string::npos) {
        found = files_matching(spec);
    } else {
        if (!there)
            throw error(errc::data, spec, "",
                        "there is no such file or folder: check the path, or give stories:N or markov:N for generated "
                        "text");
        auto const suffix = suffix_of(spec);
        if (!text_format_of(spec))
            throw error(errc::usage, spec, "",
                        "unknown kind of text" + (suffix.empty() ? "" : " \"" + suffix + "\"") +
                            ": give a .txt file (one document), a .jsonl or .json file (one object with \"text\" per "
                            "line), each also .gz or .zst, a folder or a pattern of them, stories:N for N tokens of "
                            "generated stories, or markov:N for N symbols of a Markov chain");
        found.files = {spec};
    }
    std::sort(found.files.begin(), found.files.end());
    auto& left_out = found.left_out;
    std::sort(left_out.begin(), left_out.end());
    left_out.erase(std::unique(left_out.begin(), left_out.end()), left_out.end());
    return found;
}

}  // namespace calm::detail
