// One training step of both stages on the device: losses, gradients and updated parameters compared with the same
// kernels on the host. Steps and texts with graphs are compared with those without. Attention and the vocabulary loss
// are also compared with plain loops in double.
#include "calm/model/autoregressive.hpp"
#include "calm/model/calm.hpp"
#include "calm/sample/generate.hpp"
#include "calm/train/loop.hpp"
#include "on_device.hpp"
#include "plain.hpp"
#include "support/small.hpp"

using namespace calm::test;
using calm::blocks;
using calm::dyn;
using calm::extents;
using calm::index_t;
using calm::token_id;

namespace {

constexpr index_t V = 13, K = 2;

template <class Backend> using tokens_of = calm::vector_view<token_id const, dyn, Backend>;

template <class Backend> tokens_of<Backend> some_tokens(calm::context<Backend>& ctx, index_t n) {
    std::vector<token_id> ids;
    for (index_t i = 0; i < n; ++i) ids.push_back(static_cast<token_id>((5 * i + i / V) % V));
    return given(ctx, ids, extents<dyn>(n));
}

template <class Model, class Backend> void draw_parameters(calm::context<Backend>& ctx, Model& model) {
    std::uint64_t seed = 100;
    for (auto const& p : calm::parameters_of(model)) {
        fill_normal(ctx, p.value, calm::key{seed++, calm::stream::initialise, 0});
        evaluate(ctx, p.value, p.value * 0.3);
    }
}

// loss(model, ctx) adds the gradients of a batch; one update follows.
template <class Model, class Backend, class Loss>
std::vector<float> step(calm::context<Backend>& ctx, Model& model, Loss const& loss) {
    std::vector<float> all{static_cast<float>(loss())};
    auto const keep = [&](auto const& x) {
        for (float const v : taken_back(ctx, x)) all.push_back(v);
    };
    for (auto const& p : calm::parameters_of(model)) keep(p.grad);
    // A large eps, so that tiny gradients of uncertain sign move the weights little.
    calm::adamw optimizer(model, {.eps = 1e-2});
    optimizer.step(ctx, 1e-2);
    all.push_back(static_cast<float>(optimizer.last_outcome(ctx).norm));
    for (auto const& p : calm::parameters_of(model)) keep(p.value);
    return all;
}

void autoencoder_step() {
    compare<blocks>("autoencoder", 1e-4, []<class B>(calm::context<B>& ctx) {
        calm::arena<B> values("values");
        calm::arena<B> gradients("gradients");
        calm::autoencoder<uneven.autoencoder, calm::space<B>> model(V);
        allocate(model, values, &gradients);
        draw_parameters(ctx, model);
        auto const tokens = some_tokens(ctx, 75 * K);
        auto const noise = model.draw(ctx, tokens, 0.15);
        return step(ctx, model, [&] { return model.loss_and_gradient(ctx, tokens, noise, {}).loss; });
    });
}

void language_model_step() {
    compare<blocks>("language model", 1e-4, []<class B>(calm::context<B>& ctx) {
        constexpr index_t P = 40;  // more than one attention tile
        calm::arena<B> values("values");
        calm::arena<B> gradients("gradients");
        calm::calm_model<uneven, calm::space<B>> model(V);
        allocate(model, values, &gradients);
        allocate(model.ae_model, values, static_cast<calm::arena<B>*>(nullptr));
        draw_parameters(ctx, model);
        draw_parameters(ctx, model.ae_model);
        auto const tokens = some_tokens(ctx, 2 * P * K);
        return step(ctx, model, [&] { return model.loss_and_gradient(ctx, tokens, P, {.samples = 3, .targets = 5}); });
    });
}

// Token level, and positions of several tokens each.
void autoregressive_step() {
    for (index_t const patch : {1, 4})
        compare<blocks>("autoregressive model", 1e-4, [patch]<class B>(calm::context<B>& ctx) {
            constexpr calm::autoregressive_configuration C{.llama = calm::llama_sizes_of(uneven)};
            constexpr index_t P = 40;
            calm::arena<B> values("values");
            calm::arena<B> gradients("gradients");
            calm::autoregressive_model<C, calm::space<B>> model(V);
            allocate(model, values, &gradients);
            draw_parameters(ctx, model);
            auto const tokens = some_tokens(ctx, 2 * P * patch);
            return step(ctx, model, [&] { return model.loss_and_gradient(ctx, tokens, P, patch); });
        });
}

// Steps and texts with graphs are bit-identical to those without.
void graphs() {
    using calm::test::device_backend;
    using model_type = calm::calm_model<uneven, calm::space<device_backend>>;
    auto const written = [](bool by_graphs) {
        calm::context<device_backend> ctx(1);
        ctx.uses_graphs = by_graphs;
        calm::arena<device_backend> values("values"), gradients("gradients");
        model_type model(V);
        allocate(model, values, &gradients);
        allocate(model.ae_model, values, static_cast<calm::arena<device_backend>*>(nullptr));
        draw_parameters(ctx, model);
        draw_parameters(ctx, model.ae_model);
        calm::calm_recipe<calm::energy_objective> recipe;
        recipe.steps = 6;
        recipe.accumulation = 2;
        recipe.sequences = 4;
        recipe.block_tokens = 8 * K;
        recipe.learning_rate = 1e-3;
        recipe.optimizer.muon = 0;
        recipe.objective = {.samples = 3, .targets = 5};
        token_id next = 0;
        auto const source = [&](std::span<token_id> tokens) {
            for (auto& t : tokens) t = std::exchange(next, static_cast<token_id>((next * 2 + 1) % V));
        };
        train_calm(ctx, model, source, recipe);
        std::vector<float> all;
        for (auto const& p : calm::parameters_of(model))
            for (float const v : taken_back(ctx, p.value)) all.push_back(v);
        calm::generation_settings settings;
        settings.max_tokens = 80 * K;  // a cache starts with room for 64 positions
        settings.at_once = 2;
        std::vector<std::vector<token_id>> const prompts{{1, 3, 7}, {2}, {4, 4, 4, 4}};
        for (auto const& rule : {calm::sampler::unchanged(), calm::sampler::batch(calm::temperature::of(0.5), 12)}) {
            settings.sampler = rule;
            for (auto const& text : generate(ctx, model, std::span(prompts), {0, -1, 0}, settings))
                for (token_id const t : text.tokens) all.push_back(static_cast<float>(t));
        }
        return all;
    };
    check(written(true) == written(false), "steps and texts by graphs");
}

// The results of `cached_attention`, with each sequence read from its beginning.
std::vector<float> plain_cached_attention() {
    constexpr std::size_t D = 72, size = D / 2;
    reals weights;
    std::uint64_t seed = 100;
    for (std::size_t const n : {D * D, size * D, size * D, D * D}) {
        std::vector<float> drawn(n);
        calm::normals(drawn.data(), static_cast<index_t>(n), calm::key{seed++, calm::stream::initialise, 0});
        for (float const v : drawn) weights.push_back(0.3 * double{v});
    }
    reals read[2];
    std::vector<float> all;
    auto const advance = [&](std::size_t length, std::vector<std::size_t> const& sequences) {
        auto const x = widened(draws(static_cast<index_t>(length * sequences.size() * D), 7));
        for (std::size_t i = 0; i < sequences.size(); ++i) {
            auto& sequence = read[sequences[i]];
            for (std::size_t j = 0; j < length * D; ++j) sequence.push_back(x[i * length * D + j]);
            reals const y = plain_attention(sequence, weights.data(), D, 2, calm::rope_theta);
            for (std::size_t j = y.size() - length * D; j < y.size(); ++j) all.push_back(static_cast<float>(y[j]));
        }
    };
    advance(70, {1});
    advance(3, {0, 1});
    advance(1, {1, 0});
    return all;
}

// Appends one or several positions to cached sequences of different lengths.
void cached_attention() {
    auto const got = compare<blocks>("attention with a cache", 1e-4, []<class B>(calm::context<B>& ctx) {
        constexpr index_t D = 72;
        calm::arena<B> values("values");
        calm::attention<D, 2, 1, calm::space<B>> model;
        allocate(model, values, static_cast<calm::arena<B>*>(nullptr));
        draw_parameters(ctx, model);
        calm::kv_cache<36, calm::space<B>> cache(2, 80);
        std::vector<float> all;
        auto const advance = [&](index_t length, std::vector<index_t> const& sequences) {
            index_t const rows = length * static_cast<index_t>(sequences.size());
            auto const x = given(ctx, draws(rows * D, 7), extents<dyn, D>(rows));
            auto const y =
                model.extend(ctx, calm::matrix_view<float const, D, B>(x), cache, calm::rope_theta, sequences);
            for (float const v : taken_back(ctx, y)) all.push_back(v);
        };
        advance(70, {1});
        advance(3, {0, 1});
        advance(1, {1, 0});
        return all;
    });
    check_near("attention with a cache, in double", got, plain_cached_attention(), 1e-4);
}

// The results of `vocabulary`: the loss of every row, dx, dtable and the most likely token of every row.
std::vector<float> plain_vocabulary(std::size_t D, std::size_t rows, std::size_t tokens) {
    auto const x = widened(draws(static_cast<index_t>(rows * D), 1));
    auto const table = widened(draws(static_cast<index_t>(tokens * D), 2));
    std::vector<float> loss, best;
    reals dx(x.size()), dtable(table.size());
    for (std::size_t i = 0; i < rows; ++i) {
        reals logits = plain_linear(
            {x.begin() + static_cast<std::ptrdiff_t>(i * D), x.begin() + static_cast<std::ptrdiff_t>((i + 1) * D)},
            table.data(), D, tokens);
        std::size_t const target = i * 7919 % tokens;
        std::size_t highest = 0;
        double total = 0;
        for (std::size_t v = 0; v < tokens; ++v) {
            if (logits[v] > logits[highest]) highest = v;
            total += std::exp(logits[v]);
        }
        loss.push_back(static_cast<float>(std::log(total) - logits[target]));
        best.push_back(static_cast<float>(highest));
        for (std::size_t v = 0; v < tokens; ++v) {
            double const slope = 0.5 * (std::exp(logits[v]) / total - (v == target ? 1.0 : 0.0));
            for (std::size_t j = 0; j < D; ++j) {
                dx[i * D + j] += slope * table[v * D + j];
                dtable[v * D + j] += slope * x[i * D + j];
            }
        }
    }
    std::vector<float> all = loss;
    for (auto const* const part : {&dx, &dtable})
        for (double const v : *part) all.push_back(static_cast<float>(v));
    all.insert(all.end(), best.begin(), best.end());
    return all;
}

// The vocabulary over several chunks and blocks of rows, and the argmax.
void vocabulary() {
    static constexpr index_t D = 4;
    static constexpr index_t rows = 258;
    static constexpr index_t tokens = 5000;
    auto const got = compare<blocks>("cross_entropy", 1e-4, []<class B>(calm::context<B>& ctx) {
        extents<dyn, D> const shape(rows);
        extents<dyn, D> const table_shape(tokens);
        std::vector<token_id> ids;
        for (index_t i = 0; i < rows; ++i) ids.push_back(static_cast<token_id>(i * 7919 % tokens));
        auto const x = given(ctx, draws(rows * D, 1), shape);
        auto const table = given(ctx, draws(tokens * D, 2), table_shape);
        auto const targets = given(ctx, ids, extents<dyn>(rows));
        auto const loss = ctx.saved.template take<float>(extents<dyn>(rows));
        auto const dx = ctx.saved.template take<float>(shape);
        auto const dtable = ctx.saved.template take<float>(table_shape);
        auto const best = ctx.saved.template take<token_id>(extents<dyn>(rows));
        fill(ctx, dtable, 0.0F);
        using matrix = calm::matrix_view<float const, D, B>;
        cross_entropy(ctx, loss, dx, dtable, matrix(x), matrix(table), tokens_of<B>(targets), 0.5);
        argmax_token(ctx, best, matrix(x), matrix(table));
        auto all = taken_back(ctx, loss);
        for (auto const& part : {dx, dtable})
            for (float const v : taken_back(ctx, part)) all.push_back(v);
        for (token_id const v : taken_back(ctx, best)) all.push_back(static_cast<float>(v));
        return all;
    });
    check_near("cross_entropy in double", got, plain_vocabulary(D, rows, tokens), 1e-4);
}

}  // namespace

int main() {
    return on_device([] {
        autoencoder_step();
        language_model_step();
        autoregressive_step();
        graphs();
        cached_attention();
        vocabulary();
    });
}
