// Products, norms and layers on the device, compared with plain loops in double and with the block kernels on the host
// (nvcc does not compile the cpu's).
#include "calm/model/llama.hpp"
#include "calm/nn/embedding.hpp"
#include "calm/nn/mlp.hpp"
#include "calm/nn/norm.hpp"
#include "calm/nn/sequential.hpp"
#include "calm/tensor/detail/ops/bf16_copies.hpp"
#include "calm/tensor/ops/bf16_products.hpp"
#include "on_device.hpp"
#include "plain.hpp"

using namespace calm::test;
using calm::dyn;
using calm::extents;
using calm::index_t;

namespace {

using matrix = extents<dyn, dyn>;

// The results of `products`: c = a b + bias, a b^T, a^T b, and that plus a^T b^T.
std::vector<float> plain_products(std::vector<float> const& x, std::vector<float> const& w,
                                  std::vector<float> const& bias, index_t m, index_t n, index_t k) {
    auto const M = static_cast<std::size_t>(m), N = static_cast<std::size_t>(n), depth = static_cast<std::size_t>(k);
    auto const a = [&](std::size_t i, std::size_t j) { return double{x[i * depth + j]}; };
    auto const at = [&](std::size_t i, std::size_t j) { return double{x[j * M + i]}; };
    auto const b = [&](std::size_t i, std::size_t j) { return double{w[i * N + j]}; };
    auto const bt = [&](std::size_t i, std::size_t j) { return double{w[j * depth + i]}; };
    std::vector<float> all;
    reals c(M * N);
    auto const keep = [&] {
        for (double const v : c) all.push_back(static_cast<float>(v));
    };
    for (std::size_t i = 0; i < c.size(); ++i) c[i] = bias[i % N];
    add_product(c, M, N, depth, a, b), keep();
    c.assign(c.size(), 0), add_product(c, M, N, depth, a, bt), keep();
    c.assign(c.size(), 0), add_product(c, M, N, depth, at, b), keep();
    add_product(c, M, N, depth, at, bt), keep();
    return all;
}

// x w^T with w in bf16: bit-identical to equal numbers in float for few rows, close to it for many rows on a device. Up
// to most_skinny_rows rows, the bits of each row do not depend on the others.
void products_by_bf16(index_t m, index_t n, index_t k) {
    auto const x = draws(m * k, 1);
    std::vector<calm::bf16> narrow;
    for (float const v : draws(n * k, 2)) narrow.emplace_back(v);
    std::vector<float> const wide(narrow.begin(), narrow.end());
    compare<calm::blocks>("matmul by weights in bf16", 1e-4, [&]<class B>(calm::context<B>& ctx) {
        auto const a = given(ctx, x, matrix(m, k));
        auto const c = ctx.saved.template take<float>(matrix(m, n));
        matmul(ctx, c, a, transposed(given(ctx, narrow, matrix(n, k))));
        auto const got = taken_back(ctx, c);
        auto const w = given(ctx, wide, matrix(n, k));
        matmul(ctx, c, a, transposed(w));
        auto const by_float = taken_back(ctx, c);
        bool const is_split = calm::device_memory<B> && m > calm::detail::most_skinny_rows;
        if (is_split) check_near("matmul by weights in bf16 beside float", got, by_float, 1e-4);
        if (!is_split) check(got == by_float, "the same bits by float");
        if (m <= calm::detail::most_skinny_rows) {
            for (index_t i = 0; i < m; ++i) matmul(ctx, rows(c, i, 1), rows(a, i, 1), transposed(w));
            check(got == taken_back(ctx, c), "the same bits row by row");
        }
        return got;
    });
}

// c = a b + bias, a b^T, a^T b and c += a^T b^T, all of which have m n results.
void products(index_t m, index_t n, index_t k) {
    auto const x = draws(m * k, 1);
    auto const w = draws(k * n, 2);
    auto const bias = draws(n, 3);
    auto const got = compare<calm::blocks>("matmul", 1e-4, [&](auto& ctx) {
        auto const a = given(ctx, x, matrix(m, k));
        auto const at = given(ctx, x, matrix(k, m));
        auto const b = given(ctx, w, matrix(k, n));
        auto const bt = given(ctx, w, matrix(n, k));
        auto const c = ctx.saved.template take<float>(matrix(m, n));
        std::vector<float> all;
        auto const keep = [&] {
            for (float const v : taken_back(ctx, c)) all.push_back(v);
        };
        matmul(ctx, c, a, b, {.bias = given(ctx, bias, extents<dyn>(n))}), keep();
        matmul(ctx, c, a, transposed(bt)), keep();
        matmul(ctx, c, transposed(at), b), keep();
        matmul(ctx, c, transposed(at), transposed(bt), {.mode = calm::into::accumulate}), keep();
        return all;
    });
    check_near("matmul in double", got, plain_products(x, w, bias, m, n, k), 1e-4);
}

// Reference of a layer: y from x and all parameters in order.
using plain_layer = reals (*)(reals const& x, double const* parameters);

// Compares y, the parameters, dx and all parameter gradients of a layer, also with a reference if one is given.
template <template <class> class Layer>
void layer(char const* name, index_t rows, double bound, plain_layer truth = nullptr) {
    using sizes = Layer<calm::blocks>;
    auto const x = draws(rows * sizes::inputs, 1);
    auto const dy = draws(rows * sizes::outputs, 2);
    auto const got = compare<calm::blocks>(name, bound, [&]<class B>(calm::context<B>& ctx) {
        calm::arena<B> values("values");
        calm::arena<B> gradients("gradients");
        Layer<B> model;
        allocate(model, values, &gradients);
        std::uint64_t seed = 100;
        for (auto const& p : calm::parameters_of(model)) {
            fill_normal(ctx, p.value, calm::key{seed++, calm::stream::initialise, 0});
            evaluate(ctx, p.value, p.value * 0.25);
        }
        extents<dyn, sizes::inputs> const in(rows);
        auto const s = model.forward(ctx, calm::matrix_view<float const, sizes::inputs, B>(given(ctx, x, in)));
        auto all = taken_back(ctx, s.y);
        for (auto const& p : calm::parameters_of(model))
            for (float const v : taken_back(ctx, p.value)) all.push_back(v);
        auto const dx = ctx.saved.template take<float>(in);
        extents<dyn, sizes::outputs> const out(rows);
        model.backward(ctx, s, calm::matrix_view<float const, sizes::outputs, B>(given(ctx, dy, out)), dx);
        for (float const v : taken_back(ctx, dx)) all.push_back(v);
        for (auto const& p : calm::parameters_of(model))
            for (float const v : taken_back(ctx, p.grad)) all.push_back(v);
        return all;
    });
    if (truth == nullptr) return;
    auto const outputs = static_cast<std::ptrdiff_t>(dy.size()), inputs = static_cast<std::ptrdiff_t>(x.size());
    auto const parameters = (static_cast<std::ptrdiff_t>(got.size()) - outputs - inputs) / 2;
    reals all = widened(x);
    all.insert(all.end(), got.begin() + outputs, got.begin() + outputs + parameters);
    auto const f = [&](reals const& every) {
        return truth({every.begin(), every.begin() + inputs}, every.data() + inputs);
    };
    check_near(name, reals(got.begin(), got.begin() + outputs), f(all), bound);
    check_by_differences(name, f, all, widened(dy), {got.begin() + outputs + parameters, got.end()}, bound);
}

template <class B> using rms = calm::rms_norm_layer<130, calm::space<B>>;
template <class B> using layered = calm::layer_norm_layer<130, calm::space<B>>;
template <class B> using wide_rms = calm::rms_norm_layer<1024, calm::space<B>>;        // one warp per row
template <class B> using wide_layered = calm::layer_norm_layer<2052, calm::space<B>>;  // one block per row
template <class B> using mlp = calm::swiglu<40, 96, calm::space<B>>;
template <class B>
using stack =
    calm::sequential<calm::linear<24, 40, calm::with_bias::yes, calm::space<B>>, calm::silu_layer<40, calm::space<B>>,
                     calm::residual<calm::sequential<calm::layer_norm_layer<40, calm::space<B>>, mlp<B>>>>;

// Three positions of several texts, one after another, through a transformer layer. The device uses few kernels with
// fused norms and gate, the host one for each operation. Each text has the same bits alone and among others.
void layer_that_goes_on(index_t texts) {
    constexpr index_t D = 72;
    compare<calm::blocks>("a layer that is extended", 1e-4, [&]<class B>(calm::context<B>& ctx) {
        calm::arena<B> values("values");
        calm::transformer_block<D, 96, 2, 1, calm::space<B>> model;
        allocate(model, values, static_cast<calm::arena<B>*>(nullptr));
        std::uint64_t seed = 100;
        for (auto const& p : calm::parameters_of(model)) {
            fill_normal(ctx, p.value, calm::key{seed++, calm::stream::initialise, 0});
            evaluate(ctx, p.value, p.value * 0.25);
        }
        calm::kv_cache<36, calm::space<B>> together(texts, 80), apart(texts, 80);
        auto const advance = [&](auto& cache, calm::matrix_view<float const, D, B> const& x, index_t first) {
            std::vector<calm::cached_sequence> now;
            for (index_t i = first; i < first + x.extent(0); ++i) now.push_back({i, cache.length(i)});
            auto const there = to_device(ctx, std::span<calm::cached_sequence const>(now));
            return taken_back(ctx, model.extend(ctx, x, cache, calm::rope_theta, there));
        };
        std::vector<float> all;
        for (std::uint64_t position = 0; position < 3; ++position) {
            auto const x = given(ctx, draws(texts * D, position), extents<dyn, D>(texts));
            auto const got = advance(together, x, 0);
            std::vector<float> alone;
            for (index_t i = 0; i < texts; ++i)
                for (float const v : advance(apart, rows(x, i, 1), i)) alone.push_back(v);
            check(got == alone, "the same bits text by text");
            all.insert(all.end(), got.begin(), got.end());
        }
        return all;
    });
}

void embedding(index_t rows) {
    std::vector<calm::token_id> ids;
    for (index_t i = 0; i < rows; ++i) ids.push_back(static_cast<calm::token_id>(i * i % 11));
    auto const dy = draws(rows * 24, 1);
    compare<calm::blocks>("embedding", 1e-5, [&]<class B>(calm::context<B>& ctx) {
        calm::arena<B> values("values");
        calm::arena<B> gradients("gradients");
        calm::embedding<24, calm::space<B>> model(11);
        allocate(model, values, &gradients);
        initialise(ctx, model);
        auto const s =
            model.forward(ctx, calm::vector_view<calm::token_id const, dyn, B>(given(ctx, ids, extents<dyn>(rows))));
        model.backward(ctx, s, calm::matrix_view<float const, 24, B>(given(ctx, dy, extents<dyn, 24>(rows))));
        auto all = taken_back(ctx, s.y);
        for (float const v : taken_back(ctx, model.weight.grad)) all.push_back(v);
        return all;
    });
}

// Stochastically rounded copies of a weight are bit-identical to the host's at each step.
void copies_at_random() {
    auto const x = draws(1000 * 48, 1);
    calm::context<calm::test::device_backend> ctx(5);
    calm::multiply_in_bf16(ctx);
    auto const w = given(ctx, x, matrix(1000, 48));
    calm::bf16_copies<calm::test::device_backend> copies;
    copies.add(w.data(), 1000, 48);
    static_cast<void>(copies.use(ctx, calm::weight_rounding::stochastic));
    static_cast<void>(copies.of(w.data()));
    for (ctx.step = 3; ctx.step < 6; ++ctx.step) {
        auto const scope = copies.use(ctx, calm::weight_rounding::stochastic);
        auto const wide = ctx.saved.take<float>(matrix(1000, 48));
        calm::detail::run_copy(ctx, wide.data(), copies.of(w.data()), w.size());
        std::vector<float> want;
        calm::detail::round_at_random const rounded{calm::key{5, calm::stream::rounding, ctx.step}};
        for (std::size_t i = 0; i < x.size(); i += 8)
            for (float const v : rounded(calm::detail::load_group<float, 8>(x.data() + i), i / 8).lane)
                want.push_back(v);
        check(taken_back(ctx, wide) == want, "copies at random are the host's");
    }
}

}  // namespace

int main() {
    return on_device([] {
        products(1, 1, 1);
        products(7, 5, 3);
        products(130, 259, 64);
        products(300, 40, 0);
        products(1, 1031, 1028);
        products(13, 70, 1301);
        for (index_t const m : {1, 2, 3, 8, 16, 17, 70}) products_by_bf16(m, 70, 1304);
        products_by_bf16(5, 33, 1031);
        for (index_t const texts : {1, 2, 3, 8, 16}) layer_that_goes_on(texts);
        copies_at_random();
        for (index_t const rows : {1, 70, 600}) {
            layer<rms>("rms_norm", rows, 1e-4, [](auto& x, auto* p) { return plain_rms_norm(x, p, 130); });
            layer<layered>("layer_norm", rows, 1e-4, [](auto& x, auto* p) { return plain_layer_norm(x, p, 130); });
            layer<wide_rms>("rms_norm of 1024", rows, 1e-4);
            layer<wide_layered>("layer_norm of 2052", rows, 1e-4);
            layer<mlp>("swiglu", rows, 1e-4, [](auto& x, auto* p) { return plain_swiglu(x, p, 40, 96); });
            layer<stack>("a chain", rows, 1e-4);
            embedding(rows);
        }
    });
}
