#include "serve/text_generator.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "program.hpp"

namespace calm::apps {

namespace {

// Lets the receiver know; a receiver that throws (out of memory) is dropped, which closes its answer.
template <class F> void notify_receiver(F const& f) {
    try {
        f();
    } catch (...) {
        log_line(failure_now().text);
    }
}

}  // namespace

void text_generator::run() {
    std::vector<text_order> orders;
    while (next_orders(orders)) {
        for (auto& order : orders) begin(std::move(order));
        if (!batch_.empty()) step();
    }
}

bool text_generator::has_room(std::size_t texts) const {
    std::lock_guard const lock(mutex_);
    return !closed_ && queue_.size() + texts <= most_queued_;
}

void text_generator::add(std::vector<text_order> orders) {
    std::lock_guard const lock(mutex_);
    std::move(orders.begin(), orders.end(), std::back_inserter(queue_));
    change_.notify_one();
}

void text_generator::close() {
    std::lock_guard const lock(mutex_);
    closed_ = true;
    change_.notify_one();
}

void text_generator::cut() {
    std::lock_guard const lock(mutex_);
    closed_ = cut_ = true;
    change_.notify_one();
}

std::size_t text_generator::queued() const {
    std::lock_guard const lock(mutex_);
    return queue_.size();
}

std::size_t text_generator::active() const {
    std::lock_guard const lock(mutex_);
    return active_;
}

bool text_generator::next_orders(std::vector<text_order>& orders) {
    orders.clear();
    std::unique_lock lock(mutex_);
    auto const under_way = static_cast<std::size_t>(
        std::count_if(under_way_.begin(), under_way_.end(), [](text_order const& one) { return one.to != nullptr; }));
    active_ = under_way;
    if (batch_.empty()) change_.wait(lock, [&] { return closed_ || !queue_.empty(); });
    std::erase_if(queue_, [](text_order const& one) { return !one.to->wanted(); });
    if (cut_) {
        auto const waiting = std::exchange(queue_, {});
        lock.unlock();
        for (auto const& one : waiting) notify_receiver([&] { one.to->end(one.number, false); });
        return !batch_.empty();
    }
    auto const room = static_cast<std::size_t>(batch_.free_slots());
    while (!queue_.empty() && orders.size() < room) {
        orders.push_back(std::move(queue_.front()));
        queue_.pop_front();
    }
    active_ = under_way + orders.size();
    return !orders.empty() || !batch_.empty() || !closed_;
}

void text_generator::begin(text_order order) {
    if (!order.to->wanted()) return;
    try {
        auto const slot = batch_.begin(order.prompt, order.settings);
        under_way_[static_cast<std::size_t>(slot)] = std::move(order);
    } catch (...) {
        auto const message = failure_now().text;
        notify_receiver([&] { order.to->fail(order.number, message); });
    }
}

void text_generator::step() {
    bool cut = false;
    {
        std::lock_guard const lock(mutex_);
        cut = cut_;
    }
    std::vector<std::pair<text_order, bool>> ended;  // and whether at an end id
    // Also those whose prompts are still computed, which have no patch yet.
    for (std::size_t slot = 0; slot < under_way_.size(); ++slot) {
        auto& order = under_way_[slot];
        if (order.to == nullptr || (!cut && order.to->wanted())) continue;
        batch_.end(static_cast<index_t>(slot));
        ended.emplace_back(std::exchange(order, {}), false);
    }
    try {
        batch_.step([&](index_t slot, generated_patch const& patch) {
            auto& order = under_way_[static_cast<std::size_t>(slot)];
            bool const continues = order.to->take(order.number, patch);
            if (continues && !patch.last) return true;
            ended.emplace_back(std::exchange(order, {}), patch.last && batch_.result(slot).stopped_at_eos);
            return false;
        });
    } catch (...) {
        fail_all(failure_now().text);
    }
    for (auto const& [order, at_end_id] : ended)
        notify_receiver([&, &one = order, &at_end = at_end_id] { one.to->end(one.number, at_end); });
}

void text_generator::fail_all(std::string const& message) {
    for (std::size_t slot = 0; slot < under_way_.size(); ++slot) {
        batch_.end(static_cast<index_t>(slot));
        auto const order = std::exchange(under_way_[slot], {});
        if (order.to != nullptr) notify_receiver([&] { order.to->fail(order.number, message); });
    }
}

}  // namespace calm::apps
