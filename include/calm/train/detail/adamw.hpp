#pragma once
// The two passes of AdamW over all parameters: the sum of squared gradients, and the update. optimizer.hpp has the
// optimizer.

#include <cstring>

#include "calm/tensor/core/view.hpp"
#include "calm/tensor/detail/expr/elementwise.hpp"
#include "calm/train/detail/block/adamw.hpp"

namespace calm::detail {

// Loads a SIMD vector of elements and converts them to double.
template <class T> [[gnu::always_inline]] inline packet<double> widened(T const* p) {
    if constexpr (std::is_same_v<T, double>)
        return load<packet<double>>(p);
    else {
        typename vectors_of<T>::half half;
        std::memcpy(&half, p, sizeof(half));
        return __builtin_convertvector(half, packet<double>);
    }
}

// Sum of squares of g[begin .. end), in double and in a fixed order.
template <class T> double sum_of_squares(T const* g, index_t begin, index_t end) {
    using V = packet<double>;
    constexpr index_t width = lanes<V>;
    V a{};
    V b{};
    index_t i = begin;
    for (; i + 2 * width <= end; i += 2 * width) {
        V const x = widened(g + i);
        V const y = widened(g + i + width);
        a += x * x;
        b += y * y;
    }
    double rest = 0;
    for (; i < end; ++i) rest += static_cast<double>(g[i]) * static_cast<double>(g[i]);
    return sum(a + b) + rest;
}

// Pairwise sum of x[begin .. end).
[[gnu::noinline]] inline double sum_by_halves(double const* x, std::size_t begin, std::size_t end) {
    if (end - begin <= 1) return end > begin ? x[begin] : 0;
    std::size_t const middle = begin + (end - begin) / 2;
    return sum_by_halves(x, begin, middle) + sum_by_halves(x, middle, end);
}

// CPU versions of the operations in train/detail/block/adamw.hpp.
template <class T> void run_range_squares(context<cpu> const& ctx, adamw_memory<T> const& all) {
    ctx.parallel(all.count, [&](index_t r) {
        auto const& range = all.ranges[r];
        all.sums[1 + r] = sum_of_squares(all.slots[range.slot].gradient, range.begin, range.end);
    });
}
template <class T> void run_norm(context<cpu> const&, adamw_memory<T> const& all, double const* loss) {
    all.sums[0] = sum_by_halves(all.sums + 1, 0, static_cast<std::size_t>(all.count));
    conclude(all, all.sums[0], loss);
}
template <class T> void run_adamw(context<cpu> const& ctx, adamw_memory<T> const& all) {
    if (all.record->bad_update != 0) return;
    ctx.parallel(all.count, [&](index_t r) {
        auto const& range = all.ranges[r];
        adamw_update<T> const update(all, range.slot);
        if (update.slot.uses_muon)
            for_pieces<T>(range.begin, range.end,
                          [&]<class V>(index_t i) { update.template to_nesterov_direction<V>(i); });
        else
            for_pieces<T>(range.begin, range.end, [&]<class V>(index_t i) { update.template at<V>(i); });
    });
}

}  // namespace calm::detail
