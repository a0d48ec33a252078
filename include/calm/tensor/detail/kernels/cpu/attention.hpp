#pragma once
// Causal attention of one head with online softmax (Milakov and Gimelshein 2018; Dao et al. 2022): tiles of queries
// against tiles of keys, so no P x P matrix is stored. Layout and arithmetic only; the layer is nn/attention.hpp. Empty
// under nvcc.

#ifndef __CUDACC__

#include <limits>
#include <span>

#include "calm/tensor/core/copy.hpp"
#include "calm/tensor/detail/kernels/cpu/matmul.hpp"
#include "calm/tensor/detail/kernels/cpu/rows.hpp"
#include "calm/tensor/detail/ops/attention_shape.hpp"

namespace calm::detail {

inline constexpr index_t attention_tile = 64;

// scores (tq, tk) of a tile: scale q k^T, -infinity for keys after the query.
template <class T>
void attention_scores(attention_shape const& a, T* scores, T const* q, T const* k, index_t q0, index_t tq, index_t k0,
                      index_t tk) {
    serial_gemm(product<T>{tq, tk, a.head_size, scores, attention_tile, q + q0 * a.q_row, a.q_row, false,
                           k + k0 * a.kv_row, a.kv_row, true, false});
    T const scale = a.template scale<T>();
    for (index_t i = 0; i < tq; ++i) {
        index_t const visible = std::clamp<index_t>(a.keys - a.queries + q0 + i + 1 - k0, 0, tk);
        T* const row = scores + i * attention_tile;
        for_pieces<T>(0, visible, [&]<class V>(index_t j) { store(row + j, load<V>(row + j) * splat<V>(scale)); });
        std::fill(row + visible, row + tk, static_cast<T>(-std::numeric_limits<double>::infinity()));
    }
}

// o and the log of the softmax's denominator, lse (queries), of one head of one sequence.
template <class T> void attention_head(attention_shape const& a, T* o, T* lse, T const* q, T const* k, T const* v) {
    constexpr index_t tile = attention_tile;
    T scores[static_cast<std::size_t>(tile * tile)];
    for (index_t q0 = 0; q0 < a.queries; q0 += tile) {
        index_t const tq = std::min(tile, a.queries - q0);
        double highest[tile];
        T total[tile];
        std::fill_n(highest, tq, -std::numeric_limits<double>::infinity());
        std::fill_n(total, tq, T{});
        for (index_t i = 0; i < tq; ++i) std::fill_n(o + (q0 + i) * a.q_row, a.head_size, T{});
        index_t const end = std::min(a.keys, a.keys - a.queries + q0 + tq);
        for (index_t k0 = 0; k0 < end; k0 += tile) {
            index_t const tk = std::min(tile, end - k0);
            attention_scores(a, scores, q, k, q0, tq, k0, tk);
            for (index_t i = 0; i < tq; ++i) {
                T* const row = scores + i * tile;
                T* const out = o + (q0 + i) * a.q_row;
                double const now = std::max(highest[i], largest(row, tk));
                T const shift = static_cast<T>(now);
                for_pieces<T>(
                    0, tk, [&]<class V>(index_t j) { store(row + j, math::exp(load<V>(row + j) - splat<V>(shift))); });
                T const fade = static_cast<T>(std::exp(highest[i] - now));
                total[i] =
                    total[i] * fade + sum_packets<T>(tk, [&]<class V>(index_t j) -> V { return load<V>(row + j); });
                if (k0 > 0)
                    for_pieces<T>(0, a.head_size,
                                  [&]<class V>(index_t j) { store(out + j, load<V>(out + j) * splat<V>(fade)); });
                highest[i] = now;
            }
            serial_gemm(product<T>{tq, a.head_size, tk, o + q0 * a.q_row, a.q_row, scores, tile, false,
                                   v + k0 * a.kv_row, a.kv_row, false, true});
        }
        for (index_t i = 0; i < tq; ++i) {
            T* const out = o + (q0 + i) * a.q_row;
            T const inverse = T{1} / total[i];
            for_pieces<T>(0, a.head_size,
                          [&]<class V>(index_t j) { store(out + j, load<V>(out + j) * splat<V>(inverse)); });
            lse[q0 + i] = static_cast<T>(highest[i]) + math::log(total[i]);
        }
    }
}

// One head of one sequence. dq is overwritten; dk and dv accumulate (several query heads may share them).
template <class T> void attention_head_back(attention_shape const& a, attention_gradients<T> const& of) {
    constexpr index_t tile = attention_tile;
    constexpr auto area = static_cast<std::size_t>(tile * tile);
    T weights[area];
    T ds[area];
    T const scale = a.template scale<T>();
    for (index_t q0 = 0; q0 < a.queries; q0 += tile) {
        index_t const tq = std::min(tile, a.queries - q0);
        T delta[tile];
        for (index_t i = 0; i < tq; ++i) {
            delta[i] = dot(of.dout + (q0 + i) * a.q_row, of.o + (q0 + i) * a.q_row, a.head_size);
            std::fill_n(of.dq + (q0 + i) * a.q_row, a.head_size, T{});
        }
        index_t const end = std::min(a.keys, a.keys - a.queries + q0 + tq);
        for (index_t k0 = 0; k0 < end; k0 += tile) {
            index_t const tk = std::min(tile, end - k0);
            attention_scores(a, weights, of.q, of.k, q0, tq, k0, tk);
            serial_gemm(product<T>{tq, tk, a.head_size, ds, tile, of.dout + q0 * a.q_row, a.q_row, false,
                                   of.v + k0 * a.kv_row, a.kv_row, true, false});
            for (index_t i = 0; i < tq; ++i) {
                T* const w = weights + i * tile;
                T* const s = ds + i * tile;
                T const lse = of.lse[q0 + i];
                for_pieces<T>(0, tk,
                              [&]<class V>(index_t j) { store(w + j, math::exp(load<V>(w + j) - splat<V>(lse))); });
                // With all keys in one tile, this sum cancels exactly when one key has all the weight.
                if (end <= tile) delta[i] = dot(w, s, tk);
                for_pieces<T>(0, tk, [&]<class V>(index_t j) {
                    store(s + j, load<V>(w + j) * (load<V>(s + j) - splat<V>(delta[i])) * splat<V>(scale));
                });
            }
            serial_gemm(product<T>{tk, a.head_size, tq, of.dv + k0 * a.kv_row, a.kv_row, weights, tile, true,
                                   of.dout + q0 * a.q_row, a.q_row, false, true});
            serial_gemm(product<T>{tq, a.head_size, tk, of.dq + q0 * a.q_row, a.q_row, ds, tile, false,
                                   of.k + k0 * a.kv_row, a.kv_row, false, true});
            serial_gemm(product<T>{tk, a.head_size, tq, of.dk + k0 * a.kv_row, a.kv_row, ds, tile, true,
                                   of.q + q0 * a.q_row, a.q_row, false, true});
        }
    }
}

// o (overwritten) and lse (B, heads, T).
template <class T>
void run_attention(context<cpu>& ctx, attention_shape const& a, T* o, T* lse, T const* q, T const* k, T const* v) {
    ctx.parallel(a.sequences * a.heads, [&](index_t task) {
        index_t const at = a.q_start(task / a.heads, task % a.heads);
        index_t const kv = a.kv_start(task / a.heads, task % a.heads / a.group());
        attention_head(a, o + at, lse + task * a.queries, q + at, k + kv, v + kv);
    });
}

// Attention against a cache: the queries of sequence i come after the positions that it already has.
template <class T>
void run_cached_attention(context<cpu>& ctx, attention_shape const& a,
                          mirrored_span<cached_sequence, cpu> const& sequences, T* o, T* lse, T const* q, T const* k,
                          T const* v) {
    ctx.parallel(a.sequences * a.heads, [&](index_t task) {
        index_t const i = task / a.heads;
        auto const& of = sequences.here[static_cast<std::size_t>(i)];
        attention_shape one = a;
        one.keys = of.length + a.queries;
        index_t const at = a.q_start(i, task % a.heads);
        index_t const kv = a.kv_start(of.sequence, task % a.heads / a.group());
        attention_head(one, o + at, lse + task * a.queries, q + at, k + kv, v + kv);
    });
}

template <class T>
void run_attention_back(context<cpu>& ctx, attention_shape const& a, attention_gradients<T> const& all) {
    ctx.parallel(a.sequences * a.kv_heads, [&](index_t task) {
        index_t const b = task / a.kv_heads;
        index_t const kv = a.kv_start(b, task % a.kv_heads);
        for (index_t p = 0; p < a.keys; ++p) {
            std::fill_n(all.dk + kv + p * a.kv_row, a.head_size, T{});
            std::fill_n(all.dv + kv + p * a.kv_row, a.head_size, T{});
        }
        for (index_t h = task % a.kv_heads * a.group(); h < (task % a.kv_heads + 1) * a.group(); ++h) {
            index_t const at = a.q_start(b, h);
            attention_head_back<T>(a, {.dq = all.dq + at,
                                       .dk = all.dk + kv,
                                       .dv = all.dv + kv,
                                       .dout = all.dout + at,
                                       .o = all.o + at,
                                       .lse = all.lse + (b * a.heads + h) * a.queries,
                                       .q = all.q + at,
                                       .k = all.k + kv,
                                       .v = all.v + kv});
        }
    });
}

}  // namespace calm::detail

#endif
