#pragma once
// Adds the gradients of micro-batches in a fixed binary tree, whichever rank computes them: g0 + g1, (g0 + g1) + g2,
// (g0 + g1) + (g2 + g3), ... The sum of micro-batches a .. b - 1 has two parts: a .. a + h - 1 and a + h .. b - 1. Here
// h is the largest power of two below b - a.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "calm/nn/param.hpp"
#include "calm/tensor/core/copy.hpp"
#include "calm/tensor/detail/expr/elementwise.hpp"
#include "calm/train/detail/block/gradient_tree.hpp"

namespace calm {

namespace detail {

// CPU version.
template <class Do, class T> void run_tree(context<cpu> const& ctx, tree_memory<T> const& all, T* waiting) {
    ctx.parallel(all.count, [&](index_t r) {
        auto const& range = all.ranges[r];
        auto const& slot = all.slots[range.slot];
        for_pieces<T>(range.begin, range.end,
                      [&]<class V>(index_t i) { Do::template at<V>(slot.gradient, waiting + slot.place, i); });
    });
}

}  // namespace detail

// Partial sums within a step: one for each 1 bit in the number of a micro-batch. Keeps pointers to the parameters, as
// the optimizer does.
template <class Space> class gradient_tree {
    using T = typename Space::scalar;
    using Backend = typename Space::backend;

public:
    // All parameters need gradients; a step has `micro_batches`, at least 1. Throws errc::memory.
    gradient_tree(std::vector<any_parameter<Space>> const& parameters, index_t micro_batches) :
        micro_batches_(micro_batches) {
        if (micro_batches == 1) return;
        constexpr index_t aligned = memory_alignment / index_t{sizeof(T)};
        for (auto const& p : parameters) {
            slots_.push_back({p.grad.data(), p.grad.size(), elements_});
            elements_ += (p.grad.size() + aligned - 1) / aligned * aligned;
        }
        ranges_ = detail::ranges_of(slots_);
        for (std::size_t i = 0, r = 0; i < slots_.size(); ++i) {
            while (r < ranges_.size() && std::cmp_equal(ranges_[r].slot, i)) ++r;
            first_range_.push_back(static_cast<index_t>(r));
        }
        memory_ = {device_table(arena_, slots_), device_table(arena_, ranges_), static_cast<index_t>(ranges_.size())};
        waiting_ = arena_.template take<T>(extents<dyn, dyn>(max_pending(micro_batches), elements_)).data();
    }
    gradient_tree(gradient_tree const&) = delete;
    gradient_tree& operator=(gradient_tree const&) = delete;

    // Call in order, with the gradients of micro-batch `number` alone in the parameters. Afterwards the gradients are
    // zero, or after the last micro-batch the sum of all.
    void add(context<Backend> const& ctx, index_t number) const { add(ctx, number, 0, first_range_.size() - 1); }
    // Adds only parameters begin .. end - 1.
    void add(context<Backend> const& ctx, index_t number, std::size_t begin, std::size_t end) const {
        if (micro_batches_ == 1) return;
        auto some = memory_;
        some.ranges += first_range_[begin];
        some.count = first_range_[end] - first_range_[begin];
        bool const last = number + 1 == micro_batches_;
        auto const ones = static_cast<std::uint64_t>(number);
        int waiting = std::popcount(ones);
        for (int sums = last ? waiting : std::countr_one(ones); sums > 0; --sums)
            detail::run_tree<detail::add_waiting>(ctx, some, sum(--waiting));
        if (!last) detail::run_tree<detail::set_aside>(ctx, some, sum(waiting));
    }

    // Most partial sums held at once: floor(log2(micro_batches)).
    [[nodiscard]] static index_t max_pending(index_t micro_batches) {
        return static_cast<index_t>(std::bit_width(static_cast<std::uint64_t>(micro_batches))) - 1;
    }

private:
    static constexpr index_t memory_alignment = detail::memory_alignment;
    [[nodiscard]] T* sum(int number) const { return waiting_ + number * elements_; }

    index_t micro_batches_;
    arena<Backend> arena_{"gradients that wait"};
    std::vector<detail::tree_slot<T>> slots_;
    std::vector<detail::parameter_range> ranges_;
    std::vector<index_t> first_range_{0};  // (parameters + 1) first range of each parameter
    detail::tree_memory<T> memory_{};
    index_t elements_ = 0;  // elements per sum
    T* waiting_ = nullptr;  // the partial sums
};

}  // namespace calm
