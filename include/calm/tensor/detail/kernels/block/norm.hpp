#pragma once
// Normalisation of rows as portable block kernels: one block per row. Backward, where rows fit in registers, has a few
// rows per block and reads them once for all gradients. Expression trees over forward's saved mean and root read them
// more often (compared in bench/norms.cpp; nn/norm.hpp has one for a norm without gain). For LayerNorm's forward, a
// tree would make as many passes as this kernel; it has not been measured on a GPU.

#include "calm/tensor/detail/kernels/block/by_rows.hpp"
#include "calm/tensor/detail/kernels/block/rows.hpp"
#include "calm/tensor/detail/ops/norm_operands.hpp"
#include "calm/tensor/expr/ops.hpp"

namespace calm::detail {

inline constexpr int norm_threads = 128;

// y = (x - mean) * r * w + b with r = 1 / sqrt(variance + eps); y may be stored in another type.
template <class T, class Y> struct layer_norm_kernel {
    static constexpr int threads = norm_threads;
    struct shared {};
    Y* y;
    T* mean;
    T* r;
    T const* x;
    T const* w;
    T const* bias;
    index_t n;
    double eps;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t number) const {
        T const* const xr = x + number * n;
        Y* const to = y + number * n;
        block_row<Block, T> row{b, number, n};
        T const middle = row.sum([&]<class V>(index_t j) { return load<V>(xr + j); }) / static_cast<T>(n);
        T const squares = row.sum([&]<class V>(index_t j) {
            V const apart = load<V>(xr + j) - splat<V>(middle);
            return apart * apart;
        });
        T const scale = op::reciprocal_root::value(squares / static_cast<T>(n) + static_cast<T>(eps));
        row.once([&] {
            mean[number] = middle;
            r[number] = scale;
        });
        row.each([&]<class V>(index_t j) {
            V const normal = (load<V>(xr + j) - splat<V>(middle)) * splat<V>(scale);
            store(to + j, normal * load<V>(w + j) + load<V>(bias + j));
        });
    }
};

// Gradients of a norm. With h = (x - mean) r, a row is dx = (dy w - mean(dy w) - h mean(dy w h)) r, plus its row of
// `addend` if that is given. It adds dy h to the gain's gradient and dy to the bias's. Without Centred (RMSNorm) mean
// and second term are zero. dy is stored as DY.
template <class T, bool Centred, class DY> struct norm_gradient {
    T* dx;  // may alias dy or x
    DY const* dy;
    T const* x;
    T const* w;
    T const* mean;
    T const* r;
    index_t n;
    T const* addend = nullptr;

    struct sums {
        T slope;  // sum of dy w
        T along;  // sum of dy w h
    };
    CALM_HD static sums both(sums const& a, sums const& b) { return {a.slope + b.slope, a.along + b.along}; }

    // h from x, in some elements of one row.
    template <class V> CALM_HD V normal(V value, index_t row) const {
        if constexpr (Centred) value = value - splat<V>(mean[row]);
        return value * splat<V>(r[row]);
    }
    // Adds the terms of elements j to the sums; g is dy.
    template <class V> CALM_HD void add(sums& total, V g, V h, index_t j) const {
        V const slope = g * load<V>(place_of<V>(w + j));
        if constexpr (Centred) total.slope += calm::sum(slope);
        total.along += calm::sum(slope * h);
    }
    // The means of dy w and of dy w h.
    [[nodiscard]] CALM_HD sums means(sums const& total) const {
        auto const count = static_cast<T>(n);
        return {total.slope / count, total.along / count};
    }
    // dx in elements j of one row.
    template <class V> CALM_HD V back(sums const& mean_of, V g, V h, index_t row, index_t j) const {
        V slope = g * load<V>(place_of<V>(w + j));
        if constexpr (Centred) slope = slope - splat<V>(mean_of.slope);
        V const own = (slope - h * splat<V>(mean_of.along)) * splat<V>(r[row]);
        return addend == nullptr ? own : own + load<V>(place_of<V>(addend + row * n + j));
    }
};

// dx for rows of any width, one block per row.
template <class T, bool Centred, class DY> struct norm_back_kernel {
    static constexpr int threads = norm_threads;
    struct shared {};
    norm_gradient<T, Centred, DY> of;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t row) const {
        using sums = typename norm_gradient<T, Centred, DY>::sums;
        index_t const first = row * of.n;
        typename Block::template per_thread<sums> partial;
        b.phase([&](int t) {
            sums own{};
            for (index_t j = t; j < of.n; j += threads)
                of.add(own, load<T>(of.dy + first + j), of.normal(of.x[first + j], row), j);
            partial[t] = own;
        });
        sums const means = of.means(b.fold(partial, norm_gradient<T, Centred, DY>::both));
        b.phase([&](int t) {
            for (index_t j = t; j < of.n; j += threads)
                of.dx[first + j] = of.back(means, load<T>(of.dy + first + j), of.normal(of.x[first + j], row), row, j);
        });
    }
};

// A row's contribution to the gain's gradient.
template <class T, bool Centred, class DY> struct gain_term {
    norm_gradient<T, Centred, DY> of;
    [[nodiscard]] bool in_groups() const { return are_in_groups(of.n, {of.x}) && are_in_groups(of.n, {of.dy}); }
    template <class V> CALM_HD V at(index_t row, index_t j) const {
        index_t const i = row * of.n + j;
        return load<V>(place_of<V>(of.dy + i)) * of.normal(load<V>(place_of<V>(of.x + i)), row);
    }
};

// All gradients in one pass over memory. A block has `chunk` rows; each team of its threads keeps one row in registers,
// and the column sums of its rows. For rows of whole 16-byte groups, at most `widest` elements.
template <class T, bool Centred, class DY, int Groups, int Team> struct norm_gradients_kernel {
    using V = group_of<T>;
    static constexpr int threads = norm_threads;
    static constexpr int teams = threads / Team;
    static constexpr index_t widest = index_t{Groups} * Team * lanes<V>;
    struct shared {
        V partial[threads];
    };
    norm_gradient<T, Centred, DY> of;
    T* gains;   // (blocks, n): sums of dy h
    T* biases;  // (blocks, n): sums of dy, where Centred
    index_t rows;
    index_t chunk;

    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t block) const {
        using sums = typename norm_gradient<T, Centred, DY>::sums;
        typename Block::template per_thread<of_thread> g, h, gain, bias;
        b.each([&](int t) {
            for (int i = 0; i < Groups; ++i) gain[t].group[i] = bias[t].group[i] = V{};
        });
        index_t const last = (block + 1) * chunk < rows ? (block + 1) * chunk : rows;
        for (index_t first = block * chunk; first < last; first += teams) {
            typename Block::template per_thread<sums> partial;
            b.each([&](int t) {
                index_t const row = first + t / Team;
                sums own{};
                if (row < last) {
                    // Past the row's end, its last group is read again and counts as zero.
                    DY const* const dy = of.dy + row * of.n;
                    T const* const x = of.x + row * of.n;
                    for (int i = 0; i < Groups; ++i) g[t].group[i] = load<V>(place_of<V>(dy + within(column(t, i))));
                    for (int i = 0; i < Groups; ++i) h[t].group[i] = load<V>(place_of<V>(x + within(column(t, i))));
                    for (int i = 0; i < Groups; ++i) {
                        if (column(t, i) >= of.n) g[t].group[i] = V{};
                        h[t].group[i] = of.normal(h[t].group[i], row);
                        of.add(own, g[t].group[i], h[t].group[i], within(column(t, i)));
                    }
                }
                partial[t] = own;
            });
            auto const means = means_of_team(b, partial);
            b.each([&](int t) {
                index_t const row = first + t / Team;
                if (row >= last) return;
                for (int i = 0; i < Groups; ++i) {
                    gain[t].group[i] += g[t].group[i] * h[t].group[i];
                    if constexpr (Centred) bias[t].group[i] += g[t].group[i];
                    g[t].group[i] = of.back(means[t], g[t].group[i], h[t].group[i], row, within(column(t, i)));
                }
                for (int i = 0; i < Groups; ++i)
                    if (column(t, i) < of.n) store(place_of<V>(of.dx + row * of.n + column(t, i)), g[t].group[i]);
            });
        }
        put_columns(b, s, gain, gains + block * of.n);
        if constexpr (Centred) put_columns(b, s, bias, biases + block * of.n);
    }

private:
    struct of_thread {
        V group[Groups];
    };
    // The column of group i of thread t.
    CALM_HD static index_t column(int t, int i) { return index_t{lanes<V>} * (i * Team + t % Team); }
    [[nodiscard]] CALM_HD index_t within(index_t j) const { return j < of.n ? j : of.n - lanes<V>; }

    // The means of each team's row, for its threads.
    template <class Block, class Sums> CALM_HD Sums means_of_team(Block& b, Sums all) const {
        auto const both = norm_gradient<T, Centred, DY>::both;
        if constexpr (teams == 1) {
            auto const total = b.fold(all, both);
            b.each([&](int t) { all[t] = of.means(total); });
        } else {
            static_assert(Team == warp_size);
            all = b.fold_warps(all, both);
            b.each([&](int t) { all[t] = of.means(all[t]); });
        }
        return all;
    }
    // to (n) = the sums of the teams, added in order.
    template <class Block, class Columns>
    CALM_HD void put_columns(Block& b, shared& s, Columns const& own, T* to) const {
        for (int i = 0; i < Groups; ++i) {
            b.phase([&](int t) { s.partial[t] = own[t].group[i]; });
            b.phase([&](int t) {
                if (t >= Team || column(t, i) >= of.n) return;
                V total = s.partial[t];
                for (int team = 1; team < teams; ++team) total += s.partial[team * Team + t];
                store(place_of<V>(to + column(t, i)), total);
            });
        }
    }
};

// Writes dx; adds to dw and, where Centred, to db. The result's bits depend on the shape alone.
template <class T, bool Centred, class DY, class Backend>
void run_norm_gradients(context<Backend>& ctx, norm_gradient<T, Centred, DY> const& of, T* dw, T* db, index_t rows) {
    constexpr index_t most_blocks = 512;
    constexpr index_t few_rows = norm_threads / warp_size;  // at least so many rows per block: one per warp
    auto const in_one_pass = [&]<int Groups, int Team>() {
        index_t const chunk = std::max(few_rows, blocks_for(rows, most_blocks)), blocks = blocks_for(rows, chunk);
        arena_scope const scope(ctx.workspace);
        auto const take = [&] { return ctx.workspace.template take<T>(extents<dyn, dyn>(blocks, of.n)).data(); };
        T* const gains = take();
        T* const biases = Centred ? take() : nullptr;
        launch(ctx, blocks, norm_gradients_kernel<T, Centred, DY, Groups, Team>{of, gains, biases, rows, chunk});
        run_sum_axis0_at_once(ctx, dw, blocks, of.n, rows_term<T>{gains, of.n});
        if constexpr (Centred) run_sum_axis0_at_once(ctx, db, blocks, of.n, rows_term<T>{biases, of.n});
    };
    constexpr index_t group = lanes<group_of<T>>;
    bool const whole = are_in_groups<T>(of.n, {of.dx, of.x, of.w, of.addend}) && are_in_groups(of.n, {of.dy});
    if (whole && of.n <= 2 * warp_size * group) return in_one_pass.template operator()<2, warp_size>();
    if (whole && of.n <= 8 * warp_size * group) return in_one_pass.template operator()<8, warp_size>();
    if (whole && of.n <= 8 * norm_threads * group) return in_one_pass.template operator()<8, norm_threads>();
    run_sum_axis0(ctx, dw, rows, of.n, gain_term<T, Centred, DY>{of});  // before dx overwrites what it reads
    if constexpr (Centred) run_add_sum_axis0(ctx, db, of.dy, rows, of.n);
    launch(ctx, rows, norm_back_kernel<T, Centred, DY>{of});
}

template <block_backend Backend, class T, class DY>
void run_rms_norm_back(context<Backend>& ctx, T* dx, T* dw, DY const* dy, norm_forward<T> const& all,
                       T const* addend = nullptr) {
    run_norm_gradients(ctx, norm_gradient<T, false, DY>{dx, dy, all.x, all.w, nullptr, all.r, all.n, addend}, dw,
                       static_cast<T*>(nullptr), all.rows);
}
template <block_backend Backend, class Y, class T>
void run_layer_norm(context<Backend>& ctx, Y* y, T* mean, T* r, layer_norm_input<T> const& in) {
    launch(ctx, in.rows, layer_norm_kernel<T, Y>{y, mean, r, in.x, in.w, in.b, in.n, in.eps});
}
template <block_backend Backend, class T, class DY>
void run_layer_norm_back(context<Backend>& ctx, T* dx, T* dw, T* db, DY const* dy, norm_forward<T> const& all,
                         T const* addend = nullptr) {
    run_norm_gradients(ctx, norm_gradient<T, true, DY>{dx, dy, all.x, all.w, all.mean, all.r, all.n, addend}, dw, db,
                       all.rows);
}

}  // namespace calm::detail
