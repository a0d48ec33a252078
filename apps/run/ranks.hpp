#pragma once
// One program, run by several processes (ranks) together: docs/ranks.md. `train`, `evaluate` and `generate` are such.

#include <functional>
#include <string>

#include "calm/ranks/collective.hpp"

namespace calm::apps {

// Runs the body of a program of this name. Where mpirun, srun or torchrun started this process as one of several, they
// are ranks() in it, by MPI or by TCP as the launcher has it; only rank 0 says something, and where one of them fails
// all end, with the status of its error. Whoever launched them may end them all by a signal to one. Throws
// errc::distributed where they cannot meet.
int run_on_ranks(std::string const& program, std::function<int()> const& body);
// For a program that has no ranks. Throws errc::distributed where a launcher started this process as one of several.
void refuse_ranks();

// Whether this program was compiled with MPI.
bool has_mpi();
// This process's end of several, or null.
collective* ranks();
// Whether this process is the only one, or rank 0: who writes files and says what there is to say.
bool is_first_rank();
// What rank 0 does, as if it were alone; its status at all.
int at_first_rank(std::function<int()> const& f);
// Waits for the others, if there are some.
void meet_ranks();
// Whether from here on the others have to answer within --timeout. Until then, and while texts and models are read,
// nobody is hurried.
void hurry_ranks(bool on);
// What f() of rank 0 makes of a number or a text, for all.
bool as_first_rank(std::function<bool()> const& f);
std::string text_of_first_rank(std::function<std::string()> const& f);
// The signal that came to one of the ranks is one that came to all: noted_signal() of the first that has one. All ask.
int noted_signal_of_ranks();
// This process's number among the ranks on this machine.
int number_on_this_machine();
// Threads where none are asked for: the processor's, shared with the ranks on this machine.
int threads_of_rank(int asked);

// f() at rank 0, and then at the others: what the first writes, caches, they read.
template <class F> auto in_turn(F const& f) {
    hurry_ranks(false);
    if (!is_first_rank()) meet_ranks();
    auto made = f();
    if (is_first_rank()) meet_ranks();
    return made;
}

}  // namespace calm::apps
