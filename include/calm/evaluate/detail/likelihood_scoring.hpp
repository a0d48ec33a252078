#pragma once
// Scores the predictions of a model with next-token probabilities (BrierLM of an autoregressive model in
// docs/mathematics/scores.md). Sizes: P tokens per block, N samples, D hidden, V vocabulary.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <utility>
#include <vector>

#include "calm/evaluate/detail/branches.hpp"
#include "calm/evaluate/detail/brier_tally.hpp"
#include "calm/evaluate/distributed_evaluation.hpp"
#include "calm/evaluate/evaluation.hpp"
#include "calm/evaluate/evaluation_settings.hpp"
#include "calm/loss/brier.hpp"
#include "calm/sample/sample_token.hpp"

namespace calm {

// Scores blocks that come one after another. P(y_1 .. y_n) is the product of the probabilities of the next n tokens
// after the true text. The collision term, the sum of all P(x_1 .. x_n)^2, is exact for n = 1. For larger n it averages
// over all pairs of N samples: a pair whose first n - 1 tokens agree adds the exact sum of squares of the next token,
// other pairs add 0. With several ranks each scores some of the blocks. Context, model and table outlive it; the
// context has the seed of the evaluation and step 0.
template <gives_logits Model, class Backend> class likelihood_scoring {
public:
    using T = typename Model::scalar;  // of the model's values

    // Without a table no references are scored, without `bytes_of_tokens` there are no bits per byte. PAD is not part
    // of the text.
    likelihood_scoring(context<Backend>& ctx, Model& model, bigram_table const* table,
                       token_evaluation_settings const& settings, token_id pad,
                       std::span<index_t const> bytes_of_tokens, process_group* ranks = nullptr) :
        ctx_(ctx),
        model_(model), settings_(settings), pad_(pad), bytes_(bytes_of_tokens), ranks_(ranks),
        branches_(ctx, model, settings.block_tokens - 1, static_cast<index_t>(brier_orders) - 1), tally_(table, ranks),
        blocks_(
            ranks, [this](likelihood const& one) { likelihoods_.push_back(one); },
            [](likelihood const& one) {
                constexpr index_t most = index_t{1} << 40;
                return one.tokens > 0 && one.tokens <= most && one.bytes >= 0 && one.bytes <= most;
            }) {
        require(bytes_.empty() || static_cast<index_t>(bytes_.size()) == model.vocabulary(), errc::usage,
                "calm::evaluate_model: expected the bytes of every token of the vocabulary of ", model.vocabulary(),
                ", found the bytes of ", bytes_.size(), " tokens");
    }

    // Adds block `number` with its scored predictions, ascending in 0 .. P - 2. Without settings.positions all
    // predictions count for the cross-entropy, otherwise only the scored ones.
    void add(index_t number, std::span<token_id const> block, std::vector<index_t> const& positions) {
        blocks_seen_ = number + 1;
        if ((positions.empty() && settings_.positions > 0) || !detail::is_done_here(ranks_, number)) return;
        read(number, block, positions);
        if (positions.empty()) return;
        brier_sequence sum;
        branches_.set_text(block.first(block.size() - 1));
        for (auto at = positions.rbegin(); at != positions.rend(); ++at) {
            if (ranks_ != nullptr) ranks_->heartbeat();
            auto const first = static_cast<std::size_t>(*at + 1);
            sum.add(score(number, *at));
            tally_.add_references(block[first - 1], brier_target(block, first, 1));
        }
        tally_.add(number, sum);
    }

    // Writes the results to an evaluation. Throws errc::data if nothing was scored.
    void report_to(evaluation& e) {
        tally_.report_to(e, settings_, blocks_seen_);
        blocks_.end(blocks_seen_);
        report_likelihood(e);
    }

private:
    // A prediction of the current block.
    struct prediction {
        double probability = 0;       // of the true token, under the sampling rule
        double collision = 0;         // sum of squared probabilities, under the sampling rule
        std::vector<token_id> drawn;  // N tokens, if it is scored
    };
    // Of one block.
    struct likelihood {
        double nats = 0;
        index_t tokens = 0;
        index_t bytes = 0;
    };

    // Number among the predictions of all blocks.
    [[nodiscard]] std::uint64_t number_of(index_t block, index_t p) const {
        return static_cast<std::uint64_t>(block * (settings_.block_tokens - 1) + p);
    }
    // Random numbers of prediction p: step 0 for its N tokens, step 1 for their continuations.
    [[nodiscard]] random_sequence choices(std::uint32_t step, index_t block, index_t p) const {
        auto const blocks_of_words = static_cast<std::uint64_t>(settings_.samples);
        return random_sequence({settings_.seed, stream::evaluation, step}, number_of(block, p) * blocks_of_words);
    }

    // Probabilities of all predictions of a block, and samples of the scored ones.
    void read(index_t number, std::span<token_id const> block, std::vector<index_t> const& positions) {
        arena_scope const saved(ctx_.saved);
        arena_scope const workspace(ctx_.workspace);
        predictions_.assign(block.size() - 1, {});
        for (index_t const p : positions)
            predictions_[static_cast<std::size_t>(p)].drawn.resize(static_cast<std::size_t>(settings_.samples));
        auto const tokens = ids_to_device(ctx_, block.first(block.size() - 1), model_.vocabulary());
        auto const hidden = model_.forward(ctx_, tokens, tokens.size()).y;
        likelihood sum;
        for_each_logits(ctx_, model_, matrix_view<T const, Model::D, Backend>(hidden), [&](index_t p, auto logits) {
            auto& one = predictions_[static_cast<std::size_t>(p)];
            token_id const next = block[static_cast<std::size_t>(p) + 1];
            require(next >= 0 && next < model_.vocabulary(), errc::tokenizer, "calm::evaluate_model: token ", next,
                    " is outside a vocabulary of ", model_.vocabulary(),
                    "; was the text encoded with another tokenizer?");
            if (next != pad_ && (settings_.positions == 0 || !one.drawn.empty())) count(sum, logits, next);
            auto& distribution = distributions_[0];
            distribution.set(logits, settings_.sampler);
            one.probability = distribution.probability(next);
            one.collision = distribution.collision();
            auto random = choices(0, number, p);
            for (auto& token : one.drawn) token = distribution.draw(random.uniform_double());
        });
        if (sum.tokens > 0) blocks_.add(number, sum);
    }

    void count(likelihood& sum, std::span<T const> logits, token_id next) const {
        auto const highest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
        double total = 0;
        for (T const one : logits) total += std::exp(static_cast<double>(one) - highest);
        sum.nats += highest + std::log(total) - static_cast<double>(logits[static_cast<std::size_t>(next)]);
        ++sum.tokens;
        if (!bytes_.empty()) sum.bytes += bytes_[static_cast<std::size_t>(next)];
    }

    brier_scores score(index_t number, index_t p) {
        auto& own = predictions_[static_cast<std::size_t>(p)];
        brier_scores collisions{own.collision};
        auto random = choices(1, number, p);
        prefix_.clear();
        count_collisions(p, own.drawn, random, collisions);
        brier_scores scores{};
        double probability = 1;
        for (std::size_t n = 0; n < brier_orders; ++n) {
            probability *= predictions_[static_cast<std::size_t>(p) + n].probability;
            scores[n] = 2 * probability - collisions[n];
        }
        return scores;
    }

    // Adds the pairs among `drawn`, which were sampled after the prefix, to the collision terms of longer prefixes.
    void count_collisions(index_t p, std::vector<token_id>& drawn, random_sequence& random, brier_scores& collisions) {
        auto const N = static_cast<double>(settings_.samples);
        std::size_t const depth = prefix_.size() + 1;
        std::sort(drawn.begin(), drawn.end());
        for (auto first = drawn.begin(); first != drawn.end();) {
            auto const last = std::upper_bound(first, drawn.end(), *first);
            auto const equal = static_cast<double>(last - first);
            if (equal > 1) {
                prefix_.push_back(*first);
                auto& distribution = distributions_[depth - 1];
                set_distribution_after(p, distribution);
                collisions[depth] += equal * (equal - 1) / (N * (N - 1)) * distribution.collision();
                if (depth + 1 < brier_orders) {
                    std::vector<token_id> next(static_cast<std::size_t>(last - first));
                    for (auto& token : next) token = distribution.draw(random.uniform_double());
                    count_collisions(p, next, random, collisions);
                }
                prefix_.pop_back();
            }
            first = last;
        }
    }

    // The distribution after the text up to position p and then the prefix.
    void set_distribution_after(index_t p, categorical_distribution& distribution) {
        arena_scope const saved(ctx_.saved);
        arena_scope const workspace(ctx_.workspace);
        for_each_logits(ctx_, model_, branches_.hidden_after(p, prefix_),
                        [&](index_t, auto logits) { distribution.set(logits, settings_.sampler); });
    }

    void report_likelihood(evaluation& e) const {
        likelihood all;
        for (auto const& one : likelihoods_) {
            all.nats += one.nats;
            all.tokens += one.tokens;
            all.bytes += one.bytes;
        }
        e.cross_entropy = all.nats / static_cast<double>(all.tokens);
        e.perplexity = std::exp(*e.cross_entropy);
        if (all.bytes == 0) return;
        auto const bits = [](double nats, index_t bytes) {
            return nats / std::numbers::ln2 / static_cast<double>(bytes);
        };
        e.bits_per_byte = bits(all.nats, all.bytes);
        // Jackknife: one block left out at a time.
        auto const S = static_cast<double>(likelihoods_.size());
        double mean = 0, squares = 0;
        for (auto const& one : likelihoods_) {
            if (one.bytes == all.bytes) return;
            mean += bits(all.nats - one.nats, all.bytes - one.bytes) / S;
        }
        for (auto const& one : likelihoods_)
            squares += std::pow(bits(all.nats - one.nats, all.bytes - one.bytes) - mean, 2);
        e.bits_per_byte_se = std::sqrt((S - 1) / S * squares);
    }

    context<Backend>& ctx_;
    Model& model_;
    token_evaluation_settings settings_;
    token_id pad_;
    std::span<index_t const> bytes_;  // (V)
    process_group* ranks_;            // null for one rank
    branches<Model, Backend> branches_;
    std::vector<prediction> predictions_;                                   // (P - 1), of the current block
    std::array<categorical_distribution, brier_orders - 1> distributions_;  // one per length of the prefix
    std::vector<token_id> prefix_;                                          // of samples, after the current position
    detail::brier_tally tally_;
    detail::piece_results<likelihood> blocks_;
    std::vector<likelihood> likelihoods_;  // per block
    index_t blocks_seen_ = 0;              // on all ranks
};

}  // namespace calm
