#pragma once
// Argmax over the vocabulary for many rows on a device: tensor cores compute the logits in bf16, and fp32 decides among
// the tokens that rounding leaves possible. Sizes: R rows x (R, D), a table E (V, D).
//
// Rounding x and E to bf16 changes a logit by at most (2 u + u^2) |x| |e| with u = 2^-8 (Cauchy and Schwarz). A sum of
// D terms in fp32 changes it by at most D 2^-24 |x| |e|. A token can be the argmax only if its upper bound reaches the
// largest lower bound.

#include <limits>

#include "calm/base/bf16.hpp"
#include "calm/base/token.hpp"
#include "calm/loss/detail/block/cross_entropy.hpp"
#include "calm/tensor/core/activations.hpp"
#include "calm/tensor/core/kernel.hpp"
#include "calm/tensor/core/math.hpp"
#include "calm/tensor/core/packet.hpp"
#include "calm/tensor/ops/matmul.hpp"

namespace calm::detail {

// norms (R) = upper bounds of the Euclidean norms of x (R, D). Unless `rounded` is null, it becomes x in bf16. One
// block per row.
template <class T> struct norms_kernel {
    static constexpr int threads = 64;
    struct shared {};
    float* norms;
    bf16* rounded;
    T const* x;
    index_t D;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t row) const {
        typename Block::template per_thread<float> squares;
        b.phase([&](int t) {
            float own = 0;
            for_groups<Block, float>(t, row * D, (row + 1) * D, [&]<class V>(index_t i) {
                V const value = load<V>(x + i);
                own += calm::sum(value * value);
                if (rounded != nullptr) store(rounded + i, value);
            });
            squares[t] = own;
        });
        float const total = b.sum(squares);
        b.phase([&](int t) {
            // The second term stands for elements whose squares are below the smallest normal number.
            if (t == 0) norms[row] = (math::sqrt(total) + math::sqrt(number<float>(D)) * 0x1p-62F) * 1.001F;
        });
    }
};

// tokens[r] = the argmax of row r; NaN is never the largest. One block per row: each thread computes the possible
// tokens among its own in fp32.
template <class W> struct screened_argmax_kernel {
    static constexpr int threads = 256;
    struct shared {};
    token_id* tokens;
    float const* logits;  // (R, width) of rows `stride` apart, in bf16's precision
    float const* x;
    W const* table;
    float const* x_norms;
    float const* e_norms;
    index_t D, width, stride;
    float error;  // of a logit, as a share of |x| |e|

    struct best {
        float value;
        index_t token;  // -1: none
    };

    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t row) const {
        float const* const z = logits + row * stride;
        float const reach = error * x_norms[row];
        typename Block::template per_thread<float> lowest;
        b.phase([&](int t) {
            float most = -std::numeric_limits<float>::infinity();
            for (index_t v = t; v < width; v += threads) {
                float const bound = z[v] - reach * e_norms[v];
                // Infinite where only bf16 overflows.
                if (bound > most && bound < std::numeric_limits<float>::infinity()) most = bound;
            }
            lowest[t] = most;
        });
        float const needed = b.max(lowest);
        typename Block::template per_thread<best> found;
        b.phase([&](int t) {
            best own{-std::numeric_limits<float>::infinity(), -1};
            for (index_t v = t; v < width; v += threads) {
                if (z[v] + reach * e_norms[v] < needed) continue;  // NaN stays possible
                float const exact = logit(row, v);
                if (exact > own.value || (own.token < 0 && exact == own.value)) own = {exact, v};
            }
            found[t] = own;
        });
        best const all = b.fold(found, [](best const& p, best const& q) {
            if (p.token < 0 || q.token < 0) return p.token < 0 ? q : p;
            bool const takes_q = q.value > p.value || (q.value == p.value && q.token < p.token);
            return takes_q ? q : p;
        });
        b.phase([&](int t) {
            if (t == 0) tokens[row] = static_cast<token_id>(all.token < 0 ? 0 : all.token);
        });
    }

private:
    // x e in fp32.
    [[nodiscard]] CALM_HD float logit(index_t row, index_t v) const {
        using V = group_of<float>;
        float const* const a = x + row * D;
        W const* const e = table + v * D;
        V total(0.0F);
        index_t i = 0;
        for (; i + lanes<V> <= D; i += lanes<V>) total += load<V>(a + i) * load<V>(e + i);
        float sum = calm::sum(total);
        for (; i < D; ++i) sum += a[i] * static_cast<float>(e[i]);
        return sum;
    }
};

template <class T, index_t D, class Backend>
inline constexpr bool can_screen_argmax = device_memory<Backend>&& std::is_same_v<T, float>&& D % 8 == 0;

// Whether argmax_token screens: for many rows and a large table, in full precision. Screening reads the table an
// additional time.
template <class Backend> bool screens_argmax(context<Backend> const& ctx, index_t rows, index_t elements_of_table) {
    constexpr index_t least_rows = 128, least_elements = index_t{1} << 18;
    return !ctx.products_in_bf16 && rows > least_rows && elements_of_table >= least_elements;
}

// tokens (R) = argmax of x E^T for a device. The lowest index wins ties.
template <device_memory Backend, class W, index_t D>
void run_screened_argmax(context<Backend>& ctx, vector_view<token_id, dyn, Backend> const& tokens,
                         matrix_view<float const, D, Backend> const& x, matrix_view<W const, D, Backend> const& table,
                         index_t rows_at_once) {
    static_assert(D % 8 == 0, "calm::argmax_token: expected rows of whole 16-byte groups in bf16");
    index_t const R = x.extent(0), V = table.extent(0);
    arena_scope const scope(ctx.workspace);
    auto const norms = ctx.workspace.template take<float>(extents<dyn>(R + V));
    float *const x_norms = norms.data(), *const e_norms = norms.data() + R;
    using rounded_rows = activations<float const, D, Backend>;
    auto const room = [&](index_t rows) { return ctx.workspace.template take<bf16>(extents<dyn, D>(rows)); };
    auto const x_rounded = room(R);
    launch(ctx, R, norms_kernel<float>{x_norms, x_rounded.data(), x.data(), D});
    matrix_view<bf16 const, D, Backend> e_rounded(nullptr, extents<dyn, D>(V));
    if constexpr (std::is_same_v<W, bf16>) {
        e_rounded = table;
        launch(ctx, V, norms_kernel<bf16>{e_norms, nullptr, table.data(), D});
    } else {
        auto const copy = room(V);
        launch(ctx, V, norms_kernel<W>{e_norms, copy.data(), table.data(), D});
        e_rounded = copy;
    }
    constexpr float u = 0x1p-8F;
    float const error = (std::is_same_v<W, bf16> ? u : 2 * u + u * u) + number<float>(D) * 0x1p-22F;
    index_t const stride = stride_of_logits<Backend>(V);
    auto const logits = ctx.workspace.template take<float>(extents<dyn, dyn>(std::min(R, rows_at_once), stride));
    for (index_t first = 0; first < R; first += rows_at_once) {
        index_t const n = std::min(rows_at_once, R - first);
        vocabulary_part<float> const z{logits.data(), n, V, 0, stride};
        matmul(ctx, logits_of<Backend>(z), rounded_rows(rows(x_rounded, first, n)),
               transposed(rounded_rows(e_rounded)));
        launch(ctx, n,
               screened_argmax_kernel<W>{tokens.data() + first, logits.data(), x.data() + first * D, table.data(),
                                         x_norms + first, e_norms, D, V, stride, error});
    }
}

}  // namespace calm::detail
