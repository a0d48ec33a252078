#pragma once
/// \file
/// Ranks as MPI processes, on one machine or many, started by mpirun or srun. Empty without <mpi.h>; links MPI (the
/// CMake target calm::mpi).
/// \shows{apps/run/ranks.cpp,run_by_mpi}

#if __has_include(<mpi.h>)

#define OMPI_SKIP_MPICXX 1  // without the old C++ bindings
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "calm/ranks/process_group.hpp"

namespace calm {

/// This process's end: one object for as long as the process communicates. It initialises MPI, and finalises it if
/// nothing failed. All calls come from the thread that made it. Bytes go directly between each pair of ranks, so a rank
/// that gives no answer is known by its number.
class mpi_ranks final : public process_group {
public:
    /// Throws errc::distributed if MPI cannot be initialised.
    mpi_ranks() : mpi_ranks(begun()) {}
    ~mpi_ranks() override {
        if (!failed_) MPI_Finalize();
    }

    void fail(error const& why) noexcept override {
        if (failed_) return;
        failed_ = true;
        failure_message_ = static_cast<char>(why.code()) + std::string(why.what());
        std::deque<MPI_Request> sending;
        for (int r = 0; r < ranks(); ++r)
            if (r != rank())
                MPI_Isend(failure_message_.data(), static_cast<int>(failure_message_.size()), MPI_BYTE, r, failure_tag,
                          MPI_COMM_WORLD, &sending.emplace_back());
        // Long enough for a short message; a rank that has ended gets none.
        for (auto const end = clock::now() + std::chrono::milliseconds(200); clock::now() < end;) {
            int done = 1;
            for (auto& each : sending)
                if (int one = 0; MPI_Test(&each, &one, MPI_STATUS_IGNORE) != MPI_SUCCESS || one == 0) done = 0;
            if (done != 0) return;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    /// A rank that cannot continue sends its error instead of an answer.
    void poll_failures() override {
        see_life();
        hear_of(MPI_ANY_SOURCE);
    }
    /// Whether rank 0 gave no answer, so that it reports nothing.
    [[nodiscard]] bool is_first_lost() const { return first_is_lost_; }
    /// Ends all ranks at once; the launcher then exits with this status.
    [[noreturn]] static void end_all(int status) {
        MPI_Abort(MPI_COMM_WORLD, status);
        std::abort();
    }

private:
    using clock = std::chrono::steady_clock;
    // A message, or a part of a long one.
    struct piece {
        int rank;
        bool is_received;
        std::size_t bytes;
    };
    // The messages of one exchange.
    struct messages {
        std::vector<MPI_Request> requests;
        std::vector<MPI_Status> statuses;  // per request
        std::vector<piece> pieces;         // per request
        bool are_done = false;
    };
    static constexpr int failure_tag = 32767;                         // the largest that every MPI has
    static constexpr int life_tag = 32766;                            // tags of exchanges are below it
    static constexpr std::size_t piece_bytes = std::size_t{1} << 30;  // MPI counts with int

    explicit mpi_ranks(rank_among const& here) :
        process_group(here.rank, here.ranks), seen_(static_cast<std::size_t>(here.ranks), clock::now()) {}

    static rank_among begun() {
        int provided = 0;
        rank_among here{};
        require(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) == MPI_SUCCESS &&
                    MPI_Comm_rank(MPI_COMM_WORLD, &here.rank) == MPI_SUCCESS &&
                    MPI_Comm_size(MPI_COMM_WORLD, &here.ranks) == MPI_SUCCESS,
                errc::distributed, "MPI cannot start; was the program started by mpirun or srun of the same MPI?");
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        return here;
    }

    // Throws the error of one rank, or of any, if it failed.
    void hear_of(int source) {
        int there = 0;
        MPI_Status status;
        MPI_Iprobe(source, failure_tag, MPI_COMM_WORLD, &there, &status);
        if (there == 0) return;
        int count = 0;
        MPI_Get_count(&status, MPI_BYTE, &count);
        std::string text(static_cast<std::size_t>(std::max(count, 1)), '\0');
        MPI_Recv(text.data(), count, MPI_BYTE, status.MPI_SOURCE, failure_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        give_up();
        fail_with(status.MPI_SOURCE, static_cast<unsigned char>(text[0]), std::string_view(text).substr(1));
    }
    // Throws the error of a rank that still owes a message, which then never comes. If a rank failed after its part of
    // this exchange, the next exchange reports it: this rank may have its own error first.
    void hear_of_silent() {
        for (int const r : unfinished(true)) {
            int there = 0;
            MPI_Iprobe(r, failure_tag, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
            if (there == 0 || test_all_to_all()) continue;
            auto const still = unfinished(true);
            if (std::ranges::count(still, r) > 0) hear_of(r);
        }
    }

    void send_heartbeat() override {
        auto const now = clock::now();
        if (now - shown_ < std::chrono::duration<double>(timeout / 8)) return;
        shown_ = now;
        for (int r = 0; r < ranks(); ++r) {
            MPI_Request request = MPI_REQUEST_NULL;
            if (r != rank() && MPI_Isend(nullptr, 0, MPI_BYTE, r, life_tag, MPI_COMM_WORLD, &request) == MPI_SUCCESS)
                MPI_Request_free(&request);
        }
    }
    // Receives the signs of life that have arrived.
    void see_life() {
        for (int there = 1;;) {
            MPI_Status status;
            MPI_Iprobe(MPI_ANY_SOURCE, life_tag, MPI_COMM_WORLD, &there, &status);
            if (there == 0) return;
            MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, life_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            seen_[static_cast<std::size_t>(status.MPI_SOURCE)] = clock::now();
        }
    }
    [[nodiscard]] std::vector<int> lifeless(std::span<int const> others) const override {
        std::vector<int> all;
        for (int const r : others)
            if (has_heartbeat &&
                clock::now() - seen_[static_cast<std::size_t>(r)] > std::chrono::duration<double>(timeout))
                all.push_back(r);
        return all;
    }

    void start_all_to_all(std::span<sent const> to, std::span<received const> from) override {
        auto& all = begun_.emplace_back();
        tag_ = (tag_ + 1) % life_tag;
        for (int r = 0; r < ranks(); ++r)
            if (r != rank())
                post(all, r, from[static_cast<std::size_t>(r)].data(), from[static_cast<std::size_t>(r)].size(), true);
        for (int r = 0; r < ranks(); ++r)
            if (r != rank())
                post(all, r, const_cast<std::byte*>(to[static_cast<std::size_t>(r)].data()),
                     to[static_cast<std::size_t>(r)].size(), false);
    }
    // Begins to send or receive a message, possibly an empty one.
    void post(messages& all, int r, std::byte* data, std::size_t bytes, bool receives) {
        std::size_t done = 0;
        do {
            auto const part = std::min(piece_bytes, bytes - done);
            auto const count = static_cast<int>(part);
            auto& request = all.requests.emplace_back(MPI_REQUEST_NULL);
            all.pieces.push_back({r, receives, part});
            int const code = receives ? MPI_Irecv(data + done, count, MPI_BYTE, r, tag_, MPI_COMM_WORLD, &request)
                                      : MPI_Isend(data + done, count, MPI_BYTE, r, tag_, MPI_COMM_WORLD, &request);
            if (code != MPI_SUCCESS) fail_at(r, code);
            done += part;
        } while (done < bytes);
    }
    // Whether the oldest exchange is done; all make progress.
    bool test_all_to_all() override {
        auto& all = begun_.front();
        if (all.are_done) return true;
        int done = 0;
        all.statuses.resize(all.requests.size());
        int const code =
            MPI_Testall(static_cast<int>(all.requests.size()), all.requests.data(), &done, all.statuses.data());
        if (code != MPI_SUCCESS) fail_by_status(code);
        all.are_done = done != 0;
        return all.are_done;
    }
    void wait_all_to_all() override {
        auto const pause = [&](double waited) {
            if (waited < 1e-3) return std::this_thread::yield();
            see_life();
            waited < 1 ? hear_of_silent() : hear_of(MPI_ANY_SOURCE);
            std::this_thread::sleep_for(std::chrono::microseconds(waited < 0.1 ? 50 : 1000));
        };
        poll_all_to_all(
            pause, [&] { return silent(); },
            [&](auto const& lost) {
                first_is_lost_ = std::ranges::count(lost, 0) > 0;
                give_up();
            });
        auto const all = std::move(begun_.front());
        begun_.pop_front();
        for (std::size_t i = 0; i < all.pieces.size(); ++i) {
            int count = 0;
            MPI_Get_count(&all.statuses[i], MPI_BYTE, &count);
            if (all.pieces[i].is_received && static_cast<std::size_t>(count) != all.pieces[i].bytes)
                fail_unequal(all.pieces[i].rank, all.pieces[i].bytes, static_cast<std::size_t>(count));
        }
    }
    // Ranks that still owe a message, or else ranks that have not received theirs.
    std::vector<int> silent() {
        auto const senders = unfinished(true);
        return senders.empty() ? unfinished(false) : senders;
    }
    // Ranks with unfinished messages in the oldest exchange.
    std::vector<int> unfinished(bool receives) {
        auto const& first = begun_.front();
        std::vector<int> all;
        for (std::size_t i = 0; i < first.pieces.size(); ++i) {
            int done = 1;
            auto const& message = first.pieces[i];
            if (message.is_received == receives && first.requests[i] != MPI_REQUEST_NULL)
                MPI_Request_get_status(first.requests[i], &done, MPI_STATUS_IGNORE);
            if (done == 0 && (all.empty() || all.back() != message.rank)) all.push_back(message.rank);
        }
        return all;
    }
    // Stops all messages: pending ones would write to memory that is about to go, and a rank that stopped in the middle
    // of one cannot be waited for.
    void give_up() {
        failed_ = true;
        for (auto& all : begun_)
            for (std::size_t i = 0; i < all.pieces.size(); ++i)
                if (all.pieces[i].is_received && all.requests[i] != MPI_REQUEST_NULL) MPI_Cancel(&all.requests[i]);
    }
    // A request failed: the message was too long, or the rank is gone.
    [[noreturn]] void fail_by_status(int code) {
        auto const& all = begun_.front();
        for (std::size_t i = 0; code == MPI_ERR_IN_STATUS && i < all.pieces.size(); ++i)
            if (all.statuses[i].MPI_ERROR != MPI_SUCCESS && all.statuses[i].MPI_ERROR != MPI_ERR_PENDING)
                fail_at(all.pieces[i].rank, all.statuses[i].MPI_ERROR);
        fail_at(rank(), code);
    }
    [[noreturn]] void fail_at(int r, int code) {
        char text[MPI_MAX_ERROR_STRING] = {};
        int length = 0;
        MPI_Error_string(code, text, &length);
        give_up();
        throw error(errc::distributed, "expected an answer from rank " + std::to_string(r) + after_step() + ", found " +
                                           std::string(text, static_cast<std::size_t>(length)));
    }

    int tag_ = 0;
    std::vector<clock::time_point> seen_;  // last sign of life per rank
    clock::time_point shown_{};            // last one of this rank
    std::deque<messages> begun_;           // exchanges in flight, oldest first
    std::string failure_message_;          // to others, about this rank's failure
    bool failed_ = false;
    bool first_is_lost_ = false;
};

}  // namespace calm

#endif
