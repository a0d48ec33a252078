#pragma once
// Lets one process at a time write to a directory.

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "calm/base/detail/file.hpp"
#include "calm/io/detail/whole_directory.hpp"

namespace calm {

// Holds a directory by a lock on a file in it, until the object is destroyed or the process ends in any way. The file
// stays.
class directory_lock {
public:
    // Creates the file if it is missing. Throws errc::storage if another process holds it or it cannot be opened.
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
