#pragma once
// What a call writes to standard error.

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "support/temporary_folder.hpp"

namespace calm::test {

// The standard error output of a call.
template <class Call> std::string standard_error_of(Call const& call) {
    temporary_folder const folder;
    std::fflush(stderr);
    int const before = ::dup(STDERR_FILENO);
    int const file = ::open(folder.path("said").c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(file, STDERR_FILENO);
    call();
    std::fflush(stderr);
    ::dup2(before, STDERR_FILENO);
    ::close(file);
    ::close(before);
    return folder.content("said");
}

}  // namespace calm::test
