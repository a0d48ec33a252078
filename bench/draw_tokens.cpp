// Draws tokens from a softmax, 8 per row, at vocabulary sizes from tiny's to the published one. Compared with the
// logits' product alone, the cross-entropy of these rows with gradients, and one pass over all logits per draw.

#include <cmath>
#include <vector>

#include "calm/loss/detail/draw_tokens.hpp"
#include "calm/tensor/core/tensor.hpp"
#include "calm/tensor/expr/expr.hpp"
#include "calm/tensor/ops/fill.hpp"
#include "program.hpp"

namespace {

using calm::dyn;
using calm::index_t;
constexpr index_t D = 128, R = 256, N = 8;
using matrix = calm::tensor<float, calm::extents<dyn, D>>;

struct operands {
    matrix x{calm::extents<dyn, D>(R)}, dx{calm::extents<dyn, D>(R)};
    matrix table, dtable;
    calm::tensor<float, calm::extents<dyn, dyn>> logits;
    calm::tensor<float, calm::extents<dyn, 1>> uniforms{calm::extents<dyn, 1>(R * N)};
    calm::tensor<float, calm::extents<dyn>> loss{calm::extents<dyn>(R)};
    std::vector<calm::token_id> targets, tokens;
    explicit operands(index_t V) :
        table(calm::extents<dyn, D>(V)), dtable(calm::extents<dyn, D>(V)), logits(calm::extents<dyn, dyn>(R, V)),
        targets(R), tokens(R * N) {
        calm::context<> const ctx;
        calm::fill_normal(ctx, x.view(), calm::key{1});
        calm::fill_normal(ctx, table.view(), calm::key{2});
        calm::fill_uniform(ctx, uniforms.view(), calm::key{3}, 0, 0.0F);
        table = table * 0.1;
        for (index_t r = 0; r < R; ++r)
            targets[static_cast<std::size_t>(r)] = static_cast<calm::token_id>(r * 7919 % V);
    }
    calm::matrix_view<float const, D> rows() const { return x.view(); }
    calm::matrix_view<float const, D> words() const { return table.view(); }
    void product(calm::context<>& ctx) { calm::matmul(ctx, logits.view(), rows(), transposed(words())); }
};

void draws(calm::context<>& ctx, operands& o) {
    calm::draw_tokens(ctx, calm::vector_view<calm::token_id>(o.tokens.data(), calm::extents<dyn>(R * N)), 0, o.rows(),
                      o.words(), calm::matrix_view<float const, 1>(o.uniforms.view()));
}

void cross_entropy(calm::context<>& ctx, operands& o) {
    calm::cross_entropy(ctx, o.loss.view(), o.dx.view(), o.dtable.view(), o.rows(), o.words(),
                        calm::vector_view<calm::token_id const>(o.targets.data(), calm::extents<dyn>(R)), 1.0);
}

// For each draw separately: sums all probabilities, then accumulates them up to the random number.
void walks(calm::context<>& ctx, operands& o) {
    o.product(ctx);
    index_t const V = o.table.view().extent(0);
    ctx.parallel_ranges(R, 16, [&](index_t begin, index_t end) {
        for (index_t i = begin * N; i < end * N; ++i) {
            float const* const row = o.logits.data() + i / N * V;
            float all = 0;
            for (index_t v = 0; v < V; ++v) all += std::exp(row[v]);
            float left = o.uniforms.data()[i] * all;
            index_t v = 0;
            for (; v + 1 < V && left >= std::exp(row[v]); ++v) left -= std::exp(row[v]);
            o.tokens[static_cast<std::size_t>(i)] = static_cast<calm::token_id>(v);
        }
    });
}

void declare(int threads, index_t V) {
    auto const add = [&](std::string const& what, auto const& run) {
        bench::add(what + "/" + std::to_string(V), [=](benchmark::State& state) {
            calm::context<> ctx(1, threads);
            operands o(V);
            double const seconds = bench::measure(state, [&] { run(ctx, o); });
            state.counters["us_row"] = seconds * 1e6 / static_cast<double>(R);
        });
    };
    add("product", [](calm::context<>& ctx, operands& o) { o.product(ctx); });
    add("draw_tokens", [](calm::context<>& ctx, operands& o) { draws(ctx, o); });
    add("cross_entropy", [](calm::context<>& ctx, operands& o) { cross_entropy(ctx, o); });
    add("walks", [](calm::context<>& ctx, operands& o) { walks(ctx, o); });
}

}  // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](int threads) {
        for (index_t const V : {512, 4096, 32768, 128257}) declare(threads, V);
    });
}
