#pragma once
/// \file
/// Communication between ranks. A rank is one of R processes or threads that do one job together, each with its own
/// memory; ranks are numbered 0 .. R - 1. A backend (thread_ranks.hpp, mpi.hpp, tcp.hpp) exchanges bytes between all
/// pairs of ranks; all operations are made of that exchange.
/// \shows{tests/ranks/process_group_test.cpp,broadcast_and_gather_deliver_the_bytes}

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/base/detail/number_text.hpp"
#include "calm/base/error.hpp"

namespace calm {

namespace detail {

// parts[0] = the sum of all parts, of n elements each. It is added in the tree of gradient_tree.hpp: the sum of the
// first h parts plus the sum of the rest, h the largest power of two below their number. Overwrites the other parts.
template <class T> void add_in_tree(std::span<T* const> parts, std::size_t n) {
    if (parts.size() < 2) return;
    std::size_t half = 1;
    while (2 * half < parts.size()) half *= 2;
    add_in_tree(parts.first(half), n);
    add_in_tree(parts.subspan(half), n);
    T* const sum = parts[0];
    T const* const rest = parts[half];
    for (std::size_t i = 0; i < n; ++i) sum[i] += rest[i];
}

// "rank 2", "ranks 1 and 3", "ranks 1, 2 and 5".
inline std::string ranks_text(std::span<int const> numbers) {
    std::string text = numbers.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < numbers.size(); ++i)
        text += (i == 0 ? "" : i + 1 == numbers.size() ? " and " : ", ") + std::to_string(numbers[i]);
    return text;
}

}  // namespace detail

/// A rank and the number of ranks.
struct rank_among {
    int rank;   ///< its number
    int ranks;  ///< number of ranks
};

/// Device transport: exchanges bytes directly between the devices of ranks (nccl_transport.hpp). A process group with a
/// transport (process_group::devices) calls it after all ranks have exchanged sizes.
class device_transport {
public:
    device_transport() = default;
    virtual ~device_transport() = default;
    device_transport(device_transport const&) = delete;
    device_transport& operator=(device_transport const&) = delete;

    /// Name for error messages.
    [[nodiscard]] virtual std::string name() const = 0;
    /// As process_group::exchange, for device memory: ordered after the work that this device was given before, and
    /// before later work.
    virtual void all_to_all(std::span<std::span<std::byte const> const> to,
                            std::span<std::span<std::byte> const> from) = 0;
    /// Waits until all exchanges are done.
    virtual void wait() = 0;
};

/// One rank's process group. All ranks make the same calls in the same order; each call returns when this rank has its
/// results. Throws errc::distributed if a rank gives no answer for `timeout` seconds while the ranks are at work. At
/// other times this holds for a missing sign of life, if the backend sends them (tcp.hpp). Throws the error of a rank
/// that failed, with its number. After an error the ranks cannot be used any more.
class process_group {
public:
    using sent = std::span<std::byte const>;  ///< bytes for a rank
    using received = std::span<std::byte>;    ///< memory for the bytes of a rank

    virtual ~process_group() = default;
    process_group(process_group const&) = delete;
    process_group& operator=(process_group const&) = delete;

    [[nodiscard]] int rank() const { return rank_; }            ///< this rank's number
    [[nodiscard]] int ranks() const { return ranks_; }          ///< number of ranks
    [[nodiscard]] bool is_first() const { return rank_ == 0; }  ///< whether this is rank 0

    static constexpr std::uint64_t longest_text = 64 << 20;  ///< bytes

    double timeout = 120;          ///< seconds to wait for another rank
    bool timeout_active = false;   ///< the timeout applies; otherwise ranks may take as long as they give signs of life
    bool has_heartbeat = false;    ///< all call heartbeat() as they work: silence is failure (patient_wait.hpp)
    std::int64_t steps_done = -1;  ///< for error messages; -1: the work has no steps

    /// Whether the launcher wants the ranks to end; may be empty.
    std::function<bool()> asked_to_end;
    /// Called once if so, with the ranks that this rank waits for: if such a rank has died, the launcher will end this
    /// one next. May be empty.
    std::function<void(std::string const&)> log;

    /// The device transport, or null: device data then goes through host memory. Either all ranks have one or none.
    device_transport* devices = nullptr;

    /// Sends to[r] to rank r, and fills from[r] with the bytes that rank r sends. Both have R members; this rank's own
    /// are ignored. Sent and expected sizes must be equal.
    void exchange(std::span<sent const> to, std::span<received const> from) {
        require(in_flight_ == 0, errc::usage, "calm::process_group: expected no exchange under way, found ", in_flight_,
                "; call wait_exchange() first");
        start_exchange(to, from);
        wait_exchange();
    }
    /// Begins an exchange, which continues while this rank does something else; test_exchange() makes progress. Both
    /// sides leave the bytes alone until it is finished. Exchanges are finished in the order in which they began,
    /// before any other operation.
    void start_exchange(std::span<sent const> to, std::span<received const> from) {
        require_each(to, from);
        for (std::size_t r = 0; r < to.size(); ++r)
            if (std::cmp_not_equal(r, rank_)) bytes_sent_ += to[r].size();
        if (ranks_ > 1) start_all_to_all(to, from);
        ++in_flight_;
    }
    /// Whether wait_exchange() would return without waiting.
    [[nodiscard]] bool test_exchange() { return in_flight_ == 0 || ranks_ == 1 || test_all_to_all(); }
    /// Finishes the oldest exchange in flight.
    void wait_exchange() {
        require(in_flight_ > 0, errc::usage, "calm::process_group: expected an unfinished exchange, found none");
        --in_flight_;
        if (ranks_ > 1) wait_all_to_all();
    }
    /// Number of exchanges in flight.
    [[nodiscard]] int in_flight() const { return in_flight_; }
    /// exchange() for device memory, through `devices` and in the order of the device's other work; done when
    /// wait_on_devices() returns. First the ranks exchange sizes, 8 bytes per pair: so all are present, and everything
    /// sent fits.
    void exchange_on_devices(std::span<sent const> to, std::span<received const> from) {
        require_each(to, from);
        require(devices != nullptr, errc::usage, "calm::process_group: expected ranks that can exchange device memory");
        auto const count = static_cast<std::size_t>(ranks_);
        std::vector<std::uint64_t> own(count), others(count);
        std::vector<sent> outgoing;
        std::vector<received> incoming;
        for (std::size_t r = 0; r < count; ++r) {
            own[r] = to[r].size();
            outgoing.push_back(std::as_bytes(std::span(own).subspan(r, 1)));
            incoming.push_back(std::as_writable_bytes(std::span(others).subspan(r, 1)));
        }
        exchange(outgoing, incoming);
        for (int r = 0; r < ranks_; ++r) {
            auto const i = static_cast<std::size_t>(r);
            if (r == rank_) continue;
            if (others[i] != from[i].size()) fail_unequal(r, from[i].size(), others[i]);
            bytes_sent_ += to[i].size();
        }
        devices->all_to_all(to, from);
    }
    /// Waits until this rank's device has received everything.
    void wait_on_devices() { devices->wait(); }
    [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_; }  ///< to other ranks, so far
    /// Waits for all ranks.
    void barrier() {
        exchange(std::vector<sent>(static_cast<std::size_t>(ranks_)),
                 std::vector<received>(static_cast<std::size_t>(ranks_)));
    }
    /// This rank's number among the ranks on this machine (Linux: ranks with the same boot id). All ranks call it.
    [[nodiscard]] rank_among local_rank() {
        std::array<char, 40> own{};
        std::ifstream("/proc/sys/kernel/random/boot_id").read(own.data(), std::ssize(own));
        auto const count = static_cast<std::size_t>(ranks_);
        std::vector<char> all(own.size() * count);
        all_gather(std::span<char const>(own), std::span(all));
        rank_among here{0, 0};
        for (std::size_t r = 0; r < count; ++r) {
            if (!std::ranges::equal(own, std::span(all).subspan(r * own.size(), own.size()))) continue;
            ++here.ranks;
            if (std::cmp_less(r, rank_)) ++here.rank;
        }
        return here;
    }
    /// Copies `values` from rank `from` to all ranks; sizes are equal.
    template <class T> void broadcast(std::span<T> values, int from = 0) {
        static_assert(std::is_trivially_copyable_v<T>);
        std::vector<sent> to(static_cast<std::size_t>(ranks_));
        std::vector<received> buffers(static_cast<std::size_t>(ranks_));
        if (rank_ == from)
            std::fill(to.begin(), to.end(), std::as_bytes(values));
        else
            buffers[static_cast<std::size_t>(from)] = std::as_writable_bytes(values);
        exchange(to, buffers);
    }
    /// Broadcasts one value, which is returned.
    template <class T> T broadcast(T value, int from = 0) {
        broadcast(std::span(&value, 1), from);
        return value;
    }
    /// Broadcasts a text of at most longest_text bytes. Throws errc::distributed if it is longer.
    std::string broadcast_text(std::string text, int from = 0) {
        auto const size = broadcast(std::uint64_t{text.size()}, from);
        require(size <= longest_text, errc::distributed, "rank ", from, ": expected a text of at most ", longest_text,
                " bytes, found one of ", size, "; do all ranks run the same program with the same options and files?");
        text.resize(static_cast<std::size_t>(size));
        broadcast(std::span(text.data(), text.size()), from);
        return text;
    }
    /// all = the elements in `own` of all ranks, in the order of their numbers. Rank r's part begins at starts[r];
    /// starts has R + 1 numbers. `own` may already be in its place in `all`.
    template <class T> void all_gather(std::span<T const> own, std::span<T> all, std::span<std::size_t const> starts) {
        static_assert(std::is_trivially_copyable_v<T>);
        gather_bytes(std::as_bytes(own), std::as_writable_bytes(all), starts, sizeof(T));
    }
    /// For equal sizes.
    template <class T> void all_gather(std::span<T const> own, std::span<T> all) {
        std::vector<std::size_t> starts;
        for (std::size_t r = 0; r <= static_cast<std::size_t>(ranks_); ++r) starts.push_back(r * own.size());
        all_gather(own, all, starts);
    }
    /// Sends parts[r], this rank's terms for the shard of rank r, to rank r. parts[rank()] becomes the sum of this
    /// rank's shard over all ranks, in the tree of the ranks' numbers (detail::add_in_tree). `room` is for R - 1 shards
    /// of this size.
    template <class T> void reduce_scatter(std::span<std::span<T> const> parts, std::span<T> room) {
        static_assert(std::is_arithmetic_v<T>);
        auto const own = parts[static_cast<std::size_t>(rank_)];
        require(room.size() >= own.size() * static_cast<std::size_t>(ranks_ - 1), errc::usage,
                "calm::process_group: expected room for the shards of ", ranks_ - 1, " ranks");
        std::vector<sent> to;
        std::vector<received> from;
        std::vector<T*> terms;
        for (int r = 0; r < ranks_; ++r) {
            bool const mine = r == rank_;
            auto const place = mine ? own : room.first(own.size());
            if (!mine) room = room.subspan(own.size());
            to.push_back(mine ? sent{} : std::as_bytes(parts[static_cast<std::size_t>(r)]));
            from.push_back(mine ? received{} : std::as_writable_bytes(place));
            terms.push_back(place.data());
        }
        exchange(to, from);
        detail::add_in_tree(std::span<T* const>(terms), own.size());
        if (rank_ != 0) std::copy_n(terms[0], own.size(), own.data());
    }
    /// Replaces values[i] by the sum over all ranks, in the same tree: bit-identical on all ranks. Sizes are equal. The
    /// traffic is as in a ring: each value is sent twice, except a rank's own shard.
    template <class T> void all_reduce(std::span<T> values) {
        auto const count = static_cast<std::size_t>(ranks_);
        std::vector<std::size_t> starts;
        for (std::size_t r = 0; r <= count; ++r) starts.push_back(values.size() * r / count);
        std::vector<std::span<T>> parts;
        for (std::size_t r = 0; r < count; ++r) parts.push_back(values.subspan(starts[r], starts[r + 1] - starts[r]));
        auto const own = parts[static_cast<std::size_t>(rank_)];
        std::vector<T> room(own.size() * (count - 1));
        reduce_scatter(std::span<std::span<T> const>(parts), std::span(room));
        all_gather(std::span<T const>(own), values, starts);
    }

    /// This rank cannot continue: the others receive `why` instead of an answer, and throw it with this rank's number.
    /// Does not throw.
    virtual void fail(error const& why) noexcept = 0;
    /// Throws the error of a rank that failed, or an error if the backend knows that a rank has ended; never waits. For
    /// a rank that works or waits for something else while exchanges are still to come.
    virtual void poll_failures() = 0;
    /// For work between exchanges, called after each piece, however small. From time to time it checks the other ranks
    /// as poll_failures() does, and shows them that this rank is alive.
    void heartbeat() {
        auto const now = std::chrono::steady_clock::now();
        if (now - last_heartbeat_ < std::chrono::milliseconds(50)) return;
        last_heartbeat_ = now;
        send_heartbeat();
        poll_failures();
    }
    /// " after step 7" for error messages, or nothing.
    [[nodiscard]] std::string after_step() const {
        return steps_done < 0 ? std::string() : " after step " + std::to_string(steps_done);
    }
    /// What the user can do after a failure, for error messages.
    [[nodiscard]] std::string advice() const {
        return steps_done < 0 ? "run the same command again, with any number of ranks"
                              : "the same command resumes from the last checkpoint, with any number of ranks";
    }

protected:
    /// Throws errc::usage for an invalid rank or number of ranks.
    process_group(int rank, int ranks) : rank_(rank), ranks_(ranks) {
        require(ranks >= 1 && rank >= 0 && rank < ranks, errc::usage,
                "calm::process_group: expected a rank below the number of ranks, found ", rank, " of ", ranks);
    }

    /// The backend's part of the operations, with at least two ranks. The lists of spans are invalid after
    /// start_all_to_all().
    virtual void start_all_to_all(std::span<sent const> to, std::span<received const> from) = 0;
    /// Also true if wait_all_to_all() would throw.
    virtual bool test_all_to_all() = 0;
    /// Throws as exchange().
    virtual void wait_all_to_all() = 0;
    /// Gives the other ranks a sign of life, without waiting; for backends that do not do so in the background.
    virtual void send_heartbeat() {}

    /// Which of these ranks gave no sign of life for `timeout` seconds, if the backend knows. Such ranks end the wait
    /// while the ranks are not at work.
    [[nodiscard]] virtual std::vector<int> lifeless(std::span<int const>) const { return {}; }

    /// For wait_all_to_all(): polls test_all_to_all(), and meanwhile calls pause(seconds waited). silent() are the
    /// ranks that are waited for; give_up() receives those waited for too long before it throws. If the launcher wants
    /// the ranks to end, `log` receives a message that names them, once.
    template <class Pause, class Silent, class GiveUp>
    void poll_all_to_all(Pause const& pause, Silent const& silent, GiveUp const& give_up) {
        using clock = std::chrono::steady_clock;
        auto const since = clock::now();
        for (bool logged = false; !test_all_to_all();) {
            double const waited = std::chrono::duration<double>(clock::now() - since).count();
            pause(waited);
            if (waited > timeout) {
                std::vector<int> missing = silent();
                if (!timeout_active) missing = lifeless(missing);
                if (!missing.empty()) {
                    give_up(missing);
                    fail_waiting(missing);
                }
            }
            if (!logged && waited > 0.2 && log && asked_to_end && asked_to_end()) {
                logged = true;
                log("asked to end, but no answer comes from " + detail::ranks_text(silent()) + after_step());
            }
        }
    }
    /// Seconds to wait for other ranks now.
    [[nodiscard]] double patience() const { return timeout_active ? timeout : std::numeric_limits<double>::infinity(); }
    /// Throws that these ranks gave no answer in time.
    [[noreturn]] void fail_waiting(std::span<int const> missing) const {
        throw error(errc::distributed,
                    detail::ranks_text(missing) + " gave no answer for " + six_digits(timeout) + " s" + after_step() +
                        ": expected one from each of " + std::to_string(ranks_) +
                        " ranks. If it was only slow, or wrote a checkpoint, give a larger --timeout; " + advice());
    }
    /// Throws the error of another rank, from the number of its code and the lines of its message. An invalid code
    /// becomes errc::distributed, so that a failure never looks like success.
    [[noreturn]] static void fail_with(int rank, int code, std::string_view why) {
        bool const known = code >= static_cast<int>(errc::usage) && code <= static_cast<int>(errc::device);
        std::vector<std::string> lines;
        for (auto rest = why; lines.empty() || !rest.empty();) {
            auto const end = std::min(rest.find('\n'), rest.size());
            lines.emplace_back(rest.substr(0, end));
            rest.remove_prefix(std::min(end + 1, rest.size()));
        }
        auto const first = lines.front().empty() ? "it cannot continue, and gives no reason" : lines.front();
        throw error(known ? static_cast<errc>(code) : errc::distributed, "rank " + std::to_string(rank) + ": " + first,
                    std::span(lines).subspan(1));
    }
    /// Received and expected size differ.
    [[noreturn]] void fail_unequal(int rank, std::size_t expected, std::size_t found) const {
        throw error(errc::distributed,
                    sentence("rank ", rank_, " expected ", expected, " bytes from rank ", rank, after_step(),
                             ", found ", found,
                             "; do all ranks run the same program with the same options and files?"));
    }

private:
    void require_each(std::span<sent const> to, std::span<received const> from) const {
        require(to.size() == static_cast<std::size_t>(ranks_) && from.size() == to.size(), errc::usage,
                "calm::process_group: expected a send and a receive buffer for each of ", ranks_, " ranks, found ",
                to.size(), " and ", from.size());
    }
    // all_gather() with `element` bytes per element.
    void gather_bytes(sent own, received all, std::span<std::size_t const> starts, std::size_t element) {
        std::vector<sent> const to(static_cast<std::size_t>(ranks_), own);
        std::vector<received> buffers;
        for (std::size_t r = 0; r < to.size(); ++r)
            buffers.push_back(all.subspan(starts[r] * element, (starts[r + 1] - starts[r]) * element));
        auto& mine = buffers[static_cast<std::size_t>(rank_)];
        require(own.size() == mine.size(), errc::usage, "calm::process_group: expected ", mine.size() / element,
                " elements of this rank, found ", own.size() / element);
        if (own.data() != mine.data()) std::copy(own.begin(), own.end(), mine.begin());
        mine = {};
        exchange(to, buffers);
    }

    int rank_;
    int ranks_;
    int in_flight_ = 0;
    std::uint64_t bytes_sent_ = 0;
    std::chrono::steady_clock::time_point last_heartbeat_{};  // last check
};

}  // namespace calm
