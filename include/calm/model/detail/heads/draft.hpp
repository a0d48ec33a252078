#pragma once
// Drafts of the next patch: a softmax for each of its K tokens, conditioned on the hidden state and optionally on the
// earlier tokens of the patch. Sizes: R positions, N drafts per position, D hidden, W width of the logit table's rows,
// V vocabulary.

#include <algorithm>

#include "calm/loss/detail/draw_tokens.hpp"
#include "calm/nn/embedding.hpp"
#include "calm/nn/linear.hpp"
#include "calm/nn/sequential.hpp"
#include "calm/tensor/detail/core/for_each.hpp"

namespace calm::detail {

// Ids (n, K - 1) of the tokens before token k of each patch, nearest first, or V if there is none. Row i belongs to
// patch i or, with k = every, to token i % K of patch i / K.
struct tokens_before {
    static constexpr index_t every = -1;
    token_id* ids;
    token_id const* tokens;  // (R, K)
    index_t K;
    index_t k;
    token_id none;
    CALM_HD void operator()(index_t i) const {
        index_t const row = i / (K - 1), back = i % (K - 1) + 1;
        index_t const at = k == every ? row % K : k;
        ids[i] = at < back ? none : tokens[(k == every ? row - at : row * K) + at - back];
    }
};

// y (n, width) = rows k, K + k, .. of x (R K, width), each repeated n / R times.
template <class T> struct take_token {
    T* y;
    T const* x;
    index_t K;
    index_t k;
    index_t width;
    index_t each;
    CALM_HD void operator()(index_t i) const {
        index_t const row = i / width;
        y[i] = x[(row / each * K + k) * width + i % width];
    }
};

// Rows of width W whose products with the table are the logits. For token k: a + W_o silu(a), with a = P_k h + b_k +
// W_c [e(t_(k-1)), .., e(t_(k-K+1))]. Without LooksBack the W_c term is absent.
template <index_t K, index_t D, index_t W, bool LooksBack, class Space = space<>> struct draft_network {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    using scalar = T;
    static constexpr bool looks_back = LooksBack && K > 1;    // whether tokens see earlier ones
    static constexpr index_t reach = looks_back ? K - 1 : 1;  // maximum number of earlier tokens seen
    using hidden_view = matrix_view<T const, D, Backend>;     // (R, D)
    using const_rows = matrix_view<T const, W, Backend>;      // (R K, W)
    using token_ids = row_ids<Backend>;                       // flat

    linear<D, K * W, with_bias::yes, Space> hidden_embd;      // P: (R, D) to (R, K W)
    embedding<W, Space> context_table;                        // e: (V + 1, W); the last row means "no token"
    linear<reach * W, W, with_bias::no, Space> context_embd;  // W_c
    residual<sequential<silu_layer<W, Space>, linear<W, W, with_bias::yes, Space>>> output_embd;  // a + W_o silu(a)

    // For V token ids, without memory until `allocate`.
    explicit draft_network(index_t vocabulary) : context_table(vocabulary + 1) {
        hidden_embd.weight.starts = role::xavier;
    }

    // Saved activations of the context from earlier tokens.
    struct context_rows {
        typename embedding<W, Space>::saved_activations table;                        // y: (n reach, W)
        typename linear<reach * W, W, with_bias::no, Space>::saved_activations embd;  // y: (n, W)
    };
    struct saved_activations {
        typename linear<D, K * W, with_bias::yes, Space>::saved_activations hidden;  // y: (R, K W)
        context_rows before;                                                         // y: (R K, W)
        typename decltype(output_embd)::saved_activations output;                    // y: (R K, W)
        const_rows y;                                                                // (R K, W)
    };

    // For hidden states (R, D) whose next patches are `tokens` (R K). Throws errc::tokenizer for an id outside the
    // vocabulary. Waits for the device unless the ids were already validated.
    saved_activations forward(context<Backend>& ctx, hidden_view const& hidden, token_ids const& tokens) const {
        saved_activations s{.hidden = hidden_embd.forward(ctx, hidden), .before = {}, .output = {}, .y = {}};
        auto const a = reshape(s.hidden.y, extents<dyn, W>(tokens.size()));
        if constexpr (looks_back) {
            s.before = look_back(ctx, tokens, tokens.size(), tokens_before::every);
            evaluate(ctx, a, a + s.before.embd.y);
        }
        s.output = output_embd.forward(ctx, a);
        s.y = s.output.y;
        return s;
    }

    // Backward for dy (R K, W): overwrites dhidden (R, D). Parameter gradients accumulate. Consumes s.
    void backward(context<Backend>& ctx, saved_activations const& s, const_rows const& dy,
                  matrix_view<T, D, Backend> const& dhidden) {
        arena_scope const scope(ctx.workspace);
        auto const da = ctx.workspace.template take<T>(dy.extents());
        output_embd.backward(ctx, s.output, dy, da);
        if constexpr (looks_back) {
            auto const dbefore = ctx.workspace.template take<T>(s.before.embd.x.extents());
            context_embd.backward(ctx, s.before.embd, da, dbefore);
            context_table.backward(ctx, s.before.table, reshape(dbefore, s.before.table.y.extents()));
        }
        hidden_embd.backward(ctx, s.hidden, reshape(da, s.hidden.y.extents()), dhidden);
    }

    // tokens (R N, K): draws N drafts for every hidden state (R, D), token by token, by inverting the CDF at uniforms
    // (R N, K), in [0, 1). The logits, by `table` (V, W), are multiplied by `sharpness`. Restores ctx.saved on return.
    void draw(context<Backend>& ctx, vector_view<token_id, dyn, Backend> const& tokens, hidden_view const& hidden,
              matrix_view<typename Space::weights const, W, Backend> const& table,
              matrix_view<T const, K, Backend> const& uniforms, double sharpness = 1) const {
        arena_scope const scope(ctx.saved);
        auto const of_hidden = hidden_embd.forward(ctx, hidden).y;  // (R, K W)
        index_t const N = uniforms.extent(0) / std::max<index_t>(1, hidden.extent(0));
        for (index_t k = 0; k < K; ++k) {
            arena_scope const of_token(ctx.saved);
            // The first token has no context, so all drafts of a position share its logits.
            index_t const each = looks_back && k > 0 ? N : 1;
            auto const a = ctx.saved.template take<T>(extents<dyn, W>(hidden.extent(0) * each));
            for_each(ctx, a.size(), take_token<T>{a.data(), of_hidden.data(), K, k, W, each});
            if constexpr (looks_back) {
                auto const drawn = row_ids<Backend>::validated(tokens, vocabulary());
                evaluate(ctx, a, a + look_back(ctx, drawn, a.extent(0), k).embd.y);
            }
            auto const y = output_embd.forward(ctx, a).y;
            if (sharpness != 1) evaluate(ctx, y, y * sharpness);
            draw_tokens(ctx, tokens, k, const_rows(y), table, uniforms);
        }
    }

    template <class Visitor> void visit(Visitor& visitor) {
        visit_as("hidden_embd", hidden_embd, visitor);
        if constexpr (looks_back) {
            visit_as("context_table", context_table, visitor);
            visit_as("context_embd", context_embd, visitor);
        }
        visit_as("output_embd", output_embd, visitor);
    }

private:
    [[nodiscard]] index_t vocabulary() const { return context_table.vocabulary() - 1; }  // V

    // Context of `count` rows, each for token k of its patch in tokens (., K). Result in ctx.saved.
    context_rows look_back(context<Backend>& ctx, token_ids const& tokens, index_t count, index_t k) const {
        check_ids(ctx, tokens, vocabulary());
        auto const ids = ctx.saved.template take<token_id>(extents<dyn>(count * reach));
        auto const none = static_cast<token_id>(vocabulary());
        for_each(ctx, ids.size(), tokens_before{ids.data(), tokens.data(), K, k, none});
        auto const before = row_ids<Backend>::validated(ids, context_table.vocabulary());
        context_rows s{context_table.forward(ctx, before), {}};
        s.embd = context_embd.forward(ctx, reshape(s.table.y, extents<dyn, reach * W>(count)));
        return s;
    }
};

}  // namespace calm::detail
