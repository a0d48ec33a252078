#pragma once
/// \file
/// Distributed work in several processes or threads. Transports between processes are separate headers:
/// calm/ranks/tcp.hpp (needs sockets), calm/ranks/mpi.hpp (needs MPI) and, for their GPUs, calm/ranks/nccl.hpp (needs
/// NCCL).
/// \shows{tests/ranks/process_group_test.cpp,sums_of_all_are_the_same_on_all}

#include "calm/ranks/process_group.hpp"
#include "calm/ranks/thread_ranks.hpp"
