#pragma once
// Runs train, evaluate and generate as several processes (ranks): docs/ranks.md.

#include <functional>
#include <string>

#include "calm/ranks/process_group.hpp"

namespace calm::apps {

// Runs the body of a program. If mpirun, srun or torchrun started this process as one of several, ranks() is available
// in it, over MPI or TCP depending on the launcher. Only rank 0 prints. If one rank fails, all exit with the status of
// its error. Sending a signal to one rank may end all. Throws errc::distributed if the ranks cannot connect.
int run_on_ranks(std::string const& program, std::function<int()> const& body);
// For programs without ranks: throws errc::distributed if a launcher started this process as one of several.
void refuse_ranks();

// Whether this program was compiled with MPI.
bool has_mpi();
// The process group of this rank, or null if there is only one process.
process_group* ranks();
// Whether this is the only process or rank 0, which writes files and messages.
bool is_first_rank();
// Runs f on rank 0, as if it were alone; all ranks return its status.
int at_first_rank(std::function<int()> const& f);
// A barrier, if there are several ranks.
void barrier();
// Whether other ranks must answer within --timeout from here on. Off at first, and while texts and models are read.
void set_rank_timeout_active(bool on);
// Runs f() on rank 0 and returns its result on all ranks.
bool as_first_rank(std::function<bool()> const& f);
std::string text_of_first_rank(std::function<std::string()> const& f);
// Turns a signal received by any rank into one received by all: returns noted_signal() of the first rank that has one.
// Collective.
int noted_signal_of_ranks();
// This process's index among the ranks on this machine.
int number_on_this_machine();
// Thread count if `asked` is 0: the processor's threads, divided among the ranks on this machine.
int threads_of_rank(int asked);

// Runs f() on rank 0 first, then on the others, so that they read the files it wrote.
template <class F> auto in_turn(F const& f) {
    set_rank_timeout_active(false);
    if (!is_first_rank()) barrier();
    auto made = f();
    if (is_first_rank()) barrier();
    return made;
}

}  // namespace calm::apps
