// Matrix products at the shapes of a step: forward (x W^T), gradient of the input (dy W) and of the weights (dy^T x),
// and forward by serial Eigen. Beside them what one thread adds up on registers, in fp32 and, where the processor has
// sums of pairs of bf16, in those: what products in bf16 could gain.

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#include "calm/eigen.hpp"
#include "calm/tensor/cpu/multiply_adds.hpp"
#include "calm/tensor/fill.hpp"
#include "calm/tensor/matmul.hpp"
#include "calm/train/peak.hpp"
#include "configurations.hpp"
#include "program.hpp"

namespace {

using calm::index_t;
using matrix = calm::tensor<float, calm::extents<calm::dyn, calm::dyn>>;

enum class form { forward, input_gradient, weight_gradient, eigen };
constexpr std::pair<form, char const*> forms[] = {{form::forward, "forward"},
                                                  {form::input_gradient, "input_gradient"},
                                                  {form::weight_gradient, "weight_gradient"},
                                                  {form::eigen, "eigen"}};

void multiply(calm::context<>& ctx, form f, matrix& x, matrix& w, matrix& y) {
    switch (f) {
    case form::forward:
        matmul(ctx, y, x, calm::transposed(w));
        break;
    case form::input_gradient:
        matmul(ctx, x, y, w);
        break;
    case form::weight_gradient:
        matmul(ctx, w, calm::transposed(y), x);
        break;
    case form::eigen:
        calm::detail::eigen_product(calm::detail::product<float>{y.extent(0), y.extent(1), x.extent(1), y.data(),
                                                                 y.extent(1), x.data(), x.extent(1), false, w.data(),
                                                                 w.extent(1), true, false});
    }
}

// `rows` of `in` features to `out`.
void add_product(int threads, double peak, std::string const& name, index_t rows, index_t in, index_t out) {
    for (auto const& [f, how] : forms)
        bench::add(name + "/" + std::to_string(rows) + "x" + std::to_string(out) + "x" + std::to_string(in) + "/" + how,
                   [=, f = f](benchmark::State& state) {
                       calm::context<> ctx(1, threads);
                       matrix x(calm::extents<calm::dyn, calm::dyn>(rows, in));
                       matrix w(calm::extents<calm::dyn, calm::dyn>(out, in));
                       matrix y(calm::extents<calm::dyn, calm::dyn>(rows, out));
                       for (matrix* const m : {&x, &w, &y}) calm::fill_normal(ctx, m->view(), calm::key{1});
                       double const seconds = bench::measure(state, [&] { multiply(ctx, f, x, w, y); });
                       bench::report_flops(state, 2.0 * static_cast<double>(rows * in * out), seconds, peak);
                   });
}

void add_configuration(int threads, double peak, std::string const& name, calm::configuration<> const& c,
                       bench::batch const& b) {
    auto const& a = c.autoencoder;
    index_t const patches = b.autoencoder_tokens / a.patch_size;
    index_t const positions = b.sequences * (b.patches - 1);
    index_t const samples = positions * b.objective.samples;
    auto const add = [&](char const* what, index_t rows, index_t in, index_t out) {
        add_product(threads, peak, name + "/" + what, rows, in, out);
    };
    add("autoencoder_gate", b.autoencoder_tokens, a.hidden_size, a.intermediate_size);
    add("autoencoder_down", b.autoencoder_tokens, a.intermediate_size, a.hidden_size);
    add("squeeze", patches, a.patch_size * a.hidden_size, a.hidden_size);
    add("expand", patches, a.hidden_size, a.patch_size * a.hidden_size);
    add("vocabulary", 256, a.hidden_size, a.vocab_size);
    add("projection", positions, a.patch_size * c.hidden_size, 2 * c.hidden_size);
    add("attention", positions, c.hidden_size, c.hidden_size);
    add("backbone_gate", positions, c.hidden_size, c.intermediate_size);
    add("head", samples, c.hidden_size, c.hidden_size);
    add("head_latent", samples, c.hidden_size, a.latent_size);
}

#ifdef __AVX512BF16__

// As detail::multiply_adds, of pairs of bf16.
struct pairs_of_bf16 {
    static constexpr int chains = 24;
    static constexpr int turns = 1 << 14;
    static constexpr double flops = 2.0 * turns * chains * 32;

    static float run() {
        __m512 sums[chains];
        for (int c = 0; c < chains; ++c) sums[c] = _mm512_set1_ps(static_cast<float>(c));
        auto x = _mm512_cvtneps_pbh(_mm512_set1_ps(0.5F));
        benchmark::DoNotOptimize(x);  // or one run would serve for all
        auto const pairs = _mm512_inserti64x4(_mm512_castsi256_si512((__m256i)x), (__m256i)x, 1);
        for (int turn = 0; turn < turns; ++turn)
            calm::detail::unrolled<chains>([&](auto c) __attribute__((always_inline)) {
                sums[c] = _mm512_dpbf16_ps(sums[c], (__m512bh)pairs, (__m512bh)pairs);
            });
        float total = 0;
        for (auto const& sum : sums) total += _mm512_reduce_add_ps(sum);
        return total;
    }
};

#endif

template <class Work> void add_registers(double peak, char const* name) {
    bench::add(std::string("registers/") + name, [peak](benchmark::State& state) {
        double const seconds = bench::measure(state, [] { benchmark::DoNotOptimize(Work::run()); });
        bench::report_flops(state, Work::flops, seconds, peak);
    });
}

}  // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](int threads) {
        double const peak = calm::measure_peak(calm::context<>(0, threads), 0.2);
        benchmark::AddCustomContext("peak GFLOP/s", std::to_string(peak / 1e9));
        add_registers<calm::detail::multiply_adds<calm::cpu>>(peak, "fp32");
#ifdef __AVX512BF16__
        add_registers<pairs_of_bf16>(peak, "bf16_pairs");
#endif
        add_configuration(threads, peak, "tiny", bench::tiny, bench::tiny_batch);
        add_configuration(threads, peak, "text", bench::text, bench::text_batch);
    });
}
