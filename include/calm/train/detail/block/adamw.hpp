#pragma once
// AdamW as portable block kernels (tensor/core/kernel.hpp). The CPU shares the update of an element and the handling of
// the norm.

#include "calm/tensor/detail/kernels/block/elementwise.hpp"
#include "calm/train/detail/block/ranges.hpp"

namespace calm {

// Outcome of a training step.
struct step_outcome {
    double loss = 0;  ///< the mean of its micro-batches
    double norm = 0;  ///< of all gradients together, before clipping
};

namespace detail {

inline constexpr index_t outcomes_kept = 64;  // steps whose outcomes a device keeps until the host reads them

inline constexpr double muon_momentum = 0.95;  // momentum of matrices that Muon updates

// Pointers and properties of one parameter.
template <class T> struct adamw_slot {
    T* value;
    T* gradient;
    T* first;
    T* second;  // null where unused
    index_t size;
    bool decays;
    bool is_hidden;  // a matrix between hidden states; its optimizer state may be younger than the run
    bool uses_muon;  // updated by Muon: to_nesterov_direction() turns its gradient into the direction
};

// Arguments of an update, written by the host.
template <class T> struct adamw_arguments {
    index_t step;    // of the run, for error messages
    index_t update;  // number of this update, from 1
    double loss;     // of the step, unless the loss is in device memory
    double clip;     // largest norm; 0: no clipping
    T keep;          // 1 - learning_rate * weight_decay, for weights that decay
    T towards;       // 1 - beta1
    T beta2;
    T rest2;  // 1 - beta2
    // Factors with the bias corrections of first and second moment.
    struct corrected {
        T learning_rate;  // divided by the correction of the first moment
        T root;           // 1 / sqrt(correction of the second moment)
    };
    corrected others;
    corrected hidden;  // for matrices between hidden states
    T eps;
    T muon;  // learning rate of Muon
};

// Outcomes of the last updates. From the first non-finite loss or gradient on, updates change nothing until the host
// has read the record.
struct adamw_record {
    double scale;                       // clipping factor of the last update
    index_t bad_update;                 // number of the first non-finite update; 0: none
    index_t bad_step;                   // the step of that update
    step_outcome steps[outcomes_kept];  // update u at u % outcomes_kept
};

// All inputs and outputs of an update, in device memory.
template <class T> struct adamw_memory {
    adamw_slot<T> const* slots;
    parameter_range const* ranges;
    index_t count;  // number of ranges
    double* sums;   // (1 + count) sums of squares: all gradients, then each range
    adamw_arguments<T>* arguments;
    adamw_record* record;
};

CALM_HD constexpr bool is_finite(double x) {
    return x - x == 0;
}

// Records outcome and clipping factor, given the sum of squares of all gradients and the loss: *loss, or arguments.loss
// if null.
template <class T> CALM_HD void conclude(adamw_memory<T> const& all, double squares, double const* loss) {
    auto const& arguments = *all.arguments;
    auto& record = *all.record;
    if (record.bad_update != 0) return;
    step_outcome const outcome{loss != nullptr ? *loss : arguments.loss, std::sqrt(squares)};
    record.steps[arguments.update % outcomes_kept] = outcome;
    record.scale = arguments.clip > 0 ? math::min(1.0, arguments.clip / (outcome.norm + 1e-6)) : 1.0;
    if (is_finite(outcome.norm) && is_finite(outcome.loss)) return;
    record.bad_update = arguments.update;
    record.bad_step = arguments.step;
}

// One update of one parameter.
template <class T> struct adamw_update {
    adamw_slot<T> slot;
    adamw_arguments<T> arguments;
    typename adamw_arguments<T>::corrected corrected;
    T scale;  // of the gradient
    T keep;   // of the weights

    CALM_HD adamw_update(adamw_memory<T> const& all, index_t number) :
        slot(all.slots[number]), arguments(*all.arguments),
        corrected(slot.is_hidden ? arguments.hidden : arguments.others), scale(static_cast<T>(all.record->scale)),
        keep(slot.decays ? arguments.keep : T{1}) {}

    // Updates element i, or the lanes from i, and clears its gradient.
    template <class V> [[gnu::always_inline]] CALM_HD inline void at(index_t i) const {
        V const g = load<V>(slot.gradient + i) * splat<V>(scale);
        V const m0 = load<V>(slot.first + i);
        V const m = m0 + (g - m0) * splat<V>(arguments.towards);
        V const v = load<V>(slot.second + i) * splat<V>(arguments.beta2) + g * g * splat<V>(arguments.rest2);
        V const p = load<V>(slot.value + i) * splat<V>(keep) -
                    splat<V>(corrected.learning_rate) * m /
                        (math::sqrt(v) * splat<V>(corrected.root) + splat<V>(arguments.eps));
        store(slot.first + i, m);
        store(slot.second + i, v);
        store(slot.value + i, p);
        store(slot.gradient + i, V{});
    }
    // For Muon: updates the momentum and replaces the gradient by the Nesterov direction.
    template <class V> [[gnu::always_inline]] CALM_HD inline void to_nesterov_direction(index_t i) const {
        V const g = load<V>(slot.gradient + i) * splat<V>(scale);
        V const m0 = load<V>(slot.first + i);
        V const m = m0 + (g - m0) * splat<V>(T(1 - muon_momentum));
        store(slot.first + i, m);
        store(slot.gradient + i, g + (m - g) * splat<V>(T(muon_momentum)));
    }
};

// sums[1 + block] = sum of squares of a range, in double and in a fixed order. The sums of a non-finite update are
// kept: the host searches them for the first bad gradient.
template <class T> struct sum_of_squares_kernel {
    static constexpr int threads = 256;
    struct shared {};
    adamw_memory<T> all;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        if (all.record->bad_update != 0) return;
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

// sums[0] = sum over all ranges, then conclude(). One block.
template <class T> struct norm_kernel {
    static constexpr int threads = 256;
    struct shared {};
    adamw_memory<T> all;
    double const* loss;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t) const {
        double const squares = sum_terms(b, 0, all.count, [&](index_t i) { return all.sums[1 + i]; });
        b.phase([&](int t) {
            if (t != 0) return;
            all.sums[0] = squares;
            conclude(all, squares, loss);
        });
    }
};

// Each block updates one range; does nothing after a non-finite update.
template <class T> struct adamw_kernel {
    static constexpr int threads = 256;
    struct shared {};
    adamw_memory<T> all;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            if (all.record->bad_update != 0) return;
            parameter_range const range = all.ranges[block];
            adamw_update<T> const update(all, range.slot);
            if (update.slot.uses_muon)
                for_groups<Block, T>(t, range.begin, range.end,
                                     [&]<class V>(index_t i) { update.template to_nesterov_direction<V>(i); });
            else
                for_groups<Block, T>(t, range.begin, range.end, [&]<class V>(index_t i) { update.template at<V>(i); });
        });
    }
};

// Sum of squares of each range.
template <block_backend Backend, class T>
void run_range_squares(context<Backend> const& ctx, adamw_memory<T> const& all) {
    launch(ctx, all.count, sum_of_squares_kernel<T>{all});
}
// Sum of squares of all gradients, then conclude().
template <block_backend Backend, class T>
void run_norm(context<Backend> const& ctx, adamw_memory<T> const& all, double const* loss) {
    launch(ctx, 1, norm_kernel<T>{all, loss});
}

// One update of every parameter, skipped after a non-finite update.
template <block_backend Backend, class T> void run_adamw(context<Backend> const& ctx, adamw_memory<T> const& all) {
    launch(ctx, all.count, adamw_kernel<T>{all});
}

}  // namespace detail

}  // namespace calm
