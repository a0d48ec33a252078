#pragma once
/// \file
/// Ranks as threads of this process: to test code for ranks, and that results do not depend on their number.
/// \shows{tests/ranks/process_group_test.cpp,what_comes_of}

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "calm/ranks/process_group.hpp"

namespace calm {

namespace detail {

// Rendezvous and exchange between threads.
class thread_rendezvous {
public:
    explicit thread_rendezvous(int ranks) : members_(static_cast<std::size_t>(ranks)) {}

    struct failure {
        int rank;
        error why;
    };
    using sent = process_group::sent;
    using received = process_group::received;

    // A rank that sends another size than expected.
    struct mismatch {
        int rank;
        std::size_t expected;
        std::size_t found;
    };
    // Outcome of an exchange: ranks that did not come in time, another rank's failure, or another size. If all are
    // empty, each rank has all bytes from the others.
    struct outcome {
        std::vector<int> missing;
        std::optional<failure> failed;
        std::optional<mismatch> unequal;
    };
    // A rank enters its next exchange.
    void begin(int rank, std::span<sent const> to, std::span<received const> from) {
        std::scoped_lock const lock(mutex_);
        auto& self = of(rank);
        self.offered.emplace_back(to.begin(), to.end());
        self.buffers.emplace_back(from.begin(), from.end());
        ++self.came;
        changed_.notify_all();
    }
    // Whether a rank's oldest unfinished exchange is complete, or cannot be.
    [[nodiscard]] bool is_done(int rank) {
        std::unique_lock lock(mutex_);
        if (failed_) return true;
        if (all_came(of(rank).done + 1)) take(rank, lock);
        return all_took(of(rank).done + 1);
    }
    // Finishes that exchange.
    outcome finish(int rank, double patience) {
        std::unique_lock lock(mutex_);
        auto& self = of(rank);
        auto const number = self.done + 1;
        wait(lock, patience, [&] { return failed_ || all_came(number); });
        if (failed_ || !all_came(number)) return give_up(lock, rank, missing(number, &member::came));
        take(rank, lock);
        wait(lock, patience, [&] { return failed_ || all_took(number); });
        if (!all_took(number)) return give_up(lock, rank, missing(number, &member::took));
        self.offered.pop_front();
        self.buffers.pop_front();
        ++self.done;
        return {{}, std::nullopt, std::exchange(self.unequal, std::nullopt)};
    }
    void fail(int rank, error const& why) {
        std::scoped_lock const lock(mutex_);
        if (!failed_) failed_ = failure{rank, why};
        changed_.notify_all();
    }

    // The failure that other ranks see, if any.
    [[nodiscard]] std::optional<failure> failed() const {
        std::scoped_lock const lock(mutex_);
        return failed_;
    }
    // The rank whose failure the others see; called when all threads have ended.
    [[nodiscard]] std::optional<int> first_failed() const {
        return failed_ ? std::optional(failed_->rank) : std::nullopt;
    }

private:
    struct member {
        std::uint64_t came = 0;                       // exchanges entered
        std::uint64_t took = 0;                       // exchanges whose bytes it has copied
        std::uint64_t done = 0;                       // exchanges finished
        std::deque<std::vector<sent>> offered{};      // of unfinished exchanges
        std::deque<std::vector<received>> buffers{};  // of unfinished exchanges
        std::optional<mismatch> unequal{};
    };
    member& of(int rank) { return members_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] bool all_came(std::uint64_t number) const {
        return std::ranges::all_of(members_, [&](auto const& m) { return m.came >= number; });
    }
    [[nodiscard]] bool all_took(std::uint64_t number) const {
        return std::ranges::all_of(members_, [&](auto const& m) { return m.took >= number; });
    }
    // Copies the bytes offered to a rank in its oldest unfinished exchange, which all have entered.
    void take(int rank, std::unique_lock<std::mutex>& lock) {
        auto& self = of(rank);
        if (self.took > self.done) return;
        auto const& buffers = self.buffers.front();
        std::vector<sent> offers;
        for (auto const& m : members_) offers.push_back(m.offered[self.done - m.done][static_cast<std::size_t>(rank)]);
        ++copying_;
        lock.unlock();
        for (std::size_t r = 0; r < buffers.size(); ++r) {
            if (std::cmp_equal(r, rank)) continue;
            if (offers[r].size() != buffers[r].size())
                self.unequal = mismatch{static_cast<int>(r), buffers[r].size(), offers[r].size()};
            else if (!offers[r].empty())
                std::memcpy(buffers[r].data(), offers[r].data(), offers[r].size());
        }
        lock.lock();
        --copying_;
        ++self.took;
        changed_.notify_all();
    }
    [[nodiscard]] std::vector<int> missing(std::uint64_t number, std::uint64_t member::*count) const {
        std::vector<int> all;
        for (std::size_t r = 0; r < members_.size(); ++r)
            if (members_[r].*count < number) all.push_back(static_cast<int>(r));
        return all;
    }
    // Waits for a condition, at most `patience` seconds.
    void wait(std::unique_lock<std::mutex>& lock, double patience, auto const& is_over) {
        if (patience == std::numeric_limits<double>::infinity())
            changed_.wait(lock, is_over);
        else
            changed_.wait_for(lock, std::chrono::duration<double>(patience), is_over);
    }
    // The outcome for a rank that waited for these ranks in vain, or learned of a failure.
    outcome give_up(std::unique_lock<std::mutex>& lock, int rank, std::vector<int> const& lost) {
        outcome result{lost, failed_, std::nullopt};
        if (!failed_) {  // ranks that come later must not wait
            failed_ = failure{rank, error(errc::distributed, ranks_text(lost) + " gave no answer")};
            changed_.notify_all();
        }
        changed_.wait(lock, [&] { return copying_ == 0; });  // the caller may free its bytes after the error
        return result;
    }

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<member> members_;
    int copying_ = 0;  // ranks that copy other ranks' bytes now
    std::optional<failure> failed_;
};

// One thread's process group.
class thread_rank final : public process_group {
public:
    thread_rank(thread_rendezvous& where, int rank, int ranks) : process_group(rank, ranks), where_(where) {}

    void fail(error const& why) noexcept override { where_.fail(rank(), why); }
    void poll_failures() override { throw_unless_own(where_.failed()); }

private:
    void throw_unless_own(std::optional<thread_rendezvous::failure> const& failed) const {
        if (failed && failed->rank != rank())
            fail_with(failed->rank, static_cast<int>(failed->why.code()), failed->why.what());
    }
    void start_all_to_all(std::span<sent const> to, std::span<received const> from) override {
        where_.begin(rank(), to, from);
    }
    bool test_all_to_all() override { return where_.is_done(rank()); }
    void wait_all_to_all() override {
        auto const came = where_.finish(rank(), patience());
        throw_unless_own(came.failed);
        if (!came.missing.empty()) fail_waiting(came.missing);
        if (came.unequal) fail_unequal(came.unequal->rank, came.unequal->expected, came.unequal->found);
    }

    thread_rendezvous& where_;
};

}  // namespace detail

/// Calls f(process_group&) on `ranks` threads of this process, one per rank, and returns when all have ended. If ranks
/// throw, the others receive the error of the first to fail, which is rethrown here. Threads cannot be killed: one that
/// hangs is waited for, even if the others have given up.
inline void on_ranks(int ranks, std::function<void(process_group&)> const& f) {
    detail::thread_rendezvous where(ranks);
    std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(ranks));
    auto const work = [&](int number) {
        detail::thread_rank self(where, number, ranks);
        auto const keep = [&](error const& why) {
            thrown[static_cast<std::size_t>(number)] = std::current_exception();
            self.fail(why);
        };
        try {
            f(self);
        } catch (error const& why) {
            keep(why);
        } catch (std::exception const& why) {
            keep(error(errc::distributed, why.what()));
        }
    };
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r) threads.emplace_back(work, r);
    for (auto& each : threads) each.join();
    if (auto const first = where.first_failed(); first && thrown[static_cast<std::size_t>(*first)])
        std::rethrow_exception(thrown[static_cast<std::size_t>(*first)]);
    for (auto const& each : thrown)  // if f caught the first error
        if (each) std::rethrow_exception(each);
}

}  // namespace calm
