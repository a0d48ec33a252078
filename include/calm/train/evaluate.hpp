#pragma once
// How good a model is on text it has not seen: BrierLM beside its references, the energy loss, the autoencoder's
// accuracy (spec 3, 8). Sizes: B blocks, P patches a block, K tokens a patch, N samples.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calm/loss/brier.hpp"
#include "calm/model/calm.hpp"
#include "calm/text/bigram.hpp"
#include "calm/text/special_tokens.hpp"
#include "calm/train/metrics.hpp"

namespace calm {

struct evaluation_settings {
    index_t block_tokens = 256;  // P K; BrierLM depends on it
    index_t samples = 8;         // N, at least 2
    std::uint64_t seed = 1;      // of all noise
    index_t batch = 8;           // blocks computed at once: memory, not results
};

struct autoencoder_evaluation {
    double token_accuracy = 0;            // of the posterior's mean; PAD is not counted
    double token_accuracy_posterior = 0;  // of a draw from the posterior
    double posterior_std = 0;             // mean of exp(log_std)
    double cross_entropy = 0;             // of that draw, mean over all tokens: the evaluation loss of spec 3
};

// What does not apply is empty.
struct evaluation {
    std::optional<brier_scores> brier;
    std::optional<brier_scores> brier_se;  // nothing with a single sequence
    std::optional<double> brier_lm;
    std::optional<double> brier_lm_se;
    index_t positions = 0;    // scored
    index_t sequences = 0;    // blocks with a scored position
    index_t skipped_pad = 0;  // positions left out for PAD in their target
    index_t block = 0;        // tokens
    index_t samples = 0;
    std::uint64_t seed = 0;
    std::optional<brier_scores> unigram_brier;
    std::optional<brier_scores> bigram_brier;
    std::optional<double> bigram_brier_lm;
    std::optional<brier_scores> optimal_brier;  // where the source is known
    std::optional<double> optimal_brier_lm;
    std::optional<double> energy_loss;  // mean over all predictions
    std::optional<double> token_accuracy;
    std::optional<double> token_accuracy_posterior;
    std::optional<double> posterior_std;
};

namespace detail {

// The seed and step of a context, given back at the end of a scope.
template <class Backend> class reseeded {
public:
    reseeded(context<Backend>& ctx, std::uint64_t seed) : ctx_(ctx), seed_(ctx.seed), step_(ctx.step) {
        ctx.seed = seed;
        ctx.step = 0;
    }
    ~reseeded() {
        ctx_.seed = seed_;
        ctx_.step = step_;
    }
    reseeded(reseeded const&) = delete;
    reseeded& operator=(reseeded const&) = delete;

private:
    context<Backend>& ctx_;
    std::uint64_t seed_;
    std::uint32_t step_;
};

inline index_t count_blocks(std::span<token_id const> blocks, evaluation_settings const& s, index_t K) {
    require(s.block_tokens >= 2 * K && s.block_tokens % K == 0, errc::config, [&] {
        return "calm::evaluate: a block of " + std::to_string(s.block_tokens) +
               " tokens is no whole number of at least 2 patches of " + std::to_string(K) + " tokens";
    });
    auto const length = static_cast<std::size_t>(s.block_tokens);
    require(!blocks.empty() && blocks.size() % length == 0, errc::data, [&] {
        return "calm::evaluate: expected whole blocks of " + std::to_string(length) + " tokens, found " +
               std::to_string(blocks.size()) + " tokens; give more text or shorter blocks";
    });
    return static_cast<index_t>(blocks.size() / length);
}

inline void add_autoencoder(evaluation& e, autoencoder_evaluation const& a) {
    e.token_accuracy = a.token_accuracy;
    e.token_accuracy_posterior = a.token_accuracy_posterior;
    e.posterior_std = a.posterior_std;
}

// Sums of the references' scores at the scored positions.
struct reference_sums {
    brier_sequence unigram;
    brier_sequence bigram;

    void add(bigram_table const& table, token_id previous, std::span<token_id const> target) {
        auto const next = target.first<brier_orders>();
        unigram.add(table.unigram_brier(next));
        bigram.add(table.bigram_brier(previous, next));
    }
};

}  // namespace detail

// Tokens are whole patches. The noise of patch i of them is position i of stream::posterior. Throws errc::usage for
// incomplete patches and errc::data where there is nothing but PAD.
template <autoencoder_configuration C, class T, class Backend>
autoencoder_evaluation evaluate_autoencoder(context<Backend>& ctx, autoencoder<C, T, Backend> const& model,
                                            std::span<token_id const> tokens, token_id pad, std::uint64_t seed) {
    using model_type = autoencoder<C, T, Backend>;
    constexpr index_t K = model_type::K;
    constexpr index_t L = model_type::L;
    constexpr index_t chunk = 512;  // patches
    require(tokens.size() % static_cast<std::size_t>(K) == 0, errc::usage, [&] {
        return "calm::evaluate_autoencoder: expected whole patches of " + std::to_string(K) + " tokens, found " +
               std::to_string(tokens.size()) + " tokens";
    });
    auto const patches = static_cast<index_t>(tokens.size()) / K;
    index_t counted = 0, right = 0, right_posterior = 0;
    double std_sum = 0, loss_sum = 0;
    for (index_t p0 = 0; p0 < patches; p0 += chunk) {
        arena_scope const saved(ctx.saved);
        arena_scope const scratch(ctx.scratch);
        index_t const n = std::min(chunk, patches - p0);
        vector_view<token_id const, dyn, Backend> const want(tokens.data() + p0 * K, extents<dyn>(n * K));
        auto const posterior = model.posterior(ctx, want);
        auto const got = ctx.scratch.template take<token_id>(want.extents());
        auto const count_right = [&] {
            index_t hits = 0;
            for (index_t i = 0; i < n * K; ++i) hits += want[i] != pad && got[i] == want[i];
            return hits;
        };
        model.decode_tokens(ctx, got, posterior.mean);
        right += count_right();
        auto const z = ctx.scratch.template take<T>(extents<dyn, L>(n));
        fill_normal(ctx, z, key{seed, stream::posterior, 0}, static_cast<std::uint64_t>(p0 * L));
        evaluate(ctx, z, posterior.mean + exp(posterior.log_std) * z);
        matrix_view<T const, model_type::D, Backend> const decoded = model.decode(ctx, z).y;  // (n K, D)
        argmax_token(ctx, got, decoded, model.embed_tokens.weight.read());
        right_posterior += count_right();
        auto const losses = ctx.scratch.template take<T>(extents<dyn>(n * K));
        cross_entropy(ctx, losses, {}, {}, decoded, model.embed_tokens.weight.read(), want, 0);
        for (index_t i = 0; i < n * K; ++i) loss_sum += static_cast<double>(losses[i]);
        for (index_t i = 0; i < n * L; ++i) std_sum += std::exp(static_cast<double>(posterior.log_std[i]));
        counted += n * K - std::count(want.begin(), want.end(), pad);
    }
    require(counted > 0, errc::data,
            "calm::evaluate_autoencoder: expected a token that is not PAD, found none; give more text");
    auto const share = [](auto part, index_t whole) { return static_cast<double>(part) / static_cast<double>(whole); };
    return {share(right, counted), share(right_posterior, counted), share(std_sum, patches * L),
            share(loss_sum, patches * K)};
}

// What of an evaluation an autoencoder has, from whole blocks.
template <autoencoder_configuration C, class T, class Backend>
evaluation evaluate(context<Backend>& ctx, autoencoder<C, T, Backend> const& model, std::span<token_id const> blocks,
                    special_tokens const& special, evaluation_settings const& settings) {
    detail::count_blocks(blocks, settings, C.patch_size);
    evaluation e;
    e.block = settings.block_tokens;
    e.seed = settings.seed;
    detail::add_autoencoder(e, evaluate_autoencoder(ctx, model, blocks, special.pad, settings.seed));
    return e;
}

// Whole blocks through a language model. All P - 1 predictions of a block are drawn N times and scored, but those whose
// target holds PAD; a block is a sequence of the jackknife. Prediction p of block b has position b (P - 1) + p in
// stream::evaluation (and, for the energy loss, in the streams of training at step 0), so results do not depend on the
// batch. The references are scored at the same positions, where a table is given. Throws errc::config for K < 4 and
// blocks that are no whole patches, errc::data where nothing can be scored, errc::tokenizer for ids of another
// vocabulary.
template <class Model, class Backend>
evaluation evaluate(context<Backend>& ctx, Model& model, std::span<token_id const> blocks,
                    special_tokens const& special, bigram_table const* table, evaluation_settings const& settings,
                    typename Model::objective const& objective = {}) {
    constexpr index_t K = Model::K;
    constexpr auto k = static_cast<std::size_t>(K);
    require(k >= brier_orders, errc::config, [&] {
        return "calm::evaluate: expected patches of at least 4 tokens, found " + std::to_string(K) +
               ": BrierLM scores 4 tokens of one patch; evaluate a configuration with patch_size >= 4";
    });
    require(settings.samples >= 2 && settings.batch >= 1, errc::usage,
            "calm::evaluate: expected at least 2 samples a position and 1 block at a time");
    require(table == nullptr || table->vocabulary_size() == model.vocabulary(), errc::data, [&] {
        return "calm::evaluate: expected a bigram table of the model's vocabulary of " +
               std::to_string(model.vocabulary()) + ", found one of " + std::to_string(table->vocabulary_size()) +
               "; count the model's training tokens again";
    });
    index_t const B = detail::count_blocks(blocks, settings, K);
    index_t const P = settings.block_tokens / K;
    index_t const N = settings.samples;
    std::vector<brier_sequence> sequences(static_cast<std::size_t>(B));
    detail::reference_sums references;
    std::vector<token_id> samples;  // (n, P - 1, N, K)
    double energy = 0;
    detail::reseeded const scope_of_seed(ctx, settings.seed);
    for (index_t b0 = 0; b0 < B; b0 += settings.batch) {
        arena_scope const saved(ctx.saved);
        arena_scope const scratch(ctx.scratch);
        index_t const n = std::min(settings.batch, B - b0);
        index_t const first = b0 * (P - 1);
        typename Model::token_view const tokens(blocks.data() + b0 * P * K, extents<dyn>(n * P * K));
        auto const t = model.shift(ctx, tokens, P);
        auto const hidden = model.transformer.forward(ctx, t.inputs, P - 1).y;
        energy += model.loss_sum(ctx, hidden, t.labels, objective, first);
        samples.resize(static_cast<std::size_t>(n * (P - 1) * N * K));
        model.sample_patches(ctx,
                             vector_view<token_id, dyn, Backend>(samples.data(), extents<dyn>(n * (P - 1) * N * K)),
                             hidden, N, ctx.random(stream::evaluation), first);
        std::span<token_id const> rest = samples;
        for (index_t b = b0; b < b0 + n; ++b) {
            auto const block = blocks.subspan(static_cast<std::size_t>(b * P * K), static_cast<std::size_t>(P * K));
            for (std::size_t at = k; at < block.size(); at += k) {
                auto const drawn = rest.first(static_cast<std::size_t>(N) * k);
                rest = rest.subspan(drawn.size());
                auto const target = brier_target(block, at, k);
                if (!is_counted(target, special.pad)) continue;
                sequences[static_cast<std::size_t>(b)].add(brier_position(drawn, target));
                if (table != nullptr) references.add(*table, block[at - 1], target);
            }
        }
    }
    auto const report = report_brier(sequences);
    evaluation e{.brier = report.brier,
                 .brier_se = report.brier_error,
                 .brier_lm = report.brier_lm,
                 .brier_lm_se = report.brier_lm_error,
                 .positions = report.positions,
                 .sequences = report.sequences,
                 .skipped_pad = B * (P - 1) - report.positions,
                 .block = settings.block_tokens,
                 .samples = N,
                 .seed = settings.seed,
                 .unigram_brier = {},
                 .bigram_brier = {},
                 .bigram_brier_lm = {},
                 .optimal_brier = {},
                 .optimal_brier_lm = {},
                 .energy_loss = energy / static_cast<double>(B * (P - 1)),
                 .token_accuracy = {},
                 .token_accuracy_posterior = {},
                 .posterior_std = {}};
    if (table != nullptr) {
        e.unigram_brier = report_brier(std::span(&references.unigram, 1)).brier;
        e.bigram_brier = report_brier(std::span(&references.bigram, 1)).brier;
        e.bigram_brier_lm = brier_lm(*e.bigram_brier);
    }
    detail::add_autoencoder(e, evaluate_autoencoder(ctx, model.ae_model, blocks, special.pad, settings.seed));
    return e;
}

// One JSON object on one line, the keys in their documented order; null where nothing applies.
inline std::string to_json(evaluation const& e) {
    using value = decltype(metric::value);
    constexpr double null = std::numeric_limits<double>::quiet_NaN();
    auto const one = [&](std::optional<double> const& x) -> value { return x.value_or(null); };
    auto const four = [&](std::optional<brier_scores> const& x) -> value {
        return x ? value(std::vector<double>(x->begin(), x->end())) : value(null);
    };
    auto const scored = [&](index_t x) -> value { return e.brier ? value(x) : value(null); };
    std::array const metrics{metric{"brier", four(e.brier)},
                             metric{"brier_se", four(e.brier_se)},
                             metric{"brier_lm", one(e.brier_lm)},
                             metric{"brier_lm_se", one(e.brier_lm_se)},
                             metric{"positions", scored(e.positions)},
                             metric{"sequences", scored(e.sequences)},
                             metric{"skipped_pad", scored(e.skipped_pad)},
                             metric{"block", e.block},
                             metric{"mode", std::string_view("padded")},
                             metric{"samples", scored(e.samples)},
                             metric{"seed", static_cast<index_t>(e.seed)},
                             metric{"unigram_brier", four(e.unigram_brier)},
                             metric{"bigram_brier", four(e.bigram_brier)},
                             metric{"bigram_brier_lm", one(e.bigram_brier_lm)},
                             metric{"optimal_brier", four(e.optimal_brier)},
                             metric{"optimal_brier_lm", one(e.optimal_brier_lm)},
                             metric{"energy_loss", one(e.energy_loss)},
                             metric{"token_accuracy", one(e.token_accuracy)},
                             metric{"token_accuracy_posterior", one(e.token_accuracy_posterior)},
                             metric{"posterior_std", one(e.posterior_std)}};
    return to_json(std::span<metric const>(metrics));
}

// The same for people: some lines, the last without its end.
inline std::string to_table(evaluation const& e) {
    std::string text;
    auto const say = [&text](char const* format, auto... values) {
        char line[256];
        std::snprintf(line, sizeof line, format, values...);
        text += line;
    };
    auto const scores = [&](char const* name, std::optional<brier_scores> const& x, std::optional<double> const& lm) {
        if (!x) return;
        say("%-10s %9.4f %9.4f %9.4f %9.4f", name, (*x)[0], (*x)[1], (*x)[2], (*x)[3]);
        if (lm) say(" %9.2f", *lm);
        text += '\n';
    };
    if (e.brier) {
        say("%-10s %9s %9s %9s %9s %9s\n", "", "Brier-1", "Brier-2", "Brier-3", "Brier-4", "BrierLM");
        scores("model", e.brier, e.brier_lm);
        scores("  error", e.brier_se, e.brier_lm_se);
        scores("optimum", e.optimal_brier, e.optimal_brier_lm);
        scores("bigram", e.bigram_brier, e.bigram_brier_lm);
        scores("unigram", e.unigram_brier, e.unigram_brier ? std::optional(brier_lm(*e.unigram_brier)) : std::nullopt);
        say("%lld positions of %lld blocks of %lld tokens, %lld left out for PAD; %lld samples a position\n",
            static_cast<long long>(e.positions), static_cast<long long>(e.sequences), static_cast<long long>(e.block),
            static_cast<long long>(e.skipped_pad), static_cast<long long>(e.samples));
    }
    if (e.energy_loss) say("energy loss %.5f\n", *e.energy_loss);
    if (e.token_accuracy && e.token_accuracy_posterior && e.posterior_std)
        say("autoencoder: %.3f %% of tokens right, %.3f %% with posterior noise; posterior std %.3f\n",
            100 * *e.token_accuracy, 100 * *e.token_accuracy_posterior, *e.posterior_std);
    if (!text.empty()) text.pop_back();
    return text;
}

}  // namespace calm
