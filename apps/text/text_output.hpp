#pragma once
// Output of text: standard output, or a new file.

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "calm/base/detail/file.hpp"
#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "program.hpp"

namespace calm::apps {

// put() flushes standard output before it returns. A file appears complete when closed, or not at all. Files and pipes
// receive bytes unchanged. A terminal would interpret controls, so all except tabs and newlines are escaped. Throws
// errc::storage if writing fails, and reader_gone if the reader is gone.
class text_output {
public:
    // An empty path means standard output.
    explicit text_output(std::string const& path = "") {
        if (!path.empty()) file_.emplace(path, if_exists::refuse);
    }

    // Whether a person reads standard output next to the messages: both are terminals. Launchers as mpirun give a
    // process a terminal as standard output only.
    [[nodiscard]] static bool is_for_a_person() { return ::isatty(STDOUT_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1; }

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
