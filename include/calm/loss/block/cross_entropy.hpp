#pragma once
// Passes over the logits of some rows and a chunk of the vocabulary, in portable block form (tensor/kernel.hpp): a
// block a row.

#include <limits>

#include "calm/base/token.hpp"
#include "calm/tensor/kernel.hpp"
#include "calm/tensor/math.hpp"

namespace calm::detail {

// Logits (rows, width) of tokens first .. first + width - 1.
template <class T> struct vocabulary_part {
    T* logits;
    index_t rows;
    index_t width;
    index_t first;
};

// Running logsumexp of a row over chunks.
template <class T> struct running_sum {
    double highest = -std::numeric_limits<double>::infinity();
    T total{};
    T target{};  // the target's logit
    [[nodiscard]] CALM_HD T log_sum() const { return static_cast<T>(highest) + math::log(total); }
};

// The targets of rows, as many of each: (R, each).
struct row_targets {
    token_id const* ids;
    index_t each;
    // The logits of a row's targets that are in the chunk, over `each`.
    template <class T> CALM_HD T mean(index_t row, vocabulary_part<T> const& z) const {
        T sum{};
        for (index_t m = 0; m < each; ++m)
            if (index_t const t = ids[row * each + m] - z.first; t >= 0 && t < z.width)
                sum += z.logits[row * z.width + t];
        return sum / number<T>(each);
    }
};

// sums and loss of a row, with the chunk added.
template <class T> struct add_chunk_kernel {
    static constexpr int threads = 256;
    struct shared {
        T partial[threads];
        T highest;
    };
    running_sum<T>* sums;
    T* loss;
    vocabulary_part<T> z;
    row_targets targets;

    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t row) const {
        constexpr double lowest = -std::numeric_limits<double>::infinity();
        T const* const logits = z.logits + row * z.width;
        b.phase([&](int t) {
            T most = static_cast<T>(lowest);
            for (index_t j = t; j < z.width; j += threads) most = logits[j] > most ? logits[j] : most;  // never NaN
            s.partial[t] = most;
        });
        for (int half = threads / 2; half > 0; half /= 2)
            b.phase([&](int t) {
                if (t < half) s.partial[t] = math::max(s.partial[t], s.partial[t + half]);
            });
        b.phase([&](int t) {
            if (t > 0) return;
            if (z.first == 0) sums[row] = {lowest, T{}, T{}};
            s.highest = math::max(s.partial[0], static_cast<T>(sums[row].highest));
        });
        sum_terms<threads>(b, s.partial, 0, z.width, [&](index_t j) { return math::exp(logits[j] - s.highest); });
        b.phase([&](int t) {
            if (t > 0) return;
            running_sum<T>& sum = sums[row];
            sum.total = sum.total * math::exp(static_cast<T>(sum.highest) - s.highest) + s.partial[0];
            sum.highest = static_cast<double>(s.highest);
            sum.target += targets.mean(row, z);
            loss[row] = sum.log_sum() - sum.target;
        });
    }
};

// Logits become scale * (softmax - the share of the targets that are the token).
template <class T> struct chunk_slopes_kernel {
    static constexpr int threads = 256;
    struct shared {};
    running_sum<T> const* sums;
    vocabulary_part<T> z;
    row_targets targets;
    T scale;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t row) const {
        b.phase([&](int t) {
            T* const logits = z.logits + row * z.width;
            T const shift = sums[row].log_sum();
            T const share = scale / number<T>(targets.each);
            for (index_t j = t; j < z.width; j += threads) {
                logits[j] = math::exp(logits[j] - shift) * scale;
                for (index_t m = 0; m < targets.each; ++m)
                    if (targets.ids[row * targets.each + m] == z.first + j) logits[j] -= share;
            }
        });
    }
};

// best and tokens of a row: the largest logit of the chunks so far, and its lowest index.
template <class T> struct best_of_chunk_kernel {
    static constexpr int threads = 256;
    struct shared {
        T value[threads];
        index_t index[threads];
    };
    token_id* tokens;
    T* best;
    vocabulary_part<T> z;
    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t row) const {
        T const* const logits = z.logits + row * z.width;
        b.phase([&](int t) {
            constexpr T lowest = -std::numeric_limits<T>::infinity();
            s.value[t] = lowest;
            s.index[t] = 0;
            for (index_t j = t; j < z.width; j += threads)
                if (logits[j] > s.value[t]) {
                    s.value[t] = logits[j];
                    s.index[t] = j;
                }
        });
        for (int half = threads / 2; half > 0; half /= 2)
            b.phase([&](int t) {
                if (t >= half) return;
                T const other = s.value[t + half];
                bool const tie = other == s.value[t] && s.index[t + half] < s.index[t];
                if (!(other > s.value[t]) && !tie) return;
                s.value[t] = other;
                s.index[t] = s.index[t + half];
            });
        b.phase([&](int t) {
            if (t > 0 || (z.first > 0 && !(s.value[0] > best[row]))) return;
            best[row] = s.value[0];
            tokens[row] = static_cast<token_id>(z.first + s.index[0]);
        });
    }
};

template <block_executor Backend, class T>
void run_add_chunk(context<Backend> const& ctx, running_sum<T>* sums, T* loss, vocabulary_part<T> const& z,
                   row_targets const& targets) {
    launch(ctx, z.rows, add_chunk_kernel<T>{sums, loss, z, targets});
}
template <block_executor Backend, class T>
void run_chunk_slopes(context<Backend> const& ctx, running_sum<T> const* sums, vocabulary_part<T> const& z,
                      row_targets const& targets, double scale) {
    launch(ctx, z.rows, chunk_slopes_kernel<T>{sums, z, targets, static_cast<T>(scale)});
}
template <block_executor Backend, class T>
void run_best_of_chunk(context<Backend> const& ctx, token_id* tokens, T* best, vocabulary_part<T> const& z) {
    launch(ctx, z.rows, best_of_chunk_kernel<T>{tokens, best, z});
}

}  // namespace calm::detail
