// Kernels other than products (attention, the energy score, norms, AdamW and the argmax over a vocabulary) at the
// shapes of calm-m. Each is compared before it is timed: with the host at a small size, the argmax with smaller calls.

#include <array>

#include "../configurations.hpp"
#include "calm/loss/cross_entropy.hpp"
#include "calm/loss/energy_score.hpp"
#include "calm/nn/linear.hpp"
#include "calm/nn/norm.hpp"
#include "calm/tensor/ops/attention.hpp"
#include "calm/tensor/ops/fill.hpp"
#include "calm/train/optimizer.hpp"
#include "device.hpp"

namespace {

using namespace bench;
using calm::dyn;
template <class B> using rows_of = calm::matrix_view<float, dyn, B>;
using shape = calm::extents<dyn, dyn>;
using calm::test::taken_back;

void append(std::vector<float>& all, std::vector<float> const& more) {
    all.insert(all.end(), more.begin(), more.end());
}
double number(index_t n) {
    return static_cast<double>(n);
}
// A (rows, columns) matrix of random numbers in ctx.saved.
template <class B> rows_of<B> drawn(calm::context<B>& ctx, index_t rows, index_t columns, std::uint64_t seed) {
    rows_of<B> const x = ctx.saved.template take<float>(shape(rows, columns));
    fill_normal(ctx, x, calm::key{seed});
    return x;
}

// ---- attention

template <class B> struct attention {
    index_t sequences, positions, heads, head_size;
    calm::context<B>& ctx;
    [[nodiscard]] rows_of<B> some(std::uint64_t seed) const {
        return drawn(ctx, sequences * positions, heads * head_size, seed);
    }
    rows_of<B> q = some(1), k = some(2), v = some(3), dy = some(4), y = some(5), dq = some(6), dk = some(7),
               dv = some(8);
    calm::view<float, calm::extents<dyn, dyn, dyn>, B> lse =
        ctx.saved.template take<float>(calm::extents<dyn, dyn, dyn>(sequences, heads, positions));

    void forward() const { causal_attention(ctx, y, lse, q, k, v, positions, head_size); }
    void backward() const {
        causal_attention_back(ctx, dq, dk, dv, dy, lse,
                              {.y = y, .q = q, .k = k, .v = v, .positions = positions, .head_size = head_size});
    }
    // Only unmasked work: two products of each position with itself and every earlier one.
    [[nodiscard]] double flops() const {
        return 2 * number(sequences * heads * head_size * positions * (positions + 1));
    }
};

// Outputs and gradients for sequences of a given length: y, dq, dk, dv.
template <class B> std::array<std::vector<float>, 4> attended(calm::context<B>& ctx, index_t positions) {
    calm::arena_scope const scope(ctx.saved);
    attention<B> const small{2, positions, 2, 64, ctx};
    small.forward();
    small.backward();
    return {taken_back(ctx, small.y), taken_back(ctx, small.dq), taken_back(ctx, small.dk), taken_back(ctx, small.dv)};
}

void time_attention(device_context& ctx, std::string const& dtype) {
    calm::arena_scope const scope(ctx.saved);
    attention<device> const x{sized(4, 1), sized(2047, 20), 16, 64, ctx};
    double const forward = time_of(ctx, [&] { x.forward(); }).median;
    print_row("attention, forward, " + dtype, {{"ms", forward * 1e3}, {"tflop_per_s", x.flops() / forward / 1e12}});
    double const backward = time_of(ctx, [&] { x.backward(); }).median;
    print_row("attention, backward, " + dtype,
              {{"ms", backward * 1e3}, {"tflop_per_s", 2.5 * x.flops() / backward / 1e12}});
}

void time_attention(device_context& ctx) {
    agree_with_host("attention", 1e-4, []<class B>(calm::context<B>& by) {
        std::vector<float> all;
        for (auto const& part : attended(by, 70)) append(all, part);
        return all;
    });
    time_attention(ctx, "fp32");
    auto in_bf16 = context_of(true);
    for (index_t const positions : {index_t{70}, sized(500, 100)}) {
        auto const want = attended(ctx, positions), got = attended(in_bf16, positions);
        double most = 0;
        for (std::size_t part = 0; part < want.size(); ++part) {
            double apart = 0, all = 0;
            for (std::size_t i = 0; i < want[part].size(); ++i) {
                apart += std::pow(double{got[part][i]} - double{want[part][i]}, 2);
                all += std::pow(double{want[part][i]}, 2);
            }
            most = std::max(most, std::sqrt(apart / all));
        }
        agree("attention in bf16 beside fp32, " + std::to_string(positions) + " positions", most, 0.02);
    }
    time_attention(in_bf16, "bf16");
}

// ---- the energy score and its gradient, targets drawn inside

template <class B> struct energy {
    index_t R, N, M, L;
    calm::context<B>& ctx;
    using cube = calm::extents<dyn, dyn, dyn>;
    calm::view<float, cube, B> x = ctx.saved.template take<float>(cube(R, N, L));
    calm::view<float, cube, B> dx = ctx.saved.template take<float>(cube(R, N, L));
    rows_of<B> mean = drawn(ctx, R, L, 2), log_std = drawn(ctx, R, L, 3);
    calm::vector_view<float, dyn, B> score = ctx.saved.template take<float>(calm::extents<dyn>(R));

    void run() const { calm::energy_score(ctx, score, dx, x, mean, log_std, calm::drawn_targets{{5}}, 1.0, M); }
    [[nodiscard]] double distances() const { return number(R * N * (N - 1 + M)); }
};

void time_energy(device_context& ctx) {
    agree_with_host("energy score", 1e-4, []<class B>(calm::context<B>& by) {
        energy<B> const small{5, 8, 100, 128, by};
        fill_normal(by, small.x, calm::key{1});
        small.run();
        auto all = taken_back(by, small.score);
        append(all, taken_back(by, small.dx));
        return all;
    });
    calm::arena_scope const scope(ctx.saved);
    energy<device> const x{sized(8188, 3), 8, 100, 128, ctx};
    fill_normal(ctx, x.x, calm::key{1});
    double const seconds = time_of(ctx, [&] { x.run(); }).median;
    print_row("energy score with gradient", {{"ms", seconds * 1e3}, {"ps_a_distance", seconds / x.distances() * 1e12}});
}

// ---- norms of rows with 1024 elements

template <template <calm::index_t, class> class Layer, class B> struct norm {
    static constexpr index_t D = 1024;
    Layer<D, calm::space<B>> layer;
    calm::arena<B> values{"values"}, gradients{"gradients"};

    explicit norm(calm::context<B>& ctx) {
        allocate(layer, values, &gradients);
        initialise(ctx, layer);
    }
    using rows = calm::matrix_view<float, D, B>;
    static rows drawn(calm::context<B>& ctx, index_t count, std::uint64_t seed) {
        rows const x = ctx.saved.template take<float>(calm::extents<dyn, D>(count));
        fill_normal(ctx, x, calm::key{seed});
        return x;
    }
};

template <template <calm::index_t, class> class Layer>
void time_norm(device_context& ctx, std::string const& name, index_t count) {
    agree_with_host(name, 1e-4, []<class B>(calm::context<B>& by) {
        norm<Layer, B> small(by);
        auto const x = small.drawn(by, 5, 1), dy = small.drawn(by, 5, 2), dx = small.drawn(by, 5, 3);
        auto const s = small.layer.forward(by, x);
        small.layer.backward(by, s, dy, dx);
        auto all = taken_back(by, s.y);
        append(all, taken_back(by, dx));
        for (auto const& p : calm::parameters_of(small.layer)) append(all, taken_back(by, p.grad));
        return all;
    });
    calm::arena_scope const scope(ctx.saved);
    norm<Layer, device> n(ctx);
    auto const x = n.drawn(ctx, count, 1), dy = n.drawn(ctx, count, 2), dx = n.drawn(ctx, count, 3);
    auto const s = n.layer.forward(ctx, x);
    double const array = 4 * number(count * n.D);
    auto const print_time = [&](char const* what, double arrays, double seconds) {
        print_row(name + ", " + what, {{"ms", seconds * 1e3}, {"gb_per_s", arrays * array / seconds / 1e9}});
    };
    print_time("forward", 2, time_of(ctx, [&] {
                                 calm::arena_scope const again(ctx.saved);
                                 n.layer.forward(ctx, x);
                             }).median);
    print_time("backward", 3, time_of(ctx, [&] { n.layer.backward(ctx, s, dy, dx); }).median);
}

// ---- AdamW on one matrix

template <index_t D, class B> struct update {
    using layer_type = calm::linear<D, D, calm::with_bias::no, calm::space<B>>;
    calm::context<B>& ctx;
    layer_type layer;
    calm::arena<B> values{"values"}, gradients{"gradients"};
    std::optional<calm::adamw<calm::space<B>>> optimizer;

    explicit update(calm::context<B>& by) : ctx(by) {
        allocate(layer, values, &gradients);
        initialise(ctx, layer);
        fill_normal(ctx, layer.weight.gradient(), calm::key{1});
        optimizer.emplace(layer);
    }
    void run() {
        (void)layer.weight.gradient();
        optimizer->step(ctx, 1e-3);
    }
};

void time_update(device_context& ctx) {
    agree_with_host("AdamW", 1e-5, []<class B>(calm::context<B>& by) {
        update<40, B> small(by);
        small.run();
        return taken_back(by, small.layer.weight.value);
    });
    constexpr index_t D = sized(8192, 64);
    update<D, device> x(ctx);
    double const seconds = time_of(ctx, [&] { x.run(); }).median;
    // The norm reads the gradients. The update reads and writes gradients, weights and both moment estimates.
    print_row("AdamW with its norm, 67 M parameters",
              {{"ms", seconds * 1e3}, {"gb_per_s", 36 * number(D * D) / seconds / 1e9}});
}

// ---- the argmax over a vocabulary: many rows are screened in bf16, few are not

void time_argmax(device_context& ctx) {
    constexpr index_t D = sized(512, 64), V = sized(128'257, 4'100), R = sized(4'096, 130), few = 128;
    calm::arena_scope const scope(ctx.saved);
    auto const rows_of_numbers = [&](index_t rows, std::uint64_t seed) {
        auto const x = ctx.saved.take<float>(calm::extents<dyn, D>(rows));
        fill_normal(ctx, x, calm::key{seed});
        return x;
    };
    auto const x = rows_of_numbers(R, 1), table = rows_of_numbers(V, 2);
    auto const take = [&] { return ctx.saved.take<calm::token_id>(calm::extents<dyn>(R)); };
    auto const tokens = take(), want = take();
    auto const together = [&] { argmax_token(ctx, tokens, x, table); };
    auto const by_few = [&] {
        for (index_t r = 0; r < R; r += few) {
            index_t const n = std::min(few, R - r);
            argmax_token(ctx, rows(want, r, n), rows(x, r, n), table);
        }
    };
    together();
    by_few();
    auto const found = taken_back(ctx, tokens), expected = taken_back(ctx, want);
    index_t differing = 0;
    for (std::size_t r = 0; r < found.size(); ++r) differing += found[r] != expected[r] ? 1 : 0;
    // Two logits within the rounding of fp32 may change places.
    agree("argmax of many rows beside few, share of other tokens", number(differing) / number(R), 1e-3);
    double const flops = 2 * number(R) * number(V) * number(D);
    auto const print_time = [&](char const* name, double seconds) {
        print_row(name, {{"ms", seconds * 1e3}, {"tflop_per_s", flops / seconds / 1e12}});
    };
    print_time("argmax of 4,096 rows over 128,257 tokens", time_of(ctx, together).median);
    print_time("the same, 128 rows at a time", time_of(ctx, by_few).median);
}

}  // namespace

int main() {
    return run([] {
        device_context ctx(1);
        time_attention(ctx);
        time_energy(ctx);
        time_norm<calm::rms_norm_layer>(ctx, "RMSNorm, 8188 x 1024", sized(8188, 7));
        time_norm<calm::layer_norm_layer>(ctx, "LayerNorm, 65504 x 1024", sized(65504, 7));
        time_update(ctx);
        time_argmax(ctx);
    });
}
