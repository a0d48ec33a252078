#pragma once
// The energy score on the CPU: value and gradient in one pass, with vector code. A thread takes whole positions.

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "calm/loss/detail/block/energy_score.hpp"
#include "calm/tensor/core/context.hpp"
#include "calm/tensor/detail/core/packet_sums.hpp"
#include "calm/tensor/detail/expr/elementwise.hpp"
#include "calm/tensor/ops/fill.hpp"

namespace calm::detail {

// Squared distances between four rows of x and four rows of y, `width` elements each: s[4 i + j] = |x_i - y_j|^2.
template <class T> [[gnu::always_inline]] inline void squares4x4(T* s, T const* x, T const* y, index_t width) {
    using V = packet<T>;
    if constexpr (std::is_same_v<V, piece_of_packet<T>>) {
        V v[16];
        unrolled<16>([&](auto k) __attribute__((always_inline)) { v[k] = V{}; });
        for (index_t l = 0; l < width; l += lanes<V>) {
            V b[4];
            unrolled<4>([&](auto j) __attribute__((always_inline)) { b[j] = load<V>(y + j * width + l); });
            unrolled<4>([&](auto i) __attribute__((always_inline)) {
                V const a = load<V>(x + i * width + l);
                unrolled<4>([&](auto j) __attribute__((always_inline)) {
                    V const d = a - b[j];
                    v[packet_of_sum(4 * i + j)] += d * d;
                });
            });
        }
        sums16(s, v);
    } else  // sixteen packets would not fit into the registers
        for (index_t k = 0; k < 16; ++k) {
            T const* const a = x + k / 4 * width;
            T const* const b = y + k % 4 * width;
            s[k] = sum_packets<T>(width, [&]<class W>(index_t l) -> W {
                W const d = load<W>(a + l) - load<W>(b + l);
                return d * d;
            });
        }
}

// g_i += sum over j of w[4 i + j] (x_i - y_j). Weights multiply the differences; subtracting weighted sums would
// cancel.
template <class T> [[gnu::always_inline]] inline void pull4x4(T* g, T const* w, T const* x, T const* y, index_t width) {
    using V = piece_of_packet<T>;
    V v[16];
    unrolled<16>([&](auto k) __attribute__((always_inline)) { v[k] = splat<V>(w[k]); });
    for (index_t l = 0; l < width; l += lanes<V>) {
        V b[4];
        unrolled<4>([&](auto j) __attribute__((always_inline)) { b[j] = load<V>(y + j * width + l); });
        unrolled<4>([&](auto i) __attribute__((always_inline)) {
            V const a = load<V>(x + i * width + l);
            V sum = load<V>(g + i * width + l);
            unrolled<4>([&](auto j) __attribute__((always_inline)) { sum += v[4 * i + j] * (a - b[j]); });
            store(g + i * width + l, sum);
        });
    }
}

constexpr index_t round_up(index_t n, index_t step) {
    return (n + step - 1) / step * step;
}

inline constexpr index_t targets_at_once = 8;

// Distances of N samples to at most `targets_at_once` rows. Rows are zero-padded to whole packets, and the number of
// rows to a multiple of 4. Squares, powers and gradients run as separate passes, each of which hides its own latency.
template <class T> struct distances {
    using V = piece_of_packet<T>;
    index_t samples;
    index_t width;
    double beta;
    T* tiles;  // (targets_at_once * padded number of samples)

    // Adds |x_n - y_m|^beta over m < count to `value` (per lane), and its gradient times `scale` to g unless g is null.
    void add(packet_sum<T>& value, T* g, T const* x, T const* y, index_t count, double scale) const {
        T* tile = tiles;
        for (index_t m = 0; m < count; m += 4)
            for (index_t n = 0; n < samples; n += 4, tile += 16) {
                squares4x4(tile, x + n * width, y + m * width, width);
                if (m + 4 > count || n + 4 > samples)
                    for (index_t k = 0; k < 16; ++k)
                        if (n + k / 4 >= samples || m + k % 4 >= count) tile[k] = T{};
            }
        if (beta == 1.0)
            weigh(value, tile, scale, [](V square) { return math::sqrt(square); });
        else
            weigh(value, tile, scale, [half = splat<V>(static_cast<T>(beta / 2))](V square) {
                return V(math::exp(V(half * math::log(square))));
            });
        if (g == nullptr) return;
        tile = tiles;
        for (index_t m = 0; m < count; m += 4)
            for (index_t n = 0; n < samples; n += 4, tile += 16)
                pull4x4(g + n * width, tile, x + n * width, y + m * width, width);
    }

private:
    using real = std::conditional_t<std::is_same_v<T, float>, float, double>;

    // Replaces the squares in the tiles by the weights beta * scale * power / square.
    template <class Power> void weigh(packet_sum<T>& value, T const* end, double scale, Power const& power) const {
        V const slope = splat<V>(static_cast<T>(beta * scale));
        V const least = splat<V>(static_cast<T>(std::numeric_limits<real>::min()));
        for (T* s = tiles; s < end; s += lanes<V>) {
            V const square = load<V>(s);
            V const apart = math::where_greater(least, square, splat<V>(T(1)), square);  // NaN stays
            V const distance = power(apart);
            value.add(s - tiles, math::where_greater(least, square, V{}, distance));
            store(s, math::where_greater(least, square, V{}, V(slope * distance / apart)));
        }
    }
};

// Copies rows between different strides: min(to_stride, from_stride) elements per row.
template <class T> void copy_rows(T* to, index_t to_stride, T const* from, index_t from_stride, index_t count) {
    if (to_stride == from_stride)
        std::copy_n(from, count * from_stride, to);
    else
        for (index_t i = 0; i < count; ++i)
            std::copy_n(from + i * from_stride, std::min(to_stride, from_stride), to + i * to_stride);
}

// y = center + spread * eps. eps has L elements; the rest of y is zero up to `width`.
template <class T>
void shift_and_scale(T* y, T const* center, T const* spread, T const* eps, index_t L, index_t width) {
    std::fill(y + L, y + width, T{});
    for_pieces<T>(0, L, [&]<class V>(index_t l) {
        store(y + l, V(load<V>(center + l) + load<V>(eps + l) * load<V>(spread + l)));
    });
}

// Workspace of one thread for one position: rows of `width` elements, a whole number of packets.
template <class T> struct energy_workspace {
    index_t width;
    T* samples;   // N rows, padded to a multiple of 4
    T* gradient;  // of the samples
    T* center;    // posterior mean
    T* spread;    // posterior standard deviation
    T* targets;   // targets_at_once rows
    T* eps;       // noise of the targets
    T* tiles;     // of distances

    static index_t width_of(index_t L) { return round_up(L, lanes<packet<T>>); }
    static index_t rows_of(index_t N) { return round_up(N, 4); }
    static index_t size(index_t N, index_t L) {
        return (2 * rows_of(N) + 2 + 2 * targets_at_once) * width_of(L) + targets_at_once * rows_of(N);
    }
    energy_workspace(T* memory, index_t N, index_t L) :
        width(width_of(L)), samples(memory), gradient(samples + rows_of(N) * width),
        center(gradient + rows_of(N) * width), spread(center + width), targets(spread + width),
        eps(targets + targets_at_once * width), tiles(eps + targets_at_once * width) {}

    // Loads position r and clears its gradient.
    void begin(energy_problem<T> const& p, index_t r) const {
        using V = piece_of_packet<T>;
        std::fill(samples, targets, T{});
        copy_rows(samples, width, p.x + r * p.N * p.L, p.L, p.N);
        std::copy_n(p.mean + r * p.L, p.L, center);
        std::copy_n(p.log_std + r * p.L, p.L, spread);
        for (index_t l = 0; l < width; l += lanes<V>) store(spread + l, V(math::exp(load<V>(spread + l))));
    }
    // Targets m .. m + count - 1 of position r.
    template <class Targets>
    void draw(energy_problem<T> const& p, Targets const& from, index_t r, index_t m, index_t count) const {
        constexpr bool drawn = std::is_same_v<Targets, drawn_targets>;
        if constexpr (drawn) normals(eps, count * p.L, from.key, from.element(r, p.M, m, p.L));
        for (index_t i = 0; i < count; ++i) {
            T const* noise = eps + i * p.L;
            if constexpr (!drawn) noise = from.eps.data() + ((m + i) * p.R + r) * p.L;
            shift_and_scale(targets + i * width, center, spread, noise, p.L, width);
        }
        std::fill(targets + count * width, targets + round_up(count, 4) * width, T{});
    }
};

// Score and gradient of position r.
template <class T, class Targets>
void energy_score_of(energy_problem<T> const& p, Targets const& targets, energy_workspace<T> const& at, index_t r) {
    constexpr index_t block = targets_at_once;
    double const pairs = static_cast<double>(p.N) * static_cast<double>(p.N - 1);
    double const crosses = static_cast<double>(p.N) * static_cast<double>(p.M);
    distances<T> const apart{p.N, at.width, p.beta, at.tiles};
    at.begin(p, r);
    T* const gradient = p.dx == nullptr ? nullptr : at.gradient;
    packet_sum<T> within;
    packet_sum<T> across;
    for (index_t n = 0; n < p.N; n += block)
        apart.add(within, gradient, at.samples, at.samples + n * at.width, std::min(block, p.N - n),
                  -2.0 * p.dscore / pairs);
    for (index_t m = 0; m < p.M; m += block) {
        index_t const count = std::min(block, p.M - m);
        at.draw(p, targets, r, m, count);
        apart.add(across, gradient, at.samples, at.targets, count, 2.0 * p.dscore / crosses);
    }
    using exact = std::conditional_t<std::is_same_v<T, float>, double, T>;
    p.score[r] = static_cast<T>(exact(sum(within.value())) / pairs - exact(sum(across.value())) * (2.0 / crosses));
    if (gradient != nullptr) copy_rows(p.dx + r * p.N * p.L, p.L, gradient, at.width, p.N);
}

// CPU implementation of run_energy_score (for block backends: loss/detail/block/energy_score.hpp).
template <class T, class Targets>
void run_energy_score(context<cpu>& ctx, energy_problem<T> const& p, Targets const& targets) {
    using workspace = energy_workspace<T>;
    double const work = static_cast<double>(p.N) * (static_cast<double>(p.N) + static_cast<double>(p.M)) *
                        static_cast<double>(workspace::width_of(p.L));
    auto const grain = static_cast<index_t>(std::max(1.0, std::floor(65536 / std::max(1.0, work))));
    arena_scope const scope(ctx.workspace);
    auto const spaces = ctx.workspace.template take<T>(
        extents<dyn, dyn>(ctx.threads_for((p.R + grain - 1) / grain), workspace::size(p.N, p.L)));
    ctx.parallel_ranges(p.R, grain, [&](index_t begin, index_t end, int thread) {
        workspace const at(spaces.data() + thread * spaces.extent(1), p.N, p.L);
        for (index_t r = begin; r < end; ++r) energy_score_of(p, targets, at, r);
    });
}

}  // namespace calm::detail
