#include "run/ranks.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "calm/ranks/tcp.hpp"
#include "calm/version.hpp"
#include "command/number_within.hpp"
#include "processor.hpp"
#include "program.hpp"
#include "run/ranks_secret.hpp"

#ifdef CALM_HAS_MPI
#include "calm/ranks/mpi.hpp"
#endif

namespace calm::apps {

namespace {

process_group* all_ranks = nullptr;

constexpr int most_ranks = 100'000;     // upper limit for any launcher
constexpr int most_tcp_ranks = 10'000;  // each is connected to every other

bool is_told(char const* variable) {
    auto const* const text = std::getenv(variable);
    return text != nullptr && *text != '\0';
}

// A whole number set by the launcher.
int number_told_by(char const* variable, int least, int most) {
    auto const* const text = std::getenv(variable);
    auto const number = number_within<int>(text != nullptr ? text : "", least, most);
    require(number.has_value(), errc::distributed, "expected in ", variable, " a number from ", least, " to ", most,
            ", as the launcher of several ranks sets it, found ",
            text == nullptr ? "none" : "'" + std::string(text) + "'");
    return *number;
}

// The number of processes that a launcher reports, 1 if it reports none. Invalid text is an error; otherwise each of
// several processes would act as the only one.
int count_from_launcher(char const* variable) {
    return is_told(variable) ? number_told_by(variable, 1, most_ranks) : 1;
}

// Whether a launcher with MPI support started this process as one of several. Detects Open MPI's mpirun, PMIx (srun)
// and PMI (MPICH, srun).
bool is_launched() {
    if (is_told("OMPI_COMM_WORLD_SIZE")) return count_from_launcher("OMPI_COMM_WORLD_SIZE") != 1;
    return std::getenv("PMIX_RANK") != nullptr || std::getenv("PMI_RANK") != nullptr;
}

// Whether a launcher without MPI started this process as one of several: torchrun or programs that set its variables,
// and srun --mpi=none. A Slurm allocation alone does not count, only a job step.
bool is_of_torchrun() {
    if (!is_told("RANK")) return false;
    int const ranks = count_from_launcher("WORLD_SIZE");
    if (is_told("WORLD_SIZE")) number_told_by("RANK", 0, ranks - 1);
    return ranks > 1;
}
bool is_of_srun() {
    return count_from_launcher("SLURM_STEP_NUM_TASKS") > 1;
}

// The first port that this user may listen at. Only rank 0 would find out by trying; the others would wait for it.
int first_open_port() {
    int port = 1024;
    if (::geteuid() == 0) return 1;
    std::ifstream("/proc/sys/net/ipv4/ip_unprivileged_port_start") >> port;
    return port;
}

// The rendezvous of such ranks.
tcp_endpoint endpoint_from_environment() {
    bool const slurm = !is_of_torchrun();
    tcp_endpoint here{};
    here.ranks = number_told_by(slurm ? "SLURM_STEP_NUM_TASKS" : "WORLD_SIZE", 2, most_tcp_ranks);
    here.rank = number_told_by(slurm ? "SLURM_PROCID" : "RANK", 0, here.ranks - 1);
    here.host_source = slurm && !is_told("MASTER_ADDR") && is_told("SLURM_LAUNCH_NODE_IPADDR")
                           ? "SLURM_LAUNCH_NODE_IPADDR"
                           : "MASTER_ADDR";
    require(is_told(here.host_source.c_str()), errc::distributed,
            "expected in MASTER_ADDR a name or an address of the machine of rank 0, for rank ", here.rank, " of ",
            here.ranks, "; found none: docs/ranks.md");
    here.host = std::getenv(here.host_source.c_str());
    // torchrun occupies the port that it announces. Slurm jobs on the same machine use different ports.
    bool const torchrun = is_told("TORCHELASTIC_RUN_ID");
    int port = 29500;
    here.port_source = "MASTER_PORT";
    if (is_told("MASTER_PORT")) {
        port = number_told_by("MASTER_PORT", 1, 65534);
        int const first_open = first_open_port();
        require(port >= first_open, errc::distributed, "expected in MASTER_PORT a port that this user may open, ",
                first_open, " or higher, found ", port);
    } else if (slurm && is_told("SLURM_JOB_ID")) {
        port = 15000 + number_told_by("SLURM_JOB_ID", 0, std::numeric_limits<int>::max()) % 10000;
        here.port_source = "SLURM_JOB_ID";
    }
    here.port = static_cast<std::uint16_t>(port + (torchrun ? 1 : 0));
    here.job = slurm ? "slurm" : torchrun ? "torchrun" : "ranks";
    for (auto const* const part : {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID"})
        if (auto const* const text = std::getenv(part); text != nullptr) here.job += std::string("/") + text;

    auto const trust = trust_of_ranks();
    here.secret = trust.secret;
    here.mac = trust.mac;
    here.insecure = trust.insecure;
    here.secret_source = "CALM_RANKS_SECRET or CALM_RANKS_SECRET_FILE";
    here.insecure_source = "CALM_RANKS_INSECURE=1";
    here.build =
        sentence("calm ", version.major, ".", version.minor, ".", version.patch, ", ", instructions, ", ", __VERSION__);
    here.log = [rank = here.rank](std::string const& says) {
        log_line(rank == 0 ? says : "rank " + std::to_string(rank) + ": " + says);
    };
    return here;
}

rank_among here{0, 1};  // among the ranks on this machine

// Runs the body on one of several ranks, then waits for the others.
int run_as(process_group& self, std::function<int()> const& body) {
    all_ranks = &self;
    here = self.local_rank();
    self.asked_to_end = [] { return noted_signal() != 0; };
    self.log = [](std::string const& sentence) {
        mute(false);
        log_line(all_ranks->is_first() ? sentence : "rank " + std::to_string(all_ranks->rank()) + ": " + sentence);
        mute(!all_ranks->is_first());
    };
    mute(!self.is_first());
    int const status = body();
    set_rank_timeout_active(true);
    self.barrier();
    all_ranks = nullptr;
    return status;
}
// Reports a rank's failure.
void log_failure(std::string const& program, process_group const& self, failure const& what) {
    mute(false);
    if (!what.text.empty())
        log_lines(
            sentence(program, ": ", self.is_first() ? "" : "rank " + std::to_string(self.rank()) + ": ", what.text));
}

// The failure as an error to send to the other ranks.
error error_of(failure const& what) {
    auto const lines = lines_of(what.text);
    return {static_cast<errc>(what.status), lines.empty() ? "" : lines.front(),
            std::span(lines).subspan(std::min<std::size_t>(1, lines.size()))};
}

// A failing rank sends its error to the others, which exit with it. Rank 0 reports the error, or the failing rank does
// if it knows that rank 0 cannot.
int run_by_tcp(std::string const& program, tcp_endpoint const& place, std::function<int()> const& body) {
    tcp_ranks self(place);
    try {
        return run_as(self, body);
    } catch (...) {
        auto const what = failure_now();
        self.fail(error_of(what));
        if (self.is_first() || !self.is_known_at_first()) log_failure(program, self, what);
        all_ranks = nullptr;
        return what.status;
    }
}

#ifdef CALM_HAS_MPI

// Reports the failure and ends all ranks. Ranks other than 0 first give rank 0 time to report it, and report it
// themselves only if rank 0 does not end them.
[[noreturn]] void end_by_mpi(std::string const& program, mpi_ranks& self, failure const& what) {
    self.fail(error_of(what));
    if (!self.is_first())
        std::this_thread::sleep_for(
            std::chrono::milliseconds((self.is_first_lost() ? 3000 : 30'000) + 200 * std::min(self.rank(), 20)));
    log_failure(program, self, what);
    mpi_ranks::end_all(what.status);
}

int run_by_mpi(std::string const& program, std::function<int()> const& body) {
    mpi_ranks self;
    if (self.ranks() == 1) {
        auto const launched = std::max(count_from_launcher("OMPI_COMM_WORLD_SIZE"), count_from_launcher("PMI_SIZE"));
        require(launched <= 1, errc::distributed, "expected ", launched,
                " ranks, as the launcher says, found this process alone: the launcher belongs to another MPI than ",
                program, " was built with, and each process would do all of the work: docs/ranks.md");
        return body();
    }
    try {
        return run_as(self, body);
    } catch (...) {
        end_by_mpi(program, self, failure_now());
    }
}

#endif

}  // namespace

int run_on_ranks(std::string const& program, std::function<int()> const& body) {
    if (!is_launched()) {
        if (is_of_torchrun() || is_of_srun()) return run_by_tcp(program, endpoint_from_environment(), body);
        return body();
    }
#ifdef CALM_HAS_MPI
    return run_by_mpi(program, body);
#else
    throw error(errc::distributed,
                "started as one of several MPI processes, but compiled without MPI: install libopenmpi-dev, configure "
                "and build again, or start it with torchrun, or with srun --mpi=none and MASTER_ADDR: docs/ranks.md");
#endif
}

void refuse_ranks() {
    auto const most = std::max(count_from_launcher("OMPI_COMM_WORLD_SIZE"), count_from_launcher("PMI_SIZE"));
    require(most <= 1 && !is_of_torchrun() && !is_of_srun(), errc::distributed,
            "expected one process, found one of several, each of which would do the same work: start it without "
            "mpirun, srun or torchrun; only train, evaluate and generate run as several ranks");
}

bool has_mpi() {
#ifdef CALM_HAS_MPI
    return true;
#else
    return false;
#endif
}

process_group* ranks() {
    return all_ranks;
}

bool is_first_rank() {
    return all_ranks == nullptr || all_ranks->is_first();
}

int at_first_rank(std::function<int()> const& f) {
    auto* const others = std::exchange(all_ranks, nullptr);
    int status = others == nullptr || others->is_first() ? f() : 0;
    all_ranks = others;
    if (others == nullptr) return status;
    set_rank_timeout_active(false);
    status = others->broadcast(status);
    require(status >= 0 && status <= 255, errc::distributed, "rank 0: expected an exit status, found ", status);
    return status;
}

void barrier() {
    if (all_ranks != nullptr) all_ranks->barrier();
}

void set_rank_timeout_active(bool on) {
    if (all_ranks != nullptr) all_ranks->timeout_active = on;
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
    if (came == all.end()) return 0;
    require(std::ranges::count(std::array{SIGHUP, SIGINT, SIGPIPE, SIGTERM}, *came) > 0, errc::distributed, "rank ",
            came - all.begin(), ": expected the number of a signal that ends a run, found ", *came);
    take_signal(*came);
    return *came;
}

int number_on_this_machine() {
    return here.rank;
}

int threads_of_rank(int asked) {
    if (asked > 0 || all_ranks == nullptr) return asked;
    auto const mine = static_cast<int>(std::thread::hardware_concurrency());
    bool const bound = mine < ::sysconf(_SC_NPROCESSORS_ONLN);  // the launcher assigned processors to ranks
    return std::max(1, bound ? mine : mine / here.ranks);
}

}  // namespace calm::apps
