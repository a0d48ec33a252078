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

// Runs a line of shell in the background, sends it a signal once the command `there` succeeds, and waits: the status is
// that of the line. One that has ended gets its signal at once. Nothing here depends on the speed of the machine.
inline std::string interrupted(std::string const& line, std::string const& there, std::string const& signal) {
    return line + " & until " + there +
           " || ! grep -q '^State:.[^ZX]' /proc/$!/status 2>/dev/null; do sleep 0.02; done; " + "kill -" + signal +
           " $! 2>/dev/null; wait $!";
}

// The same for a run that writes the folder `out` and may be through before the signal reaches it: then all is as it
// was, and it is tried again.
inline ran interrupted_run(temporary_folder const& folder, std::string const& line, std::string const& out,
                           std::string const& there, std::string const& signal) {
    static_cast<void>(run_in(folder, "rm -rf kept_run; if [ -e " + out + " ]; then cp -a " + out + " kept_run; fi"));
    ran r{};
    for (int tries = 0; tries < 20; ++tries) {
        r = run_in(folder, interrupted(line, there, signal));
        if (r.status != 0) break;
        static_cast<void>(
            run_in(folder, "rm -rf " + out + "; if [ -e kept_run ]; then cp -a kept_run " + out + "; fi"));
    }
    return r;
}

}  // namespace calm::test
