#pragma once
// AdamW in portable block form (tensor/kernel.hpp), and what packets and blocks share: the update of an element, and
// what follows from the norm of the gradients.

#include "calm/tensor/block/elementwise.hpp"
#include "calm/train/block/ranges.hpp"

namespace calm {

// What a step of training came to.
struct step_outcome {
    double loss = 0;  ///< the mean of its micro-batches
    double norm = 0;  ///< of all gradients together, before clipping
};

namespace detail {

inline constexpr index_t outcomes_kept = 64;  // steps whose outcomes a device keeps until the host asks

inline constexpr double muon_momentum = 0.95;  // of the mean of gradients, where their direction is what counts

// One parameter's memory.
template <class T> struct adamw_slot {
    T* value;
    T* gradient;
    T* first;
    T* second;  // null where nobody asks for it
    index_t size;
    bool decays;
    bool is_hidden;  // a matrix between hidden states, whose moments may be younger than the run
    bool leads;      // the gradient becomes what train/muon.hpp updates the values with
};

// What the host says of an update.
template <class T> struct adamw_told {
    index_t step;    // of the run, for messages
    index_t update;  // the number of this one, from 1
    double loss;     // of the step, where it is the host's
    double clip;     // the largest norm; 0: gradients stay as they are
    T keep;          // 1 - rate * weight_decay, of weights that decay
    T towards;       // 1 - beta1
    T beta2;
    T rest2;  // 1 - beta2
    // Over the moments' bias corrections.
    struct corrected {
        T rate;  // over that of the first moment
        T root;  // 1 / sqrt(that of the second moment)
    };
    corrected others;
    corrected hidden;  // of matrices between hidden states
    T eps;
    T muon;  // the rate of what train/muon.hpp updates
};

// What came of the last updates. The first whose loss or gradients are not finite changes nothing, nor do those that
// follow, until the host has asked.
struct adamw_record {
    double scale;                       // of the gradients, in the last one
    index_t bad_update;                 // the number of that update; 0: all were finite
    index_t bad_step;                   // the step that it belongs to
    step_outcome steps[outcomes_kept];  // of update u at u % outcomes_kept
};

// All that a step reads and writes, in memory of the executor.
template <class T> struct adamw_memory {
    adamw_slot<T> const* slots;
    parameter_range const* ranges;
    index_t count;  // of the ranges
    double* sums;   // (1 + count) of squares: of all gradients, of each range
    adamw_told<T>* told;
    adamw_record* record;
};

CALM_HD constexpr bool is_finite(double x) {
    return x - x == 0;
}

// What follows from the sum of the squares of all gradients, and from the loss: that at the address, or the host's.
template <class T> CALM_HD void conclude(adamw_memory<T> const& all, double squares, double const* loss) {
    auto const& told = *all.told;
    auto& record = *all.record;
    if (record.bad_update != 0) return;
    step_outcome const came{loss != nullptr ? *loss : told.loss, std::sqrt(squares)};
    record.steps[told.update % outcomes_kept] = came;
    record.scale = told.clip > 0 ? math::min(1.0, told.clip / (came.norm + 1e-6)) : 1.0;
    if (is_finite(came.norm) && is_finite(came.loss)) return;
    record.bad_update = told.update;
    record.bad_step = told.step;
}

// One update of one parameter.
template <class T> struct adamw_update {
    adamw_slot<T> slot;
    adamw_told<T> told;
    typename adamw_told<T>::corrected corrected;
    T scale;  // of the gradient
    T keep;   // of the weights

    CALM_HD adamw_update(adamw_memory<T> const& all, index_t number) :
        slot(all.slots[number]), told(*all.told), corrected(slot.is_hidden ? told.hidden : told.others),
        scale(static_cast<T>(all.record->scale)), keep(slot.decays ? told.keep : T{1}) {}

    // Element i, or the lanes from there; its gradient is zero afterwards.
    template <class V> [[gnu::always_inline]] CALM_HD inline void at(index_t i) const {
        V const g = load<V>(slot.gradient + i) * splat<V>(scale);
        V const m0 = load<V>(slot.first + i);
        V const m = m0 + (g - m0) * splat<V>(told.towards);
        V const v = load<V>(slot.second + i) * splat<V>(told.beta2) + g * g * splat<V>(told.rest2);
        V const p = load<V>(slot.value + i) * splat<V>(keep) -
                    splat<V>(corrected.rate) * m / (math::sqrt(v) * splat<V>(corrected.root) + splat<V>(told.eps));
        store(slot.first + i, m);
        store(slot.second + i, v);
        store(slot.value + i, p);
        store(slot.gradient + i, V{});
    }
    // The same where train/muon.hpp goes on: the gradient becomes the mean of gradients, a step ahead.
    template <class V> [[gnu::always_inline]] CALM_HD inline void lead(index_t i) const {
        V const g = load<V>(slot.gradient + i) * splat<V>(scale);
        V const m0 = load<V>(slot.first + i);
        V const m = m0 + (g - m0) * splat<V>(T(1 - muon_momentum));
        store(slot.first + i, m);
        store(slot.gradient + i, g + (m - g) * splat<V>(T(muon_momentum)));
    }
};

// What the sum of squares is for: its number alone, or an update with the loss at an address (conclude).
struct norm_use {
    bool updates = false;
    double const* loss = nullptr;
};

// sums[1 + block] = the sum of the squares of a range, in double and in a fixed order. Those of an update that was not
// finite stay: the host looks there for the first bad gradient.
template <class T> struct sum_of_squares_kernel {
    static constexpr int threads = 256;
    struct shared {};
    adamw_memory<T> all;
    norm_use use;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        if (use.updates && all.record->bad_update != 0) return;
        parameter_range const range = all.ranges[block];
        T const* const g = all.slots[range.slot].gradient;
        double const squares = sum_terms(b, range.begin, range.end, [&](index_t i) {
            return static_cast<double>(g[i]) * static_cast<double>(g[i]);
        });
        b.phase([&](int t) {
            if (t == 0) all.sums[1 + block] = squares;
        });
    }
};

// sums[0] = their sum, and what follows for an update; one block.
template <class T> struct norm_kernel {
    static constexpr int threads = 256;
    struct shared {};
    adamw_memory<T> all;
    norm_use use;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t) const {
        double const squares = sum_terms(b, 0, all.count, [&](index_t i) { return all.sums[1 + i]; });
        b.phase([&](int t) {
            if (t != 0) return;
            all.sums[0] = squares;
            if (use.updates) conclude(all, squares, use.loss);
        });
    }
};

// A block updates a range, unless the record forbids it.
template <class T> struct adamw_kernel {
    static constexpr int threads = 256;
    struct shared {};
    adamw_memory<T> all;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            if (all.record->bad_update != 0) return;
            parameter_range const range = all.ranges[block];
            adamw_update<T> const update(all, range.slot);
            if (update.slot.leads)
                for_groups<Block, T>(t, range.begin, range.end,
                                     [&]<class V>(index_t i) { update.template lead<V>(i); });
            else
                for_groups<Block, T>(t, range.begin, range.end, [&]<class V>(index_t i) { update.template at<V>(i); });
        });
    }
};

// The sums of squares of each range.
template <block_executor Backend, class T>
void run_range_squares(context<Backend> const& ctx, adamw_memory<T> const& all, norm_use use) {
    launch(ctx, all.count, sum_of_squares_kernel<T>{all, use});
}
// The sum of the squares of all gradients, and what it is used for.
template <block_executor Backend, class T>
void run_norm(context<Backend> const& ctx, adamw_memory<T> const& all, norm_use use) {
    launch(ctx, 1, norm_kernel<T>{all, use});
}

// One update of every parameter, unless the record forbids it.
template <block_executor Backend, class T> void run_adamw(context<Backend> const& ctx, adamw_memory<T> const& all) {
    launch(ctx, all.count, adamw_kernel<T>{all});
}

}  // namespace detail

}  // namespace calm
