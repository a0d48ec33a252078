#pragma once
// Shared libraries that a program compiles and loads. They are kept in a private directory: CALM_PLUGINS, else calm in
// XDG_CACHE_HOME or ~/.cache.

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/detail/sha256.hpp"
#include "calm/base/detail/shell_word.hpp"
#include "calm/base/error.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "calm/runs/detail/directory_lock.hpp"
#include "calm/runs/detail/manifest.hpp"

namespace calm {

// A shared library to compile.
struct library_source {
    std::string name;                  // in messages: "the configuration tiny:patch_size=2"
    std::string text;                  // of the source file
    std::string extension;             // of the source file
    std::vector<std::string> command;  // compiler and options; "-o", the library and the source file are appended
    std::vector<std::string> links;    // for the linker, after the source file
    std::string key;                   // of key_of(): changes with everything that the library depends on
};

// What compiled_libraries() is about to compile.
struct libraries_to_compile {
    std::string directory;             // of the cache
    std::vector<std::string> damaged;  // paths of libraries that are replaced
};

// A key of these parts, 32 hexadecimal digits.
template <class Parts> std::string key_of(Parts const& parts) {
    sha256 sum;
    for (std::string_view const part : parts) {
        sum.add(part);
        sum.add(std::string_view("\0", 1));
    }
    return sum.hex().substr(0, 32);
}

namespace detail {

inline std::string value_of_environment(char const* name) {
    char const* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

inline std::string library_cache_path() {
    if (auto own = value_of_environment("CALM_PLUGINS"); !own.empty()) return own;
    if (auto const caches = value_of_environment("XDG_CACHE_HOME"); caches.starts_with('/')) return caches + "/calm";
    if (auto const home = value_of_environment("HOME"); home.starts_with('/')) return home + "/.cache/calm";
    throw error(errc::storage, "a compiled configuration needs a cache directory: set CALM_PLUGINS, or HOME");
}

// The cache directory, created if it is missing. The libraries are code: no one else may be able to change them.
inline std::string private_library_cache() {
    auto named = std::filesystem::absolute(library_cache_path()).lexically_normal();
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

// The files of one library.
struct cached_library {
    std::string directory, key, lock;  // the lock by its name in the directory
    std::string source, library, partial, hash, log;
    cached_library(std::string const& in, library_source const& from) :
        directory(in), key(from.key), lock(key + ".lock") {
        auto const named = [&](std::string const& extension) { return in_directory(directory, key + extension); };
        source = named(from.extension);
        library = named(".so");
        partial = named(".so.partial");
        hash = named(".sha256");
        log = named(".log");
    }

    // What the hash file states about a library. The key is part of it, so that a copy of another one is not valid.
    [[nodiscard]] std::string statement_of(std::string const& path) const { return key + " " + sha256_of_file(path); }
    [[nodiscard]] bool is_valid() const {
        return is_there(library) && is_there(hash) && mapped_file::open(hash).text() == statement_of(library);
    }
};

// A command that runs without a shell. The log gets its words, as for a shell, and then its output.
class running_command {
public:
    running_command(std::vector<std::string> command, std::string const& log) : name_(command.at(0)) {
        std::string for_shell;
        for (auto const& word : command) for_shell += (for_shell.empty() ? "" : " ") + shell_word(word);
        replace_file(log, for_shell + "\n");
        std::vector<char*> arguments;
        for (auto& word : command) arguments.push_back(word.data());
        arguments.push_back(nullptr);
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        ::posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_APPEND, 0);
        ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
        int const failed = ::posix_spawnp(&child_, arguments[0], &actions, nullptr, arguments.data(), environ);
        ::posix_spawn_file_actions_destroy(&actions);
        if (failed != 0)
            throw error(errc::config, name_, "",
                        "the compiler cannot be started: " + std::generic_category().message(failed));
    }
    running_command(running_command&& other) noexcept :
        name_(std::move(other.name_)), child_(std::exchange(other.child_, 0)) {}
    running_command& operator=(running_command&&) = delete;
    ~running_command() {
        int ignored = 0;
        if (child_ != 0) static_cast<void>(uninterrupted([&] { return ::waitpid(child_, &ignored, 0); }));
    }

    // Waits for its end. Returns its exit status, 128 + the signal that ended it.
    int status() {
        int status = 0;
        auto const child = std::exchange(child_, 0);
        if (uninterrupted([&] { return ::waitpid(child, &status, 0); }) < 0)
            fail_with_errno(errc::config, name_, "cannot be waited for");
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

private:
    std::string name_;
    pid_t child_ = 0;
};

// The first line of a compiler's output that reports an error; the first line if none does.
inline std::string error_in_log(std::string const& log) {
    std::ifstream file(log);
    std::string line, first;
    std::getline(file, line);  // the command
    while (std::getline(file, line)) {
        if (first.empty()) first = line;
        if (line.find("error: ") != std::string::npos) return line;
    }
    return first.empty() ? "it printed nothing; is the disk full?" : first;
}

// The compiler of one library, which it writes next to its place.
class compilation {
public:
    compilation(library_source const& from, cached_library const& files) :
        name_(from.name), files_(files), compiler_(started(from, files)) {}

    // Waits for the compiler and puts the library in its place.
    void finish() {
        if (int const status = compiler_.status(); status != 0) {
            ::unlink(files_.partial.c_str());
            throw error(errc::config, files_.log, "",
                        sentence(name_, " does not compile, exit status ", status, ": ", error_in_log(files_.log)));
        }
        if (!is_there(files_.partial))
            throw error(errc::config, files_.log, "",
                        "the compiler reported success and wrote no library: " + error_in_log(files_.log));
        auto const statement = files_.statement_of(files_.partial);
        put_in_place(files_.partial, files_.library);
        replace_file(files_.hash, statement);
    }

private:
    static running_command started(library_source const& from, cached_library const& files) {
        replace_file(files.source, from.text);
        ::unlink(files.partial.c_str());  // of a process that was ended
        auto command = from.command;
        command.insert(command.end(), {"-o", files.partial, files.source});
        command.insert(command.end(), from.links.begin(), from.links.end());
        return {std::move(command), files.log};
    }

    std::string name_;
    cached_library const& files_;
    running_command compiler_;
};

}  // namespace detail

// Whether the cache has a library, even a damaged one. Throws errc::storage if the cache cannot be used.
inline bool is_in_cache(library_source const& one) {
    return is_there(detail::cached_library(detail::private_library_cache(), one).library);
}

// Compiles libraries that the cache lacks, all at the same time. Returns the paths of all, in order. A cached library
// counts only if its stored SHA-256 matches. Processes that need the same one wait for the first of them; all must name
// libraries in the same order. `before` is called before anything is compiled, and may throw. Throws errc::config if
// one does not compile, and errc::storage if the cache cannot be used.
inline std::vector<std::string> compiled_libraries(std::vector<library_source> const& all,
                                                   std::function<void(libraries_to_compile const&)> const& before) {
    libraries_to_compile what{detail::private_library_cache(), {}};
    std::vector<detail::cached_library> files;
    for (auto const& one : all) files.emplace_back(what.directory, one);
    std::vector<std::unique_ptr<directory_lock>> locks;
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (files[i].is_valid()) continue;
        locks.push_back(
            std::make_unique<directory_lock>(what.directory, files[i].lock, directory_lock::when_held::wait));
        if (files[i].is_valid()) continue;
        missing.push_back(i);
        if (is_there(files[i].library)) what.damaged.push_back(files[i].library);
    }
    if (!missing.empty()) {
        before(what);
        std::vector<detail::compilation> running;
        for (auto const i : missing) running.emplace_back(all[i], files[i]);
        for (auto& one : running) one.finish();
    }
    std::vector<std::string> paths;
    for (auto const& one : files) paths.push_back(one.library);
    return paths;
}

// A function of a library. The library is loaded, and never closed: the function may be used until the program ends.
// Throws errc::config.
inline void* function_of_library(std::string const& path, char const* name) {
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* const function = library == nullptr ? nullptr : ::dlsym(library, name);
    if (function == nullptr)
        throw error(errc::config, path, "",
                    "cannot be loaded: " + std::string(::dlerror()) + "; remove it, and it is compiled again");
    return function;
}

}  // namespace calm
