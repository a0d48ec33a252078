#include "plugin/plugin.hpp"

#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/runs/detail/library_cache.hpp"
#include "calm/runs/detail/manifest.hpp"
#include "calm/version.hpp"
#include "plugin/source_text.hpp"
#include "program.hpp"

namespace calm::apps {

namespace {

// How the program itself was compiled: compiler, include_directories of other libraries, definitions and options. How
// it would compile for cuda: nvcc, "" without CUDA, nvcc_options and nvcc_links. And the folders of its own headers:
// library_in_sources and programs_in_sources; installed_headers, relative to an installed program's folder.
#include "plugin_build.inc"  // NOLINT

struct header {
    bool of_library;        // else of the programs
    std::string_view path;  // in the library's or the programs' folder
    std::string_view sha256;
};
// The headers that the program was compiled from.
constexpr header headers[] = {
#include "plugin_headers.inc"  // NOLINT
};

using loading_function = void(loading& to);
using training_function = void(training& to);

// Folders that hold the headers of the library and of the programs.
struct header_folders {
    std::string library, programs;
};

header_folders installed_folders() {
    std::error_code ignored;  // without /proc there is no such folder
    auto const program = std::filesystem::read_symlink("/proc/self/exe", ignored);
    auto const library = (program.parent_path() / installed_headers).lexically_normal();
    return {library.string(), (library / "calm-programs").string()};
}

// Those of the installation that the program is part of, wherever it was moved to; else those in the sources.
header_folders found_headers() {
    auto installed = installed_folders();
    if (is_there(installed.programs)) return installed;
    return {library_in_sources, programs_in_sources};
}

// Throws errc::config unless the headers are those of the program: other ones may lay out objects differently.
void require_same_headers(header_folders const& from) {
    for (auto const& [of_library, path, expected] : headers) {
        auto const name = in_directory(of_library ? from.library : from.programs, std::string(path));
        if (!is_there(name))
            throw error(errc::config, name, "",
                        "expected a header of this program, found none: the program compiles sizes from its headers. "
                        "Install the program with them, by cmake --install, or keep its sources in place");
        if (sha256_of_file(name) != expected)
            throw error(errc::config, name, "",
                        "not the header that this program was built with: build the program again, and install it if "
                        "it was installed");
    }
    for (std::string_view const folder : include_directories)
        if (!folder.empty() && !is_there(std::string(folder)))
            throw error(errc::config, std::string(folder), "",
                        "expected the headers of a library that this program was built with, found none: install the "
                        "library's development package");
}

char const* compiler_for(std::string const& device) {
    return is_of_cuda(device) ? nvcc : compiler;
}

// The command that compiles a plug-in. The program has no warnings of its own headers, and a user could do nothing
// about them.
std::vector<std::string> command_of(std::string const& device, header_folders const& from) {
    std::vector<std::string> all{compiler_for(device)};
    auto const add = [&](std::string const& prefix, auto const& words) {
        for (std::string_view const word : words)
            if (!word.empty()) all.push_back(prefix + std::string(word));
    };
    if (is_of_cuda(device)) {
        add("", nvcc_options);
        for (std::string_view const word : options)  // the instruction sets, which the source file checks
            if (word.starts_with("-m")) all.push_back("-Xcompiler=" + std::string(word));
    } else {
        add("", options);
    }
    add("-D", definitions);
    add("-I", std::vector{from.programs, from.library});
    add("-I", include_directories);
    for (auto const* const word : {"-w", "-fPIC", "-shared"}) all.emplace_back(word);
    return all;
}

std::vector<std::string> links_of(std::string const& device) {
    std::vector<std::string> all;
    if (is_of_cuda(device))
        for (std::string_view const word : nvcc_links)
            if (!word.empty()) all.emplace_back(word);
    return all;
}

// One part of a plug-in. Its key depends on the text of the program's own headers, and not on their place.
library_source source_of(entry const& one, std::string const& device, plugin_part part) {
    auto text = plugin_source(one.sizes, device, part);
    auto links = links_of(device);
    std::vector<std::string> depends{std::to_string(CALM_VERSION)};
    for (auto& word : command_of(device, {})) depends.push_back(std::move(word));
    depends.insert(depends.end(), links.begin(), links.end());
    for (auto const& each : headers) depends.emplace_back(each.sha256);
    depends.push_back(text);
    return {.name = "the configuration " + one.name,
            .text = std::move(text),
            .extension = is_of_cuda(device) ? ".cu" : ".cpp",
            .command = command_of(device, found_headers()),
            .links = std::move(links),
            .key = key_of(depends)};
}

// The part to generate with: the one for evaluation too if the cache has it, else the one that compiles sooner.
plugin_part part_that_generates(entry const& one, std::string const& device) {
    return is_in_cache(source_of(one, device, plugin_part::loading)) ? plugin_part::loading : plugin_part::generating;
}

// How to build a program that has the configuration, where it cannot be compiled on demand.
std::vector<std::string> lines_that_link(entry const& one, std::string const& device) {
    if (!one.on_demand)
        return {"Or build the programs with -DCALM_CONFIGS=\"" + one.name + ";" + one.name + "@" + device +
                "\"; the list replaces the default one"};
    return lines_of("Or write this as apps/configs/mine.cpp and build the programs with -DCALM_CONFIGS=\"mine;mine@" +
                    device + "\":\n" + unit_of(one.sizes, "mine"));
}

}  // namespace

void require_compiled_device(entry const& one, std::string const& device) {
    if (is_of_cuda(device) && std::string_view(nvcc).empty())
        throw error(errc::config,
                    "the configuration " + one.name + " is not compiled for " + device +
                        ", and this program was built without CUDA: build it where nvcc 12.4 or later is, with "
                        "-DCALM_CUDA=ON, and it compiles a configuration for a GPU when that is first used",
                    lines_that_link(one, device));
}

bool load_on_demand(entry const& one, std::string const& device, needed_work needed, compiled_functions& to) {
    std::vector<plugin_part> parts;
    if (needed == needed_work::generation && to.load == nullptr)
        parts.push_back(part_that_generates(one, device));
    else if (needed != needed_work::generation && to.measures == nullptr)
        parts.push_back(plugin_part::loading);
    if (needed == needed_work::all && !device.ends_with("-bf16") && to.muon_of_model == nullptr)
        parts.push_back(plugin_part::training);
    if (parts.empty()) return false;
    require_compiled_device(one, device);
    std::vector<library_source> sources;
    for (auto const part : parts) sources.push_back(source_of(one, device, part));
    auto const libraries = compiled_libraries(sources, [&](libraries_to_compile const& what) {
        for (auto const& path : what.damaged) log_line(path + ": damaged, so it is compiled again");
        auto const time = is_of_cuda(device)    ? "some minutes"
                          : sources.size() == 1 ? "about half a minute"
                                                : "about a minute";
        log_line("compiling " + one.name + " for " + device + ", which takes " + time + "; it is kept in " +
                 what.directory + ", and later runs load it");
        if (::access(compiler_for(device), X_OK) != 0)
            throw error(errc::config, compiler_for(device), "",
                        "the compiler that built this program is missing: install it, or build the program again",
                        lines_that_link(one, device));
        require_same_headers(found_headers());
    });
    for (std::size_t i = 0; i < parts.size(); ++i)
        if (auto* const add = function_of_library(libraries[i], ("calm_" + name_of(parts[i])).c_str());
            parts[i] == plugin_part::training)
            reinterpret_cast<training_function*>(add)(to);
        else
            reinterpret_cast<loading_function*>(add)(to);
    return true;
}

}  // namespace calm::apps
