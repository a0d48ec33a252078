#pragma once
// Causal attention with online softmax (Milakov and Gimelshein 2018; Dao et al. 2022) as portable block kernels: tiles
// of queries against tiles of keys, heads of any size in slices, no P x P matrix. Backward recomputes the weights
// twice, once for dq and once for dk and dv, so that one block adds up each sum in a fixed order.

#include <limits>

#include "calm/tensor/core/copy.hpp"
#include "calm/tensor/core/kernel.hpp"
#include "calm/tensor/core/math.hpp"
#include "calm/tensor/detail/kernels/block/next_attention.hpp"
#include "calm/tensor/detail/ops/attention_shape.hpp"

namespace calm::detail {

// A tile of queries, a tile of keys, and the threads' work on slices of their rows.
template <class T> struct attention_tile_of {
    static constexpr int threads = 128;
    static constexpr int queries = 16;
    static constexpr int keys = 32;
    static constexpr int slice = 32;  // head elements per slice
    // Query-key pairs per thread: rows t / keys + i * (threads / keys).
    static constexpr int each = queries * keys / threads;
    static constexpr int apart = threads / keys;
    using run = group_of<T>;  // one copy or read; padding each row by one run avoids bank conflicts
    template <int Rows> struct alignas(16) rows { T of[Rows][slice + lanes<run>]; };
    struct pairs {
        T of[each];
    };

    // Combines the pairs of two threads, element by element.
    template <class Combine> struct of_pairs {
        Combine combine;
        CALM_HD pairs operator()(pairs const& x, pairs const& y) const {
            pairs both;
            for (int i = 0; i < each; ++i) both.of[i] = combine(x.of[i], y.of[i]);
            return both;
        }
    };
    template <class Combine> CALM_HD static of_pairs<Combine> by_pairs(Combine const& combine) { return {combine}; }

    // Starts copying a slice, from element `first`, of the rows of x (count, size) into `to`; elements outside x are
    // zero.
    template <class Block, int Rows>
    CALM_HD static void copy(Block& b, rows<Rows>& to, T const* x, index_t stride, index_t count, index_t size,
                             index_t first, int t) {
        for (int e = t * lanes<run>; e < Rows * slice; e += threads * lanes<run>) {
            int const row = e / slice;
            int const l = e % slice;
            T const* const from = x + row * stride + first + l;
            copy_first(b, &to.of[row][l], from, row < count ? size - first - l : 0, lanes<run>);
        }
    }
    // sum += query rows times key rows, for the pairs of thread t.
    CALM_HD static void add_products(pairs& sum, rows<queries> const& x, rows<keys> const& y, int t) {
        for (int l = 0; l < slice; l += lanes<run>) {
            auto const v = calm::load<run>(&y.of[t % keys][l]);
            for (int i = 0; i < each; ++i) {
                auto const u = calm::load<run>(&x.of[t / keys + i * apart][l]);
                for (int k = 0; k < lanes<run>; ++k) sum.of[i] += u.lane[k] * v.lane[k];
            }
        }
    }
};

// Forward: o (overwritten) and lse. One block per tile of queries of one head of one sequence.
template <class T> struct attention_kernel {
    using tile = attention_tile_of<T>;
    static constexpr int threads = tile::threads;
    struct shared {
        typename tile::template rows<tile::queries> q[2];
        typename tile::template rows<tile::keys> k[2];  // keys, then values
        T weight[tile::queries][tile::keys + 1];
        T highest[tile::queries];
        T total[tile::queries];
        T fade[tile::queries];
    };
    attention_shape a;
    T* o;
    T* lse;
    T const* q;
    T const* k;
    T const* v;
    cached_sequence const* sequences;  // cached sequences that k and v belong to; null: k and v have q's sequences

    // A tile of queries: its size and its offsets in memory.
    struct queries {
        index_t rows;      // at most tile::queries
        index_t at;        // offset of the first query in q and o
        index_t kv_at;     // offset of the head's first key and value
        index_t position;  // of the first query, among the keys
        [[nodiscard]] CALM_HD index_t end() const { return position + rows; }  // number of keys that the tile sees
    };

    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t block) const {
        index_t const tiles = blocks_for(a.queries, tile::queries);
        index_t const head = block / tiles;  // counted over all sequences
        index_t const q0 = block % tiles * tile::queries;
        index_t const i = head / a.heads;
        cached_sequence const own = sequences != nullptr ? sequences[i] : cached_sequence{i, a.keys - a.queries};
        queries const of{math::min<index_t>(tile::queries, a.queries - q0), a.q_start(i, head % a.heads) + q0 * a.q_row,
                         a.kv_start(own.sequence, head % a.heads / a.group()), own.length + q0};
        b.phase([&](int t) {
            if (t >= tile::queries) return;
            s.highest[t] = -std::numeric_limits<T>::infinity();
            s.total[t] = T{};
        });
        for (index_t k0 = 0; k0 < of.end(); k0 += tile::keys) {
            weigh(b, s, score(b, s, of, k0));
            add_values(b, s, of, k0);
        }
        b.phase([&](int t) {
            if (t < of.rows) lse[head * a.queries + q0 + t] = s.highest[t] + math::log(s.total[t]);
        });
    }

    // Scaled scores of the queries against keys k0 .., -infinity for keys after the query.
    template <class Block> CALM_HD auto score(Block& b, shared& s, queries const& of, index_t k0) const {
        index_t const count = math::min<index_t>(tile::keys, of.end() - k0);
        T const scale = a.template scale<T>();
        typename Block::template per_thread<typename tile::pairs> score;
        b.phase([&](int t) { score[t] = {}; });
        auto const start = [&](int t, index_t l, int place) {
            tile::copy(b, s.q[place], q + of.at, a.q_row, of.rows, a.head_size, l, t);
            tile::copy(b, s.k[place], k + of.kv_at + k0 * a.kv_row, a.kv_row, count, a.head_size, l, t);
        };
        for_slices(b, a.head_size, tile::slice, start,
                   [&](int t, index_t, int place) { tile::add_products(score[t], s.q[place], s.k[place], t); });
        b.phase([&](int t) {
            for (int i = 0; i < tile::each; ++i) {
                int const row = t / tile::keys + i * tile::apart;
                bool const seen = k0 + t % tile::keys <= of.position + row;
                score[t].of[i] = seen ? score[t].of[i] * scale : -std::numeric_limits<T>::infinity();
            }
        });
        return score;
    }

    // weight = exp(score - highest), with the running maximum; earlier sums are rescaled by `fade` when it rises. A
    // warp holds whole rows of scores.
    template <class Block, class Scores> CALM_HD void weigh(Block& b, shared& s, Scores const& score) const {
        static_assert(tile::keys == warp_size);
        auto const most = b.fold_warps(score, tile::by_pairs(larger_of_two{}));
        typename Block::template per_thread<typename tile::pairs> now;
        typename Block::template per_thread<typename tile::pairs> weight;
        b.phase([&](int t) {
            for (int i = 0; i < tile::each; ++i) {
                int const row = t / tile::keys + i * tile::apart;
                now[t].of[i] = larger_of_two{}(s.highest[row], most[t].of[i]);
                s.weight[row][t % tile::keys] = weight[t].of[i] = math::exp(score[t].of[i] - now[t].of[i]);
            }
        });
        auto const total = b.fold_warps(weight, tile::by_pairs(sum_of_two{}));
        b.phase([&](int t) {
            if (t % tile::keys != 0) return;
            for (int i = 0; i < tile::each; ++i) {
                int const row = t / tile::keys + i * tile::apart;
                s.fade[row] = math::exp(s.highest[row] - now[t].of[i]);
                s.highest[row] = now[t].of[i];
                s.total[row] = s.total[row] * s.fade[row] + total[t].of[i];
            }
        });
    }

    // o = o * fade + weights times values k0 ..; divided by the total after the last tile.
    template <class Block> CALM_HD void add_values(Block& b, shared& s, queries const& of, index_t k0) const {
        index_t const count = math::min<index_t>(tile::keys, of.end() - k0);
        auto const start = [&](int t, index_t l, int place) {
            tile::copy(b, s.k[place], v + of.kv_at + k0 * a.kv_row, a.kv_row, count, a.head_size, l, t);
        };
        for_slices(b, a.head_size, tile::slice, start, [&](int t, index_t l, int place) {
            for (int e = t; e < tile::queries * tile::slice; e += threads) {
                int const row = e / tile::slice;
                int const column = e % tile::slice;
                if (row >= of.rows || l + column >= a.head_size) continue;
                T sum{};
                for (int j = 0; j < tile::keys; ++j) sum += s.weight[row][j] * s.k[place].of[j][column];
                T& out = o[of.at + row * a.q_row + l + column];
                out = k0 > 0 ? out * s.fade[row] + sum : sum;
                if (k0 + tile::keys >= of.end()) out = out / s.total[row];
            }
        });
    }
};

// Inputs of backward; recomputes a tile's weights and score gradients from them.
template <class T> struct score_gradients {
    using tile = attention_tile_of<T>;
    struct shared {
        typename tile::template rows<tile::queries> q[2];
        typename tile::template rows<tile::queries> dout[2];
        typename tile::template rows<tile::keys> k[2];
        typename tile::template rows<tile::keys> v[2];
        T weight[tile::queries][tile::keys + 1];
        T slope[tile::queries][tile::keys + 1];
    };
    attention_shape a;
    T const* dout;
    T const* lse;
    T const* delta;  // (B, heads, P): dot products of dout and o
    T const* q;
    T const* k;
    T const* v;

    // Weights and score gradients of queries q0 .. of a head (offset q_at) and keys k0 .. of a key head (offset kv_at).
    template <class Block>
    CALM_HD void make(Block& b, shared& s, index_t head, index_t q_at, index_t q0, index_t kv_at, index_t k0) const {
        index_t const rows = math::min<index_t>(tile::queries, a.queries - q0);
        index_t const count = math::min<index_t>(tile::keys, a.keys - k0);
        typename Block::template per_thread<typename tile::pairs> score;
        typename Block::template per_thread<typename tile::pairs> slope;
        b.phase([&](int t) { score[t] = slope[t] = {}; });
        auto const start = [&](int t, index_t l, int place) {
            copy_queries(b, s, q_at + q0 * a.q_row, rows, l, t, place);
            tile::copy(b, s.k[place], k + kv_at + k0 * a.kv_row, a.kv_row, count, a.head_size, l, t);
            tile::copy(b, s.v[place], v + kv_at + k0 * a.kv_row, a.kv_row, count, a.head_size, l, t);
        };
        for_slices(b, a.head_size, tile::slice, start, [&](int t, index_t, int place) {
            tile::add_products(score[t], s.q[place], s.k[place], t);
            tile::add_products(slope[t], s.dout[place], s.v[place], t);
        });
        T const scale = a.template scale<T>();
        b.phase([&](int t) {
            for (int i = 0; i < tile::each; ++i) {
                int const row = t / tile::keys + i * tile::apart;
                int const column = t % tile::keys;
                bool const seen = row < rows && column < count && k0 + column <= a.keys - a.queries + q0 + row;
                index_t const at = head * a.queries + q0 + row;
                // Clamped to at most 1: a huge score may be rounded differently from the forward pass.
                T const weight = seen ? math::exp(math::min(score[t].of[i] * scale - lse[at], T{})) : T{};
                s.weight[row][column] = weight;
                s.slope[row][column] = seen ? weight * (slope[t].of[i] - delta[at]) * scale : T{};
            }
        });
    }
    // Starts copying elements l .. of the queries at offset `at`, and of their output gradients.
    template <class Block>
    CALM_HD void copy_queries(Block& b, shared& s, index_t at, index_t rows, index_t l, int t, int place) const {
        tile::copy(b, s.q[place], q + at, a.q_row, rows, a.head_size, l, t);
        tile::copy(b, s.dout[place], dout + at, a.q_row, rows, a.head_size, l, t);
    }
};

// dq (overwritten): one block per tile of queries.
template <class T> struct attention_query_kernel {
    using tile = attention_tile_of<T>;
    static constexpr int threads = tile::threads;
    using shared = typename score_gradients<T>::shared;
    score_gradients<T> from;
    T* dq;

    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t block) const {
        attention_shape const& a = from.a;
        index_t const tiles = blocks_for(a.queries, tile::queries);
        index_t const head = block / tiles;
        index_t const q0 = block % tiles * tile::queries;
        index_t const rows = math::min<index_t>(tile::queries, a.queries - q0);
        index_t const q_at = a.q_start(head / a.heads, head % a.heads);
        index_t const kv_at = a.kv_start(head / a.heads, head % a.heads / a.group());
        index_t const end = a.keys - a.queries + q0 + rows;
        for (index_t k0 = 0; k0 < end; k0 += tile::keys) {
            index_t const count = math::min<index_t>(tile::keys, a.keys - k0);
            from.make(b, s, head, q_at, q0, kv_at, k0);
            auto const start = [&](int t, index_t l, int place) {
                tile::copy(b, s.k[place], from.k + kv_at + k0 * a.kv_row, a.kv_row, count, a.head_size, l, t);
            };
            for_slices(b, a.head_size, tile::slice, start, [&](int t, index_t l, int place) {
                for (int e = t; e < tile::queries * tile::slice; e += threads) {
                    int const row = e / tile::slice;
                    int const column = e % tile::slice;
                    if (row >= rows || l + column >= a.head_size) continue;
                    T sum{};
                    for (int j = 0; j < tile::keys; ++j) sum += s.slope[row][j] * s.k[place].of[j][column];
                    T& out = dq[q_at + (q0 + row) * a.q_row + l + column];
                    out = k0 > 0 ? out + sum : sum;
                }
            });
        }
    }
};

// dk and dv (overwritten): one block per tile of keys of one key head, summed over the query heads that read it.
template <class T> struct attention_key_kernel {
    using tile = attention_tile_of<T>;
    static constexpr int threads = tile::threads;
    using shared = typename score_gradients<T>::shared;
    score_gradients<T> from;
    T* dk;
    T* dv;

    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t block) const {
        attention_shape const& a = from.a;
        index_t const tiles = blocks_for(a.keys, tile::keys);
        index_t const sequence = block / tiles / a.kv_heads;
        index_t const kv_head = block / tiles % a.kv_heads;
        index_t const k0 = block % tiles * tile::keys;
        index_t const count = math::min<index_t>(tile::keys, a.keys - k0);
        index_t const kv_at = a.kv_start(sequence, kv_head);
        // The first query that sees one of the keys.
        index_t const first = math::max<index_t>(0, k0 - (a.keys - a.queries));
        b.phase([&](int t) {
            for (index_t e = t; e < count * a.head_size; e += threads) {
                index_t const at = kv_at + (k0 + e / a.head_size) * a.kv_row + e % a.head_size;
                dk[at] = dv[at] = T{};
            }
        });
        for (index_t h = kv_head * a.group(); h < (kv_head + 1) * a.group(); ++h) {
            index_t const q_at = a.q_start(sequence, h);
            for (index_t q0 = first / tile::queries * tile::queries; q0 < a.queries; q0 += tile::queries) {
                index_t const rows = math::min<index_t>(tile::queries, a.queries - q0);
                from.make(b, s, sequence * a.heads + h, q_at, q0, kv_at, k0);
                auto const start = [&](int t, index_t l, int place) {
                    from.copy_queries(b, s, q_at + q0 * a.q_row, rows, l, t, place);
                };
                for_slices(b, a.head_size, tile::slice, start, [&](int t, index_t l, int place) {
                    for (int e = t; e < tile::keys * tile::slice; e += threads) {
                        int const row = e / tile::slice;
                        int const column = e % tile::slice;
                        if (row >= count || l + column >= a.head_size) continue;
                        T of_key{};
                        T of_value{};
                        for (int i = 0; i < tile::queries; ++i) {
                            of_key += s.slope[i][row] * s.q[place].of[i][column];
                            of_value += s.weight[i][row] * s.dout[place].of[i][column];
                        }
                        index_t const at = kv_at + (k0 + row) * a.kv_row + l + column;
                        dk[at] += of_key;
                        dv[at] += of_value;
                    }
                });
            }
        }
    }
};

// delta (B, heads, P) = dot(dout, o), summed in the order of the scores' products, so that terms cancel exactly when
// one key has all the weight.
template <class T> struct attention_delta_kernel {
    static constexpr int threads = 128;
    struct shared {};
    attention_shape a;
    T* delta;
    T const* dout;
    T const* o;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            index_t const i = block * threads + t;
            if (i >= a.sequences * a.heads * a.queries) return;
            index_t const head = i / a.queries;
            index_t const at = a.q_start(head / a.heads, head % a.heads) + i % a.queries * a.q_row;
            T sum{};
            for (index_t l = 0; l < a.head_size; ++l) sum += dout[at + l] * o[at + l];
            delta[i] = sum;
        });
    }
};

template <block_backend Backend, class T>
void run_attention(context<Backend>& ctx, attention_shape const& a, T* o, T* lse, T const* q, T const* k, T const* v) {
    index_t const tiles = blocks_for(a.queries, attention_tile_of<T>::queries);
    launch(ctx, a.sequences * a.heads * tiles, attention_kernel<T>{a, o, lse, q, k, v, nullptr});
}

// Attention against a cache: the queries of sequence i come after the positions that it already has.
template <block_backend Backend, class T>
void run_cached_attention(context<Backend>& ctx, attention_shape const& a,
                          mirrored_span<cached_sequence, Backend> const& sequences, T* o, T* lse, T const* q,
                          T const* k, T const* v) {
    if (is_next_position<T>(a)) return run_next_attention(ctx, a, sequences.there, o, lse, q, k, v);
    index_t const tiles = blocks_for(a.queries, attention_tile_of<T>::queries);
    launch(ctx, a.sequences * a.heads * tiles, attention_kernel<T>{a, o, lse, q, k, v, sequences.there});
}

template <block_backend Backend, class T>
void run_attention_back(context<Backend>& ctx, attention_shape const& a, attention_gradients<T> const& of) {
    using tile = attention_tile_of<T>;
    index_t const heads = a.sequences * a.heads;
    arena_scope const scope(ctx.workspace);
    auto const delta = ctx.workspace.template take<T>(extents<dyn>(heads * a.queries));
    launch(ctx, blocks_for(heads * a.queries, attention_delta_kernel<T>::threads),
           attention_delta_kernel<T>{a, delta.data(), of.dout, of.o});
    score_gradients<T> const from{a, of.dout, of.lse, delta.data(), of.q, of.k, of.v};
    launch(ctx, heads * blocks_for(a.queries, tile::queries), attention_query_kernel<T>{from, of.dq});
    launch(ctx, a.sequences * a.kv_heads * blocks_for(a.keys, tile::keys), attention_key_kernel<T>{from, of.dk, of.dv});
}

}  // namespace calm::detail
