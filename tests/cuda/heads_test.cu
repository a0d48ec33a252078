// All heads except the energy head on the device: losses, gradients and samples compared with the same kernels on the
// host. The margin head's loss and gradients are also compared with plain loops in double.
#include "calm/model/calm.hpp"
#include "calm/model/heads.hpp"
#include "on_device.hpp"
#include "plain.hpp"
#include "support/small.hpp"

using namespace calm::test;
using calm::blocks;
using calm::dyn;
using calm::extents;
using calm::index_t;

namespace {

template <class Head> constexpr calm::configuration<Head> sizes_with(Head head) {
    return {uneven.autoencoder,
            uneven.hidden_size,
            uneven.intermediate_size,
            uneven.num_hidden_layers,
            uneven.num_attention_heads,
            uneven.num_key_value_heads,
            head};
}
constexpr auto with_flow = sizes_with(calm::flow{.num_mlp_layers = 2});
constexpr auto with_diffusion = sizes_with(calm::diffusion{.num_mlp_layers = 2});
constexpr auto with_margin = sizes_with(calm::margin{});

constexpr auto with_drafts = sizes_with(calm::drafted{.num_mlp_layers = 2, .noise_size = 6});
constexpr auto with_plain_drafts =
    sizes_with(calm::drafted{.num_mlp_layers = 2, .noise_size = 6, .looks_back = 0, .own_table = 0});

// Random parameters for a network.
template <class B, class Network> void fill_with_normals(calm::context<B>& ctx, Network& network) {
    std::uint64_t seed = 100;
    for (auto const& p : calm::parameters_of(network)) {
        fill_normal(ctx, p.value, calm::key{seed++, calm::stream::initialise, 0});
        evaluate(ctx, p.value, p.value * 0.1);
    }
}

// A whole step of a head with the noise of its positions, then samples for two texts.
template <auto C, class Sampling> void head(char const* what, Sampling const& sampling) {
    constexpr index_t R = 70, N = 3, D = C.hidden_size, L = C.autoencoder.latent_size;
    auto const hidden = draws(R * D, 1), mean = draws(R * L, 2), log_std = draws(R * L, 3);
    compare<blocks>(what, 1e-4, [&]<class B>(calm::context<B>& ctx) {
        using head_type = typename decltype(C.head)::template network<C, calm::space<B>>;
        calm::arena<B> values("values");
        calm::arena<B> gradients("gradients");
        head_type model;
        sampling(model);
        allocate(model, values, &gradients);
        fill_with_normals(ctx, model);
        calm::matrix_view<float const, D, B> const h = given(ctx, hidden, extents<dyn, D>(R));
        calm::matrix_view<float const, L, B> const m = given(ctx, mean, extents<dyn, L>(R));
        calm::matrix_view<float const, L, B> const s = given(ctx, log_std, extents<dyn, L>(R));
        auto const dhidden = ctx.saved.template take<float>(extents<dyn, D>(R));
        std::vector<float> all{static_cast<float>(total_of(ctx, [&](auto const& total) {
            model.loss_and_gradient(ctx, total, {.hidden = h, .mean = m, .log_std = s},
                                    {.dhidden = dhidden, .scale = 1.0 / R}, {.samples = N}, 5);
        }))};
        auto const keep = [&](auto const& x) {
            for (float const v : taken_back(ctx, x)) all.push_back(v);
        };
        keep(dhidden);
        for (auto const& p : calm::parameters_of(model)) keep(p.grad);
        auto const z = ctx.saved.template take<float>(extents<dyn, L>(2 * N));
        std::vector<calm::row_rng> const rngs{{{17, calm::stream::generation, 5}, 2},
                                              {{18, calm::stream::generation, 6}, 0}};
        model.sample(ctx, z, {.hidden = rows(h, 0, 2)}, rngs, 0.7);
        keep(z);
        return all;
    });
}

constexpr index_t rows_in_double = 2, samples_in_double = 3;

// The loss of the margin head (Margin head in docs/mathematics/heads.md). `all` holds hidden states (R, D), then
// weights (D, D), bias (D), weights (L, D) and bias (L) of its prediction. Samples x (R N, L) are held fixed; targets
// are y (R N, L). If `are_normals`, x first turns from normals into samples around the prediction.
double plain_margin(reals const& all, reals& x, reals const& y, bool are_normals) {
    std::size_t constexpr D = with_margin.hidden_size, L = with_margin.autoencoder.latent_size, R = rows_in_double,
                          N = samples_in_double;
    double const* const first = all.data() + R * D;
    double const* const second = first + D * D + D;
    reals inner = plain_linear({all.begin(), all.begin() + R * D}, first, D, D);
    for (std::size_t i = 0; i < inner.size(); ++i) inner[i] = std::fmax(0.0, inner[i] + first[D * D + i % D]);
    reals guess = plain_linear(inner, second, D, L);
    for (std::size_t i = 0; i < guess.size(); ++i) guess[i] += second[L * D + i % L];
    double loss = 0;
    for (std::size_t n = 0; n < R * N; ++n) {
        double of_target = 0, of_sample = 0;
        for (std::size_t l = 0; l < L; ++l) {
            double const f = guess[n / N * L + l];
            double& sample = x[n * L + l];
            if (are_normals) sample += f;
            of_target += (f - y[n * L + l]) * (f - y[n * L + l]);
            of_sample += (f - sample) * (f - sample);
        }
        loss += (std::fmax(0.0, of_target - of_sample + 1) + 0.1 * of_target / double{L}) / double{N};
    }
    return loss;
}

// Loss, parameters, and gradients of hidden states and parameters, with given noise.
void margin_in_double() {
    constexpr index_t R = rows_in_double, N = samples_in_double, D = with_margin.hidden_size,
                      L = with_margin.autoencoder.latent_size;
    auto const hidden = draws(R * D, 1), mean = draws(R * L, 2), log_std = draws(R * L, 3);
    auto const targets = draws(R * N * L, 4), samples = draws(R * N * L, 5);
    auto const got = compare<blocks>("margin, given noise", 1e-4, [&]<class B>(calm::context<B>& ctx) {
        calm::arena<B> values("values");
        calm::arena<B> gradients("gradients");
        calm::margin_head<with_margin, calm::space<B>> model;
        allocate(model, values, &gradients);
        fill_with_normals(ctx, model);
        calm::matrix_view<float const, D, B> const h = given(ctx, hidden, extents<dyn, D>(R));
        calm::matrix_view<float const, L, B> const m = given(ctx, mean, extents<dyn, L>(R));
        calm::matrix_view<float const, L, B> const s = given(ctx, log_std, extents<dyn, L>(R));
        calm::paired_noise<float, L, B> const noise{
            given(ctx, targets, extents<dyn, L>(R * N)), given(ctx, samples, extents<dyn, L>(R * N)), {}};
        auto const dhidden = ctx.saved.template take<float>(extents<dyn, D>(R));
        std::vector<float> all{static_cast<float>(total_of(ctx, [&](auto const& total) {
            model.loss_and_gradient(ctx, total, {.hidden = h, .mean = m, .log_std = s}, {.dhidden = dhidden},
                                    {.samples = N}, noise);
        }))};
        auto const keep = [&](auto const& x) {
            for (float const v : taken_back(ctx, x)) all.push_back(v);
        };
        for (auto const& p : calm::parameters_of(model)) keep(p.value);
        keep(dhidden);
        for (auto const& p : calm::parameters_of(model)) keep(p.grad);
        return all;
    });
    auto const parameters = 1 + D * D + D + L * D + L;
    reals all = widened(hidden);
    all.insert(all.end(), got.begin() + 1, got.begin() + parameters);
    reals x = widened(samples), y = widened(targets);
    for (std::size_t i = 0; i < y.size(); ++i) {
        std::size_t const at = i / std::size_t{N * L} * std::size_t{L} + i % std::size_t{L};
        y[i] = mean[at] + std::exp(double{log_std[at]}) * y[i];
    }
    check_near("margin in double", reals{got[0]}, reals{plain_margin(all, x, y, true)}, 1e-5);
    check_by_differences(
        "margin's gradient", [&](reals const& every) { return reals{plain_margin(every, x, y, false)}; }, all, {1.0},
        {got.begin() + parameters, got.end()}, 1e-4);
}

// A whole step of a head that drafts tokens.
template <auto C> void drafting(char const* what) {
    constexpr index_t R = 70, N = 3, V = 13, D = C.hidden_size, L = C.autoencoder.latent_size;
    constexpr index_t K = C.autoencoder.patch_size;
    auto const hidden = draws(R * D, 1), mean = draws(R * L, 2), log_std = draws(R * L, 3);
    std::vector<calm::token_id> labels;
    for (index_t i = 0; i < R * K; ++i) labels.push_back(static_cast<calm::token_id>(5 * i % V));
    compare<blocks>(what, 1e-4, [&]<class B>(calm::context<B>& ctx) {
        using head_type = typename decltype(C.head)::template network<C, calm::space<B>>;
        calm::arena<B> values("values");
        calm::arena<B> gradients("gradients");
        calm::autoencoder<C.autoencoder, calm::space<B>> ae(V);
        head_type model(V);
        allocate(ae, values, static_cast<calm::arena<B>*>(nullptr));
        allocate(model, values, &gradients);
        fill_with_normals(ctx, ae);
        fill_with_normals(ctx, model);
        calm::matrix_view<float const, D, B> const h = given(ctx, hidden, extents<dyn, D>(R));
        calm::matrix_view<float const, L, B> const m = given(ctx, mean, extents<dyn, L>(R));
        calm::matrix_view<float const, L, B> const s = given(ctx, log_std, extents<dyn, L>(R));
        calm::vector_view<calm::token_id const, dyn, B> const next = given(ctx, labels, extents<dyn>(R * K));
        auto const dhidden = ctx.saved.template take<float>(extents<dyn, D>(R));
        std::vector<float> all{static_cast<float>(total_of(ctx, [&](auto const& total) {
            model.loss_and_gradient(ctx, total,
                                    {.hidden = h, .mean = m, .log_std = s, .labels = next, .autoencoder = &ae},
                                    {.dhidden = dhidden, .scale = 1.0 / R}, {.samples = N, .targets = 5}, 5);
        }))};
        auto const keep = [&](auto const& x) {
            for (float const v : taken_back(ctx, x)) all.push_back(v);
        };
        keep(dhidden);
        for (auto const& p : calm::parameters_of(model)) keep(p.grad);
        auto const z = ctx.saved.template take<float>(extents<dyn, L>(2 * N));
        std::vector<calm::row_rng> const rngs{{{17, calm::stream::generation, 5}, 2},
                                              {{18, calm::stream::generation, 6}, 0}};
        model.sample(ctx, z, {.hidden = rows(h, 0, 2), .autoencoder = &ae}, rngs, 0.7);
        keep(z);
        return all;
    });
}

}  // namespace

int main() {
    return on_device([] {
        head<with_flow>("flow", [](auto& model) { model.sampling.steps = 4; });
        head<with_diffusion>("diffusion", [](auto& model) { model.sampling.steps = 3; });
        head<with_margin>("margin", [](auto&) {});
        margin_in_double();
        drafting<with_drafts>("drafted");
        drafting<with_plain_drafts>("drafted, tokens apart, the autoencoder's table");
    });
}
