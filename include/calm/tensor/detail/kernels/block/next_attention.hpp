#pragma once
// Decoding attention, one new position per sequence, as portable block kernels. One block per piece of a head's keys,
// so that a long context keeps the whole device busy; then one block per head combines the pieces. Pieces begin at
// fixed positions, so the result's bits do not depend on the cache's capacity.

#include <limits>

#include "calm/tensor/core/kernel.hpp"
#include "calm/tensor/core/math.hpp"
#include "calm/tensor/detail/ops/attention_shape.hpp"

namespace calm::detail {

inline constexpr int next_attention_threads = 128;

// The new position of a head of a sequence: which keys it sees, and their offsets.
struct next_position {
    index_t keys;   // how many it sees, its own last
    index_t q_at;   // offset of the head in q and in o
    index_t kv_at;  // offset of the head's first key and value
    CALM_HD next_position(attention_shape const& a, cached_sequence const& own, index_t i, index_t head) :
        keys(own.length + 1), q_at(a.q_start(i, head)), kv_at(a.kv_start(own.sequence, head / a.group())) {}
};

// For a piece of keys: the highest score, the sum of exp(score - highest), and the values (head_size) weighted by that
// exponential. Stored contiguously in this order.
template <class T> struct attention_pieces {
    static constexpr index_t keys = next_attention_threads;  // per piece: one per thread
    T* memory;
    index_t count;  // pieces per head
    index_t head_size;
    [[nodiscard]] CALM_HD T* of(index_t head, index_t piece) const {
        return memory + (head * count + piece) * (head_size + 2);
    }
};

template <class T> struct attend_to_piece_kernel {
    using run = group_of<T>;
    static constexpr int threads = next_attention_threads;
    static constexpr int most_of_head = threads * lanes<run>;
    struct shared {
        alignas(16) T q[most_of_head];
        T weight[threads];
        run partial[threads];
    };
    attention_shape a;
    attention_pieces<T> pieces;  // unused with one piece per head: that is the result
    T* o;
    T* lse;
    T const* q;
    T const* k;
    T const* v;
    cached_sequence const* sequences;

    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t block) const {
        index_t const head = block / pieces.count;  // counted over all sequences
        index_t const i = head / a.heads;
        next_position const at(a, sequences[i], i, head % a.heads);
        index_t const first = block % pieces.count * threads;
        if (first >= at.keys) return;
        auto const count = static_cast<int>(math::min<index_t>(threads, at.keys - first));
        T const scale = a.template scale<T>();
        b.phase([&](int t) {
            for (index_t l = t; l < a.head_size; l += threads) s.q[l] = q[at.q_at + l] * scale;
        });
        typename Block::template per_thread<T> score, weight;
        b.each([&](int t) {
            T total = -std::numeric_limits<T>::infinity();
            if (t < count) {
                T const* const key = k + at.kv_at + (first + t) * a.kv_row;
                run sums{};
                for (index_t l = 0; l < a.head_size; l += lanes<run>) sums += load<run>(key + l) * load<run>(s.q + l);
                total = calm::sum(sums);
            }
            score[t] = total;
        });
        T const highest = b.max(score);
        b.phase([&](int t) { weight[t] = s.weight[t] = t < count ? math::exp(score[t] - highest) : T{}; });
        T const total = b.sum(weight);
        // `across` threads cover the columns of the values; `down` of them share the rows.
        auto const across = static_cast<int>(a.head_size) / lanes<run>;
        int const down = threads / across;
        b.phase([&](int t) {
            run sums{};
            if (t < across * down)
                for (int j = t / across; j < count; j += down)
                    sums +=
                        load<run>(v + at.kv_at + (first + j) * a.kv_row + t % across * lanes<run>) * run(s.weight[j]);
            s.partial[t] = sums;
        });
        bool const is_all = pieces.count == 1;
        T* const to = is_all ? o + at.q_at : pieces.of(head, block % pieces.count) + 2;
        b.phase([&](int t) {
            if (t == 0 && is_all) lse[head] = highest + math::log(total);
            if (t == 0 && !is_all) to[-2] = highest, to[-1] = total;
            if (t >= across) return;
            run sums = s.partial[t];
            for (int row = 1; row < down; ++row) sums += s.partial[row * across + t];
            for (int l = 0; l < lanes<run>; ++l) to[t * lanes<run> + l] = is_all ? sums.lane[l] / total : sums.lane[l];
        });
    }
};

// Combines the pieces of a head: o (overwritten) and lse.
template <class T> struct join_pieces_kernel {
    static constexpr int threads = next_attention_threads;
    struct shared {};
    attention_shape a;
    attention_pieces<T> pieces;
    T* o;
    T* lse;
    cached_sequence const* sequences;

    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t head) const {
        index_t const i = head / a.heads;
        next_position const at(a, sequences[i], i, head % a.heads);
        index_t const count = blocks_for(at.keys, pieces.keys);
        b.phase([&](int t) {
            T highest = -std::numeric_limits<T>::infinity();
            for (index_t p = 0; p < count; ++p) highest = larger_of_two{}(highest, pieces.of(head, p)[0]);
            T total{};
            for (index_t p = 0; p < count; ++p) total += pieces.of(head, p)[1] * weight(head, p, highest);
            for (index_t l = t; l < a.head_size; l += threads) {
                T sum{};
                for (index_t p = 0; p < count; ++p) sum += pieces.of(head, p)[2 + l] * weight(head, p, highest);
                o[at.q_at + l] = sum / total;
            }
            if (t == 0) lse[head] = highest + math::log(total);
        });
    }

private:
    CALM_HD T weight(index_t head, index_t piece, T highest) const {
        return math::exp(pieces.of(head, piece)[0] - highest);
    }
};

// Whether this kernel applies: one query per sequence, and heads of whole 16-byte groups that are not too large.
template <class T> bool is_next_position(attention_shape const& a) {
    constexpr index_t run = lanes<group_of<T>>;
    return a.queries == 1 && a.head_size % run == 0 && a.head_size <= attend_to_piece_kernel<T>::most_of_head;
}

// Attention of one query row per sequence against a cache.
template <block_backend Backend, class T>
void run_next_attention(context<Backend>& ctx, attention_shape const& a, cached_sequence const* sequences, T* o, T* lse,
                        T const* q, T const* k, T const* v) {
    arena_scope const scope(ctx.workspace);
    index_t const heads = a.sequences * a.heads;
    index_t const room = a.kv_sequence / a.kv_row;  // positions
    index_t const count = blocks_for(room, attention_pieces<T>::keys);
    auto const memory = ctx.workspace.template take<T>(extents<dyn>(heads * count * (a.head_size + 2)));
    attention_pieces<T> const pieces{memory.data(), count, a.head_size};
    launch(ctx, heads * count, attend_to_piece_kernel<T>{a, pieces, o, lse, q, k, v, sequences});
    if (count > 1) launch(ctx, heads, join_pieces_kernel<T>{a, pieces, o, lse, sequences});
}

}  // namespace calm::detail
