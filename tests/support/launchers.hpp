#pragma once
// Running programs as several ranks, where possible.

#include <cstdlib>
#include <string>

#include "run/ranks.hpp"
#include "support/free_port.hpp"
#include "support/skipped.hpp"

namespace calm::test {

// Why ranks cannot run here; empty if they can.
inline std::string no_ranks_reason() {
    if (!apps::has_mpi()) return "compiled without MPI";
    return std::system("command -v mpirun >/dev/null 2>&1") == 0 ? "" : "there is no mpirun";
}
// Whether ranks can run; if not, the test case is skipped.
inline bool can_run_ranks() {
    auto const why = no_ranks_reason();
    if (!why.empty()) skip(why);
    return why.empty();
}

// Prefix that starts a program with Open MPI: as root, with more ranks than cores, and in containers that forbid
// reading another process's memory. Leak detection is off because MPI plugins do not free everything at exit.
inline std::string mpirun(int ranks) {
    return "timeout 300 env ASAN_OPTIONS=\"$ASAN_OPTIONS:detect_leaks=0\" "
           "OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
           "mpirun --oversubscribe --bind-to none -n " +
           std::to_string(ranks) + " ";
}

// The shared secret of a test's ranks; without it they would look for the user's own secret and create one.
inline std::string const ranks_secret = "CALM_RANKS_SECRET=known-to-this-test-alone";

// Prefix that starts `count` processes of a program; these variables tell each its rank. The exit status is rank 0's.
inline std::string by_tcp(std::string const& rank, std::string const& ranks, int count) {
    auto const R = std::to_string(count);
    return "timeout 300 env " + ranks_secret + " " + ranks + "=" + R +
           " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(free_port()) + " sh -c 'for r in $(seq 1 " +
           std::to_string(count - 1) + "); do " + rank + "=$r \"$@\" & done; " + rank +
           "=0 \"$@\"; status=$?; wait; exit $status' sh ";
}

}  // namespace calm::test
