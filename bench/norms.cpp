// RMSNorm and LayerNorm of rows, forward and backward, compared with plain loops and expression trees: everything but
// products is bound by memory. If a tree is as fast, there is no kernel.

#include <cmath>

#include "calm/nn/norm.hpp"
#include "calm/tensor/core/tensor.hpp"
#include "calm/tensor/expr/expr.hpp"
#include "program.hpp"

namespace {

using calm::column;
using calm::index_t;
constexpr index_t width = 128;
using rows_type = calm::tensor<float, calm::extents<calm::dyn, width>>;

void plain_rms_norm(calm::context<> const& ctx, rows_type& y, rows_type const& x, float const* w) {
    ctx.parallel_ranges(x.extent(0), 64, [&](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r) {
            float const* const a = x.data() + r * width;
            float squares = 0;
            for (index_t i = 0; i < width; ++i) squares += a[i] * a[i];
            float const scale = 1 / std::sqrt(squares / static_cast<float>(width) + 1e-6F);
            for (index_t i = 0; i < width; ++i) y[r * width + i] = a[i] * scale * w[i];
        }
    });
}

// Sets up operands and an allocated layer; one call of f moves `arrays` arrays of (rows, width).
template <class Layer, class F>
void add_norm(std::string const& name, int threads, index_t rows, int arrays, F const& f) {
    bench::add(name + "/" + std::to_string(rows) + "x" + std::to_string(width), [=](benchmark::State& state) {
        calm::context<> ctx(1, threads);
        calm::arena<> values("values");
        calm::arena<> gradients("gradients");
        Layer layer;
        calm::allocate(layer, values, &gradients);
        calm::initialise(ctx, layer);
        calm::extents<calm::dyn, width> const shape(rows);
        rows_type x(shape);
        rows_type y(shape);
        calm::fill_normal(ctx, x.view(), calm::key{1});
        calm::fill_normal(ctx, y.view(), calm::key{2});
        auto const saved = layer.forward(ctx, x);
        double const seconds = bench::measure(state, [&] { f(ctx, layer, saved, x, y); });
        bench::report_bytes(state, static_cast<double>(rows * width) * 4 * arrays, seconds);
    });
}

template <class Layer> void add_layer(std::string const& name, int threads, index_t rows) {
    add_norm<Layer>(name + "/forward", threads, rows, 2,
                    [](auto& ctx, auto& layer, auto const&, rows_type& x, rows_type&) {
                        calm::arena_scope const scope(ctx.saved);
                        layer.forward(ctx, x);
                    });
    add_norm<Layer>(name + "/backward", threads, rows, 3,
                    [](auto& ctx, auto& layer, auto const& saved, rows_type&, rows_type& y) {
                        layer.backward(ctx, saved, y, saved.y);
                    });
}

// LayerNorm as expression trees: forward, and backward derived automatically and by hand.
void add_layer_norm_trees(int threads, index_t rows) {
    using layer_norm = calm::layer_norm_layer<width>;
    add_norm<layer_norm>("layer_norm/forward/tree", threads, rows, 2,
                         [](auto& ctx, auto& layer, auto const& s, rows_type& x, rows_type&) {
                             evaluate(ctx, s.y,
                                      (x - tee(s.mean, mean_axis1(x))) *
                                              tee(s.r, 1.0 / sqrt(mean_square_axis1(x - column(s.mean)) + 1e-6)) *
                                              layer.weight.read() +
                                          layer.bias.read());
                         });
    add_norm<layer_norm>("layer_norm/backward/tree", threads, rows, 3,
                         [](auto& ctx, auto& layer, auto const& s, rows_type& x, rows_type& dy) {
                             auto const w = layer.weight.read();
                             auto const h = [&] { return (x - column(s.mean)) * column(s.r); };
                             differentiate(ctx,
                                           h() * accumulate(w, layer.weight.gradient()) +
                                               accumulate(layer.bias.read(), layer.bias.gradient()),
                                           dy);
                             evaluate(ctx, s.y,
                                      (dy * w - mean_axis1(dy * w) - h() * mean_axis1(dy * w * h())) * column(s.r));
                         });
    add_norm<layer_norm>("layer_norm/backward/differentiate", threads, rows, 3,
                         [](auto& ctx, auto& layer, auto const& s, rows_type& x, rows_type& dy) {
                             auto const more = [&] { return accumulate(x, s.y); };
                             differentiate(ctx,
                                           (wrt(x, s.y) - mean_axis1(more())) *
                                                   (1.0 / sqrt(mean_square_axis1(more() - mean_axis1(more())) + 1e-6)) *
                                                   accumulate(layer.weight.read(), layer.weight.gradient()) +
                                               accumulate(layer.bias.read(), layer.bias.gradient()),
                                           dy);
                         });
}

// RMSNorm's backward as trees; its forward is a tree already.
void add_rms_norm_trees(int threads, index_t rows) {
    using rms_norm = calm::rms_norm_layer<width>;
    add_norm<rms_norm>("rms_norm/backward/tree", threads, rows, 3,
                       [](auto& ctx, auto& layer, auto const& s, rows_type& x, rows_type& dy) {
                           auto const w = layer.weight.read();
                           auto const r = column(s.r);
                           differentiate(ctx, x * r * accumulate(w, layer.weight.gradient()), dy);
                           evaluate(ctx, s.y, dy * w * r - x * (mean_axis1(dy * w * x) * r * r * r));
                       });
    add_norm<rms_norm>("rms_norm/backward/differentiate", threads, rows, 3,
                       [](auto& ctx, auto& layer, auto const& s, rows_type& x, rows_type& dy) {
                           differentiate(ctx,
                                         wrt(x, s.y) * (1.0 / sqrt(mean_square_axis1(accumulate(x, s.y)) + 1e-6)) *
                                             accumulate(layer.weight.read(), layer.weight.gradient()),
                                         dy);
                       });
}

// a (width) = a / 2 + x; y is the RMSNorm of a with gain w.
void add_and_norm(float* y, float* a, float const* x, float const* w) {
    using packet = calm::packet<float>;
    constexpr index_t lanes = calm::lanes<packet>;
    packet squares{};
    for (index_t i = 0; i < width; i += lanes) {
        packet const sum = calm::load<packet>(a + i) * 0.5F + calm::load<packet>(x + i);
        calm::store(a + i, sum);
        squares += sum * sum;
    }
    float total = 0;
    for (index_t i = 0; i < lanes; ++i) total += squares[static_cast<std::size_t>(i)];
    float const scale = 1 / std::sqrt(total / static_cast<float>(width) + 1e-6F);
    for (index_t i = 0; i < width; i += lanes)
        calm::store(y + i, packet(calm::load<packet>(a + i) * scale * calm::load<packet>(w + i)));
}

// The gain from fusing a norm with the residual addition before it, or with the modulation after it. Compares two
// passes, as in the models, with one hand-written loop, which saves a write or a read of every row.
void add_fused(int threads, index_t rows) {
    using rms = calm::rms_norm_layer<width>;
    add_norm<rms>("residual_and_rms_norm/passes", threads, rows, 4,
                  [](auto& ctx, auto& layer, auto const& s, rows_type& x, rows_type& y) {
                      evaluate(ctx, y, y * 0.5 + x);
                      rms_norm(ctx, s.y, s.r, y, layer.weight.read(), rms::eps);
                  });
    add_norm<rms>("residual_and_rms_norm/loop", threads, rows, 4,
                  [](auto& ctx, auto& layer, auto const& s, rows_type& x, rows_type& y) {
                      float const* const w = layer.weight.value.data();
                      ctx.parallel_ranges(x.extent(0), 64, [&](index_t begin, index_t end) {
                          for (index_t at = begin * width; at < end * width; at += width)
                              add_and_norm(s.y.data() + at, y.data() + at, x.data() + at, w);
                      });
                  });
    using bare = calm::layer_norm_no_affine<width>;
    add_norm<bare>("layer_norm_and_modulation/passes", threads, rows, 4,
                   [](auto& ctx, auto&, auto const& s, rows_type& x, rows_type& y) {
                       auto const mean = column(s.mean), r = column(s.r);
                       evaluate(ctx, s.y, (x - mean) * r);
                       evaluate(ctx, s.y, s.y * (1.0 + y) + y);
                   });
    add_norm<bare>("layer_norm_and_modulation/tree", threads, rows, 4,
                   [](auto& ctx, auto&, auto const& s, rows_type& x, rows_type& y) {
                       auto const mean = column(s.mean), r = column(s.r);
                       evaluate(ctx, s.y, (x - mean) * r * (1.0 + y) + y);
                   });
}

}  // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](int threads) {
        using rms = calm::rms_norm_layer<width>;
        for (index_t const rows : {1008, 8064}) {
            add_layer<rms>("rms_norm", threads, rows);
            add_layer<calm::layer_norm_layer<width>>("layer_norm", threads, rows);
            add_norm<rms>("rms_norm/forward/plain", threads, rows, 2,
                          [](auto& ctx, auto& layer, auto const&, rows_type& x, rows_type& y) {
                              plain_rms_norm(ctx, y, x, layer.weight.value.data());
                          });
            add_rms_norm_trees(threads, rows);
            add_layer_norm_trees(threads, rows);
            add_fused(threads, rows);
        }
    });
}
