#pragma once
// Runs the programs from a shell, as a user does. They are in CALM_PROGRAMS_DIR.

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "support/temporary_folder.hpp"

namespace calm::test {

struct ran {
    int status;  // 128 + the signal if a signal ended it
    std::string out;
    std::string err;
};

// Runs a shell line in a folder with the programs first in PATH; the output goes through out.txt and err.txt there.
// Unless the line says otherwise, training uses AdamW, because Muon's products dominate the time of a small step, and
// scores few positions, because 5000 take longer than the steps.
inline ran run_in(temporary_folder const& folder, std::string const& line) {
    auto const whole = "cd '" + folder.path("") +
                       "' && PATH='" CALM_PROGRAMS_DIR
                       "':$PATH CALM_MUON=0 CALM_HELDOUT_POSITIONS=200; export CALM_MUON CALM_HELDOUT_POSITIONS; { " +
                       line + "; } >out.txt 2>err.txt";
    int const status = std::system(whole.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), folder.content("out.txt"),
            folder.content("err.txt")};
}

// A shell line that runs `line` in the background, sends it a signal once the command `there` succeeds, and waits. The
// status is the line's own. A line that has already ended gets the signal at once, so timing does not matter.
inline std::string interrupted(std::string const& line, std::string const& there, std::string const& signal) {
    return line + " & until " + there +
           " || ! grep -q '^State:.[^ZX]' /proc/$!/status 2>/dev/null; do sleep 0.02; done; " + "kill -" + signal +
           " $! 2>/dev/null; wait $!";
}

// As `interrupted`, for a run that writes the folder `out`. If the run ends before the signal reaches it, the folder is
// restored and the run is tried again.
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
