#pragma once
// Passes over the logits of some rows and one vocabulary chunk, in portable block form (tensor/core/kernel.hpp): one
// block per row.

#include <limits>
#include <type_traits>

#include "calm/base/token.hpp"
#include "calm/tensor/core/kernel.hpp"
#include "calm/tensor/core/math.hpp"
#include "calm/tensor/detail/kernels/block/elementwise.hpp"
#include "calm/tensor/ops/matmul.hpp"

namespace calm::detail {

// Logits (rows, width) of tokens first .. first + width - 1, with row stride `stride`. T: as they are stored.
template <class T> struct vocabulary_part {
    T* logits;
    index_t rows;
    index_t width;
    index_t first;
    index_t stride = width;
};

// Minimum row stride of `width` logits. On a device each row starts at a multiple of 16 bytes, in bf16 too.
template <class Backend> index_t stride_of_logits(index_t width) {
    return host_memory<Backend> ? 0 : (width + 7) / 8 * 8;
}

// Logits, or their gradients, as an operand of products: as stored, fp32 or bf16.
template <class Backend, class T> matrix_operand<T, dyn, dyn, Backend> logits_of(vocabulary_part<T> const& z) {
    return {{z.logits, z.rows, z.width, z.stride, false}};
}
template <class Backend> matrix_operand<float, dyn, dyn, Backend> logits_of(vocabulary_part<bf16> const& z) {
    return {{nullptr, z.rows, z.width, z.stride, false, z.logits}};
}

// Running logsumexp per row over the chunks.
template <class T> struct running_sum {
    double highest = -std::numeric_limits<double>::infinity();
    T total{};
    T target{};  // logit of the target, or mean over several
    [[nodiscard]] CALM_HD T log_sum() const { return static_cast<T>(highest) + math::log(total); }
};

// Targets of the rows, the same number for each: (R, each).
struct row_targets {
    token_id const* ids;
    index_t each;
    // Sum of the logits of the row's targets in this chunk, divided by `each`.
    template <class T, class Stored> CALM_HD T mean(index_t row, vocabulary_part<Stored> const& z) const {
        T sum{};
        for (index_t m = 0; m < each; ++m)
            if (index_t const t = ids[row * each + m] - z.first; t >= 0 && t < z.width)
                sum += static_cast<T>(z.logits[row * z.stride + t]);
        return sum / number<T>(each);
    }
};

// The sum of exp(x) over some x, held as total * exp(highest) to avoid overflow.
template <class T> struct scaled_sum {
    T highest = -std::numeric_limits<T>::infinity();  // largest x so far
    T total{};

    // Adds exp of each lane of x.
    template <class V> CALM_HD void add(V x) {
        T most = highest;
        for_lane(x, [&](T each) { most = each > most ? each : most; });
        if (most > highest) {
            total *= math::exp(highest - most);
            highest = most;
        }
        for_lane(x, [&](T each) { total += math::exp(each - highest); });
    }
    // Adds another sum.
    CALM_HD scaled_sum operator+(scaled_sum const& other) const {
        if (!(other.highest > highest)) return added(*this, other);
        return added(other, *this);
    }

private:
    template <class V, class F> CALM_HD static void for_lane(V const& x, F const& f) {
        if constexpr (grouped<V>)
            for (T const each : x.lane) f(each);
        else
            f(x);
    }
    CALM_HD static scaled_sum added(scaled_sum const& high, scaled_sum const& low) {
        // If both are empty, or both infinite, the difference would be NaN.
        T const scale = low.highest == high.highest ? T{1} : math::exp(low.highest - high.highest);
        return {high.highest, high.total + low.total * scale};
    }
};

// Adds one chunk to the running sum and loss of its row, in one pass over the logits.
template <class T, class Stored> struct add_chunk_kernel {
    static constexpr int threads = 256;
    struct shared {};
    running_sum<T>* sums;
    T* loss;
    vocabulary_part<Stored> z;
    row_targets targets;

    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t row) const {
        Stored const* const logits = z.logits + row * z.stride;
        typename Block::template per_thread<scaled_sum<T>> own;
        b.phase([&](int t) {
            scaled_sum<T> mine;
            for_groups_of<Block, computed_group<Stored>>(t, 0, z.width,
                                                         [&]<class V>(index_t j) { mine.add(load<V>(logits + j)); });
            own[t] = mine;
        });
        scaled_sum<T> const chunk = b.sum(own);
        b.phase([&](int t) {
            if (t > 0) return;
            running_sum<T> sum = z.first == 0 ? running_sum<T>{} : sums[row];
            auto const all = scaled_sum<T>{static_cast<T>(sum.highest), sum.total} + chunk;
            sum.total = all.total;
            sum.highest = static_cast<double>(all.highest);
            sum.target += targets.template mean<T>(row, z);
            loss[row] = sum.log_sum() - sum.target;
            sums[row] = sum;
        });
    }
};

// dz = scale * (softmax - fraction of the row's targets equal to the token), with the type and the row
// stride of the logits. In fp32 it may overwrite them.
template <class T, class Stored> struct chunk_gradient_kernel {
    static constexpr int threads = 256;
    struct shared {};
    Stored* dz;
    running_sum<T> const* sums;
    vocabulary_part<Stored> z;
    row_targets targets;
    T scale;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t row) const {
        Stored const* const logits = z.logits + row * z.stride;
        Stored* const to = dz + row * z.stride;
        T const shift = sums[row].log_sum();
        b.phase([&](int t) {
            for_groups_of<Block, computed_group<Stored>>(t, 0, z.width, [&]<class V>(index_t j) {
                store(to + j, math::exp(load<V>(logits + j) - splat<V>(shift)) * splat<V>(scale));
            });
        });
        b.phase([&](int t) {
            token_id const* const ids = targets.ids + row * targets.each;
            for (index_t m = t; m < targets.each; m += threads) {
                index_t const j = ids[m] - z.first;
                if (j < 0 || j >= z.width || is_there(ids, m)) continue;
                auto slope = static_cast<T>(to[j]);
                if constexpr (!std::is_same_v<T, Stored>) slope = math::exp(static_cast<T>(logits[j]) - shift) * scale;
                for (index_t other = m; other < targets.each; ++other)
                    if (ids[other] == ids[m]) slope -= scale / number<T>(targets.each);
                to[j] = static_cast<Stored>(slope);
            }
        });
    }

private:
    // Whether target m repeats an earlier target of its row.
    CALM_HD static bool is_there(token_id const* ids, index_t m) {
        for (index_t before = 0; before < m; ++before)
            if (ids[before] == ids[m]) return true;
        return false;
    }
};

// Updates best and tokens: a row's largest logit so far and its lowest index.
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
        T const* const logits = z.logits + row * z.stride;
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

template <block_backend Backend, class T, class Stored>
void run_add_chunk(context<Backend> const& ctx, running_sum<T>* sums, T* loss, vocabulary_part<Stored> const& z,
                   row_targets const& targets) {
    launch(ctx, z.rows, add_chunk_kernel<T, Stored>{sums, loss, z, targets});
}
template <block_backend Backend, class T, class Stored>
void run_chunk_gradient(context<Backend> const& ctx, Stored* dz, running_sum<T> const* sums,
                        vocabulary_part<Stored> const& z, row_targets const& targets, double scale) {
    launch(ctx, z.rows, chunk_gradient_kernel<T, Stored>{dz, sums, z, targets, static_cast<T>(scale)});
}
template <block_backend Backend, class T>
void run_best_of_chunk(context<Backend> const& ctx, token_id* tokens, T* best, vocabulary_part<T> const& z) {
    launch(ctx, z.rows, best_of_chunk_kernel<T>{tokens, best, z});
}

}  // namespace calm::detail
