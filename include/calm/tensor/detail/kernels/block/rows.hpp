#pragma once
// Rows of matrices as portable block kernels: copies, sums over rows, gather and scatter.

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "calm/tensor/detail/kernels/block/elementwise.hpp"
#include "calm/tensor/detail/kernels/block/order.hpp"

namespace calm::detail {

template <class T, class U> struct copy_kernel {
    static constexpr int threads = element_threads;
    struct shared {};
    T* y;
    U const* x;
    index_t n;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        for_elements<group_of<T>>(b, block, n, [&]<class V>(index_t i) { store(y + i, load<V>(x + i)); });
    }
};

// Whether rows of this width are whole 16-byte groups and begin at 16-byte addresses, as memory of arenas and tensors
// does.
template <class T> bool are_in_groups(index_t width, std::initializer_list<T const*> matrices) {
    return width % lanes<group_of<T>> == 0 && std::all_of(matrices.begin(), matrices.end(), [](T const* p) {
               return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
           });
}

// A matrix (R, width), which may be bf16, as terms of sum_axis0_kernel.
template <class T> struct rows_term {
    T const* x;
    index_t width;
    [[nodiscard]] bool in_groups() const { return are_in_groups(width, {x}); }
    template <class V> CALM_HD V at(index_t r, index_t j) const { return load<V>(place_of<V>(x + r * width + j)); }
};

// out (chunks, width) = or += the sums of term.at<V>(row, column) over the rows of a chunk. A block has one chunk and
// Columns columns; several threads share each column. V is a group if rows are whole groups.
template <class V, class Term, int Columns> struct sum_axis0_kernel {
    using T = lane_t<V>;
    static constexpr int columns = Columns;
    static constexpr int threads = 256;
    static constexpr int across = columns / lanes<V>;  // threads per row
    static constexpr int down = threads / across;      // rows in parallel
    struct shared {
        V partial[down][across];
    };
    Term term;
    T* out;
    index_t rows;
    index_t width;
    index_t chunk;
    bool accumulates;
    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t block) const {
        index_t const tiles = blocks_for(width, columns);
        index_t const number = block / tiles;
        index_t const first_column = block % tiles * columns;
        b.phase([&](int t) {
            index_t const column = first_column + t % across * lanes<V>;
            index_t const last = (number + 1) * chunk < rows ? (number + 1) * chunk : rows;
            V total{};
            if (column < width)
                for (index_t r = number * chunk + t / across; r < last; r += down)
                    total += term.template at<V>(r, column);
            s.partial[t / across][t % across] = total;
        });
        for (int half = down / 2; half > 0; half /= 2)
            b.phase([&](int t) {
                int const row = t / across;
                if (row < half) s.partial[row][t % across] += s.partial[row + half][t % across];
            });
        b.phase([&](int t) {
            index_t const column = first_column + t * lanes<V>;
            if (t >= across || column >= width) return;
            T* const to = place_of<V>(out + number * width + column);
            store(to, accumulates ? load<V>(to) + s.partial[0][t] : s.partial[0][t]);
        });
    }
};

// y (R, width) = table[ids]; the table may have a narrower type. One block per row.
template <class T, class W, class Id> struct gather_kernel {
    static constexpr int threads = 128;
    struct shared {};
    T* y;
    W const* table;
    Id const* ids;
    index_t width;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t row) const {
        b.phase([&](int t) {
            W const* const from = table + static_cast<index_t>(ids[row]) * width;
            for_groups<Block, T>(t, 0, width,
                                 [&]<class V>(index_t j) { store(y + row * width + j, load<V>(from + j)); });
        });
    }
};

// table[ids] += dy (R, width), from rows sorted by id. The block of the first row of an id adds all rows of that id, in
// order; the other blocks return. V is a group if rows are whole groups.
template <class V, class Id> struct scatter_kernel {
    using T = lane_t<V>;
    static constexpr int threads = 128;
    static constexpr int at_once = 8;  // rows loaded together, for frequent ids
    struct shared {};
    T* table;
    T const* dy;
    Id const* ids;
    row_id const* order;
    index_t rows;
    index_t width;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t first) const {
        Id const id = ids[order[first]];
        if (first > 0 && ids[order[first - 1]] == id) return;
        index_t const end = end_of(id, first);
        b.phase([&](int t) {
            for (index_t column = t * lanes<V>; column < width; column += threads * lanes<V>) {
                T* const to = place_of<V>(table + static_cast<index_t>(id) * width + column);
                auto const row = [&](index_t i) {
                    return load<V>(place_of<V>(dy + static_cast<index_t>(order[i]) * width + column));
                };
                V total = load<V>(to);
                index_t i = first;
                for (; i + at_once <= end; i += at_once) {
                    V together[at_once];
                    for (int l = 0; l < at_once; ++l) together[l] = row(i + l);
                    for (V const& each : together) total += each;
                }
                for (; i < end; ++i) total += row(i);
                store(to, total);
            }
        });
    }

private:
    // The end of the rows with this id, of which `first` is the first. A galloping search, as most ids have few rows.
    [[nodiscard]] CALM_HD index_t end_of(Id id, index_t first) const {
        index_t inside = first, outside = first + 1;
        while (outside < rows && ids[order[outside]] == id) {
            index_t const tried = outside - first;
            inside = outside;
            outside += tried;
        }
        if (outside > rows) outside = rows;
        while (outside - inside > 1) {
            index_t const middle = inside + (outside - inside) / 2;
            (ids[order[middle]] == id ? inside : outside) = middle;
        }
        return outside;
    }
};

// *first = the first i with ids[i] outside 0 .. V - 1, or n. One block.
template <class Id> struct first_outside_kernel {
    static constexpr int threads = 256;
    struct shared {};
    index_t* first;
    Id const* ids;
    index_t n;
    index_t V;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t) const {
        typename Block::template per_thread<index_t> found;
        b.phase([&](int t) {
            index_t i = t;
            while (i < n && ids[i] >= 0 && ids[i] < V) i += threads;
            found[t] = i < n ? i : n;
        });
        index_t const least = b.fold(found, [](index_t x, index_t y) { return y < x ? y : x; });
        b.phase([&](int t) {
            if (t == 0) *first = least;
        });
    }
};

template <block_backend Backend, class T, class U>
void run_copy(context<Backend> const& ctx, T* y, U const* x, index_t n) {
    launch(ctx, element_blocks<group_of<T>>(n), copy_kernel<T, U>{y, x, n});
}

// Rows converted to T, in ctx.workspace.
template <class T, block_backend Backend> class converted_rows {
public:
    converted_rows(context<Backend>& ctx, index_t rows) : ctx_(ctx), rows_(rows) {}

    // Memory for rows of `width` elements.
    T* room(index_t width) { return ctx_.workspace.template take<T>(extents<dyn>(rows_ * width)).data(); }
    // x, converted to T.
    template <class Other> T const* of(Other const* x, index_t width) {
        T* const there = room(width);
        run_copy(ctx_, there, x, rows_ * width);
        return there;
    }
    // to = x, converted to the type of `to`.
    template <class Other> void put(Other* to, T const* x, index_t width) const {
        run_copy(ctx_, to, x, rows_ * width);
    }

private:
    context<Backend>& ctx_;
    index_t rows_;
};

template <block_backend Backend, class T> void run_fill(context<Backend> const& ctx, T* x, index_t n, T value) {
    run_evaluate(ctx, tree::constant<T>{value}, x, n);
}

// out (chunks, width) = or += the sums of chunks of rows.
template <class Backend, class T, class Term>
void run_sums_of_chunks(context<Backend> const& ctx, T* out, index_t rows, index_t width, index_t chunk,
                        bool accumulates, Term const& term) {
    constexpr int narrow = 32, wide = 128;  // wide: long runs of memory, where many chunks occupy a device anyway
    auto const by = [&]<class V, int Columns>() {
        index_t const blocks = blocks_for(rows, chunk) * blocks_for(width, Columns);
        launch(ctx, blocks, sum_axis0_kernel<V, Term, Columns>{term, out, rows, width, chunk, accumulates});
    };
    if (!term.in_groups() || !are_in_groups<T>(width, {out})) return by.template operator()<T, narrow>();
    if (width >= wide && rows > chunk) return by.template operator()<group_of<T>, wide>();
    by.template operator()<group_of<T>, narrow>();
}
// total (width) += the sum over rows of term.at<V>(row, column), in one launch: for few rows.
template <class Backend, class T, class Term>
void run_sum_axis0_at_once(context<Backend> const& ctx, T* total, index_t rows, index_t width, Term const& term) {
    if (rows > 0) run_sums_of_chunks(ctx, total, rows, width, rows, true, term);
}
// As run_sum_axis0_at_once, but for any number of rows: sums chunks of them first, then the chunks.
template <block_backend Backend, class T, class Term>
void run_sum_axis0(context<Backend>& ctx, T* total, index_t rows, index_t width, Term const& term) {
    constexpr index_t chunk = 256;
    if (rows <= chunk) return run_sum_axis0_at_once(ctx, total, rows, width, term);
    arena_scope const scope(ctx.workspace);
    index_t const chunks = blocks_for(rows, chunk);
    auto const partial = ctx.workspace.template take<T>(extents<dyn, dyn>(chunks, width));
    run_sums_of_chunks(ctx, partial.data(), rows, width, chunk, false, term);
    run_sum_axis0_at_once(ctx, total, chunks, width, rows_term<T>{partial.data(), width});
}
template <block_backend Backend, class T, class X>
void run_add_sum_axis0(context<Backend>& ctx, T* total, X const* x, index_t rows, index_t width) {
    run_sum_axis0(ctx, total, rows, width, rows_term<X>{x, width});
}

template <block_backend Backend, class T, class W, class Id>
void run_gather_rows(context<Backend>& ctx, T* y, W const* table, Id const* ids, index_t rows, index_t width) {
    launch(ctx, rows, gather_kernel<T, W, Id>{y, table, ids, width});
}

// The ids must be in 0 .. V - 1.
template <block_backend Backend, class T, class Id>
void run_scatter_add_rows(context<Backend>& ctx, T* table, T const* dy, Id const* ids, index_t rows, index_t width,
                          index_t V) {
    if (rows == 0) return;
    arena_scope const scope(ctx.workspace);
    auto const* const order = order_of_rows(ctx, ids, rows, V);
    auto const by = [&]<class V>() { launch(ctx, rows, scatter_kernel<V, Id>{table, dy, ids, order, rows, width}); };
    are_in_groups<T>(width, {table, dy}) ? by.template operator()<group_of<T>>() : by.template operator()<T>();
}

// Index of the first id outside 0 .. V - 1, or n. Waits for a device.
template <block_backend Backend, class Id>
index_t run_first_outside(context<Backend>& ctx, Id const* ids, index_t n, index_t V) {
    arena_scope const scope(ctx.workspace);
    auto const first = ctx.workspace.template take<index_t>(extents<1>());
    launch(ctx, 1, first_outside_kernel<Id>{first.data(), ids, n, V});
    return copy_to_host(ctx, first.data());
}

}  // namespace calm::detail
