#pragma once
// Where text goes: standard output, or a file that was not there.

#include <unistd.h>

#include <cstdio>
#include <string>

#include "calm/tensor/error.hpp"
#include "calm/tensor/quoted.hpp"

namespace calm::apps {

// What is put is on its way to the disk or the reader before put() returns. A file or a pipe gets the bytes as they
// are; on a terminal, which would obey them, all controls but tabs and ends of lines are escaped. Throws errc::storage
// where it cannot be.
class text_output {
public:
    // Standard output where the path is empty.
    explicit text_output(std::string path = "") : path_(std::move(path)) {
        if (!path_.empty()) file_ = std::fopen(path_.c_str(), "wbx");
        if (file_ == nullptr) throw error(errc::storage, path_, "", "cannot be made; does its folder exist?");
    }
    text_output(text_output const&) = delete;
    text_output& operator=(text_output const&) = delete;
    ~text_output() {
        if (!path_.empty() && file_ != nullptr) std::fclose(file_);
    }

    void put(std::string const& whole) {
        bool const terminal = path_.empty() && ::isatty(STDOUT_FILENO) == 1;
        auto const text = terminal ? detail::escaped(whole, "\n\t") : whole;
        if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0) fail();
    }
    void close() {
        if (path_.empty()) return;
        auto* const file = file_;
        file_ = nullptr;
        if (std::fclose(file) != 0) fail();
    }

private:
    [[noreturn]] void fail() const {
        throw error(errc::storage, path_.empty() ? "standard output" : path_, "",
                    "cannot be written; is the disk full, or the reader gone?");
    }

    std::string path_;
    std::FILE* file_ = stdout;
};

}  // namespace calm::apps
