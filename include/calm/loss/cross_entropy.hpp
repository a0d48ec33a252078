#pragma once
/// \file
/// Cross-entropy and argmax over the vocabulary: logits x E^T of rows x (R, D) and a table E (V, D). Logits are
/// computed for one block of rows at a time, in chunks of the vocabulary on the cpu, so all R x V of them never exist
/// at once. With float rows the table may be bf16.
/// \shows{tests/loss/cross_entropy_fixture_test.cpp,agrees_with_the_reference}

#include "calm/loss/detail/block/cross_entropy.hpp"
#include "calm/loss/detail/block/screened_argmax.hpp"
#include "calm/tensor/detail/core/working_set.hpp"
#include "calm/tensor/ops/matmul.hpp"
#include "calm/tensor/ops/rows.hpp"

namespace calm {

namespace detail {

// Tile size: how many rows and tokens have their logits computed at once.
struct logits_at_once {
    index_t rows;
    index_t width;
    // Tile for `rows` rows and the given vocabulary. A device takes the whole vocabulary in one chunk.
    template <class T, class Backend>
    static logits_at_once of(context<Backend> const& ctx, index_t rows, index_t vocabulary) {
        index_t const width = host_memory<Backend> ? std::min<index_t>(4096, vocabulary) : vocabulary;
        return {std::min(rows, rows_at_once(ctx, 256, static_cast<std::size_t>(width) * sizeof(T))), width};
    }
    // Tile when backward holds the logits of all chunks: at most 64 MB of fp32, but at least sixteen rows.
    template <class T, class Backend>
    static logits_at_once held(context<Backend> const& ctx, index_t rows, index_t vocabulary) {
        auto result = of<T>(ctx, rows, vocabulary);
        if (host_memory<Backend> && vocabulary > 0)
            result.rows = std::min(result.rows, std::max<index_t>(16, (index_t{1} << 24) / vocabulary));
        return result;
    }
};

// Adds n logits to the running sum.
template <class T> void add_logits(running_sum<T>& sum, T const* logits, index_t n) {
    double const now = std::max(sum.highest, largest(logits, n));
    T const shift = static_cast<T>(now);
    sum.total =
        sum.total * static_cast<T>(std::exp(sum.highest - now)) +
        sum_packets<T>(n, [&]<class V>(index_t j) -> V { return math::exp(load<V>(logits + j) - splat<V>(shift)); });
    sum.highest = now;
}

// The lowest index of the maximum of n numbers.
template <class T> index_t first_largest(T const* x, index_t n) {
    constexpr index_t block = 64;
    double most = -std::numeric_limits<double>::infinity();
    index_t first = 0;  // start of the block with the maximum
    for (index_t i = 0; i < n; i += block)
        if (double const here = largest(x + i, std::min(block, n - i)); here > most) {
            most = here;
            first = i;
        }
    for (index_t i = first; i < std::min(n, first + block); ++i)
        if (real_part(x[i]) == most) return i;
    return first;
}

// CPU implementation of the passes over logits (for block backends: loss/detail/block/cross_entropy.hpp).
template <class T>
void run_add_chunk(context<cpu> const& ctx, running_sum<T>* sums, T* loss, vocabulary_part<T> const& z,
                   row_targets const& targets) {
    ctx.parallel_ranges(z.rows, 16, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) {
            T const* const row = z.logits + i * z.stride;
            if (z.first == 0) sums[i] = {};
            add_logits(sums[i], row, z.width);
            sums[i].target += targets.template mean<T>(i, z);
            loss[i] = sums[i].log_sum() - sums[i].target;
        }
    });
}
template <class T>
void run_chunk_gradient(context<cpu> const& ctx, T* dz, running_sum<T> const* sums, vocabulary_part<T> const& z,
                        row_targets const& targets, double scale) {
    ctx.parallel_ranges(z.rows, 16, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) {
            T const* const logits = z.logits + i * z.stride;
            T* const row = dz + i * z.stride;
            T const shift = sums[i].log_sum();
            for_pieces<T>(0, z.width, [&]<class V>(index_t j) {
                store(row + j, math::exp(load<V>(logits + j) - splat<V>(shift)) * splat<V>(static_cast<T>(scale)));
            });
            for (index_t m = 0; m < targets.each; ++m)
                if (index_t const t = targets.ids[i * targets.each + m] - z.first; t >= 0 && t < z.width)
                    row[t] -= static_cast<T>(scale / static_cast<double>(targets.each));
        }
    });
}
template <class T>
void run_best_of_chunk(context<cpu> const& ctx, token_id* tokens, T* best, vocabulary_part<T> const& z) {
    ctx.parallel_ranges(z.rows, 16, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) {
            T const* const row = z.logits + i * z.stride;
            index_t const j = first_largest(row, z.width);
            if (z.first > 0 && !(real_part(row[j]) > real_part(best[i]))) continue;
            best[i] = row[j];
            tokens[i] = static_cast<token_id>(z.first + j);
        }
    });
}

// The operations below, on views.

// Operands of cross_entropy.
template <class T, class W, index_t D, class Backend> struct cross_entropy_operands {
    vector_view<T, dyn, Backend> loss;
    matrix_view<T, D, Backend> dx, dtable;  // each may be null
    matrix_view<T const, D, Backend> x;
    matrix_view<W const, D, Backend> table;
    row_ids<Backend> const& targets;
    double scale;

    [[nodiscard]] bool backward() const { return dx.data() != nullptr; }
    // Targets per row.
    [[nodiscard]] index_t each() const {
        return std::max<index_t>(1, targets.size() / std::max<index_t>(1, x.extent(0)));
    }
};

// Logits are stored as Stored, and so are their gradients, which then overwrite fp32 logits.
template <class Stored, class T, class W, index_t D, class Backend>
void cross_entropy_of_rows(context<Backend>& ctx, cross_entropy_operands<T, W, D, Backend> const& of,
                           logits_at_once const& at_once) {
    bool const backward = of.backward();
    index_t const vocabulary = of.table.extent(0);
    index_t const each = of.each();
    arena_scope const scope(ctx.workspace);
    index_t const block = at_once.rows, width = at_once.width;
    // Backward needs the logits of all chunks; they are stored one chunk after another.
    index_t const held = backward ? vocabulary : width;
    index_t const stride = stride_of_logits<Backend>(held);
    auto const take = [&] {
        return ctx.workspace.template take<Stored>(extents<dyn, dyn>(std::max(held, stride), block)).data();
    };
    auto* const logits = take();
    auto const sums = ctx.workspace.template take<running_sum<T>>(extents<dyn>(block));
    for (index_t r0 = 0; r0 < of.x.extent(0); r0 += block) {
        index_t const n = std::min(block, of.x.extent(0) - r0);
        auto const xr = rows(of.x, r0, n);
        row_targets const of_rows{of.targets.data() + r0 * each, each};
        auto const part_of = [&](index_t v0) {
            index_t const here = std::min(width, vocabulary - v0);
            return vocabulary_part<Stored>{logits + (backward ? v0 * block : 0), n, here, v0, std::max(here, stride)};
        };
        for (index_t v0 = 0; v0 < vocabulary; v0 += width) {
            auto const z = part_of(v0);
            matmul(ctx, logits_of<Backend>(z), xr, transposed(rows(of.table, v0, z.width)));
            run_add_chunk(ctx, sums.data(), of.loss.data() + r0, z, of_rows);
        }
        if (!backward) continue;
        for (index_t v0 = 0; v0 < vocabulary; v0 += width) {
            arena_scope const of_chunk(ctx.workspace);
            auto const z = part_of(v0);
            auto gradient = z;
            if constexpr (!std::is_same_v<Stored, T>) gradient.logits = take();
            run_chunk_gradient(ctx, gradient.logits, sums.data(), z, of_rows, of.scale);
            auto const dz = logits_of<Backend>(gradient);
            auto const e = rows(of.table, v0, z.width);
            matmul(ctx, rows(of.dx, r0, n), dz, e, {.mode = v0 == 0 ? into::overwrite : into::accumulate});
            if (of.dtable.data() != nullptr)
                matmul(ctx, rows(of.dtable, v0, z.width), transposed(dz), xr, {.mode = into::accumulate});
        }
    }
}

// Checks the operands and chooses how logits are stored: in bf16 if they have gradients and the products take bf16.
template <class T, class W, index_t D, class Backend>
void cross_entropy_of_rows(context<Backend>& ctx, cross_entropy_operands<T, W, D, Backend> const& of) {
    index_t const rows = of.x.extent(0), vocabulary = of.table.extent(0);
    constexpr auto operation = "calm::cross_entropy";
    require_size(operation, "targets", of.targets.size(), of.each() * rows);
    require_size(operation, "loss", of.loss.size(), rows);
    if (of.backward()) {
        require_shape(operation, "dx", of.dx.extents(), of.x.extents());
        if (of.dtable.data() != nullptr) require_shape(operation, "dtable", of.dtable.extents(), of.table.extents());
    }
    check_ids(ctx, of.targets, vocabulary, "calm::cross_entropy: target ");
    auto const at_once =
        of.backward() ? logits_at_once::held<T>(ctx, rows, vocabulary) : logits_at_once::of<T>(ctx, rows, vocabulary);
    if constexpr (may_be_rounded<T, Backend>)
        if (of.backward() && rounds_rows(ctx, at_once.rows, stride_of_logits<Backend>(vocabulary)))
            return cross_entropy_of_rows<bf16>(ctx, of, at_once);
    cross_entropy_of_rows<T>(ctx, of, at_once);
}

template <class T, class W, index_t D, class Backend>
void argmax_token_of_rows(context<Backend>& ctx, vector_view<token_id, dyn, Backend> const& tokens,
                          matrix_view<T const, D, Backend> const& x, matrix_view<W const, D, Backend> const& table) {
    index_t const vocabulary = table.extent(0);
    require(vocabulary > 0, errc::usage, "calm::argmax_token: the vocabulary is empty");
    require_size("calm::argmax_token", "tokens", tokens.size(), x.extent(0));
    auto const at_once = logits_at_once::of<T>(ctx, x.extent(0), vocabulary);
    if constexpr (can_screen_argmax<T, D, Backend>)
        if (screens_argmax(ctx, x.extent(0), vocabulary * D))
            return run_screened_argmax(ctx, tokens, x, table, at_once.rows);
    arena_scope const scope(ctx.workspace);
    index_t const block = at_once.rows, width = at_once.width;
    index_t const stride = std::max(width, stride_of_logits<Backend>(width));
    auto const logits = ctx.workspace.template take<T>(extents<dyn, dyn>(block, stride));
    auto const best = ctx.workspace.template take<T>(extents<dyn>(block));
    for (index_t r0 = 0; r0 < x.extent(0); r0 += block) {
        index_t const n = std::min(block, x.extent(0) - r0);
        for (index_t v0 = 0; v0 < vocabulary; v0 += width) {
            vocabulary_part<T> const z{logits.data(), n, std::min(width, vocabulary - v0), v0, stride};
            matmul(ctx, logits_of<Backend>(z), rows(x, r0, n), transposed(rows(table, v0, z.width)));
            run_best_of_chunk(ctx, tokens.data() + r0, best.data(), z);
        }
    }
}

}  // namespace detail

/// loss (R): for every row, the mean over its M targets of -log softmax(x E^T)[target]. targets: (R M), usually with M
/// = 1. Unless dx (R, D) is null, it is overwritten with the gradient of scale * sum of the losses, and dtable (V, D),
/// unless null, accumulates its gradient.
/// Throws errc::tokenizer for a target outside the vocabulary, errc::usage if sizes do not match. Synchronises with the
/// device unless the targets were already validated.
template <tensor_like X, tensor_like Table>
void cross_entropy(detail::context_of<X>& ctx, detail::numbers_like<X> const& loss, detail::rows_like<X> const& dx,
                   detail::rows_like<X> const& dtable, X const& x, Table const& table,
                   std::type_identity_t<row_ids<detail::backend_of<X>>> const& targets, double scale) {
    detail::cross_entropy_operands<detail::scalar_of<X>, detail::scalar_of<Table>, detail::columns_of<X>,
                                   detail::backend_of<X>> const of{.loss = loss,
                                                                   .dx = dx,
                                                                   .dtable = dtable,
                                                                   .x = detail::as_view(x),
                                                                   .table = detail::as_view(table),
                                                                   .targets = targets,
                                                                   .scale = scale};
    detail::cross_entropy_of_rows(ctx, of);
}

/// tokens (R) = argmax of x E^T, with ties going to the lowest index. Workspace: one block of rows by one chunk; on
/// a device that screens, the rows and an fp32 table in bf16 too. Throws errc::usage if sizes do not match.
template <tensor_like X, tensor_like Table>
void argmax_token(detail::context_of<X>& ctx, detail::numbers_like<X, token_id> const& tokens, X const& x,
                  Table const& table) {
    detail::argmax_token_of_rows<detail::scalar_of<X>, detail::scalar_of<Table>, detail::columns_of<X>,
                                 detail::backend_of<X>>(ctx, tokens, detail::as_view(x), detail::as_view(table));
}

}  // namespace calm
