#pragma once
// Sizes and strides of attention and rotary embeddings, as the kernels of every backend take them.

#include <cmath>
#include <span>

#include "calm/base/bf16.hpp"
#include "calm/tensor/core/extents.hpp"
#include "calm/tensor/ops/rotary_angles.hpp"

namespace calm {

// A cached sequence that is being extended, and its length so far.
struct cached_sequence {
    index_t sequence;  // index in the cache
    index_t length;    // positions before the new ones
};

}  // namespace calm

namespace calm::detail {

// Throws errc::usage unless memory (B, room, width) holds these sequences, with space for `fresh` more positions each.
inline void require_room(char const* operation, extents<dyn, dyn, dyn> const& memory,
                         std::span<cached_sequence const> sequences, index_t fresh) {
    for (auto const& of : sequences) {
        require(of.sequence >= 0 && of.sequence < memory[0], errc::usage, operation,
                ": expected a sequence number below ", memory[0], ", found ", of.sequence);
        require(of.length >= 0 && of.length <= memory[1] - fresh, errc::usage, operation, ": expected room for ",
                of.length + fresh, " positions of a sequence, found room for ", memory[1]);
    }
}

// Throws errc::usage unless rows of this width consist of whole heads.
inline void require_heads(char const* operation, index_t width, index_t head_size) {
    require(head_size > 0 && width % head_size == 0, errc::usage, operation, ": expected rows of whole heads of ",
            head_size, " numbers, found rows of ", width);
}

// For every sequence and head, T queries at positions S - T .. S - 1 attend to S keys. Query head h reads key head
// h / (heads / kv_heads). Strides between rows and between sequences are in elements.
struct attention_shape {
    index_t sequences, queries, keys, heads, kv_heads, head_size;
    index_t q_row, q_sequence, kv_row, kv_sequence;

    // Offset of a head's first row.
    [[nodiscard]] CALM_HD index_t q_start(index_t sequence, index_t head) const {
        return sequence * q_sequence + head * head_size;
    }
    [[nodiscard]] CALM_HD index_t kv_start(index_t sequence, index_t kv_head) const {
        return sequence * kv_sequence + kv_head * head_size;
    }
    // Query heads per key head.
    [[nodiscard]] CALM_HD index_t group() const { return heads / kv_heads; }
    // The factor of the scores q k^T.
    template <class T> [[nodiscard]] CALM_HD T scale() const {
        return T{1} / static_cast<T>(std::sqrt(static_cast<double>(head_size)));
    }
};

// What attention's backward reads and writes: rows of T, in the layout of attention_shape, and lse, which is never
// bf16. dq, dk and dv are overwritten.
template <class T> struct attention_gradients {
    T* dq;
    T* dk;
    T* dv;
    T const* dout;
    T const* o;
    computed_in<T> const* lse;
    T const* q;
    T const* k;
    T const* v;
};

// Rotary embedding (Su et al. 2021) of rows of heads: row r of x (rows, width) is at position first + r % period.
struct rotation {
    index_t rows, width, head_size, period, first;
    rotary_angles angles;
    double direction;  // 1; -1 for the inverse rotation

    // Angle by which pair i turns per position. Host only.
    [[nodiscard]] float frequency(index_t i) const { return angles.frequency(i, head_size); }

    struct angle {
        float cosine;
        float sine;
    };
    // How pairs of that frequency are rotated at `position`.
    [[nodiscard]] CALM_HD static angle at(index_t position, float frequency) {
        float const turned = static_cast<float>(position) * frequency;
        return {std::cos(turned), std::sin(turned)};
    }
};

}  // namespace calm::detail
