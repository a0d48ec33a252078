#pragma once
// Rotary embeddings as portable block kernels.

#include "calm/base/bf16.hpp"
#include "calm/tensor/core/copy.hpp"
#include "calm/tensor/core/kernel.hpp"
#include "calm/tensor/core/math.hpp"
#include "calm/tensor/detail/core/group.hpp"
#include "calm/tensor/detail/ops/attention_shape.hpp"
#include "calm/tensor/detail/ops/positions.hpp"

namespace calm::detail {

// Pairs first .. first + count - 1 of every head. Their frequencies are kernel arguments, so nothing is copied to a
// device and nothing waits.
struct pairs_of_heads {
    static constexpr index_t most = 128;
    index_t first, count;
    float frequencies[most];
};

// Calls f(pairs) in batches that cover all pairs of a head.
template <class F> void for_pairs(rotation const& to, F const& f) {
    index_t const half = to.head_size / 2;
    for (index_t first = 0; first < half; first += pairs_of_heads::most) {
        pairs_of_heads of{first, std::min(pairs_of_heads::most, half - first), {}};
        for (index_t i = 0; i < of.count; ++i) of.frequencies[i] = to.frequency(first + i);
        f(of);
    }
}

// The rotation of some neighbouring pairs of a head at one position.
template <class T, int Pairs> struct turn_of_pairs {
    using numbers = group<computed_in<T>, Pairs>;
    numbers c, s;
    index_t half;  // of a head: the distance within a pair

    CALM_HD turn_of_pairs(rotation const& to, index_t position, float const* turns) : half(to.head_size / 2) {
        for (int l = 0; l < Pairs; ++l) {
            auto const angle = rotation::at(position, turns[l]);
            c.lane[l] = static_cast<computed_in<T>>(angle.cosine);
            s.lane[l] = static_cast<computed_in<T>>(to.direction * static_cast<double>(angle.sine));
        }
    }
    // y, which may be x, becomes the rotated pairs that begin at x.
    CALM_HD void operator()(T* y, T const* x) const {
        auto const u = load_group<computed_in<T>, Pairs>(x);
        auto const w = load_group<computed_in<T>, Pairs>(x + half);
        store_group(y, u * c - w * s);
        store_group(y + half, w * c + u * s);
    }
};

// A thread rotates `Pairs` neighbouring pairs of some heads in one row of x, in place, and in the same row of another
// matrix, whose width may be 0.
template <class T, int Pairs> struct rotate_kernel {
    static constexpr int threads = 256;
    static constexpr index_t heads = 4;  // per thread: they share the angles
    struct shared {};
    T* x;
    T* other;
    index_t other_width;
    rotation to;
    cached_sequence const* sequences;  // with to.period new rows each; null: all rows begin at to.first
    pairs_of_heads pairs;

    [[nodiscard]] index_t blocks() const { return blocks_for(to.rows * parts() * runs(), threads); }
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            index_t const place = block * threads + t;
            if (place >= to.rows * parts() * runs()) return;
            index_t const pair = place % runs() * Pairs;
            index_t const part = place / runs() % parts();
            index_t const row = place / runs() / parts();
            index_t const first = sequences == nullptr ? to.first : sequences[row / to.period].length;
            turn_of_pairs<T, Pairs> const by(to, first + row % to.period, pairs.frequencies + pair);
            auto const turn_heads = [&](T* of, index_t width) {
                index_t const end = math::min(width, (part + 1) * heads * to.head_size);
                for (index_t head = part * heads * to.head_size; head < end; head += to.head_size) {
                    T* const at = of + row * width + head + pairs.first + pair;
                    by(at, at);
                }
            };
            turn_heads(x, to.width);
            turn_heads(other, other_width);
        });
    }

private:
    [[nodiscard]] CALM_HD index_t runs() const { return pairs.count / Pairs; }  // groups of pairs per head
    [[nodiscard]] CALM_HD index_t parts() const {                               // groups of heads per row
        return blocks_for(math::max(to.width, other_width), heads * to.head_size);
    }
};

// Rotates x and the same rows of another matrix.
template <block_backend Backend, class T>
void run_rotate(context<Backend>& ctx, T* x, T* other, index_t other_width, rotation const& to,
                cached_sequence const* sequences = nullptr) {
    for_pairs(to, [&](pairs_of_heads const& pairs) {
        auto const by = [&]<int Pairs>() {
            rotate_kernel<T, Pairs> const kernel{x, other, other_width, to, sequences, pairs};
            launch(ctx, kernel.blocks(), kernel);
        };
        constexpr int run = 16 / static_cast<int>(sizeof(T));
        pairs.count % run == 0 ? by.template operator()<run>() : by.template operator()<1>();
    });
}
template <block_backend Backend, class T>
void run_rotate(context<Backend>& ctx, T* x, rotation const& to,
                mirrored_span<cached_sequence, Backend> sequences = {}) {
    run_rotate<Backend, T>(ctx, x, nullptr, 0, to, sequences.there);
}

// A call rotates one pair of one head: of the queries in place, or of new keys into the cache. With keys it also copies
// the values of the same place.
template <class T> struct rotate_and_append_kernel {
    T* queries;
    rotation to;  // of the queries
    append_kernel<T> appended;
    pairs_of_heads pairs;

    // Number of calls.
    [[nodiscard]] index_t calls() const { return to.rows * pairs.count * heads(); }
    CALM_HD void operator()(index_t i) const {
        index_t const pair = i % pairs.count;
        index_t const head = i / pairs.count % heads();
        index_t const row = i / pairs.count / heads();
        index_t const position = row % appended.count;
        cached_sequence const of = appended.sequences[row / appended.count];
        turn_of_pairs<T, 1> const by(to, of.length + position, pairs.frequencies + pair);
        // Index into one row of queries followed by keys.
        index_t const place = head * to.head_size + pairs.first + pair;
        if (place < to.width) {
            T* const query = queries + row * to.width + place;
            by(query, query);
            return;
        }
        index_t const from = row * appended.width + place - to.width;
        index_t const at = appended.place(of) + position * appended.width + place - to.width;
        by(appended.keys + at, appended.new_keys + from);
        appended.values[at] = appended.new_values[from];
        appended.values[at + by.half] = appended.new_values[from + by.half];
    }

private:
    [[nodiscard]] CALM_HD index_t heads() const { return (to.width + appended.width) / to.head_size; }
};
template <block_backend Backend, class T>
void run_rotate_and_append(context<Backend>& ctx, T* queries, rotation const& to, append_kernel<T> const& appended) {
    for_pairs(to, [&](pairs_of_heads const& pairs) {
        rotate_and_append_kernel<T> const kernel{queries, to, appended, pairs};
        for_each(ctx, kernel.calls(), kernel);
    });
}

}  // namespace calm::detail
