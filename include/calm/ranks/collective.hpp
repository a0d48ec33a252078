#pragma once
// What ranks say to each other. A rank is one of R processes or threads that do one job together, each with memory of
// its own; it has a number, 0 .. R - 1. An engine (thread_ranks.hpp, mpi.hpp) brings bytes from each to each, and all
// verbs are made of that.

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

#include "calm/base/error.hpp"
#include "calm/base/number_text.hpp"

namespace calm {

namespace detail {

// parts[0] = the sum of all parts, which have n elements each, in the tree of gradient_tree.hpp: the sum of n parts is
// that of the first h and that of the others, h the largest power of two below n. The other parts are changed.
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

// The number of a rank among so many.
struct rank_among {
    int rank;   // its number
    int ranks;  // how many there are
};

// Brings bytes from the memory of each rank's device straight to that of each other's: nccl_engine.hpp. A collective
// that has one (collective::devices) asks it, after all ranks have said what they send and expect.
class device_engine {
public:
    device_engine() = default;
    virtual ~device_engine() = default;
    device_engine(device_engine const&) = delete;
    device_engine& operator=(device_engine const&) = delete;

    // What it is, for sentences.
    [[nodiscard]] virtual std::string name() const = 0;
    // As collective::exchange, of the devices' memory: it comes after what this device was asked for before, and before
    // what it is asked for next.
    virtual void swap(std::span<std::span<std::byte const> const> to, std::span<std::span<std::byte> const> from) = 0;
    // Returns when all of that is done.
    virtual void wait() = 0;
};

// One rank's end. All ranks call the same verbs in the same order; each returns when this rank has what it is to get.
// A rank that gives no answer for `timeout` seconds while the ranks are at work, or no sign of life at other times
// where the engine has these (tcp.hpp), and one that failed, is an errc::distributed, or the error of the other, which
// names it. After that the ranks are of no more use.
class collective {
public:
    using sent = std::span<std::byte const>;  // what goes to a rank
    using received = std::span<std::byte>;    // the place of what comes from one

    virtual ~collective() = default;
    collective(collective const&) = delete;
    collective& operator=(collective const&) = delete;

    [[nodiscard]] int rank() const { return rank_; }            // this one's number
    [[nodiscard]] int ranks() const { return ranks_; }          // how many there are
    [[nodiscard]] bool is_first() const { return rank_ == 0; }  // whether this is rank 0

    static constexpr std::uint64_t longest_text = 64 << 20;  // bytes

    double timeout = 120;          // seconds that another rank is waited for
    bool at_work = false;          // before and after it, others may take as long as they give signs of life
    bool keeps_in_touch = false;   // all call keep_in_touch() as they work: who does not is missed (patient_wait.hpp)
    std::int64_t steps_done = -1;  // of the work, for sentences; -1: it has no steps

    // Whether whoever started the ranks wants them to end; may be empty.
    std::function<bool()> asked_to_end;
    // Where that is so while this rank waits, hears once for whom: if that one has died, the launcher will end this one
    // next. May be empty.
    std::function<void(std::string const&)> tell;

    // What brings bytes between the memories of devices. Null: what is there goes by the host's. All ranks have one, or
    // none has.
    device_engine* devices = nullptr;

    // to[r] goes to rank r, and from[r] is filled with what rank r sends here; both have R members, of which those of
    // this rank are left alone. What comes must have the size of its place.
    void exchange(std::span<sent const> to, std::span<received const> from) {
        require(under_way_ == 0, errc::usage,
                "calm::collective: expected nothing but finish_exchange() while exchanges are under way, found ",
                under_way_);
        begin_exchange(to, from);
        finish_exchange();
    }
    // The same, begun: it goes on while this rank does something else, and makes progress when is_exchanged() is asked.
    // The bytes at both ends are left alone until it is finished. Several are finished in the order in which they were
    // begun, before anything else is exchanged.
    void begin_exchange(std::span<sent const> to, std::span<received const> from) {
        require_each(to, from);
        for (std::size_t r = 0; r < to.size(); ++r)
            if (std::cmp_not_equal(r, rank_)) bytes_sent_ += to[r].size();
        if (ranks_ > 1) begin_swap(to, from);
        ++under_way_;
    }
    // Whether finish_exchange() need not wait.
    [[nodiscard]] bool is_exchanged() { return under_way_ == 0 || ranks_ == 1 || is_swapped(); }
    // Returns when the first of those under way has filled its places.
    void finish_exchange() {
        require(under_way_ > 0, errc::usage,
                "calm::collective: expected an exchange that was begun and is not finished, found none");
        --under_way_;
        if (ranks_ > 1) finish_swap();
    }
    // That were begun and are not finished.
    [[nodiscard]] int under_way() const { return under_way_; }
    // exchange() of devices' memory, by `devices`, in the order in which the device is asked for other things; done
    // when finish_on_devices() returns. Before it begins the ranks tell each other the sizes, 8 bytes to each: so all
    // are there, and nothing that does not fit its place is on its way.
    void exchange_on_devices(std::span<sent const> to, std::span<received const> from) {
        require_each(to, from);
        require(devices != nullptr, errc::usage,
                "calm::collective: expected ranks whose devices have a way to exchange");
        auto const count = static_cast<std::size_t>(ranks_);
        std::vector<std::uint64_t> own(count), others(count);
        std::vector<sent> told;
        std::vector<received> heard;
        for (std::size_t r = 0; r < count; ++r) {
            own[r] = to[r].size();
            told.push_back(std::as_bytes(std::span(own).subspan(r, 1)));
            heard.push_back(std::as_writable_bytes(std::span(others).subspan(r, 1)));
        }
        exchange(told, heard);
        for (int r = 0; r < ranks_; ++r) {
            auto const i = static_cast<std::size_t>(r);
            if (r == rank_) continue;
            if (others[i] != from[i].size()) fail_unequal(r, from[i].size(), others[i]);
            bytes_sent_ += to[i].size();
        }
        devices->swap(to, from);
    }
    // Returns when this rank's device has what it is to get.
    void finish_on_devices() { devices->wait(); }
    [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_; }  // to others, so far
    // Nobody goes on before all have come.
    void barrier() {
        exchange(std::vector<sent>(static_cast<std::size_t>(ranks_)),
                 std::vector<received>(static_cast<std::size_t>(ranks_)));
    }
    // This rank's number among those on this machine (Linux: those that know the same start of it). All ask.
    [[nodiscard]] rank_among beside() {
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
    // What rank `from` has in `values` is what all have; the sizes are alike.
    template <class T> void broadcast(std::span<T> values, int from = 0) {
        static_assert(std::is_trivially_copyable_v<T>);
        std::vector<sent> to(static_cast<std::size_t>(ranks_));
        std::vector<received> places(static_cast<std::size_t>(ranks_));
        if (rank_ == from)
            std::fill(to.begin(), to.end(), std::as_bytes(values));
        else
            places[static_cast<std::size_t>(from)] = std::as_writable_bytes(values);
        exchange(to, places);
    }
    // The same of one value, which is returned.
    template <class T> T broadcast(T value, int from = 0) {
        broadcast(std::span(&value, 1), from);
        return value;
    }
    // The same of a text of any length up to longest_text. Throws errc::distributed where the other has a longer one.
    std::string broadcast_text(std::string text, int from = 0) {
        auto const size = broadcast(std::uint64_t{text.size()}, from);
        require(size <= longest_text, errc::distributed, "rank ", from, ": expected a text of at most ", longest_text,
                " bytes, found one of ", size, "; do all ranks run the same program with the same options and files?");
        text.resize(static_cast<std::size_t>(size));
        broadcast(std::span(text.data(), text.size()), from);
        return text;
    }
    // all = what the ranks have in `own`, in the order of their numbers: rank r's begins at starts[r], and starts has
    // one number more than there are ranks. `own` may lie in its place in `all`.
    template <class T> void all_gather(std::span<T const> own, std::span<T> all, std::span<std::size_t const> starts) {
        static_assert(std::is_trivially_copyable_v<T>);
        gather_bytes(std::as_bytes(own), std::as_writable_bytes(all), starts, sizeof(T));
    }
    // The same where all have equally many.
    template <class T> void all_gather(std::span<T const> own, std::span<T> all) {
        std::vector<std::size_t> starts;
        for (std::size_t r = 0; r <= static_cast<std::size_t>(ranks_); ++r) starts.push_back(r * own.size());
        all_gather(own, all, starts);
    }
    // parts[r], what this rank has of rank r's share, goes to r; parts[rank()], which has the size of this rank's
    // share, becomes the sum of what all have of it, added in the tree (detail::add_in_tree) of the ranks' numbers.
    // `room` is for R - 1 shares of this size.
    template <class T> void reduce_scatter(std::span<std::span<T> const> parts, std::span<T> room) {
        static_assert(std::is_arithmetic_v<T>);
        auto const own = parts[static_cast<std::size_t>(rank_)];
        require(room.size() >= own.size() * static_cast<std::size_t>(ranks_ - 1), errc::usage,
                "calm::collective: expected room for the shares of ", ranks_ - 1, " ranks");
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
    // values[i] becomes the sum of what all ranks have there, added in the same tree: the same bits on all. The sizes
    // are alike; on its way is what a ring would send, each value twice but for a rank's own share.
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

    // This rank cannot go on: the others hear of it in place of an answer, and throw what it says with this rank's
    // number. Throws nothing itself.
    virtual void fail(error const& why) noexcept = 0;
    // Throws what another rank failed with, and where an engine knows it also that one has ended; waits for nothing.
    // For a rank that works or waits for something else, while exchanges are still to come.
    virtual void hear() = 0;
    // For who works between two exchanges and calls it after each piece, however small: now and then it hears of the
    // others as hear() does, and shows them that this rank is there.
    void keep_in_touch() {
        auto const now = std::chrono::steady_clock::now();
        if (now - in_touch_ < std::chrono::milliseconds(50)) return;
        in_touch_ = now;
        show_life();
        hear();
    }
    // " after step 7" for a sentence, or nothing.
    [[nodiscard]] std::string after_step() const {
        return steps_done < 0 ? std::string() : " after step " + std::to_string(steps_done);
    }

protected:
    // This one's number, and how many there are. Throws errc::usage for numbers that cannot be.
    collective(int rank, int ranks) : rank_(rank), ranks_(ranks) {
        require(ranks >= 1 && rank >= 0 && rank < ranks, errc::usage,
                "calm::collective: expected a rank below the number of ranks, found ", rank, " of ", ranks);
    }

    // What an engine does of these verbs, of at least two ranks. The lists of spans are gone after begin_swap().
    virtual void begin_swap(std::span<sent const> to, std::span<received const> from) = 0;
    // Also true where finish_swap() has something to throw.
    virtual bool is_swapped() = 0;
    // Throws as exchange().
    virtual void finish_swap() = 0;
    // Of an engine that does not do it by itself: a sign of life to each other rank, waiting for nothing.
    virtual void show_life() {}

    // Of these ranks, those that gave no sign of life for `timeout` seconds, where an engine knows that: what ends
    // waiting while ranks are not at work.
    [[nodiscard]] virtual std::vector<int> lifeless(std::span<int const>) const { return {}; }

    // For finish_swap(): asks is_swapped() until it is so, and meanwhile pause(seconds waited). silent() are the ranks
    // that are waited for: give_up() hears of those that were waited for too long before it throws, and who was asked
    // to end hears of them once.
    template <class Pause, class Silent, class GiveUp>
    void wait_for_swap(Pause const& pause, Silent const& silent, GiveUp const& give_up) {
        using clock = std::chrono::steady_clock;
        auto const since = clock::now();
        for (bool told = false; !is_swapped();) {
            double const waited = std::chrono::duration<double>(clock::now() - since).count();
            pause(waited);
            if (waited > timeout) {
                std::vector<int> missing = silent();
                if (!at_work) missing = lifeless(missing);
                if (!missing.empty()) {
                    give_up(missing);
                    fail_waiting(missing);
                }
            }
            if (!told && waited > 0.2 && tell && asked_to_end && asked_to_end()) {
                told = true;
                tell("asked to end, and no answer comes from " + detail::ranks_text(silent()) + after_step());
            }
        }
    }
    // Seconds that the others are waited for now.
    [[nodiscard]] double patience() const { return at_work ? timeout : std::numeric_limits<double>::infinity(); }
    // Throws what is to be said of ranks that gave no answer in time.
    [[noreturn]] void fail_waiting(std::span<int const> missing) const {
        throw error(errc::distributed,
                    detail::ranks_text(missing) + " gave no answer for " + six_digits(timeout) + " s" + after_step() +
                        ": expected one from each of " + std::to_string(ranks_) +
                        " ranks. If it only was slow, or wrote a checkpoint, give a larger --timeout; the same "
                        "command goes on after the last checkpoint, with any number of ranks");
    }
    // Throws what another rank failed with: the number of a code, and the lines of its error. What is no code is
    // errc::distributed: a rank that failed never makes another one end as if all were well.
    [[noreturn]] static void fail_with(int rank, int code, std::string_view why) {
        bool const known = code >= static_cast<int>(errc::usage) && code <= static_cast<int>(errc::device);
        std::vector<std::string> lines;
        for (auto rest = why; lines.empty() || !rest.empty();) {
            auto const end = std::min(rest.find('\n'), rest.size());
            lines.emplace_back(rest.substr(0, end));
            rest.remove_prefix(std::min(end + 1, rest.size()));
        }
        auto const first = lines.front().empty() ? "it cannot go on, and does not say why" : lines.front();
        throw error(known ? static_cast<errc>(code) : errc::distributed, "rank " + std::to_string(rank) + ": " + first,
                    std::span(lines).subspan(1));
    }
    // What comes has another size than its place.
    [[noreturn]] void fail_unequal(int rank, std::size_t expected, std::size_t found) const {
        throw error(errc::distributed,
                    sentence("rank ", rank_, " expected ", expected, " bytes from rank ", rank, after_step(),
                             ", found ", found,
                             "; do all ranks run the same program with the same options and files?"));
    }

private:
    void require_each(std::span<sent const> to, std::span<received const> from) const {
        require(to.size() == static_cast<std::size_t>(ranks_) && from.size() == to.size(), errc::usage,
                "calm::collective: expected something to send and a place for each of ", ranks_, " ranks, found ",
                to.size(), " and ", from.size());
    }
    // all_gather() of elements of so many bytes.
    void gather_bytes(sent own, received all, std::span<std::size_t const> starts, std::size_t element) {
        std::vector<sent> const to(static_cast<std::size_t>(ranks_), own);
        std::vector<received> places;
        for (std::size_t r = 0; r < to.size(); ++r)
            places.push_back(all.subspan(starts[r] * element, (starts[r + 1] - starts[r]) * element));
        auto& mine = places[static_cast<std::size_t>(rank_)];
        require(own.size() == mine.size(), errc::usage, "calm::collective: expected ", mine.size() / element,
                " elements of this rank, found ", own.size() / element);
        if (own.data() != mine.data()) std::copy(own.begin(), own.end(), mine.begin());
        mine = {};
        exchange(to, places);
    }

    int rank_;
    int ranks_;
    int under_way_ = 0;
    std::uint64_t bytes_sent_ = 0;
    std::chrono::steady_clock::time_point in_touch_{};  // when it last heard
};

}  // namespace calm
