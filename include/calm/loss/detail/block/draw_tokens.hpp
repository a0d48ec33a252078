#pragma once
// Cumulative sums of the probabilities of a vocabulary chunk, in portable block form: one block per row.

#include "calm/loss/detail/block/cross_entropy.hpp"
#include "calm/tensor/core/kernel.hpp"

namespace calm::detail {

// Per row: sum of exp(logit - highest) over one chunk, where highest is the largest logit of the chunk.
template <class T> struct chunk_total {
    T highest;
    T total;
};

// Per row: replaces the logits by the cumulative sums of exp(logit - highest). Each thread sums a contiguous range,
// then adds the total of all earlier ranges.
template <class T> struct running_sums_kernel {
    static constexpr int threads = 256;
    struct shared {
        T partial[threads];
    };
    chunk_total<T>* totals;
    index_t stride;  // between the rows of totals
    vocabulary_part<T> z;
    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t row) const {
        T* const logits = z.logits + row * z.stride;
        index_t const each = blocks_for(z.width, threads);
        auto const begin = [&](int t) { return t * each < z.width ? t * each : z.width; };
        typename Block::template per_thread<T> most;
        b.phase([&](int t) {
            T own = -std::numeric_limits<T>::infinity();
            for (index_t j = begin(t); j < begin(t + 1); ++j) own = math::max(own, logits[j]);
            most[t] = own;
        });
        T const highest = b.max(most);
        b.phase([&](int t) {
            T sum{};
            for (index_t j = begin(t); j < begin(t + 1); ++j) logits[j] = sum += math::exp(logits[j] - highest);
            s.partial[t] = sum;
        });
        b.phase([&](int t) {
            if (t > 0) return;
            T before{};
            for (T& partial : s.partial) {
                T const own = partial;
                partial = before;
                before += own;
            }
            totals[row * stride] = {highest, before};
        });
        b.phase([&](int t) {
            for (index_t j = begin(t); j < begin(t + 1); ++j) logits[j] += s.partial[t];
        });
    }
};

template <block_backend Backend, class T>
void run_running_sums(context<Backend> const& ctx, chunk_total<T>* totals, index_t stride,
                      vocabulary_part<T> const& z) {
    launch(ctx, z.rows, running_sums_kernel<T>{totals, stride, z});
}

// Where a sample falls: the chunk of the vocabulary, and the offset `rest` within its cumulative sums.
struct drawn_place {
    index_t chunk;
    double rest;
};

// Sample i of a block of rows is sample i % N of row i / N, for token k of K.
struct draw_numbers {
    index_t first;  // first row of the block
    index_t N;      // samples per row
    index_t K;
    index_t k;
    // Index of the sample in (R N, K).
    [[nodiscard]] CALM_HD index_t place(index_t i) const { return (first * N + i) * K + k; }
};

template <class T> struct choose_chunk {
    drawn_place* places;
    T const* uniforms;
    chunk_total<T> const* totals;
    index_t chunks;
    draw_numbers number;
    CALM_HD void operator()(index_t i) const {
        chunk_total<T> const* const row = totals + i / number.N * chunks;
        double highest = static_cast<double>(row[0].highest);
        for (index_t c = 1; c < chunks; ++c) highest = math::max(highest, static_cast<double>(row[c].highest));
        auto const weight = [&](index_t c) { return std::exp(static_cast<double>(row[c].highest) - highest); };
        double all = 0;
        for (index_t c = 0; c < chunks; ++c) all += weight(c) * static_cast<double>(row[c].total);
        double left = static_cast<double>(uniforms[number.place(i)]) * all;
        index_t c = 0;
        for (; c + 1 < chunks && left >= weight(c) * static_cast<double>(row[c].total); ++c)
            left -= weight(c) * static_cast<double>(row[c].total);
        places[i] = {c, left / weight(c)};
    }
};

// Picks the first token of the chunk whose cumulative sum exceeds `rest`.
template <class T> struct choose_token {
    token_id* tokens;
    drawn_place const* places;
    vocabulary_part<T> z;
    index_t chunk;
    draw_numbers number;
    CALM_HD void operator()(index_t i) const {
        if (places[i].chunk != chunk) return;
        T const* const sums = z.logits + i / number.N * z.stride;
        // Rounding may make `rest` reach the total: then take the last token with nonzero probability.
        auto const last = static_cast<double>(sums[z.width - 1]);
        bool const within = places[i].rest < last;
        index_t low = 0, high = z.width - 1;
        while (low < high) {
            index_t const middle = low + (high - low) / 2;
            auto const sum = static_cast<double>(sums[middle]);
            if (within ? sum > places[i].rest : sum >= last)
                high = middle;
            else
                low = middle + 1;
        }
        tokens[number.place(i)] = static_cast<token_id>(z.first + low);
    }
};

}  // namespace calm::detail
