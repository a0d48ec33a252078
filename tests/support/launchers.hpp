#pragma once
// Programs as several ranks, where they can be.

#include <cstdlib>
#include <string>

#include "run/ranks.hpp"
#include "support/free_port.hpp"
#include "support/skipped.hpp"

namespace calm::test {

// Why ranks cannot be tried here; empty where they can.
inline std::string no_ranks_reason() {
    if (!apps::has_mpi()) return "compiled without MPI";
    return std::system("command -v mpirun >/dev/null 2>&1") == 0 ? "" : "there is no mpirun";
}
// Whether they can; the test case is skipped where they cannot.
inline bool can_run_ranks() {
    auto const why = no_ranks_reason();
    if (!why.empty()) skip(why);
    return why.empty();
}

// What stands before a program: Open MPI as root, with more ranks than cores, and where a container forbids to read
// another's memory. What its plugins have not given back at the end is no leak of ours.
inline std::string mpirun(int ranks) {
    return "timeout 300 env ASAN_OPTIONS=\"$ASAN_OPTIONS:detect_leaks=0\" "
           "OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
           "mpirun --oversubscribe --bind-to none -n " +
           std::to_string(ranks) + " ";
}

// What ranks of a test prove to each other: without it they would look for the user's own secret, and make one.
inline std::string const ranks_secret = "CALM_RANKS_SECRET=known-to-this-test-alone";

// What stands before a program: so many of it, told by these variables which rank each is. The status is rank 0's.
inline std::string by_tcp(std::string const& rank, std::string const& ranks, int count) {
    auto const R = std::to_string(count);
    return "timeout 300 env " + ranks_secret + " " + ranks + "=" + R +
           " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(free_port()) + " sh -c 'for r in $(seq 1 " +
           std::to_string(count - 1) + "); do " + rank + "=$r \"$@\" & done; " + rank +
           "=0 \"$@\"; status=$?; wait; exit $status' sh ";
}

}  // namespace calm::test
