#pragma once
// The energy score in portable block form (tensor/core/kernel.hpp): one block per position. It compares tiles of
// samples with tiles of other samples and of targets, which are generated on the fly. Value and gradient take one pass
// and no workspace.

#include <limits>

#include "calm/loss/targets.hpp"
#include "calm/tensor/core/kernel.hpp"
#include "calm/tensor/core/math.hpp"
#include "calm/tensor/detail/kernels/block/fill.hpp"

namespace calm::detail {

// Arguments for every backend: score (R), dx (R, N, L) or null, x (R, N, L), mean and log_std (R, L).
template <class T> struct energy_problem {
    T* score;
    T* dx;
    T const* x;
    T const* mean;
    T const* log_std;
    index_t R, N, M, L;
    double beta;
    double dscore;
};

// Noise of target m of position r, drawn from the key or given as (M, R, L). Calls put(l, eps) for the elements of
// group g within first .. first + count - 1; all groups together cover each element once.
template <class T> struct drawn_noise {
    // The output of one Philox block. Normals are computed in double, as random.hpp defines them; a pair shares its
    // radius.
    static constexpr int group = 4;
    calm::key key;
    rng_counter first_position;
    index_t M, L;
    template <class Put>
    CALM_HD void draw(index_t r, index_t m, index_t first, int count, int g, Put const& put) const {
        std::uint64_t const begin =
            drawn_targets{key, first_position}.element(r, M, m, L) + static_cast<std::uint64_t>(first);
        int const at = group * g - static_cast<int>(begin % group);  // start of the block, relative to `first`
        if (at >= count) return;
        T values[group];
        draw_normals<T>{}(philox(key, begin / group + static_cast<std::uint64_t>(g)), values);
        for (int i = 0; i < group; ++i)
            if (at + i >= 0 && at + i < count) put(at + i, values[i]);
    }
};
template <class T> struct given_noise {
    static constexpr int group = 1;
    T const* eps;
    index_t R, L;
    template <class Put>
    CALM_HD void draw(index_t r, index_t m, index_t first, int count, int g, Put const& put) const {
        if (g < count) put(g, eps[(m * R + r) * L + first + g]);
    }
};

// Rows that samples are compared with: other samples, or targets. Loads group g of elements first .. first + count - 1
// of row j into the same places of `to`.
template <class T> struct sample_rows {
    static constexpr int group = 1;
    energy_problem<T> p;
    CALM_HD void load(T* to, index_t r, index_t j, index_t first, int count, int g) const {
        if (g < count) to[g] = p.x[(r * p.N + j) * p.L + first + g];
    }
};
template <class T, class Noise> struct target_rows {
    static constexpr int group = Noise::group;
    energy_problem<T> p;
    Noise noise;
    CALM_HD void load(T* to, index_t r, index_t j, index_t first, int count, int g) const {
        noise.draw(r, j, first, count, g, [&](int l, T eps) {
            index_t const at = r * p.L + first + l;
            to[l] = p.mean[at] + math::exp(p.log_std[at]) * eps;
        });
    }
};

template <class T, class Noise> struct energy_score_kernel {
    static constexpr int threads = 128;
    static constexpr int blocks_at_once = 8;          // per multiprocessor: at most 64 registers per thread
    static constexpr int samples = 8;                 // rows per tile; each thread has one pair
    static constexpr int others = threads / samples;  // columns per tile
    static constexpr int chunk = 128;                 // elements of each row loaded at a time
    static constexpr int stride = chunk + 16 / static_cast<int>(sizeof(T));  // other banks for neighbouring rows
    using column = group<T, samples>;                                        // a number per sample of the tile
    struct alignas(16) shared {
        T x[samples * stride];
        T y[others * stride];
        T weight[others * samples];  // of each pair: (others, samples)
    };
    energy_problem<T> p;
    Noise noise;

    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t r) const {
        typename Block::template per_thread<double> total;
        b.phase([&](int t) {
            total[t] = 0;
            if (p.dx != nullptr)
                for (index_t i = t; i < p.N * p.L; i += threads) p.dx[r * p.N * p.L + i] = T{};
        });
        auto const N = static_cast<double>(p.N);
        double const within = 1 / (N * (N - 1));
        double const across = -2 / (N * static_cast<double>(p.M));
        // Each sample is on both sides of its pairs, hence the factor 2.
        compare(b, s, r, sample_rows<T>{p}, p.N, within, -2 * p.dscore * within, total);
        compare(b, s, r, target_rows<T, Noise>{p, noise}, p.M, across, -p.dscore * across, total);
        double const score = b.sum(total);
        b.phase([&](int t) {
            if (t == 0) p.score[r] = static_cast<T>(score);
        });
    }

private:
    // Whether thread t has a pair to compare.
    CALM_HD bool is_pair(int t, index_t n0, index_t j0, index_t rows) const {
        return n0 + t / others < p.N && j0 + t % others < rows;
    }

    // Adds value * |x_n - y_j|^beta over all n and j < rows to the totals, and slope times its gradient to dx.
    template <class Block, class Rows, class Total>
    CALM_HD void compare(Block& b, shared& s, index_t r, Rows const& y, index_t rows, double value, double slope,
                         Total& total) const {
        typename Block::template per_thread<T> square;
        for (index_t j0 = 0; j0 < rows; j0 += others)
            for (index_t n0 = 0; n0 < p.N; n0 += samples) {
                b.phase([&](int t) { square[t] = T{}; });
                for (index_t l0 = 0; l0 < p.L; l0 += chunk) {
                    load_tiles(b, s, r, n0, y, j0, rows, l0);
                    b.phase([&](int t) {
                        if (!is_pair(t, n0, j0, rows)) return;
                        add_squares(square[t], s.x + t / others * stride, s.y + t % others * stride, p.L - l0);
                    });
                }
                b.phase([&](int t) {
                    constexpr T least = std::numeric_limits<T>::min();
                    T& weight = s.weight[t % others * samples + t / others];
                    weight = T{};
                    if (!is_pair(t, n0, j0, rows) || square[t] < least) return;  // NaN stays
                    T const distance = p.beta == 1.0 ? math::sqrt(square[t])
                                                     : math::exp(static_cast<T>(p.beta / 2) * math::log(square[t]));
                    total[t] += value * static_cast<double>(distance);
                    weight = static_cast<T>(p.beta * slope) * distance / square[t];
                });
                if (p.dx == nullptr) continue;
                for (index_t l0 = 0; l0 < p.L; l0 += chunk) {
                    if (p.L > chunk) load_tiles(b, s, r, n0, y, j0, rows, l0);  // a single chunk is still loaded
                    b.phase([&](int t) { add_gradients(s, r, n0, rows - j0, l0, t); });
                }
            }
    }

    // total += |u - v|^2 over the first `width` elements, at most a chunk.
    CALM_HD static void add_squares(T& total, T const* u, T const* v, index_t width) {
        int const count = static_cast<int>(math::min<index_t>(chunk, width));
        T sum = total;
        using V = group_of<T>;
        int l = 0;
        for (; l + lanes<V> <= count; l += lanes<V>) {
            V const apart = load<V>(place_of<V>(u + l)) - load<V>(place_of<V>(v + l));
            for (T const each : apart.lane) sum += each * each;
        }
        for (; l < count; ++l) sum += (u[l] - v[l]) * (u[l] - v[l]);
        total = sum;
    }

    // Adds the gradients of the tile's first `count` columns to dx, in the chunk from element l0 on: a thread has one
    // element of every sample.
    CALM_HD void add_gradients(shared const& s, index_t r, index_t n0, index_t count, index_t l0, int t) const {
        auto const pairs = static_cast<int>(math::min<index_t>(others, count));
        auto const rows = static_cast<int>(math::min<index_t>(samples, p.N - n0));
        for (int l = t; l < chunk && l0 + l < p.L; l += threads) {
            T* const to = p.dx + (r * p.N + n0) * p.L + l0 + l;
            column x, sum;
            for (int n = 0; n < samples; ++n) {
                x.lane[n] = n < rows ? s.x[n * stride + l] : T{};
                sum.lane[n] = n < rows ? to[n * p.L] : T{};
            }
            // Weights multiply the differences; subtracting weighted sums would cancel.
            for (int j = 0; j < pairs; ++j)
                sum += load<column>(place_of<column>(s.weight + j * samples)) * (x - column(s.y[j * stride + l]));
            for (int n = 0; n < samples; ++n)
                if (n < rows) to[n * p.L] = sum.lane[n];
        }
    }

    // Loads elements from l0 on of the samples from n0 on and of y's rows from j0 on. Missing rows are left unchanged.
    template <class Block, class Rows>
    CALM_HD void load_tiles(Block& b, shared& s, index_t r, index_t n0, Rows const& y, index_t j0, index_t rows,
                            index_t l0) const {
        // A row that starts inside a group spans one group more.
        constexpr int groups = chunk / Rows::group + (Rows::group > 1 ? 1 : 0);
        auto const count = static_cast<int>(math::min<index_t>(chunk, p.L - l0));
        b.phase([&](int t) {
            for (int i = t; i < samples * chunk; i += threads) {
                int const row = i / chunk;
                sample_rows<T>{p}.load(s.x + row * stride, r, n0 + row, l0, n0 + row < p.N ? count : 0, i % chunk);
            }
            for (int i = t; i < others * groups; i += threads) {
                int const row = i / groups;
                y.load(s.y + row * stride, r, j0 + row, l0, j0 + row < rows ? count : 0, i % groups);
            }
        });
    }
};

template <block_backend Backend, class T, class Targets>
void run_energy_score(context<Backend> const& ctx, energy_problem<T> const& p, Targets const& targets) {
    if constexpr (std::is_same_v<Targets, drawn_targets>)
        launch(ctx, p.R, energy_score_kernel<T, drawn_noise<T>>{p, {targets.key, targets.first_position, p.M, p.L}});
    else
        launch(ctx, p.R, energy_score_kernel<T, given_noise<T>>{p, {targets.eps.data(), p.R, p.L}});
}

}  // namespace calm::detail
