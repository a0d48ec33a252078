#pragma once
// The files that a path, a folder or a pattern names.

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/base/file.hpp"
#include "calm/text/text_file.hpp"

namespace calm {

namespace detail {

inline constexpr char const* known_formats =
    ".txt (one document), .jsonl or .json (one object with \"text\" a line), each also .gz or .zst";

// The suffixes of a name, "" where it has none.
inline std::string suffix_of(std::filesystem::path const& path) {
    std::string const last = path.extension().string();
    return last == ".gz" || last == ".zst" ? path.stem().extension().string() + last : last;
}

[[gnu::cold]] inline std::vector<std::string> files_below(std::string const& folder) {
    namespace fs = std::filesystem;
    std::vector<std::string> files;
    try {
        for (fs::recursive_directory_iterator at(folder), end; at != end; ++at)
            if (at->path().filename().string().starts_with('.'))
                at.disable_recursion_pending();
            else if (at->is_regular_file() && text_format_of(at->path().string())) {
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
    return files;
}

[[gnu::cold]] inline std::vector<std::string> files_matching(std::string const& pattern) {
    ::glob_t found{};
    int const code = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
    std::vector<std::string> files;
    std::error_code failure;
    for (std::size_t i = 0; i < found.gl_pathc; ++i)
        if (std::string path = found.gl_pathv[i];
            text_format_of(path) && std::filesystem::is_regular_file(path, failure))
            files.push_back(std::move(path));
    std::size_t const all = found.gl_pathc;
    ::globfree(&found);
    if (code == GLOB_NOMATCH) throw error(errc::data, pattern, "", "no file matches the pattern: check the path");
    if (code != 0) throw error(errc::storage, pattern, "", "the files of the pattern cannot be listed");
    if (files.empty())
        throw error(
            errc::data, pattern, "",
            sentence("none of the ", all, " paths that match the pattern is a file of text: expected ", known_formats));
    return files;
}

}  // namespace detail

// The files of text that a SPEC names, in the order of the bytes of their paths: a file; all below a folder whose
// format is known, but for hidden ones and links to folders, where links to files must stay below it; or those that
// match a pattern of the shell (* ? [ ]), where no file has that name. Throws errc::usage for a file of unknown format,
// errc::data where nothing is there, a named file is empty or a link leads out of the folder, errc::storage where a
// folder cannot be read.
[[nodiscard, gnu::cold]] inline std::vector<std::string> files_of(std::string const& spec) {
    namespace fs = std::filesystem;
    std::error_code failure;
    std::vector<std::string> files;
    bool const there = fs::exists(spec, failure);
    if (fs::is_directory(spec, failure)) {
        files = detail::files_below(spec);
    } else if (!there && spec.find_first_of("*?[") != std::string::npos) {
        files = detail::files_matching(spec);
    } else {
        if (!there)
            throw error(errc::data, spec, "",
                        "there is no such file or folder: check the path, or give stories:N or markov:N for generated "
                        "text");
        auto const suffix = detail::suffix_of(spec);
        if (!text_format_of(spec))
            throw error(errc::usage, spec, "",
                        "unknown kind of text" + (suffix.empty() ? "" : " \"" + suffix + "\"") +
                            ": give a .txt file (one document), a .jsonl or .json file (one object with \"text\" a "
                            "line), each also .gz or .zst, a folder or a pattern of them, stories:N for N tokens of "
                            "generated stories, or markov:N for N symbols of a Markov chain");
        if (fs::is_regular_file(spec, failure) && fs::file_size(spec, failure) == 0 && !failure)
            throw error(errc::data, spec, "", "the file is empty: give a file with text in it");
        files = {spec};
    }
    std::sort(files.begin(), files.end());
    return files;
}

}  // namespace calm
