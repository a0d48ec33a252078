#pragma once
// Where text goes: standard output, or a file that was not there.

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "calm/base/error.hpp"
#include "calm/base/file.hpp"
#include "calm/base/quoted.hpp"
#include "program.hpp"

namespace calm::apps {

// What is put is on its way to the reader before put() returns; a file is there, whole, once it is closed, and not at
// all without. A file or a pipe gets the bytes as they are; on a terminal, which would obey them, all controls but tabs
// and ends of lines are escaped. Throws errc::storage where text cannot be written, and reader_gone where nobody reads
// it any more.
class text_output {
public:
    // Standard output where the path is empty.
    explicit text_output(std::string const& path = "") {
        if (!path.empty()) file_.emplace(path, if_exists::refuse);
    }

    void put(std::string const& whole) {
        if (file_) return file_->write(std::string_view(whole));
        auto const text = ::isatty(STDOUT_FILENO) == 1 ? escaped(whole, "\n\t") : whole;
        if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
        if (errno == EPIPE) throw reader_gone();
        throw error(errc::storage, "standard output", "", "cannot be written; is the disk full?");
    }
    void close() {
        if (file_) file_->commit();
        file_.reset();
    }

private:
    std::optional<replaced_file> file_;
};

}  // namespace calm::apps
