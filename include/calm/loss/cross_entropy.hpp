#pragma once
// The vocabulary: logits x E^T of rows x (R, D) against a table E (V, D). They are formed for a block of rows and a
// chunk of the vocabulary at a time, and never stored whole.

#include <limits>

#include "calm/tensor/matmul.hpp"
#include "calm/tensor/rows.hpp"
#include "calm/text/token.hpp"

namespace calm {

namespace detail {

inline constexpr index_t vocabulary_rows = 256;    // a block
inline constexpr index_t vocabulary_chunk = 4096;  // tokens of the vocabulary

// Running logsumexp of a row over chunks.
template <class T> struct running_sum {
    double highest = -std::numeric_limits<double>::infinity();
    T total{};
    T target{};  // the target's logit

    void add(T const* logits, index_t n) {
        double const now = std::max(highest, largest(logits, n));
        T const shift = static_cast<T>(now);
        total = total * static_cast<T>(std::exp(highest - now)) + sum_packets<T>(n, [&]<class V>(index_t j) -> V {
                    return math::exp(load<V>(logits + j) - splat<V>(shift));
                });
        highest = now;
    }
    [[nodiscard]] T log_sum() const { return static_cast<T>(highest) + math::log(total); }
};

// The lowest index of the largest of n numbers.
template <class T> index_t first_largest(T const* x, index_t n) {
    constexpr index_t block = 64;
    double most = -std::numeric_limits<double>::infinity();
    index_t first = 0;  // of the block that has it
    for (index_t i = 0; i < n; i += block)
        if (double const here = largest(x + i, std::min(block, n - i)); here > most) {
            most = here;
            first = i;
        }
    for (index_t i = first; i < std::min(n, first + block); ++i)
        if (real_part(x[i]) == most) return i;
    return first;
}

}  // namespace detail

// Sum over the rows of -log softmax(x E^T)[target]; divide by R for the mean. loss (R) gets one value a row.
// If dx (R, D) is not null it is overwritten, and dtable (V, D) accumulates, with the gradients of scale * sum of the
// rows' losses. Throws errc::tokenizer for a target outside the vocabulary.
template <class T, index_t D>
void cross_entropy(context<cpu>& ctx, vector_view<T> const& loss, matrix_view<T, D> const& dx,
                   matrix_view<T, D> const& dtable, matrix_view<T const, D> const& x,
                   matrix_view<T const, D> const& table, vector_view<token_id const> const& targets, double scale) {

    index_t const vocabulary = table.extent(0);
    bool const backward = dx.data() != nullptr;
    require(targets.size() == x.extent(0), errc::usage, [&] {
        return "calm::cross_entropy: expected one target a row, found " + std::to_string(targets.size()) +
               " targets and " + std::to_string(x.extent(0)) + " rows";
    });
    if (!ctx.rehearsing())
        for (token_id const t : targets)
            require(t >= 0 && t < vocabulary, errc::tokenizer, [&] {
                return "calm::cross_entropy: target " + std::to_string(t) + " is outside a vocabulary of " +
                       std::to_string(vocabulary) + "; was the text encoded with another tokenizer?";
            });
    arena_scope const scope(ctx.scratch);
    index_t const block = std::min(detail::vocabulary_rows, x.extent(0));
    index_t const width = std::min(detail::vocabulary_chunk, vocabulary);
    auto const logits = ctx.scratch.template take<T>(extents<dyn, dyn>(block, width));
    auto const sums = ctx.scratch.template take<detail::running_sum<T>>(extents<dyn>(block));
    for (index_t r0 = 0; r0 < x.extent(0); r0 += block) {
        index_t const n = std::min(block, x.extent(0) - r0);
        auto const xr = rows(x, r0, n);
        auto const chunk_of = [&](index_t v0) {
            index_t const v = std::min(width, vocabulary - v0);
            return view<T, extents<dyn, dyn>>(logits.data(), extents<dyn, dyn>(n, v));
        };
        ctx.parallel(1, [&](index_t) { std::fill_n(sums.data(), n, detail::running_sum<T>{}); });
        for (index_t v0 = 0; v0 < vocabulary; v0 += width) {
            auto const z = chunk_of(v0);
            matmul(ctx, z, xr, transposed(rows(table, v0, z.extent(1))));
            ctx.parallel_ranges(n, 16, [&](index_t begin, index_t end) {
                for (index_t i = begin; i < end; ++i) {
                    T const* const row = z.data() + i * z.extent(1);
                    sums[i].add(row, z.extent(1));
                    if (index_t const t = targets[r0 + i] - v0; t >= 0 && t < z.extent(1)) sums[i].target = row[t];
                }
            });
        }
        ctx.parallel(1, [&](index_t) {
            for (index_t i = 0; i < n; ++i) loss[r0 + i] = sums[i].log_sum() - sums[i].target;
        });
        if (!backward) continue;
        for (index_t v0 = 0; v0 < vocabulary; v0 += width) {
            auto const z = chunk_of(v0);
            auto const e = rows(table, v0, z.extent(1));
            if (vocabulary > width) matmul(ctx, z, xr, transposed(e));  // otherwise still there
            ctx.parallel_ranges(n, 16, [&](index_t begin, index_t end) {
                for (index_t i = begin; i < end; ++i) {
                    T* const row = z.data() + i * z.extent(1);
                    T const shift = sums[i].log_sum();
                    detail::for_packets<T>(0, z.extent(1), [&]<class V>(index_t j) {
                        store(row + j, math::exp(load<V>(row + j) - splat<V>(shift)) * splat<V>(static_cast<T>(scale)));
                    });
                    if (index_t const t = targets[r0 + i] - v0; t >= 0 && t < z.extent(1))
                        row[t] -= static_cast<T>(scale);
                }
            });
            matmul(ctx, rows(dx, r0, n), z, e, v0 == 0 ? into::overwrite : into::accumulate);
            matmul(ctx, rows(dtable, v0, z.extent(1)), transposed(z), xr, into::accumulate);
        }
    }
}

// tokens (R) = argmax of x E^T, the lowest index where several are largest. Memory: one block of rows by one chunk.
template <class T, index_t D>
void argmax_token(context<cpu>& ctx, vector_view<token_id> const& tokens, matrix_view<T const, D> const& x,
                  matrix_view<T const, D> const& table) {

    index_t const vocabulary = table.extent(0);
    require(vocabulary > 0, errc::usage, "calm::argmax_token: the vocabulary is empty");
    arena_scope const scope(ctx.scratch);
    index_t const block = std::min(detail::vocabulary_rows, x.extent(0));
    index_t const width = std::min(detail::vocabulary_chunk, vocabulary);
    auto const logits = ctx.scratch.template take<T>(extents<dyn, dyn>(block, width));
    auto const best = ctx.scratch.template take<T>(extents<dyn>(block));
    for (index_t r0 = 0; r0 < x.extent(0); r0 += block) {
        index_t const n = std::min(block, x.extent(0) - r0);
        for (index_t v0 = 0; v0 < vocabulary; v0 += width) {
            view<T, extents<dyn, dyn>> const z(logits.data(), extents<dyn, dyn>(n, std::min(width, vocabulary - v0)));
            matmul(ctx, z, rows(x, r0, n), transposed(rows(table, v0, z.extent(1))));
            ctx.parallel_ranges(n, 16, [&](index_t begin, index_t end) {
                for (index_t i = begin; i < end; ++i) {
                    T const* const row = z.data() + i * z.extent(1);
                    index_t const j = detail::first_largest(row, z.extent(1));
                    if (v0 > 0 && !(detail::real_part(row[j]) > detail::real_part(best[i]))) continue;
                    best[i] = row[j];
                    tokens[r0 + i] = static_cast<token_id>(v0 + j);
                }
            });
        }
    }
}

}  // namespace calm
