// Preloaded into a program (LD_PRELOAD), this library counts and logs the calls that touch files below a folder, and
// disturbs one of them. It is controlled by environment variables, which the program's children do not inherit.
//
//   FAULTS_UNDER  the folder, an absolute path without links
//   FAULTS_LOG    a file that gets one line per call: number, name, path, second path
//   FAULTS_AT     the number of the call to disturb, from 1; 0 or unset: none
//   FAULTS_KIND   kill (before the call), ENOSPC, EIO, EINTR (the call fails and does nothing), short (half a write)
//
// Calls that the C library makes internally (stdio) are not seen.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

struct orders {
    std::string under;
    std::string kind;
    long at = 0;
    int log = -1;
    std::atomic<long> count = 0;

    orders() {
        auto const take = [](char const* name) {
            char const* const value = std::getenv(name);
            std::string text = value != nullptr ? value : "";
            ::unsetenv(name);
            return text;
        };
        ::unsetenv("LD_PRELOAD");
        under = take("FAULTS_UNDER");
        kind = take("FAULTS_KIND");
        at = std::atol(take("FAULTS_AT").c_str());
        auto const path = take("FAULTS_LOG");
        if (path.empty()) return;
        long const fd =
            ::syscall(SYS_openat, AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
        log = ::fcntl(static_cast<int>(fd), F_DUPFD_CLOEXEC, 500);  // keeps the program's own descriptor numbers
        ::syscall(SYS_close, fd);
    }
};

orders& told() {
    static auto* const one = new orders;  // outlives every destructor of the program
    return *one;
}
[[gnu::constructor]] void read_orders() {
    told();
}

std::string target_of(std::string const& link) {
    char path[PATH_MAX];
    auto const size = ::readlink(link.c_str(), path, sizeof path);
    return size > 0 ? std::string(path, static_cast<std::size_t>(size)) : std::string();
}
std::string path_of(int fd) {
    return target_of("/proc/self/fd/" + std::to_string(fd));
}
std::string path_of(int directory, char const* name) {
    if (*name == '/') return name;
    return (directory == AT_FDCWD ? target_of("/proc/self/cwd") : path_of(directory)) + "/" + name;
}

// Counts and logs a call. Returns whether it is to be disturbed; killing happens here.
bool struck(char const* name, std::string const& path, std::string const& other = "") {
    auto& o = told();
    if (o.under.empty() || (!path.starts_with(o.under) && !other.starts_with(o.under))) return false;
    long const number = ++o.count;
    if (o.log >= 0) {
        auto const line = std::to_string(number) + "\t" + name + "\t" + path + "\t" + other + "\n";
        ::syscall(SYS_write, o.log, line.data(), line.size());
    }
    if (number != o.at) return false;
    if (o.kind == "kill") ::syscall(SYS_kill, ::getpid(), SIGKILL);
    return true;
}

int code() {
    auto const& kind = told().kind;
    return kind == "ENOSPC" ? ENOSPC : kind == "EINTR" ? EINTR : EIO;
}
bool is_short() {
    return told().kind == "short";
}

// Calls f unless the call is to fail. Only writes can be short.
template <class F> auto call(char const* name, std::string const& path, std::string const& other, F const& f) {
    int const before = errno;
    bool const fails = struck(name, path, other) && !is_short();
    errno = before;
    if (!fails) return f();
    errno = code();
    return decltype(f())(-1);
}
template <class F> ssize_t call_write(char const* name, int fd, std::size_t size, F const& f) {
    int const before = errno;
    bool const disturbed = struck(name, path_of(fd));
    errno = before;
    if (!disturbed) return f(size);
    if (is_short() && size > 1) return f(size / 2);
    if (is_short()) return f(size);
    errno = code();
    return -1;
}

int opened(char const* name, int directory, char const* path, int flags, std::va_list modes) {
    mode_t const mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(modes, mode_t) : 0;
    return call(name, path_of(directory, path), "",
                [&] { return static_cast<int>(::syscall(SYS_openat, directory, path, flags | O_LARGEFILE, mode)); });
}

}  // namespace

extern "C" {

int open(char const* path, int flags, ...) {
    std::va_list modes;
    va_start(modes, flags);
    int const fd = opened("open", AT_FDCWD, path, flags, modes);
    va_end(modes);
    return fd;
}
int open64(char const* path, int flags, ...) {
    std::va_list modes;
    va_start(modes, flags);
    int const fd = opened("open", AT_FDCWD, path, flags, modes);
    va_end(modes);
    return fd;
}
int openat(int directory, char const* path, int flags, ...) {
    std::va_list modes;
    va_start(modes, flags);
    int const fd = opened("open", directory, path, flags, modes);
    va_end(modes);
    return fd;
}
int openat64(int directory, char const* path, int flags, ...) {
    std::va_list modes;
    va_start(modes, flags);
    int const fd = opened("open", directory, path, flags, modes);
    va_end(modes);
    return fd;
}
int creat(char const* path, mode_t mode) {
    return ::open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

ssize_t write(int fd, void const* bytes, size_t n) {
    return call_write("write", fd, n, [&](size_t size) { return ::syscall(SYS_write, fd, bytes, size); });
}
ssize_t pwrite(int fd, void const* bytes, size_t n, off_t at) {
    return call_write("write", fd, n, [&](size_t size) { return ::syscall(SYS_pwrite64, fd, bytes, size, at); });
}
ssize_t pwrite64(int fd, void const* bytes, size_t n, off64_t at) {
    return call_write("write", fd, n, [&](size_t size) { return ::syscall(SYS_pwrite64, fd, bytes, size, at); });
}
ssize_t writev(int fd, iovec const* parts, int n) {
    return call_write("write", fd, static_cast<size_t>(n),
                      [&](size_t some) { return ::syscall(SYS_writev, fd, parts, some); });
}
int ftruncate(int fd, off_t size) noexcept {
    return call("truncate", path_of(fd), "", [&] { return static_cast<int>(::syscall(SYS_ftruncate, fd, size)); });
}
int ftruncate64(int fd, off64_t size) noexcept {
    return call("truncate", path_of(fd), "", [&] { return static_cast<int>(::syscall(SYS_ftruncate, fd, size)); });
}
int fsync(int fd) {
    return call("fsync", path_of(fd), "", [&] { return static_cast<int>(::syscall(SYS_fsync, fd)); });
}
int fdatasync(int fd) {
    return call("fsync", path_of(fd), "", [&] { return static_cast<int>(::syscall(SYS_fdatasync, fd)); });
}
// A close that fails has closed nevertheless.
int close(int fd) {
    auto const path = path_of(fd);
    int const result = static_cast<int>(::syscall(SYS_close, fd));
    return call("close", path, "", [&] { return result; });
}

int renameat2(int from_directory, char const* from, int to_directory, char const* to, unsigned flags) noexcept {
    return call(flags == 0 ? "rename" : "exchange", path_of(from_directory, from), path_of(to_directory, to), [&] {
        return static_cast<int>(::syscall(SYS_renameat2, from_directory, from, to_directory, to, flags));
    });
}
int rename(char const* from, char const* to) noexcept {
    return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat(int from_directory, char const* from, int to_directory, char const* to) noexcept {
    return ::renameat2(from_directory, from, to_directory, to, 0);
}
int linkat(int from_directory, char const* from, int to_directory, char const* to, int flags) noexcept {
    return call("link", path_of(from_directory, from), path_of(to_directory, to),
                [&] { return static_cast<int>(::syscall(SYS_linkat, from_directory, from, to_directory, to, flags)); });
}
int link(char const* from, char const* to) noexcept {
    return ::linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int symlink(char const* target, char const* path) noexcept {
    return call("symlink", path_of(AT_FDCWD, path), "",
                [&] { return static_cast<int>(::syscall(SYS_symlinkat, target, AT_FDCWD, path)); });
}
int unlinkat(int directory, char const* path, int flags) noexcept {
    return call("unlink", path_of(directory, path), "",
                [&] { return static_cast<int>(::syscall(SYS_unlinkat, directory, path, flags)); });
}
int unlink(char const* path) noexcept {
    return ::unlinkat(AT_FDCWD, path, 0);
}
int rmdir(char const* path) noexcept {
    return ::unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}
// The C library's version makes its calls internally; std::filesystem uses it.
int remove(char const* path) noexcept {
    if (::unlinkat(AT_FDCWD, path, 0) == 0) return 0;
    return errno == EISDIR || errno == EPERM ? ::unlinkat(AT_FDCWD, path, AT_REMOVEDIR) : -1;
}
int mkdirat(int directory, char const* path, mode_t mode) noexcept {
    return call("mkdir", path_of(directory, path), "",
                [&] { return static_cast<int>(::syscall(SYS_mkdirat, directory, path, mode)); });
}
int mkdir(char const* path, mode_t mode) noexcept {
    return ::mkdirat(AT_FDCWD, path, mode);
}

}  // extern "C"
