#pragma once
/// \file
/// Rotary causal attention with grouped key and value heads. Vaswani et al. 2017; Su et al. 2021.
/// \shows{tests/nn/attention_test.cpp,values_by_the_definition}

#include <span>

#include "calm/nn/kv_cache.hpp"
#include "calm/nn/linear.hpp"
#include "calm/tensor/ops/attention.hpp"
#include "calm/tensor/ops/rotate.hpp"

namespace calm {

/// Causal self-attention on rows of width D: y = softmax(q k^T / sqrt(head_size)) v W_o, without biases. Queries and
/// keys are rotated by their position in the sequence. Each of the KvHeads key and value heads serves Heads / KvHeads
/// query heads. A head has HeadSize elements.
template <index_t D, index_t Heads, index_t KvHeads, class Space = space<>, index_t HeadSize = D / Heads>
struct attention {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static_assert(D % Heads == 0, "calm::attention: heads must divide the width");
    static_assert(Heads % KvHeads == 0, "calm::attention: key and value heads must divide the heads");
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;
    static constexpr index_t head_size = HeadSize;  ///< elements per head, even
    static_assert(head_size % 2 == 0, "calm::attention: rotary embeddings need an even head size");
    static constexpr index_t q_width = Heads * head_size;     ///< width of the queries, and of the concatenated heads
    static constexpr index_t kv_width = KvHeads * head_size;  ///< width of the keys, and of the values

    using input = activations<T const, D, Backend>;  ///< (R, D)
    /// bf16 storage requires head_size % 8 == 0 (16-byte rows of a head).
    static constexpr result_as of_heads = head_size % 8 == 0 ? result_as::activations : result_as::numbers;

    linear<D, q_width, with_bias::no, Space, of_heads> q_proj;   ///< queries
    linear<D, kv_width, with_bias::no, Space, of_heads> k_proj;  ///< keys
    linear<D, kv_width, with_bias::no, Space, of_heads> v_proj;  ///< values
    linear<q_width, D, with_bias::no, Space> o_proj;             ///< applied to the concatenated heads

    /// FLOPs of all matrix products per row (forward). `attended` is the mean number of positions attended to; each
    /// costs one product with its key and one with its value.
    static constexpr double flops(double attended) {
        return 2 * decltype(q_proj)::flops() + 2 * decltype(k_proj)::flops() +
               2 * attended * 2 * static_cast<double>(q_width);
    }

    /// Saved activations, in ctx.saved.
    struct saved_activations {
        index_t positions;                                 ///< P: rows are (B, P)
        typename decltype(q_proj)::saved_activations q;    ///< y: (R, q_width), rotated
        typename decltype(k_proj)::saved_activations k;    ///< y: (R, kv_width), rotated
        typename decltype(v_proj)::saved_activations v;    ///< y: (R, kv_width)
        result_rows<of_heads, T, q_width, Backend> mixed;  ///< (R, q_width)
        typename decltype(o_proj)::saved_activations o;    ///< x: mixed
        view<T, extents<dyn, dyn, Heads>, Backend> lse;    ///< stored (B, heads, P)
        matrix_view<T, D, Backend> y;                      ///< (R, D)
    };

    static constexpr bool adds_residual = true;  ///< forward and extend take an addend

    /// y (R, D) from x (R, D), plus the addend. Rows are (B, P) with P = positions; row p of a sequence attends to its
    /// rows 0 .. p. `angles` are the rotary ones; a base alone gives unscaled ones. Throws errc::usage if the rows are
    /// not whole sequences.
    saved_activations forward(context<Backend>& ctx, input const& x, index_t positions, rotary_angles const& angles,
                              addend<T, D, Backend> const& residual = {}) const {
        index_t const rows = x.extent(0);
        typename decltype(q_proj)::saved_activations const q{x, q_proj.room(ctx, rows)};
        typename decltype(k_proj)::saved_activations const k{x, k_proj.room(ctx, rows)};
        typename decltype(v_proj)::saved_activations const v{x, v_proj.room(ctx, rows)};
        matmul(ctx, side_by_side(q.y, k.y, v.y), x, projections());
        auto const mixed = take_result<of_heads, T, q_width>(ctx, ctx.saved, rows);
        auto const lse =
            ctx.saved.template take<T>(extents<dyn, dyn, Heads>(positions > 0 ? rows / positions : 0, positions));
        with_numbers(
            [&](auto const& y, auto const& queries, auto const& keys, auto const& values) {
                rotate_both(ctx, queries, keys, head_size, positions, 0, angles);
                causal_attention(ctx, y, lse, queries, keys, values, positions, head_size);
            },
            mixed, q.y, k.y, v.y);
        auto const o = o_proj.forward(ctx, mixed, residual);
        return {positions, q, k, v, mixed, o, lse, o.y};
    }

    /// Overwrites dx (R, D) with the gradient for x, given dy (R, D). Parameter gradients accumulate. `angles` must
    /// equal forward's.
    void backward(context<Backend>& ctx, saved_activations const& s, matrix_view<T const, D, Backend> const& dy,
                  activations<T, D, Backend> const& dx, rotary_angles const& angles) {
        index_t const rows = dy.extent(0);
        arena_scope const scope(ctx.workspace);
        auto const dmixed = take_result<of_heads, T, q_width>(ctx, ctx.workspace, rows);
        auto const dq = take_result<of_heads, T, q_width>(ctx, ctx.workspace, rows);
        auto const dk = take_result<of_heads, T, kv_width>(ctx, ctx.workspace, rows);
        auto const dv = take_result<of_heads, T, kv_width>(ctx, ctx.workspace, rows);
        o_proj.backward(ctx, s.o, dy, dmixed);
        with_numbers(
            [&](auto const& dqueries, auto const& dkeys, auto const& dvalues, auto const& dout, auto const& out,
                auto const& queries, auto const& keys, auto const& values) {
                causal_attention_back(
                    ctx, dqueries, dkeys, dvalues, dout, s.lse,
                    {.y = out, .q = queries, .k = keys, .v = values, .positions = s.positions, .head_size = head_size});
                rotate_both(ctx, dqueries, dkeys, head_size, s.positions, 0, angles, -1);
            },
            dq, dk, dv, dmixed, s.mixed, s.q.y, s.k.y, s.v.y);
        q_proj.backward(ctx, s.q, dq, dx);
        k_proj.backward(ctx, s.k, dk, dx, into::accumulate);
        v_proj.backward(ctx, s.v, dv, dx, into::accumulate);
    }

    /// Decoding: appends T positions to each of S sequences of the cache and attends to everything cached so far. x:
    /// rows (S, T), plain or rms_norm_prologue; `sequences` gives each sequence's index and current length. Results are
    /// independent of the other sequences, whose lengths may differ. Throws errc::usage if the rows are not whole
    /// sequences or the cache is full. The addend is added.
    template <class X>
    matrix_view<T, D, Backend>
    extend(context<Backend>& ctx, X const& x, kv_cache<kv_width, Space>& cache, rotary_angles const& angles,
           mirrored_span<cached_sequence, Backend> const& sequences, addend<T, D, Backend> const& residual = {}) const {
        index_t const rows = x.extent(0), count = sequences.size();
        require(count > 0 && rows % count == 0, errc::usage, "calm::attention: expected as many rows for each of ",
                count, " sequences, found ", rows, " rows");
        auto const q = ctx.saved.template take<T>(extents<dyn, q_width>(rows));   // full precision, as in the cache
        auto const k = ctx.saved.template take<T>(extents<dyn, kv_width>(rows));  // likewise
        auto const v = ctx.saved.template take<T>(extents<dyn, kv_width>(rows));  // likewise
        matmul(ctx, side_by_side(q, k, v), x, projections());
        cache.append_rotated(ctx, sequences, q, k, v, head_size, angles);
        auto const mixed = ctx.saved.template take<T>(extents<dyn, q_width>(rows));
        auto const lse = ctx.saved.template take<T>(extents<dyn>(rows * Heads));
        cached_attention(ctx, mixed, lse, q, cache.keys.view(), cache.values.view(), sequences, head_size);
        return o_proj.forward(ctx, mixed, residual).y;
    }
    /// As extend, for distinct sequences given by index; their lengths come from the cache.
    matrix_view<T, D, Backend> extend(context<Backend>& ctx, input const& x, kv_cache<kv_width, Space>& cache,
                                      rotary_angles const& angles, std::span<index_t const> sequences) const {
        arena_scope const scope(ctx.workspace);
        auto const now = cache.as_now(sequences);
        return extend(ctx, x, cache, angles, to_device(ctx, std::span(now)));
    }
    /// As extend, for every sequence of the cache: x is rows (B, T).
    matrix_view<T, D, Backend> extend(context<Backend>& ctx, input const& x, kv_cache<kv_width, Space>& cache,
                                      rotary_angles const& angles) const {
        return extend(ctx, x, cache, angles, cache.all());
    }

    template <class Visitor> void visit(Visitor& visitor) {
        visit_as("q_proj", q_proj, visitor);
        visit_as("k_proj", k_proj, visitor);
        visit_as("v_proj", v_proj, visitor);
        visit_as("o_proj", o_proj, visitor);
    }

private:
    // The weights of queries, keys and values, as second factors of x.
    auto projections() const {
        return side_by_side(transposed(q_proj.weight.value), transposed(k_proj.weight.value),
                            transposed(v_proj.weight.value));
    }
};

}  // namespace calm
