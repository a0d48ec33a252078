#include "run/ranks.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "program.hpp"

#ifdef CALM_HAS_MPI
#include "calm/ranks/mpi.hpp"
#endif

namespace calm::apps {

namespace {

collective* all_ranks = nullptr;

// How many processes a launcher says that it started, 1 where it says nothing.
long told_by(char const* variable) {
    auto const* const text = std::getenv(variable);
    return text == nullptr ? 1 : std::strtol(text, nullptr, 10);
}

// Whether a launcher started this process as one of several, by what it tells its processes: Open MPI's mpirun, what
// has PMIx (srun), what has PMI (MPICH, srun).
bool is_launched() {
    if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return told_by("OMPI_COMM_WORLD_SIZE") != 1;
    return std::getenv("PMIX_RANK") != nullptr || std::getenv("PMI_RANK") != nullptr;
}

// Processes of a launcher that brings no MPI, so that each would do all of the work: torchrun, srun --mpi=none. An
// allocation of Slurm's is none, only a step of it.
std::string launcher_without_mpi() {
    if (std::getenv("RANK") != nullptr && told_by("WORLD_SIZE") > 1) return "torchrun";
    return told_by("SLURM_STEP_NUM_TASKS") > 1 ? "srun without PMIx or PMI" : "";
}

#ifdef CALM_HAS_MPI

mpi_ranks::place here{0, 1};  // among the ranks on this machine

// Says what went wrong, and ends all ranks. Another one than the first leaves it to that one, which heard of it, for as
// long as that may take; it says it itself where the first does not.
[[noreturn]] void end_ranks(std::string const& program, mpi_ranks& self, failure const& what) {
    self.fail(error(static_cast<errc>(what.status), what.text));
    if (!self.is_first()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(3000 + 200 * std::min(self.rank(), 20)));
        hold_tongue(false);
    }
    if (!what.text.empty())
        tell_lines(
            sentence(program, ": ", self.is_first() ? "" : "rank " + std::to_string(self.rank()) + ": ", what.text));
    mpi_ranks::end_all(what.status);
}

int run_with_mpi(std::string const& program, std::function<int()> const& body) {
    mpi_ranks self;
    if (self.ranks() == 1) {
        auto const told = std::max(told_by("OMPI_COMM_WORLD_SIZE"), told_by("PMI_SIZE"));
        require(told <= 1, errc::distributed, "expected to be one of ", told,
                " ranks, as the launcher says, found this process alone: the launcher is of another MPI than ", program,
                " was built with, and each process would do all of the work: docs/ranks.md");
        return body();
    }
    all_ranks = &self;
    here = mpi_ranks::beside();
    self.asked_to_end = [] { return noted_signal() != 0; };
    self.tell = [](std::string const& sentence) {
        hold_tongue(false);
        tell(all_ranks->is_first() ? sentence : "rank " + std::to_string(all_ranks->rank()) + ": " + sentence);
        hold_tongue(!all_ranks->is_first());
    };
    hold_tongue(!self.is_first());
    try {
        int const status = body();
        self.barrier();
        all_ranks = nullptr;
        return status;
    } catch (...) {
        end_ranks(program, self, failure_now());
    }
}

#endif

}  // namespace

int run_on_ranks([[maybe_unused]] std::string const& program, std::function<int()> const& body) {
    if (!is_launched()) {
        auto const launcher = launcher_without_mpi();
        require(launcher.empty(), errc::distributed, "expected ranks that mpirun or srun --mpi=pmix started, found ",
                launcher, ", under which each process would do all of the work: docs/ranks.md");
        return body();
    }
#ifdef CALM_HAS_MPI
    return run_with_mpi(program, body);
#else
    throw error(errc::distributed,
                "started as one of several processes, and compiled without MPI: install libopenmpi-dev, "
                "configure and build again, or start it alone");
#endif
}

void refuse_ranks() {
    auto const most = std::max({told_by("OMPI_COMM_WORLD_SIZE"), told_by("PMI_SIZE"), told_by("SLURM_STEP_NUM_TASKS")});
    require(most <= 1 && launcher_without_mpi().empty(), errc::distributed,
            "expected one process, found one of several, each of which would do the same work: start it without "
            "mpirun, srun or torchrun; train, evaluate and generate have ranks");
}

bool takes_ranks() {
#ifdef CALM_HAS_MPI
    return true;
#else
    return false;
#endif
}

collective* ranks() {
    return all_ranks;
}

bool is_first_rank() {
    return all_ranks == nullptr || all_ranks->is_first();
}

int at_first_rank(std::function<int()> const& f) {
    if (!is_first_rank()) return 0;
    auto* const others = std::exchange(all_ranks, nullptr);
    int const status = f();
    all_ranks = others;
    return status;
}

void meet_ranks() {
    if (all_ranks != nullptr) all_ranks->barrier();
}

bool as_first_rank(std::function<bool()> const& f) {
    if (all_ranks == nullptr) return f();
    return all_ranks->broadcast(all_ranks->is_first() && f() ? 1 : 0) != 0;
}

std::string text_of_first_rank(std::function<std::string()> const& f) {
    if (all_ranks == nullptr) return f();
    return all_ranks->broadcast_text(all_ranks->is_first() ? f() : "");
}

int noted_signal_of_ranks() {
    if (all_ranks == nullptr) return noted_signal();
    int const own = noted_signal();
    std::vector<int> all(static_cast<std::size_t>(all_ranks->ranks()));
    all_ranks->all_gather(std::span<int const>(&own, 1), std::span(all));
    auto const came = std::ranges::find_if(all, [](int number) { return number != 0; });
    if (came != all.end()) take_signal(*came);
    return came != all.end() ? *came : 0;
}

int number_on_this_machine() {
#ifdef CALM_HAS_MPI
    return here.rank;
#else
    return 0;
#endif
}

int threads_of_rank(int asked) {
#ifdef CALM_HAS_MPI
    if (asked > 0 || all_ranks == nullptr) return asked;
    auto const mine = static_cast<int>(std::thread::hardware_concurrency());
    bool const bound = mine < ::sysconf(_SC_NPROCESSORS_ONLN);  // the launcher has shared them out
    return std::max(1, bound ? mine : mine / here.ranks);
#else
    return asked;
#endif
}

}  // namespace calm::apps
