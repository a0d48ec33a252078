#pragma once
// Bytes as a named file, without a disk.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>

namespace calm::test {

// A named link to a file in memory; its content can be replaced.
class file_in_memory {
public:
    explicit file_in_memory(std::string const& name) : fd_(::memfd_create(name.c_str(), MFD_CLOEXEC)) {
        auto folder = (std::filesystem::temp_directory_path() / "calm-fuzz-XXXXXX").string();
        if (fd_ < 0 || ::mkdtemp(folder.data()) == nullptr) std::abort();
        path_ = folder + '/' + name;
        std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(fd_), path_);
    }
    file_in_memory(file_in_memory const&) = delete;
    file_in_memory& operator=(file_in_memory const&) = delete;
    ~file_in_memory() {
        std::error_code ignored;
        std::filesystem::remove_all(std::filesystem::path(path_).parent_path(), ignored);
        ::close(fd_);
    }

    [[nodiscard]] std::string const& with(std::span<std::uint8_t const> bytes) {
        if (::ftruncate(fd_, 0) != 0 ||
            ::pwrite(fd_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
            std::abort();
        return path_;
    }

private:
    int fd_;
    std::string path_;
};

}  // namespace calm::test
