#pragma once
// The two passes of AdamW over all parameters: the sum of squared gradients, and the update. The optimizer is in
// optimizer.hpp.

#include <cstring>

#include "calm/tensor/elementwise.hpp"
#include "calm/tensor/view.hpp"
#include "calm/train/block/adamw.hpp"

namespace calm::detail {

// A packet of doubles from as many elements.
template <class T> [[gnu::always_inline]] inline packet<double> widened(T const* p) {
    if constexpr (std::is_same_v<T, double>)
        return load<packet<double>>(p);
    else {
        typename vectors_of<T>::half half;
        std::memcpy(&half, p, sizeof(half));
        return __builtin_convertvector(half, packet<double>);
    }
}

// The sum of squares of g[begin .. end), in double and in a fixed order.
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

// The sum of x[begin .. end) by halves.
inline double sum_by_halves(double const* x, std::size_t begin, std::size_t end) {
    if (end - begin <= 1) return end > begin ? x[begin] : 0;
    std::size_t const middle = begin + (end - begin) / 2;
    return sum_by_halves(x, begin, middle) + sum_by_halves(x, middle, end);
}

// How the cpu does what train/block/adamw.hpp says and does for executors of blocks.
template <class T>
double sum_of_squared_gradients(context<cpu> const& ctx, double* sums, std::vector<adamw_slot<T>> const& slots,
                                std::vector<adamw_range> const& ranges) {
    ctx.parallel(static_cast<index_t>(ranges.size()), [&](index_t r) {
        auto const& part = ranges[static_cast<std::size_t>(r)];
        sums[1 + r] = sum_of_squares(slots[part.slot].gradient, part.begin, part.end);
    });
    return sum_by_halves(sums + 1, 0, ranges.size());
}
template <class T, class F>
void update_all(context<cpu> const& ctx, std::vector<adamw_slot<T>> const& slots,
                std::vector<adamw_range> const& ranges, F const& step_of) {
    ctx.parallel(static_cast<index_t>(ranges.size()), [&](index_t r) {
        auto const& part = ranges[static_cast<std::size_t>(r)];
        adamw_step<T> const step = step_of(slots[part.slot]);
        for_pieces<T>(part.begin, part.end, [&]<class V>(index_t i) { step.template at<V>(i); });
    });
}

}  // namespace calm::detail
