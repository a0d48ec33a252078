#pragma once
// One process at a time writes to a directory.

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "calm/base/file.hpp"
#include "calm/io/whole_directory.hpp"

namespace calm {

// A directory that is held by the lock on a file in it, until the object is gone or the process has died, however it
// died. The file stays.
class directory_lock {
public:
    // Makes the file where it is missing. Throws errc::storage where another process holds it, or it cannot be opened.
    directory_lock(std::string const& directory, std::string_view name) : file_(-1) {
        auto const path = in_directory(directory, name);
        file_ = detail::open_regular(path, O_RDWR | O_CREAT | O_NOFOLLOW, errc::storage, "cannot be opened");
        if (::flock(file_.get(), LOCK_EX | LOCK_NB) == 0) return;
        if (errno != EWOULDBLOCK) detail::fail_with_errno(errc::storage, path, "cannot be locked");
        throw error(errc::storage, directory, "",
                    "another process is training in it; wait for that one, stop it, or choose another path");
    }

private:
    detail::descriptor file_;
};

}  // namespace calm
