#pragma once
// AdamW in portable block form (tensor/kernel.hpp), and the update of an element, which packets and blocks share.

#include <string>
#include <vector>

#include "calm/tensor/block/elementwise.hpp"

namespace calm::detail {

// One parameter's memory.
template <class T> struct adamw_slot {
    std::string name;
    T* value;
    T* gradient;
    T* first;
    T* second;
    index_t size;
    bool* received;
    bool decays;
};
// Some elements of one of the parameters.
struct adamw_range {
    std::size_t slot;
    index_t begin;
    index_t end;
};
inline constexpr index_t adamw_grain = 16384;  // elements of a range; the last of a parameter may have fewer

// One update of one parameter.
template <class T> struct adamw_step {
    T* value;
    T* gradient;  // zero afterwards
    T* first;
    T* second;
    T scale;    // of the gradient
    T keep;     // 1 - rate * weight_decay, or 1
    T towards;  // 1 - beta1
    T beta2;
    T rest2;  // 1 - beta2
    T rate;   // over the first moment's bias correction
    T root;   // 1 / sqrt(the second moment's bias correction)
    T eps;

    // Element i, or the lanes from there.
    template <class V> [[gnu::always_inline]] CALM_HD inline void at(index_t i) const {
        V const g = load<V>(gradient + i) * splat<V>(scale);
        V const m0 = load<V>(first + i);
        V const m = m0 + (g - m0) * splat<V>(towards);
        V const v = load<V>(second + i) * splat<V>(beta2) + g * g * splat<V>(rest2);
        V const p =
            load<V>(value + i) * splat<V>(keep) - splat<V>(rate) * m / (math::sqrt(v) * splat<V>(root) + splat<V>(eps));
        store(first + i, m);
        store(second + i, v);
        store(value + i, p);
        store(gradient + i, V{});
    }
};

// A block `threads` elements.
template <class T> struct adamw_kernel {
    static constexpr int threads = 256;
    struct shared {};
    adamw_step<T> step;
    index_t n;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            if (index_t const i = block * threads + t; i < n) step.template at<T>(i);
        });
    }
};

// partial[block] = the sum of squares of a range of g (n), in double and in a fixed order.
template <class T> struct sum_of_squares_kernel {
    static constexpr int threads = 256;
    struct shared {
        double sum[threads];
    };
    double* partial;
    T const* g;
    index_t n;
    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t block) const {
        sum_terms<threads>(b, s.sum, block * adamw_grain, math::min(n, (block + 1) * adamw_grain),
                           [&](index_t i) { return static_cast<double>(g[i]) * static_cast<double>(g[i]); });
        b.phase([&](int t) {
            if (t == 0) partial[block] = s.sum[0];
        });
    }
};

// sums (1 + ranges) = the sum of the squares of all gradients, and that of each range; returns the first. Waits for a
// device.
template <block_executor Backend, class T>
double sum_of_squared_gradients(context<Backend> const& ctx, double* sums, std::vector<adamw_slot<T>> const& slots,
                                std::vector<adamw_range> const& ranges) {
    double* partial = sums + 1;
    for (auto const& slot : slots) {
        index_t const count = blocks_for(slot.size, adamw_grain);
        launch(ctx, count, sum_of_squares_kernel<T>{partial, slot.gradient, slot.size});
        partial += count;
    }
    auto const n = static_cast<index_t>(ranges.size());
    launch(ctx, 1, sum_kernel<tree::input<double>, double>{{sums + 1}, sums, n, n});
    return fetch(ctx, sums);
}

// One update of every parameter; step_of(slot) has its numbers.
template <block_executor Backend, class T, class F>
void update_all(context<Backend> const& ctx, std::vector<adamw_slot<T>> const& slots, std::vector<adamw_range> const&,
                F const& step_of) {
    for (auto const& slot : slots)
        launch(ctx, blocks_for(slot.size, adamw_kernel<T>::threads), adamw_kernel<T>{step_of(slot), slot.size});
}

}  // namespace calm::detail
