#pragma once
// Devices of ranks that send each other bytes by NCCL, each straight to each: the engine, and what it asks of the
// library. The library itself is in nccl.hpp; tests give another.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "calm/base/error.hpp"
#include "calm/base/number_text.hpp"
#include "calm/ranks/collective.hpp"

namespace calm {

// What became of something that NCCL, or the device, was asked for.
enum class nccl_state { done, under_way, failed };

// A rank's end of NCCL: one object as long as the ranks exchange what devices have, made and destroyed by all of them.
// Nothing of it waits without an end: NCCL is asked for things and not waited for, and where one fails, or does not end
// within `timeout` seconds of the ranks, or another rank fails, it is aborted, once. Then the ranks are of no more use.
//
// A Library is one communicator and one queue of a device. It has `key`, the bytes by which a communicator's ranks find
// each other; its members, each with a nccl_state, are those of nccl_library.
template <class Library> class nccl_engine final : public device_engine {
    using key = typename Library::key;
    static_assert(std::is_trivially_copyable_v<key>);

public:
    // Begins NCCL among all of the ranks, which outlive it, and is their `devices` from then on. Throws
    // errc::distributed.
    nccl_engine(collective& ranks, Library library) : ranks_(ranks), library_(std::move(library)) {
        key found{};
        if (ranks_.is_first() && library_.make_key(found) != nccl_state::done) fail("begin", library_.why());
        found = ranks_.broadcast(found);
        is_open_ = true;
        auto const asked = library_.begin(found, ranks_.rank(), ranks_.ranks());
        settle("begin", asked, [&] { return library_.state(); });
        ranks_.devices = this;
    }
    // Waits for the others, who end it too; not while an error ends this one.
    ~nccl_engine() override {
        ranks_.devices = nullptr;
        if (std::uncaught_exceptions() > exceptions_) abort();
        if (!is_open_) return;
        try {
            settle("end", library_.finish(), [&] { return library_.state(); });
            is_open_ = false;
            library_.close();
        } catch (std::exception const&) {  // it was aborted, after everything had come
        }
    }

    [[nodiscard]] std::string name() const override { return "NCCL"; }

    // A group of messages, one to each rank and one of each. Throws errc::distributed.
    void swap(std::span<collective::sent const> to, std::span<collective::received const> from) override {
        require_open();
        bool refused = library_.begin_group() == nccl_state::failed;
        for (int r = 0; r < ranks_.ranks() && !refused; ++r) {
            auto const i = static_cast<std::size_t>(r);
            if (r == ranks_.rank()) continue;
            refused = (!to[i].empty() && library_.send(to[i].data(), to[i].size(), r) == nccl_state::failed) ||
                      (!from[i].empty() && library_.receive(from[i].data(), from[i].size(), r) == nccl_state::failed);
        }
        auto const why = refused ? library_.why() : std::string();
        auto const now = library_.end_group();  // also of what was refused: a group that has begun holds up all else
        if (refused) fail("send and receive", why);
        // Until it has begun nothing else is asked of the queue, which would come before it.
        settle("begin to send", now, [&] { return library_.state(); });
    }
    // For all of them. Throws errc::distributed.
    void wait() override {
        require_open();
        settle("send and receive", nccl_state::under_way,
               [&] { return library_.state() == nccl_state::failed ? nccl_state::failed : library_.queue_state(); });
    }

private:
    using clock = std::chrono::steady_clock;

    // Of what was asked for, until ask() says that it is through.
    template <class Ask> void settle(char const* tried, nccl_state now, Ask const& ask) {
        auto const begun = clock::now();
        for (; now != nccl_state::done; now = ask()) {
            if (now == nccl_state::failed) fail(tried, library_.why());
            double const waited = std::chrono::duration<double>(clock::now() - begun).count();
            if (waited < 1e-3) {
                std::this_thread::yield();
                continue;
            }
            hear();
            if (waited > ranks_.timeout) fail(tried, "no end of it for " + six_digits(ranks_.timeout) + " s");
            std::this_thread::sleep_for(std::chrono::microseconds(waited < 0.1 ? 50 : 1000));
        }
    }
    void require_open() const {
        require(is_open_, errc::distributed, "rank ", ranks_.rank(),
                ": expected devices that exchange, found that NCCL ended by a failure before");
    }
    // Another rank that failed says more than this one's NCCL does.
    void hear() {
        try {
            ranks_.hear();
        } catch (error const&) {
            abort();
            throw;
        }
    }
    [[noreturn]] void fail(char const* tried, std::string const& found) {
        hear();
        abort();
        throw error(errc::distributed,
                    sentence("rank ", ranks_.rank(), " expected NCCL to ", tried, ranks_.after_step(),
                             ", found: ", found,
                             "; NCCL_DEBUG=INFO in the environment says more, and --device cuda:N goes by the host's "
                             "memory. The same command goes on after the last checkpoint"));
    }
    void abort() noexcept {
        if (std::exchange(is_open_, false)) library_.abort();
    }

    collective& ranks_;
    Library library_;
    int exceptions_ = std::uncaught_exceptions();
    bool is_open_ = false;  // there is a communicator
};

}  // namespace calm
