// The energy score at L = 32 (tiny) and 128 (published), in ns per distance: with and without gradient, with targets
// drawn inside or given, compared with two plain loops. As in bench/reference/bench.py there are R N (N - 1 + M)
// distances.

#include <cmath>
#include <vector>

#include "calm/loss/energy_score.hpp"
#include "calm/tensor/core/tensor.hpp"
#include "calm/tensor/expr/expr.hpp"
#include "program.hpp"

namespace {

using calm::dyn;
using calm::index_t;
using cube = calm::tensor<float, calm::extents<dyn, dyn, dyn>>;
using matrix = calm::tensor<float, calm::extents<dyn, dyn>>;

struct sizes {
    index_t R, N, M, L;
    [[nodiscard]] double distances() const { return static_cast<double>(R * N * (N - 1 + M)); }
};

struct operands {
    cube x, dx, eps;
    matrix mean, log_std;
    calm::tensor<float, calm::extents<dyn>> score;
    explicit operands(sizes const& s) :
        x(calm::extents<dyn, dyn, dyn>(s.R, s.N, s.L)), dx(x.extents()),
        eps(calm::extents<dyn, dyn, dyn>(s.M, s.R, s.L)), mean(calm::extents<dyn, dyn>(s.R, s.L)),
        log_std(mean.extents()), score(calm::extents<dyn>(s.R)) {
        calm::context<> const ctx;
        calm::fill_normal(ctx, x.view(), calm::key{1});
        calm::fill_normal(ctx, mean.view(), calm::key{2});
        calm::fill_normal(ctx, log_std.view(), calm::key{3});
        calm::fill_normal(ctx, eps.view(), calm::key{4});
        log_std = log_std * 0.1 - 1.0;
    }
};

enum class targets { drawn, given };
using no_gradient = calm::view<float, calm::extents<dyn, dyn, dyn>>;

void fused(calm::context<>& ctx, operands& o, sizes const& s, targets t, bool gradient) {
    no_gradient const dx = gradient ? o.dx.view() : no_gradient();
    if (t == targets::drawn)
        calm::energy_score(ctx, o.score.view(), dx, o.x.view(), o.mean.view(), o.log_std.view(),
                           calm::drawn_targets{{5}}, 1.0, s.M);
    else
        calm::energy_score(ctx, o.score.view(), dx, o.x.view(), o.mean.view(), o.log_std.view(),
                           calm::given_targets<float>{o.eps.view()}, 1.0, s.M);
}

// Returns |a - b|, and adds the gradient of slope |a - b| to da.
float plain_pair(float* da, float const* a, float const* b, index_t L, float slope) {
    float square = 0;
    for (index_t l = 0; l < L; ++l) square += (a[l] - b[l]) * (a[l] - b[l]);
    float const distance = std::sqrt(square);
    float const weight = distance > 0 ? slope / distance : 0;
    for (index_t l = 0; l < L; ++l) da[l] += weight * (a[l] - b[l]);
    return distance;
}

// Value and gradient pair by pair, with given targets.
void plain(calm::context<> const& ctx, operands& o, sizes const& s) {
    float const within = -2 / static_cast<float>(s.N * (s.N - 1));
    float const across = 2 / static_cast<float>(s.N * s.M);
    ctx.parallel_ranges(s.R, 16, [&](index_t begin, index_t end) {
        std::vector<float> y(static_cast<std::size_t>(s.L));
        for (index_t r = begin; r < end; ++r) {
            float const* const x = o.x.data() + r * s.N * s.L;
            float* const dx = o.dx.data() + r * s.N * s.L;
            std::fill_n(dx, s.N * s.L, 0.0F);
            float pairs = 0;
            float crosses = 0;
            for (index_t n = 0; n < s.N; ++n)
                for (index_t k = 0; k < s.N; ++k)
                    if (k != n) pairs += plain_pair(dx + n * s.L, x + n * s.L, x + k * s.L, s.L, within);
            for (index_t m = 0; m < s.M; ++m) {
                for (index_t l = 0; l < s.L; ++l)
                    y[static_cast<std::size_t>(l)] =
                        o.mean[r * s.L + l] + std::exp(o.log_std[r * s.L + l]) * o.eps[(m * s.R + r) * s.L + l];
                for (index_t n = 0; n < s.N; ++n)
                    crosses += plain_pair(dx + n * s.L, x + n * s.L, y.data(), s.L, across);
            }
            o.score[r] = pairs / static_cast<float>(s.N * (s.N - 1)) - crosses * across;
        }
    });
}

template <class F> void add_form(std::string const& name, int threads, sizes const& s, F const& f) {
    bench::add("L=" + std::to_string(s.L) + "/M=" + std::to_string(s.M) + "/" + name, [=](benchmark::State& state) {
        calm::context<> ctx(1, threads);
        operands o(s);
        double const seconds = bench::measure(state, [&] { f(ctx, o); });
        state.counters["ns_distance"] = seconds / s.distances() * 1e9;
    });
}

}  // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](int threads) {
        for (sizes const s : {sizes{1008, 8, 32, 32}, sizes{510, 8, 100, 128}}) {
            auto const add_fused = [&](std::string const& name, targets t, bool gradient) {
                add_form(name, threads, s, [=](auto& ctx, operands& o) { fused(ctx, o, s, t, gradient); });
            };
            add_fused("value/given", targets::given, false);
            add_fused("value+gradient/given", targets::given, true);
            add_fused("value+gradient/drawn", targets::drawn, true);
            add_form("value+gradient/given/plain", threads, s, [=](auto const& ctx, operands& o) { plain(ctx, o, s); });
        }
    });
}
