#pragma once
// Screening for the argmax over a vocabulary. An int8 copy of the table needs a quarter of the memory traffic, and
// rigorous bounds keep every token that could be the argmax. Sizes: R rows, D columns, V tokens.

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <memory>
#include <vector>

#include "calm/loss/cross_entropy.hpp"

#ifndef __CUDACC__
#include "calm/tensor/detail/kernels/cpu/byte_panels.hpp"
#include "calm/tensor/detail/kernels/cpu/skinny_product.hpp"
#endif

namespace calm {

// nvcc does not compile the vector code, so it sees only this declaration.
class token_screen;

#ifndef __CUDACC__

namespace detail {

template <class W> class screened_argmax;

}  // namespace detail

// An int8 copy of a table (V, D) of float or bf16, which must not change while this is in use. Takes V D bytes. Slower
// than full products unless `has_byte_products`.
class token_screen {
public:
    // Quantises the table (V, D), using the threads of ctx.
    template <tensor_like Table> token_screen(context<cpu> const& ctx, Table const& table) {
        auto const rows = detail::as_view(table);
        V_ = rows.extent(0);
        D_ = rows.extent(1);
        words_ = (D_ + 3) / 4;
        groups_ = (V_ + group - 1) / group;
        index_t const all = groups_ * group;
        auto const bytes = memory_.take<std::uint8_t>(extents<dyn>(all * words_ * 4));
        auto const scales = memory_.take<float>(extents<dyn>(all));
        auto const norms = memory_.take<float>(extents<dyn>(all));
        auto const rests = memory_.take<float>(extents<dyn>(all));
        auto const* const held = detail::in_int8(ctx, rows.data());
        ctx.parallel_ranges(all, 512, [&](index_t begin, index_t end) {
            std::vector<float> wide(static_cast<std::size_t>(held != nullptr ? D_ : 0));
            for (index_t v = begin; v < end; ++v) {
                auto* const to = bytes.data() + v / lanes * panel_bytes() + v % lanes * 4;
                auto const put = [&](index_t i, detail::native_integers const& whole) {
                    auto const narrow = std::bit_cast<std::array<std::uint32_t, lanes / 4>>(
                        __builtin_convertvector(whole + zero, detail::unsigned_bytes));
                    for (index_t word = i / 4; auto const& four : narrow)
                        if (word < words_) std::memcpy(to + word++ * detail::native_bytes, &four, 4);
                };
                // Pads the last group with copies of the last token.
                auto const* const row = rows.data() + std::min(v, V_ - 1) * D_;
                if (held != nullptr) detail::copy_row(held, row, D_, wide.data());
                auto const made = held != nullptr ? detail::row_in_bytes::of(wide.data(), D_, put)
                                                  : detail::row_in_bytes::of(row, D_, put);
                scales[v] = made.scale;
                norms[v] = made.norm;
                rests[v] = made.rest;
            }
        });
        bytes_ = bytes.data();
        scales_ = scales.data();
        norms_ = norms.data();
        rests_ = rests.data();
        constexpr index_t most_summed = index_t{1} << 16;  // more int8 products could overflow 32-bit sums
        serves_ =
            D_ <= most_summed && std::all_of(norms_, norms_ + all, [](float norm) { return std::isfinite(norm); });
    }
    // Whether the screen can be used: not if D > 2^16, or if some token's row has non-finite elements or a norm above
    // 1e12.
    [[nodiscard]] bool serves() const { return serves_; }
    [[nodiscard]] extents<dyn, dyn> of() const { return {V_, D_}; }  // shape of the table

private:
    template <class W> friend class detail::screened_argmax;

    static constexpr index_t lanes = detail::panel_rows;
    static constexpr int panels = 4;                  // multiplied at once
    static constexpr index_t group = lanes * panels;  // tokens per such group
    static constexpr int zero = 128;                  // offset that makes a quantised value unsigned

    [[nodiscard]] index_t panel_bytes() const { return words_ * detail::native_bytes; }

    arena<cpu> memory_{"screen"};
    index_t V_ = 0, D_ = 0;
    index_t words_ = 0;  // 32-bit words per token
    index_t groups_ = 0;
    std::uint8_t const* bytes_ = nullptr;  // panels
    float const* scales_ = nullptr;        // per token
    float const* norms_ = nullptr;
    float const* rests_ = nullptr;
    bool serves_ = false;
};

namespace detail {

// Argmax of rows x (R, D) by such a screen. The fp32 product differs from scale scale' (bytes . bytes') by at most
// |rest| |e| + |x - rest| |rest'| plus rounding. Only tokens whose upper bound reaches the best lower bound are
// multiplied exactly.
template <class W> class screened_argmax {
public:
    screened_argmax(context<cpu>& ctx, token_screen const& screen, W const* table, float const* x, index_t R,
                    token_id* tokens) :
        ctx_(ctx),
        screen_(screen), table_(table), held_(in_int8(ctx, table)), x_(x), R_(R), tokens_(tokens),
        stride_(screen.words_ * 4), bytes_(ctx.workspace.template take<std::int8_t>(extents<dyn>(R * stride_)).data()),
        rows_(ctx.workspace.template take<row>(extents<dyn>(R)).data()),
        found_(ctx.workspace.template take<found>(extents<dyn>(ctx.threads() * R)).data()),
        gathered_(ctx.workspace.template take<W>(extents<dyn>(ctx.threads() * most_at_once * screen.D_)).data()) {}

    // Sets the tokens of all rows it can decide; returns the indices of the others.
    std::vector<index_t> run() {
        ctx_.parallel_ranges(R_, 16, [&](index_t begin, index_t end) {
            for (index_t i = begin; i < end; ++i) note_row(i);
        });
        ctx_.parallel_ranges(screen_.groups_, groups_a_task, [&](index_t begin, index_t end, int thread) {
            for (index_t group = begin; group < end; ++group) look_at_all(group, thread);
        });
        ctx_.parallel_ranges(R_, 4, [&](index_t begin, index_t end, int thread) {
            for (index_t i = begin; i < end; ++i) settle(i, thread);
        });
        std::vector<index_t> left;
        if (!ctx_.is_dry_run())
            for (index_t i = 0; i < R_; ++i)
                if (!rows_[i].is_done) left.push_back(i);
        return left;
    }

private:
    static constexpr index_t groups_a_task = native_bytes == 64 ? 8 : 16;
    static constexpr index_t most_at_once = 16;  // tokens per exact product
    static constexpr float infinity = std::numeric_limits<float>::infinity();
    static constexpr int room = 64;  // candidates per row and thread

    struct row {
        float scale, own_reach, rest_reach;
        std::int32_t zero;  // the offset `zero` times the sum of the row's bytes
        bool is_done;
    };
    // One row's candidates found by one thread.
    struct found {
        float least;       // lower bound of the largest product
        int count;         // number of candidates; -1: overflow
        float most[room];  // upper bounds of their products
        token_id tokens[room];
    };

    void note_row(index_t i) {
        index_t const D = screen_.D_;
        std::int8_t* const to = bytes_ + i * stride_;
        native_integers sums{};
        auto const made = row_in_bytes::of(x_ + i * D, D, [&](index_t at, native_integers const& whole) {
            auto const narrow = __builtin_convertvector(whole, signed_bytes);
            std::memcpy(to + at, &narrow, static_cast<std::size_t>(std::min(panel_rows, stride_ - at)));
            sums += whole;
        });
        if (!made.is_fit) std::fill(to, to + stride_, std::int8_t{0});
        std::int32_t sum = 0;
        for (index_t l = 0; l < panel_rows; ++l) sum += sums[l];
        rows_[i] = {made.scale, made.rest + rounding_of_sum(D) * made.norm, made.norm + made.rest,
                    sum * token_screen::zero, made.is_fit};
        for (index_t thread = 0; thread < ctx_.threads(); ++thread) {
            auto& own = found_[thread * R_ + i];
            // For a zero row all products are equal, so token 0 wins.
            own.least = made.is_fit && !made.is_zero ? -infinity : infinity;
            own.count = 0;
        }
    }

    // Screens one group of tokens for all rows.
    void look_at_all(index_t group, int thread) const {
        constexpr int most = native_bytes == 64 ? 6 : 2;
        index_t i = 0;
        for (; i + most <= R_; i += most) look_at<most>(i, group, thread);
        if constexpr (most > 4)
            if (i + 4 <= R_) {
                look_at<4>(i, group, thread);
                i += 4;
            }
        if (i + 2 <= R_) {
            look_at<2>(i, group, thread);
            i += 2;
        }
        if (i < R_) look_at<1>(i, group, thread);
    }

    // Screens one group of tokens for `Rows` rows, starting at row i.
    template <int Rows> void look_at(index_t i, index_t group, int thread) const {
        constexpr int panels = token_screen::panels;
        native_integers sums[Rows][panels];
        index_t const first = group * token_screen::group;
        multiply_bytes(sums, screen_.words_, bytes_ + i * stride_, stride_,
                       screen_.bytes_ + group * panels * screen_.panel_bytes());
        native_floats scale[panels], norm[panels], rest[panels];
        unrolled<panels>([&](auto p) __attribute__((always_inline)) {
            index_t const at = first + p * panel_rows;
            std::memcpy(&scale[p], screen_.scales_ + at, native_bytes);
            std::memcpy(&norm[p], screen_.norms_ + at, native_bytes);
            std::memcpy(&rest[p], screen_.rests_ + at, native_bytes);
        });
        unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
            row const& x = rows_[i + r];
            native_floats value[panels], reach[panels];
            std::uint32_t any = 0;
            unrolled<panels>([&](auto p) __attribute__((always_inline)) {
                value[p] = __builtin_convertvector(sums[r][p] - x.zero, native_floats) * (scale[p] * x.scale);
                reach[p] = norm[p] * x.own_reach + rest[p] * x.rest_reach;
                any |= lanes_at_least(value[p] + reach[p], found_by(thread, i + r).least);
            });
            if (any != 0) note(i + r, thread, value, reach, first);
        });
    }

    // Records the candidates for row i among the tokens of the group that starts at `first`.
    [[gnu::noinline]] void note(index_t i, int thread, native_floats const* value, native_floats const* reach,
                                index_t first) const {
        auto& own = found_by(thread, i);
        for (int p = 0; p < token_screen::panels; ++p) {
            native_floats const least = value[p] - reach[p];
            for (index_t l = 0; l < panel_rows; ++l) own.least = std::max(own.least, least[l]);
        }
        for (int p = 0; p < token_screen::panels; ++p) {
            native_floats const most = value[p] + reach[p];
            for (auto bits = lanes_at_least(most, own.least); bits != 0; bits &= bits - 1) {
                auto const l = static_cast<index_t>(std::countr_zero(bits));
                index_t const token = first + p * panel_rows + l;
                if (token >= screen_.V_ || own.count < 0) return;
                if (own.count == room) make_room(i, thread);
                if (own.count < 0 || most[l] < own.least) continue;
                own.most[own.count] = most[l];
                own.tokens[own.count++] = static_cast<token_id>(token);
            }
        }
    }
    // Frees space: exact products raise the lower bound, which eliminates most candidates.
    void make_room(index_t i, int thread) const {
        auto& own = found_by(thread, i);
        best_of some{};
        multiply(some, i, own, own.least, thread);
        own.least = std::max(own.least, some.logit);
        int kept = 0;
        for (int c = 0; c < own.count; ++c)
            if (own.most[c] >= own.least) {
                own.most[kept] = own.most[c];
                own.tokens[kept++] = own.tokens[c];
            }
        own.count = kept < room ? kept : -1;
    }

    // Decides the argmax of row i among its candidates.
    void settle(index_t i, int thread) {
        float least = -infinity;
        for (int t = 0; t < ctx_.threads(); ++t) {
            if (found_by(t, i).count < 0) rows_[i].is_done = false;
            least = std::max(least, found_by(t, i).least);
        }
        if (!rows_[i].is_done) return;
        best_of all{};
        for (int t = 0; t < ctx_.threads(); ++t) multiply(all, i, found_by(t, i), least, thread);
        tokens_[i] = all.token;
    }

    struct best_of {
        float logit = -infinity;
        token_id token = 0;
    };
    // Multiplies row i exactly with all candidates whose upper bound reaches `least`.
    void multiply(best_of& best, index_t i, found const& some, float least, int thread) const {
        index_t const D = screen_.D_;
        W* const gathered = gathered_ + thread * most_at_once * D;
        token_id tokens[most_at_once];
        float logits[most_at_once];
        for (int c = 0; c < some.count;) {
            index_t count = 0;
            for (; c < some.count && count < most_at_once; ++c)
                if (some.most[c] >= least) {
                    copy_row(held_, table_ + some.tokens[c] * D, D, gathered + count * D);
                    tokens[count++] = some.tokens[c];
                }
            if (count == 0) return;
            skinny_product(
                product<float, W>{1, count, D, logits, count, x_ + i * D, D, false, gathered, D, true, false});
            for (index_t at = 0; at < count; ++at)
                if (logits[at] > best.logit || (logits[at] == best.logit && tokens[at] < best.token))
                    best = {logits[at], tokens[at]};
        }
    }

    [[nodiscard]] found& found_by(int thread, index_t i) const { return found_[thread * R_ + i]; }

    context<cpu>& ctx_;
    token_screen const& screen_;
    W const* table_;
    int8_matrix const* held_;  // that the table belongs to, or null
    float const* x_;
    index_t R_;
    token_id* tokens_;
    index_t stride_;      // bytes per row
    std::int8_t* bytes_;  // quantised rows
    row* rows_;
    found* found_;  // (threads, R)
    W* gathered_;   // per thread
};

// argmax_token with a screen.
template <class W, index_t D>
void screened_argmax_of_rows(context<cpu>& ctx, vector_view<token_id> const& tokens,
                             matrix_view<float const, D> const& x, matrix_view<W const, D> const& table,
                             token_screen const& screen) {
    constexpr index_t at_once = 128;
    constexpr auto operation = "calm::argmax_token";
    require_shape(operation, "the screened table", screen.of(), extents<dyn, dyn>(table.extent(0), table.extent(1)));
    require_size(operation, "tokens", tokens.size(), x.extent(0));
    if (!screen.serves() || table.extent(0) == 0) return argmax_token(ctx, tokens, x, table);
    for (index_t r = 0; r < x.extent(0); r += at_once) {
        arena_scope const scope(ctx.workspace);
        index_t const n = std::min(at_once, x.extent(0) - r);
        screened_argmax<W> some(ctx, screen, table.data(), rows(x, r, n).data(), n, tokens.data() + r);
        for (index_t const i : some.run()) argmax_token(ctx, rows(tokens, r + i, 1), rows(x, r + i, 1), table);
    }
}

}  // namespace detail

// argmax_token with a screen of the same table. Returns the tokens that the products of few rows give, for any R.
// Throws errc::usage if the shape of the screened table differs.
template <tensor_like X, tensor_like Table>
void argmax_token(context<cpu>& ctx, detail::numbers_like<X, token_id> const& tokens, X const& x, Table const& table,
                  token_screen const& screen) {
    detail::screened_argmax_of_rows<detail::scalar_of<Table>, detail::columns_of<X>>(ctx, tokens, detail::as_view(x),
                                                                                     detail::as_view(table), screen);
}

#endif

namespace detail {
// Whether screening makes the argmax faster for rows of T.
#ifdef __CUDACC__
template <class T, class Backend> inline constexpr bool is_screened = false;
#else
template <class T, class Backend>
inline constexpr bool is_screened = has_byte_products&& std::is_same_v<T, float>&& std::is_same_v<Backend, cpu>;
#endif
}  // namespace detail

// A screen of a table for rows of T. Null if it would not be faster: on a processor without int8 products, or for a
// small table.
template <class T, tensor_like Table, class Context>
std::shared_ptr<token_screen const> screen_if_faster([[maybe_unused]] Context const& ctx,
                                                     [[maybe_unused]] Table const& table) {
    if constexpr (detail::is_screened<T, detail::backend_of<Table>>) {
        constexpr index_t least = index_t{1} << 18;  // elements
        if (!ctx.is_dry_run() && detail::as_view(table).size() >= least)
            if (auto screen = std::make_shared<token_screen const>(ctx, table); screen->serves()) return screen;
    }
    return nullptr;
}

// argmax_token with the result of screen_if_faster. Where that is always null, no screening code is compiled.
template <tensor_like X, tensor_like Table>
void argmax_token(detail::context_of<X>& ctx, detail::numbers_like<X, token_id> const& tokens, X const& x,
                  Table const& table, [[maybe_unused]] token_screen const* screen) {
    if constexpr (detail::is_screened<detail::scalar_of<X>, detail::backend_of<X>>)
        if (screen != nullptr) return argmax_token(ctx, tokens, x, table, *screen);
    argmax_token(ctx, tokens, x, table);
}

}  // namespace calm
