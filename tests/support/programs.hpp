#pragma once
// The programs as a user runs them, from a shell. They lie in CALM_PROGRAMS_DIR.

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "support/temporary_folder.hpp"

namespace calm::test {

struct ran {
    int status;  // 128 + the signal where one ended it
    std::string out;
    std::string err;
};

// Runs a line of shell in a folder, with the programs first in its PATH; what it says goes through out.txt and err.txt
// there. Training is AdamW's where the line does not say otherwise: the products of Muon are most of a small step.
inline ran run_in(temporary_folder const& folder, std::string const& line) {
    auto const whole = "cd '" + folder.path("") +
                       "' && PATH='" CALM_PROGRAMS_DIR "':$PATH CALM_MUON=0; export CALM_MUON; { " + line +
                       "; } >out.txt 2>err.txt";
    int const status = std::system(whole.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), folder.content("out.txt"),
            folder.content("err.txt")};
}

}  // namespace calm::test
