#include "plugin/plugin.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/detail/sha256.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "calm/runs/detail/directory_lock.hpp"
#include "calm/runs/detail/manifest.hpp"
#include "calm/version.hpp"
#include "plugin/source_text.hpp"
#include "program.hpp"
#include "shell_word.hpp"

namespace calm::apps {

namespace {

// How the program itself was compiled: compiler, include_directories of other libraries, definitions and options. And
// the folders of its own headers: library_in_sources and programs_in_sources; installed_headers, relative to an
// installed program's folder.
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

using plugin_function = void(std::string const& name, recipes const& defaults, compiled_work& to);

[[noreturn]] void fail_with_errno(errc code, std::string const& path, std::string const& what) {
    throw error(code, path, "", what + ": " + std::generic_category().message(errno));
}

std::string value_of_environment(char const* name) {
    char const* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

std::string cache_path() {
    if (auto own = value_of_environment("CALM_PLUGINS"); !own.empty()) return own;
    if (auto const caches = value_of_environment("XDG_CACHE_HOME"); caches.starts_with('/')) return caches + "/calm";
    if (auto const home = value_of_environment("HOME"); home.starts_with('/')) return home + "/.cache/calm";
    throw error(errc::storage, "a compiled configuration needs a cache directory: set CALM_PLUGINS, or HOME");
}

// The cache directory, created if it is missing. Plug-ins are code: no one else may be able to change them.
std::string private_cache() {
    auto named = std::filesystem::absolute(cache_path()).lexically_normal();
    if (!named.has_filename()) named = named.parent_path();  // "cache/" may be a link, as "cache"
    std::error_code ignored;                                 // mkdir reports it
    std::filesystem::create_directories(named.parent_path(), ignored);
    auto path = named.string();
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
        fail_with_errno(errc::storage, path, "the cache of compiled configurations cannot be created");
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) != 0) fail_with_errno(errc::storage, path, "cannot be read");
    if (!S_ISDIR(facts.st_mode) || facts.st_uid != ::geteuid() || (facts.st_mode & 077) != 0)
        throw error(errc::storage, path, "",
                    "expected a directory of yours that no one else can access, because programs load code from it: "
                    "chmod 700, or set CALM_PLUGINS to another one");
    return path;
}

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

// The command that compiles `source` to `target`. The program has no warnings of its own headers, and a user could do
// nothing about them.
std::vector<std::string> command_of(header_folders const& from, std::string const& source, std::string const& target) {
    std::vector<std::string> all{compiler};
    auto const add = [&](std::string const& prefix, auto const& words) {
        for (std::string_view const word : words)
            if (!word.empty()) all.push_back(prefix + std::string(word));
    };
    add("", options);
    add("-D", definitions);
    add("-I", std::vector{from.programs, from.library});
    add("-I", include_directories);
    for (auto const* const word : {"-w", "-fPIC", "-shared", "-o"}) all.emplace_back(word);
    all.insert(all.end(), {target, source});
    return all;
}

// Changes with everything that the plug-in depends on. Of the program's own headers, that is the text and not the
// place.
std::string key_of(std::string const& source) {
    sha256 sum;
    auto const add = [&](std::string_view part) {
        sum.add(part);
        sum.add(std::string_view("\0", 1));
    };
    add(std::to_string(CALM_VERSION));
    for (auto const& word : command_of({}, "", "")) add(word);
    for (auto const& each : headers) add(each.sha256);
    add(source);
    return sum.hex().substr(0, 32);
}

// The files of one plug-in.
struct cached_files {
    std::string directory, key, lock;  // the lock by its name in the directory
    std::string source, library, hash, log;
    cached_files(std::string const& in, std::string const& named_by) :
        directory(in), key(named_by), lock(key + ".lock") {
        auto const named = [&](char const* extension) { return in_directory(directory, key + extension); };
        source = named(".cpp");
        library = named(".so");
        hash = named(".sha256");
        log = named(".log");
    }
};

// How to build a program that has the configuration, where it cannot be compiled on demand.
std::vector<std::string> lines_that_link(entry const& one, std::string const& device) {
    return lines_of("Or write this as apps/configs/mine.cpp and build the programs with -DCALM_CONFIGS=\"mine;mine@" +
                    device + "\":\n" + unit_of(one.sizes, "mine"));
}

// Runs a command without a shell; the log gets its words, as for a shell, and then its output. Returns its exit status,
// 128 + the signal that ended it.
int status_of(std::vector<std::string>& command, std::string const& log) {
    std::vector<std::string> in_shell;
    for (auto const& word : command) in_shell.push_back(shell_word(word));
    replace_file(log, joined(in_shell, " ") + "\n");
    std::vector<char*> words;
    for (auto& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_APPEND, 0);
    ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t child = 0;
    int const failed = ::posix_spawn(&child, words[0], &actions, nullptr, words.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (failed != 0)
        throw error(errc::config, words[0], "",
                    "the compiler cannot be started: " + std::generic_category().message(failed));
    int status = 0;
    if (uninterrupted([&] { return ::waitpid(child, &status, 0); }) < 0)
        fail_with_errno(errc::config, words[0], "cannot be waited for");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The first line of the compiler's output that reports an error; the first line if none does.
std::string error_in(std::string const& log) {
    std::ifstream file(log);
    std::string line, first;
    std::getline(file, line);  // the command
    while (std::getline(file, line)) {
        if (first.empty()) first = line;
        if (line.find("error: ") != std::string::npos) return line;
    }
    return first.empty() ? "it printed nothing; is the disk full?" : first;
}

// What the hash file states about a library. The key is part of it, so that a copy of another plug-in is not valid.
std::string statement_of(cached_files const& files, std::string const& library) {
    return files.key + " " + sha256_of_file(library);
}

bool is_valid(cached_files const& files) {
    if (!is_there(files.library) || !is_there(files.hash)) return false;
    return mapped_file::open(files.hash).text() == statement_of(files, files.library);
}

void compile(entry const& one, std::string const& device, std::string const& source, cached_files const& files) {
    if (is_there(files.library)) log_line(files.library + ": damaged, so it is compiled again");
    log_line("compiling " + one.name + " for " + device + ", once: later runs load " + files.library);
    if (::access(compiler, X_OK) != 0)
        throw error(errc::config, compiler, "",
                    "the compiler that built this program is missing: install it, or build the program again",
                    lines_that_link(one, device));
    auto const from = found_headers();
    require_same_headers(from);
    replace_file(files.source, source);
    auto const partial = files.library + ".partial";
    ::unlink(partial.c_str());  // of a process that was ended
    auto command = command_of(from, files.source, partial);
    if (int const status = status_of(command, files.log); status != 0) {
        ::unlink(partial.c_str());
        throw error(errc::config, files.log, "",
                    sentence("the configuration ", one.name, " does not compile, exit status ", status, ": ",
                             error_in(files.log)));
    }
    if (!is_there(partial))
        throw error(errc::config, files.log, "",
                    "the compiler reported success and wrote no plug-in: " + error_in(files.log));
    auto const statement = statement_of(files, partial);
    put_in_place(partial, files.library);
    replace_file(files.hash, statement);
}

// Compiles the plug-in unless the cache has it. Processes that need the same one wait for the first of them.
void provide(entry const& one, std::string const& device, std::string const& source, cached_files const& files) {
    if (is_valid(files)) return;
    directory_lock const lock(files.directory, files.lock, directory_lock::when_held::wait);
    if (!is_valid(files)) compile(one, device, source, files);
}

}  // namespace

compiled_work compiled_on_demand(entry const& one, std::string const& device) {
    if (device.starts_with("cuda"))
        throw error(errc::config,
                    "the configuration " + one.name + " is not compiled for " + device +
                        ", and programs compile only for cpu and emulated",
                    lines_that_link(one, device));
    auto const source = plugin_source(one.sizes, device);
    cached_files const files(private_cache(), key_of(source));
    provide(one, device, source, files);
    // Never closed: the work may be used until the program ends.
    void* const library = ::dlopen(files.library.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* const symbol = library == nullptr ? nullptr : ::dlsym(library, "calm_plugin");
    if (symbol == nullptr)
        throw error(errc::config, files.library, "",
                    "cannot be loaded: " + std::string(::dlerror()) + "; remove it, and it is compiled again");
    compiled_work work;
    reinterpret_cast<plugin_function*>(symbol)(one.name, one.defaults, work);
    return work;
}

}  // namespace calm::apps
