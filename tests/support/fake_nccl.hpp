#pragma once
// A fake NCCL for nccl_transport: ranks are threads, the device is the emulated one, and messages are copies on its
// queue. Tests can inject failures; calls that real NCCL would not accept are recorded.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "calm/emulated.hpp"
#include "calm/ranks/detail/nccl_transport.hpp"

namespace calm::test {

// The state that the ranks of a communicator share.
class fake_fabric {
public:
    explicit fake_fabric(int ranks) : members_(static_cast<std::size_t>(ranks)) {}

    // Injected failures. Groups count from 1; group 0 is the initialisation.
    int failing = -1;                        // the rank whose NCCL fails,
    int failing_group = 0;                   // from this group on
    int refusing = -1;                       // the rank whose NCCL refuses to send
    bool never_done = false;                 // messages never complete
    std::function<void(int, int)> on_group;  // called with rank and group before a group begins

    struct member {
        int groups = 0;  // completed
        int begun = 0;
        int finished = 0;
        int closed = 0;
        int aborted = 0;
        std::size_t bytes = 0;  // sent
    };
    [[nodiscard]] member of(int rank) {
        std::scoped_lock const lock(mutex_);
        return at(rank);
    }
    // The first misuse that real NCCL would not accept; empty if there is none.
    [[nodiscard]] std::string misuse() {
        std::scoped_lock const lock(mutex_);
        return misuse_;
    }

private:
    friend class fake_nccl;
    struct message {
        int from;
        int to;
        void const* data;
        std::size_t bytes;
    };
    struct group {
        std::size_t members = 0;  // that have arrived
        std::vector<message> sent;
        std::vector<message> expected;
    };
    member& at(int rank) { return members_[static_cast<std::size_t>(rank)]; }
    void note(bool good, char const* what) {
        if (!good && misuse_.empty()) misuse_ = what;
    }
    // The last rank to arrive enqueues all copies, so each copy follows all earlier work of both its ranks.
    void come(int rank, group const& own) {
        std::scoped_lock const lock(mutex_);
        auto& all = groups_[++at(rank).groups];
        all.sent.insert(all.sent.end(), own.sent.begin(), own.sent.end());
        all.expected.insert(all.expected.end(), own.expected.begin(), own.expected.end());
        for (auto const& m : own.sent) at(rank).bytes += m.bytes;
        if (std::ranges::any_of(members_, [](member const& m) { return m.aborted > 0; })) return;
        if (++all.members < members_.size()) return;
        note(all.sent.size() == all.expected.size(), "as many messages are sent as are expected");
        for (auto const& in : all.expected) {
            auto const out =
                std::ranges::find_if(all.sent, [&](message const& m) { return m.from == in.from && m.to == in.to; });
            note(out != all.sent.end() && out->bytes == in.bytes, "a message has the size of its place");
            if (out == all.sent.end()) continue;
            detail::emulated_device::get().later(
                [to = const_cast<void*>(in.data), from = out->data, n = in.bytes] { std::memcpy(to, from, n); });
        }
    }
    [[nodiscard]] bool all_came(int rank) {
        auto const now = at(rank).groups;
        if (now > 0) return groups_[now].members == members_.size();
        return std::ranges::all_of(members_, [](member const& m) { return m.begun == 1; });
    }

    std::recursive_mutex mutex_;
    std::vector<member> members_;
    std::map<int, group> groups_;
    std::string misuse_;
};

// One rank's end of the communicator, with the members of nccl_library.
class fake_nccl {
public:
    using key = std::uint64_t;
    fake_nccl(fake_fabric& fabric, int rank) : fabric_(&fabric), rank_(rank) {}

    nccl_state make_key(key& made) {
        made = 42;
        return nccl_state::done;
    }
    nccl_state begin(key const& of_all, int rank, int ranks) {
        if (fabric_->on_group) fabric_->on_group(rank_, 0);
        std::scoped_lock const lock(fabric_->mutex_);
        note(of_all == 42 && rank == rank_ && std::cmp_equal(ranks, fabric_->members_.size()), "all have one key");
        note(++self().begun == 1, "a communicator begins once");
        return nccl_state::in_flight;
    }
    nccl_state begin_group() {
        if (fabric_->on_group) fabric_->on_group(rank_, self().groups + 1);
        std::scoped_lock const lock(fabric_->mutex_);
        note(is_open() && !in_group_, "a group begins in an open communicator, and in no other group");
        in_group_ = true;
        group_ = {};
        return nccl_state::done;
    }
    nccl_state send(void const* from, std::size_t bytes, int to) {
        std::scoped_lock const lock(fabric_->mutex_);
        if (fabric_->refusing == rank_) return nccl_state::failed;
        add(group_.sent, {rank_, to, from, bytes});
        return nccl_state::done;
    }
    nccl_state receive(void* to, std::size_t bytes, int from) {
        std::scoped_lock const lock(fabric_->mutex_);
        add(group_.expected, {from, rank_, to, bytes});
        return nccl_state::done;
    }
    nccl_state end_group() {
        std::scoped_lock const lock(fabric_->mutex_);
        note(std::exchange(in_group_, false), "a group ends that has begun");
        if (fabric_->refusing == rank_) return nccl_state::failed;
        fabric_->come(rank_, group_);
        return nccl_state::in_flight;
    }
    nccl_state state() {
        std::scoped_lock const lock(fabric_->mutex_);
        note(is_open(), "an open communicator is asked how it stands");
        if (fabric_->failing == rank_ && self().groups >= fabric_->failing_group) return nccl_state::failed;
        if (self().finished > 0) return nccl_state::done;
        return fabric_->all_came(rank_) ? nccl_state::done : nccl_state::in_flight;
    }
    nccl_state queue_state() {
        if (fabric_->never_done) return nccl_state::in_flight;
        if (std::exchange(asked_, !asked_)) return nccl_state::in_flight;  // alternately in progress and done
        detail::emulated_device::get().wait();
        return nccl_state::done;
    }
    nccl_state finish() {
        std::scoped_lock const lock(fabric_->mutex_);
        note(is_open() && ++self().finished == 1, "an open communicator is finished once");
        return nccl_state::in_flight;
    }
    void close() {
        std::scoped_lock const lock(fabric_->mutex_);
        note(is_open() && self().finished == 1, "what is closed is open and finished");
        ++self().closed;
    }
    void abort() {
        std::scoped_lock const lock(fabric_->mutex_);
        note(is_open() && !in_group_, "what is aborted is open, and in no group");
        ++self().aborted;
    }
    [[nodiscard]] static std::string why() { return "a cable is out"; }

private:
    fake_fabric::member& self() { return fabric_->at(rank_); }
    [[nodiscard]] bool is_open() { return self().begun == 1 && self().closed + self().aborted == 0; }
    void note(bool good, char const* what) { fabric_->note(good, what); }
    void add(std::vector<fake_fabric::message>& to, fake_fabric::message const& m) {
        note(in_group_, "messages go in groups");
        note(m.bytes > 0 && m.from != m.to, "messages have bytes, and go to others");
        note(detail::emulated_device::get().owns(m.data, m.bytes), "messages lie in the device's memory");
        to.push_back(m);
    }

    fake_fabric* fabric_;
    int rank_;
    bool in_group_ = false;
    bool asked_ = true;
    fake_fabric::group group_;
};

}  // namespace calm::test
