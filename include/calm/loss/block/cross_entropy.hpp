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
    struct shared {};
    running_sum<T>* sums;
    T* loss;
    vocabulary_part<T> z;
    row_targets targets;

    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t row) const {
        T const* const logits = z.logits + row * z.width;
        typename Block::template per_thread<T> most;
        b.phase([&](int t) {
            // Of the chunks before it too.
            T own = z.first == 0 ? -std::numeric_limits<T>::infinity() : static_cast<T>(sums[row].highest);
            for (index_t j = t; j < z.width; j += threads) own = logits[j] > own ? logits[j] : own;  // never NaN
            most[t] = own;
        });
        T const highest = b.max(most);
        T const total = sum_terms(b, 0, z.width, [&](index_t j) { return math::exp(logits[j] - highest); });
        b.phase([&](int t) {
            if (t > 0) return;
            running_sum<T> sum = z.first == 0 ? running_sum<T>{} : sums[row];
            sum.total = sum.total * math::exp(static_cast<T>(sum.highest) - highest) + total;
            sum.highest = static_cast<double>(highest);
            sum.target += targets.mean(row, z);
            loss[row] = sum.log_sum() - sum.target;
            sums[row] = sum;
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
    struct shared {};
    struct candidate {
        T value;
        index_t index;
    };
    token_id* tokens;
    T* best;
    vocabulary_part<T> z;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t row) const {
        T const* const logits = z.logits + row * z.width;
        typename Block::template per_thread<candidate> own;
        b.phase([&](int t) {
            candidate most{-std::numeric_limits<T>::infinity(), 0};
            for (index_t j = t; j < z.width; j += threads)
                if (logits[j] > most.value) most = {logits[j], j};
            own[t] = most;
        });
        candidate const found = b.fold(own, [](candidate const& x, candidate const& y) {
            bool const tie = y.value == x.value && y.index < x.index;
            return y.value > x.value || tie ? y : x;
        });
        b.phase([&](int t) {
            if (t > 0 || (z.first > 0 && !(found.value > best[row]))) return;
            best[row] = found.value;
            tokens[row] = static_cast<token_id>(z.first + found.index);
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
