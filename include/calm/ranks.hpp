#pragma once
// Several processes, or threads, that do one job. The engine for processes is in calm/ranks/mpi.hpp, which needs MPI,
// and that for their GPUs in calm/ranks/nccl.hpp, which needs NCCL.

#include "calm/ranks/collective.hpp"
#include "calm/ranks/thread_ranks.hpp"
