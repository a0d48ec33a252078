#pragma once
// The energy score in portable block form (tensor/kernel.hpp): a block a position, its samples against tiles of the
// others and of the targets, which are made where they are needed. Value and gradient in one pass, no memory of its
// own.

#include <limits>

#include "calm/loss/targets.hpp"
#include "calm/tensor/kernel.hpp"
#include "calm/tensor/math.hpp"

namespace calm::detail {

// What every executor is told: score (R), dx (R, N, L) or null, x (R, N, L), mean and log_std (R, L).
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

// Element l of the draw of target m of position r: from the key, or given as (M, R, L).
template <class T> struct drawn_noise {
    calm::key key;
    index_t first_position, M, L;
    CALM_HD T operator()(index_t r, index_t m, index_t l) const {
        return normal<T>(key, drawn_targets{key, first_position}.element(r, M, m, L) + static_cast<std::uint64_t>(l));
    }
};
template <class T> struct given_noise {
    T const* eps;
    index_t R, L;
    CALM_HD T operator()(index_t r, index_t m, index_t l) const { return eps[(m * R + r) * L + l]; }
};

// Element l of row j of what samples are compared with: themselves, or the targets.
template <class T> struct sample_rows {
    energy_problem<T> p;
    CALM_HD T operator()(index_t r, index_t j, index_t l) const { return p.x[(r * p.N + j) * p.L + l]; }
};
template <class T, class Noise> struct target_rows {
    energy_problem<T> p;
    Noise noise;
    CALM_HD T operator()(index_t r, index_t j, index_t l) const {
        index_t const at = r * p.L + l;
        return p.mean[at] + math::exp(p.log_std[at]) * noise(r, j, l);
    }
};

template <class T, class Noise> struct energy_score_kernel {
    static constexpr int threads = 128;
    static constexpr int samples = 8;                 // rows of a tile: a thread has one of the pairs
    static constexpr int others = threads / samples;  // columns
    static constexpr int chunk = 128;                 // elements of a row at a time
    static constexpr int stride = chunk + 1;          // neighbouring rows lie in different banks
    struct shared {
        T x[samples * stride];
        T y[others * stride];
        T weight[threads];
        double partial[threads];
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
        // A sample stands on both sides of its pairs.
        compare(b, s, r, sample_rows<T>{p}, p.N, within, -2 * p.dscore * within, total);
        compare(b, s, r, target_rows<T, Noise>{p, noise}, p.M, across, -p.dscore * across, total);
        b.phase([&](int t) { s.partial[t] = total[t]; });
        sum_tree<threads>(b, s.partial);
        b.phase([&](int t) {
            if (t == 0) p.score[r] = static_cast<T>(s.partial[0]);
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
                    load(b, s, r, n0, y, j0, rows, l0);
                    b.phase([&](int t) {
                        if (!is_pair(t, n0, j0, rows)) return;
                        T const* const u = s.x + t / others * stride;
                        T const* const v = s.y + t % others * stride;
                        index_t const width = math::min<index_t>(chunk, p.L - l0);
                        for (index_t l = 0; l < width; ++l) square[t] += (u[l] - v[l]) * (u[l] - v[l]);
                    });
                }
                b.phase([&](int t) {
                    constexpr T least = std::numeric_limits<T>::min();
                    s.weight[t] = T{};
                    if (!is_pair(t, n0, j0, rows) || square[t] < least) return;  // NaN stays
                    T const distance = p.beta == 1.0 ? math::sqrt(square[t])
                                                     : math::exp(static_cast<T>(p.beta / 2) * math::log(square[t]));
                    total[t] += value * static_cast<double>(distance);
                    s.weight[t] = static_cast<T>(p.beta * slope) * distance / square[t];
                });
                if (p.dx == nullptr) continue;
                for (index_t l0 = 0; l0 < p.L; l0 += chunk) {
                    if (p.L > chunk) load(b, s, r, n0, y, j0, rows, l0);  // otherwise still there
                    b.phase([&](int t) {
                        index_t const count = math::min<index_t>(others, rows - j0);
                        for (int i = t; i < samples * chunk; i += threads) {
                            int const n = i / chunk;
                            int const l = i % chunk;
                            if (n0 + n >= p.N || l0 + l >= p.L) continue;
                            T* const g = p.dx + (r * p.N + n0 + n) * p.L + l0 + l;
                            // Differences are weighed, not weighed sums subtracted: that would cancel.
                            for (int j = 0; j < count; ++j)
                                *g += s.weight[n * others + j] * (s.x[n * stride + l] - s.y[j * stride + l]);
                        }
                    });
                }
            }
    }

    // Elements l0 .. of samples n0 .. and of rows j0 .. of y; rows that there are not stay as they were.
    template <class Block, class Rows>
    CALM_HD void load(Block& b, shared& s, index_t r, index_t n0, Rows const& y, index_t j0, index_t rows,
                      index_t l0) const {
        b.phase([&](int t) {
            for (int i = t; i < (samples + others) * chunk; i += threads) {
                int const row = i / chunk;
                int const l = i % chunk;
                if (l0 + l >= p.L) continue;
                if (row < samples) {
                    if (n0 + row < p.N) s.x[row * stride + l] = p.x[(r * p.N + n0 + row) * p.L + l0 + l];
                } else if (index_t const j = j0 + row - samples; j < rows)
                    s.y[(row - samples) * stride + l] = y(r, j, l0 + l);
            }
        });
    }
};

template <block_executor Backend, class T, class Targets>
void run_energy_score(context<Backend> const& ctx, energy_problem<T> const& p, Targets const& targets) {
    if constexpr (std::is_same_v<Targets, drawn_targets>)
        launch(ctx, p.R, energy_score_kernel<T, drawn_noise<T>>{p, {targets.key, targets.first_position, p.M, p.L}});
    else
        launch(ctx, p.R, energy_score_kernel<T, given_noise<T>>{p, {targets.eps.data(), p.R, p.L}});
}

}  // namespace calm::detail
