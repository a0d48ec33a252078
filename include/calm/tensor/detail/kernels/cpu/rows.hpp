#pragma once
// Rows on the CPU: sums, copies and fills in packets and tasks. The block version is kernels/block/rows.hpp.

#include <algorithm>
#include <limits>
#include <type_traits>

#include "calm/base/bf16.hpp"
#include "calm/tensor/core/context.hpp"
#include "calm/tensor/core/packet.hpp"
#include "calm/tensor/detail/expr/elementwise.hpp"

namespace calm::detail {

inline constexpr index_t row_chunk = 64;

template <class T> void add_into(T* y, T const* x, index_t n) {
    for_pieces<T>(0, n, [&]<class V>(index_t i) { store(y + i, load<V>(y + i) + load<V>(x + i)); });
}
template <class T, class F> [[gnu::always_inline]] CALM_HD inline T sum_packets(index_t n, F const& f) {
    packet<T> packets{};
    T total{};
    for_packets<T>(0, n, [&]<class V>(index_t i) {
        if constexpr (std::is_same_v<V, packet<T>>)
            packets += f.template operator()<V>(i);
        else
            total += f.template operator()<V>(i);
    });
    if constexpr (std::is_same_v<T, packet<T>>)
        return packets;
    else
        return total + sum(packets);
}
// The largest of n > 0 values, by real part; never NaN.
template <class T> double largest(T const* x, index_t n) {
    using V = packet<T>;
    double most = -std::numeric_limits<double>::infinity();
    index_t i = 0;
    if constexpr (!std::is_same_v<V, T>) {
        constexpr index_t width = lanes<V>;
        if (n >= width) {
            V best = load<V>(x);
            for (i = width; i + width <= n; i += width) best = math::max(load<V>(x + i), best);
            for (index_t j = 0; j < width; ++j) most = best[j] > most ? best[j] : most;
        }
    }
    for (; i < n; ++i) most = real_part(x[i]) > most ? real_part(x[i]) : most;
    return most;
}
template <class T> T dot(T const* x, T const* y, index_t n) {
    return sum_packets<T>(n, [&]<class V>(index_t i) -> V { return load<V>(x + i) * load<V>(y + i); });
}

// Calls f(begin, end, partial) for chunks of rows; partial (width) belongs to the chunk and starts at zero. Then adds
// all partials to total (width), in order. For gradients of what all rows share.
template <class T, class F> void reduce_chunks(context<cpu>& ctx, index_t count, index_t width, T* total, F const& f) {
    arena_scope const scope(ctx.workspace);
    index_t const chunks = (count + row_chunk - 1) / row_chunk;
    auto const partial = ctx.workspace.template take<T>(extents<dyn, dyn>(chunks, width));
    ctx.parallel(chunks, [&](index_t c) {
        T* const p = partial.data() + c * width;
        std::fill_n(p, width, T{});
        f(c * row_chunk, std::min(count, (c + 1) * row_chunk), p);
    });
    ctx.parallel_ranges(width, 256, [&](index_t begin, index_t end) {
        for (index_t c = 0; c < chunks; ++c) add_into(total + begin, partial.data() + c * width + begin, end - begin);
    });
}

// As reduce_chunks, with f(row, partial) for every row.
template <class T, class F> void reduce_rows(context<cpu>& ctx, index_t count, index_t width, T* total, F const& f) {
    reduce_chunks(ctx, count, width, total, [&](index_t begin, index_t end, T* partial) {
        for (index_t r = begin; r < end; ++r) f(r, partial);
    });
}

template <class T, class U> void run_copy(context<cpu> const& ctx, T* y, U const* x, index_t n) {
    ctx.parallel_ranges(n, elementwise_grain, [&](index_t begin, index_t end) {
        if constexpr (std::is_same_v<U, bf16> != std::is_same_v<T, bf16>)
            std::transform(x + begin, x + end, y + begin, [](U value) { return static_cast<T>(value); });
        else
            std::copy(x + begin, x + end, y + begin);
    });
}
template <class T> void run_fill(context<cpu> const& ctx, T* x, index_t n, T value) {
    ctx.parallel_ranges(n, elementwise_grain,
                        [&](index_t begin, index_t end) { std::fill(x + begin, x + end, value); });
}
template <class T> void run_add_sum_axis0(context<cpu>& ctx, T* total, T const* x, index_t count, index_t width) {
    reduce_rows(ctx, count, width, total, [&](index_t r, T* partial) { add_into(partial, x + r * width, width); });
}

}  // namespace calm::detail
