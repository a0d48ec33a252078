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
    enum class when_held { refuse, wait };

    // Creates the file if it is missing. While another process holds it, waits or throws errc::storage. Throws
    // errc::storage if it cannot be opened.
    directory_lock(std::string const& directory, std::string_view name, when_held held = when_held::refuse) :
        file_(-1) {
        auto const path = in_directory(directory, name);
        file_ = detail::open_regular(path, O_RDWR | O_CREAT | O_NOFOLLOW, errc::storage, "cannot be opened");
        int const how = held == when_held::wait ? LOCK_EX : LOCK_EX | LOCK_NB;
        if (uninterrupted([&] { return ::flock(file_.get(), how); }) == 0) return;
        if (errno != EWOULDBLOCK) detail::fail_with_errno(errc::storage, path, "cannot be locked");
        throw error(errc::storage, directory, "",
                    "another process is training in it; wait for that one, stop it, or choose another path");
    }

private:
    detail::descriptor file_;
};

}  // namespace calm
