#pragma once
// Several processes, or threads, that do one job. Engines for processes are in calm/ranks/tcp.hpp, which needs sockets,
// and in calm/ranks/mpi.hpp, which needs MPI; that for their GPUs is in calm/ranks/nccl.hpp, which needs NCCL.

#include "calm/ranks/collective.hpp"
#include "calm/ranks/thread_ranks.hpp"
