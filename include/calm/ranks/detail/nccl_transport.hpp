#pragma once
// Exchanges bytes directly between the devices of ranks by NCCL: the device transport and its interface to the library.
// nccl.hpp has the library; tests use another.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "calm/base/detail/number_text.hpp"
#include "calm/base/error.hpp"
#include "calm/ranks/process_group.hpp"

namespace calm {

// State of an operation of NCCL or of the device.
enum class nccl_state { done, in_flight, failed };

// A rank's device transport: one object for as long as the ranks exchange device data, made and destroyed by all of
// them. It never waits without a limit: NCCL calls do not block. If one fails or takes longer than `timeout` seconds of
// the ranks, or another rank fails, NCCL is aborted, once, and the ranks cannot be used any more.
//
// A Library is one communicator and one queue of a device, with the members of nccl_library, which return a nccl_state.
// Its `key` has the bytes by which the ranks of a communicator find each other.
template <class Library> class nccl_transport final : public device_transport {
    using key = typename Library::key;
    static_assert(std::is_trivially_copyable_v<key>);

public:
    // Starts NCCL on all of the ranks, which outlive it, and becomes their `devices`. Throws errc::distributed.
    nccl_transport(process_group& ranks, Library library) : ranks_(ranks), library_(std::move(library)) {
        key found{};
        if (ranks_.is_first() && library_.make_key(found) != nccl_state::done) fail("begin", library_.why());
        found = ranks_.broadcast(found);
        is_open_ = true;
        auto const asked = library_.begin(found, ranks_.rank(), ranks_.ranks());
        settle("begin", asked, [&] { return library_.state(); });
        ranks_.devices = this;
    }
    // Waits for the other ranks, which end NCCL too; aborts instead if an error unwinds this rank.
    ~nccl_transport() override {
        ranks_.devices = nullptr;
        if (std::uncaught_exceptions() > exceptions_) abort();
        if (!is_open_) return;
        try {
            settle("end", library_.finish(), [&] { return library_.state(); });
            is_open_ = false;
            library_.close();
        } catch (std::exception const&) {  // aborted, after everything had arrived
        }
    }

    [[nodiscard]] std::string name() const override { return "NCCL"; }

    // A group of messages, one to and one from each rank. Throws errc::distributed.
    void all_to_all(std::span<process_group::sent const> to, std::span<process_group::received const> from) override {
        require_open();
        bool refused = library_.begin_group() == nccl_state::failed;
        for (int r = 0; r < ranks_.ranks() && !refused; ++r) {
            auto const i = static_cast<std::size_t>(r);
            if (r == ranks_.rank()) continue;
            refused = (!to[i].empty() && library_.send(to[i].data(), to[i].size(), r) == nccl_state::failed) ||
                      (!from[i].empty() && library_.receive(from[i].data(), from[i].size(), r) == nccl_state::failed);
        }
        auto const why = refused ? library_.why() : std::string();
        auto const now = library_.end_group();  // also after a refusal: an open group blocks everything else
        if (refused) fail("send and receive", why);
        // Nothing else may enter the queue before the group has started, or it would come first.
        settle("begin to send", now, [&] { return library_.state(); });
    }
    // Waits for all groups. Throws errc::distributed.
    void wait() override {
        require_open();
        settle("send and receive", nccl_state::in_flight,
               [&] { return library_.state() == nccl_state::failed ? nccl_state::failed : library_.queue_state(); });
    }

private:
    using clock = std::chrono::steady_clock;

    // Polls ask() until the operation is done.
    template <class Ask> void settle(char const* tried, nccl_state now, Ask const& ask) {
        auto const begun = clock::now();
        for (; now != nccl_state::done; now = ask()) {
            if (now == nccl_state::failed) fail(tried, library_.why());
            double const waited = std::chrono::duration<double>(clock::now() - begun).count();
            if (waited < 1e-3) {
                std::this_thread::yield();
                continue;
            }
            poll_failures();
            if (waited > ranks_.timeout) fail(tried, "no completion for " + six_digits(ranks_.timeout) + " s");
            std::this_thread::sleep_for(std::chrono::microseconds(waited < 0.1 ? 50 : 1000));
        }
    }
    void require_open() const {
        require(is_open_, errc::distributed, "rank ", ranks_.rank(),
                ": expected a working NCCL, found that it failed earlier");
    }
    // The error of another rank explains more than this rank's NCCL error.
    void poll_failures() {
        try {
            ranks_.poll_failures();
        } catch (error const&) {
            abort();
            throw;
        }
    }
    [[noreturn]] void fail(char const* tried, std::string const& found) {
        poll_failures();
        abort();
        throw error(errc::distributed,
                    sentence("rank ", ranks_.rank(), " expected NCCL to ", tried, ranks_.after_step(),
                             ", found: ", found,
                             "; set NCCL_DEBUG=INFO in the environment for details, or use --device cuda:N, which "
                             "exchanges through host memory; ",
                             ranks_.advice()));
    }
    void abort() noexcept {
        if (std::exchange(is_open_, false)) library_.abort();
    }

    process_group& ranks_;
    Library library_;
    int exceptions_ = std::uncaught_exceptions();
    bool is_open_ = false;  // whether there is a communicator
};

}  // namespace calm
