#pragma once
// Ranks that are threads of this process: to try what ranks do, and to see that it does not depend on their number.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "calm/ranks/collective.hpp"

namespace calm {

namespace detail {

// Where threads meet.
class meeting {
public:
    explicit meeting(int ranks) : members_(static_cast<std::size_t>(ranks)) {}

    struct failure {
        int rank;
        error why;
    };
    using sent = collective::sent;
    using received = collective::received;

    // What came of an exchange: who did not come in time, a peer's failure in place of an answer, or a rank that sends
    // another size than its place has, and that size. Nothing of it: each has what the others offered it.
    struct outcome {
        std::vector<int> missing;
        std::optional<failure> failed;
        std::optional<std::pair<int, std::size_t>> unequal;
    };
    outcome swap(int rank, std::span<sent const> to, std::span<received const> from, double patience) {
        auto& self = members_[static_cast<std::size_t>(rank)];
        std::unique_lock lock(mutex_);
        self.offered = to;
        auto const number = ++self.came;
        changed_.notify_all();
        auto const all_came = [&] {
            return failed_ || std::ranges::all_of(members_, [&](auto const& m) { return m.came >= number; });
        };
        if (patience == std::numeric_limits<double>::infinity())
            changed_.wait(lock, all_came);
        else
            changed_.wait_for(lock, std::chrono::duration<double>(patience), all_came);
        outcome result{missing(number), failed_, std::nullopt};
        if (!failed_ && !result.missing.empty())  // who comes later finds nobody
            failed_ = failure{rank, error(errc::distributed, ranks_text(result.missing) + " gave no answer")};
        if (!result.missing.empty() || result.failed) return result;
        lock.unlock();  // all came: nobody fails, and what is offered stays where it is, until all have left
        for (std::size_t r = 0; r < from.size(); ++r) {
            if (std::cmp_equal(r, rank)) continue;
            auto const offered = members_[r].offered[static_cast<std::size_t>(rank)];
            if (offered.size() != from[r].size())
                result.unequal.emplace(static_cast<int>(r), offered.size());
            else if (!offered.empty())
                std::memcpy(from[r].data(), offered.data(), offered.size());
        }
        lock.lock();
        self.left = number;
        changed_.notify_all();
        changed_.wait(lock,
                      [&] { return std::ranges::all_of(members_, [&](auto const& m) { return m.left >= number; }); });
        return result;
    }
    void fail(int rank, error const& why) {
        std::scoped_lock const lock(mutex_);
        if (!failed_) failed_ = failure{rank, why};
        changed_.notify_all();
    }

    // What the others hear, if a rank failed.
    [[nodiscard]] std::optional<failure> failed() const {
        std::scoped_lock const lock(mutex_);
        return failed_;
    }
    // The rank whose failure the others hear of, once all are through.
    [[nodiscard]] std::optional<int> first_failed() const {
        return failed_ ? std::optional(failed_->rank) : std::nullopt;
    }

private:
    struct member {
        std::uint64_t came = 0;  // exchanges that it came to
        std::uint64_t left = 0;
        std::span<sent const> offered{};
    };
    [[nodiscard]] std::vector<int> missing(std::uint64_t number) const {
        std::vector<int> all;
        for (std::size_t r = 0; r < members_.size(); ++r)
            if (members_[r].came < number) all.push_back(static_cast<int>(r));
        return all;
    }

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<member> members_;
    std::optional<failure> failed_;
};

// A thread's end.
class thread_rank final : public collective {
public:
    thread_rank(meeting& where, int rank, int ranks) : collective(rank, ranks), where_(where) {}

    void fail(error const& why) noexcept override { where_.fail(rank(), why); }
    void hear() override { throw_unless_own(where_.failed()); }

private:
    void throw_unless_own(std::optional<meeting::failure> const& failed) const {
        if (failed && failed->rank != rank()) fail_with(failed->rank, failed->why.code(), failed->why.what());
    }
    void swap(std::span<sent const> to, std::span<received const> from) override {
        auto const came = where_.swap(rank(), to, from, patience());
        throw_unless_own(came.failed);
        if (!came.missing.empty()) fail_waiting(came.missing);
        if (came.unequal)
            fail_unequal(came.unequal->first, from[static_cast<std::size_t>(came.unequal->first)].size(),
                         came.unequal->second);
    }

    meeting& where_;
};

}  // namespace detail

// Calls f(collective&) on each of so many ranks, threads of this process, and returns when all are through. Of ranks
// that throw, the first to fail is heard by the others, and what it threw is thrown here. Threads cannot be ended: one
// that hangs is waited for, though the others have given up.
inline void on_ranks(int ranks, std::function<void(collective&)> const& f) {
    detail::meeting where(ranks);
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
    for (auto const& each : thrown)  // where f hid what the first of them threw
        if (each) std::rethrow_exception(each);
}

}  // namespace calm
