#pragma once
/// \file
/// Evaluates models on unseen text: BrierLM and its references, the loss of the head, the accuracy of the autoencoder
/// (docs/mathematics/scores.md). Sizes: B blocks, P patches per block, K tokens per patch, N samples.
/// \shows{examples/13_saved_model.cpp,main}

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "calm/base/detail/checksum.hpp"
#include "calm/evaluate/detail/brier_scoring.hpp"
#include "calm/evaluate/detail/likelihood_scoring.hpp"
#include "calm/evaluate/detail/random_subset.hpp"
#include "calm/evaluate/distributed_evaluation.hpp"
#include "calm/evaluate/evaluate_autoencoder.hpp"
#include "calm/evaluate/evaluation.hpp"
#include "calm/loss/detail/token_screen.hpp"
#include "calm/model/detail/limits.hpp"
#include "calm/text/detail/block_source.hpp"
#include "calm/text/special_tokens.hpp"

namespace calm {

namespace detail {

// Sets seed and step of a context, and restores both at the end of the scope.
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

// Calls f(number, block) for all blocks of a source, each of `block_tokens` tokens. Throws errc::config unless these
// are at least 2 whole patches, errc::data for blocks of another length or if there are none.
template <class F> void for_each_block(block_source const& blocks, index_t block_tokens, index_t K, F const& f) {
    require(block_tokens >= 2 * K && block_tokens % K == 0, errc::config, "calm::evaluate_model: a block of ",
            block_tokens, " tokens is not a whole number, 2 or more, of patches of ", K, " tokens");
    index_t number = 0;
    blocks([&](std::span<token_id const> block) {
        require(static_cast<index_t>(block.size()) == block_tokens, errc::data,
                "calm::evaluate_model: expected whole blocks of ", block_tokens, " tokens, found ", block.size(),
                " tokens; give more text or shorter blocks");
        f(number++, block);
    });
    require(number > 0, errc::data, "calm::evaluate_model: expected whole blocks of ", block_tokens,
            " tokens, found none; give more text or shorter blocks");
}

// For an evaluation that ranks may share. Throws errc::distributed unless all ranks have the same blocks and settings.
template <class Rule, class F>
void for_each_block(block_source const& blocks, settings_of_evaluation<Rule> const& s, index_t K, process_group* ranks,
                    F const& f) {
    checksum sum;
    for_each_block(blocks, s.block_tokens, K, [&](index_t number, std::span<token_id const> block) {
        if (ranks != nullptr) sum.add(std::as_bytes(block));
        f(number, block);
    });
    if (ranks == nullptr) return;
    auto all = settings_of(s);
    all.push_back({"checksum of the text", std::to_string(sum.value())});
    patient_wait const patience(*ranks);
    require_same_settings(*ranks, all);
}

// The predictions of a block that can be scored, ascending: a document continues and the target is complete. Adds
// predictions with a complete target where no document continues to `skipped`.
inline std::vector<index_t> scorable(std::span<token_id const> block, index_t K, special_tokens const& special,
                                     index_t& skipped) {
    auto const k = static_cast<std::size_t>(K);
    std::vector<index_t> positions;
    for (std::size_t at = k; at < block.size(); at += k) {
        auto const target = brier_target(block, at, k);
        if (is_counted(block[at - 1], target, special.eos, special.pad))
            positions.push_back(static_cast<index_t>(at / k) - 1);
        else if (!target.empty())
            ++skipped;
    }
    return positions;
}

// Selects the scored parts: everything, or a random subset of settings.positions predictions (stream::positions, step
// 0) and of as many patches for the autoencoder (step 1). A first pass counts them only if there is a choice.
class chosen_parts {
public:
    template <class Rule>
    chosen_parts(block_source const& blocks, settings_of_evaluation<Rule> const& s, index_t K,
                 special_tokens const& special) :
        K_(K),
        special_(special) {
        if (s.positions == 0) return;
        std::uint64_t positions = 0, patches = 0;
        for_each_block(blocks, s.block_tokens, K, [&](index_t, std::span<token_id const> block) {
            index_t skipped = 0;
            positions += scorable(block, K, special, skipped).size();
            patches += block.size() / static_cast<std::size_t>(K);
        });
        auto const wanted = static_cast<std::uint64_t>(s.positions);
        if (wanted >= positions) return;
        positions_.emplace(key{s.seed, stream::positions, 0}, positions, wanted);
        patches_.emplace(key{s.seed, stream::positions, 1}, patches, wanted);
    }

    // Scored predictions of the next block.
    [[nodiscard]] std::vector<index_t> positions(std::span<token_id const> block) {
        auto all = scorable(block, K_, special_, skipped_);
        if (positions_) std::erase_if(all, [&](index_t) { return !positions_->takes(); });
        return all;
    }
    // Whether the next patch is scored by the autoencoder.
    [[nodiscard]] bool takes_patch() { return !patches_ || patches_->takes(); }
    // Positions skipped so far because no document continues there.
    [[nodiscard]] index_t skipped() const { return skipped_; }

private:
    index_t K_;
    special_tokens special_;
    index_t skipped_ = 0;
    std::optional<random_subset> positions_, patches_;
};

// Adds the chosen patches of block `number`.
template <class Scoring>
void add_patches(Scoring& scores, chosen_parts& chosen, index_t number, std::span<token_id const> block) {
    constexpr auto k = static_cast<std::size_t>(Scoring::K);
    auto const patches = static_cast<index_t>(block.size() / k);
    for (index_t p = 0; p < patches; ++p)
        if (chosen.takes_patch()) scores.add(number * patches + p, block.subspan(static_cast<std::size_t>(p) * k, k));
}

// An empty evaluation. Throws for invalid settings, or for a table of another vocabulary.
template <class Rule>
evaluation begun(settings_of_evaluation<Rule> const& s, bigram_table const* table, index_t vocabulary) {
    require(s.samples >= 2 && s.samples <= limits::samples && s.batch >= 1 && s.positions >= 0, errc::usage,
            "calm::evaluate_model: expected from 2 to ", limits::samples,
            " samples per position and at least 1 block at a time, found ", s.samples, " and ", s.batch);
    require(table == nullptr || table->vocabulary_size() == vocabulary, errc::data, [&] {
        return sentence("calm::evaluate_model: expected a bigram table of the model's vocabulary of ", vocabulary,
                        ", found one of ", table->vocabulary_size(), "; count the model's training tokens again");
    });
    evaluation e;
    e.block = s.block_tokens;
    e.seed = s.seed;
    return e;
}

// Blocks to evaluate on: a block_source, or tokens in memory, one block after another.
class blocks_to_evaluate {
public:
    template <class Source>
    requires std::convertible_to<Source const&, block_source> blocks_to_evaluate(Source const& source) :
        source_(source) {}
    template <class Tokens>
    requires std::convertible_to<Tokens const&, std::span<token_id const>> blocks_to_evaluate(Tokens const& tokens) :
        tokens_(tokens) {}

    [[nodiscard]] block_source of(index_t block_tokens) const {
        return source_ ? source_ : blocks_in(tokens_, static_cast<std::size_t>(block_tokens));
    }

private:
    block_source source_;
    std::span<token_id const> tokens_;
};

}  // namespace detail

/// Evaluates an autoencoder on all patches or on a uniformly random subset of settings.positions; the noise per patch
/// does not depend on the subset. Here and below `given` is a block_source, or the tokens of all blocks in memory, one
/// block after another. Several ranks may share the work, each with its own identical model, source and context. All
/// get an evaluation that is bit-identical to one rank's. `ranks` is this rank's process group, or null for one rank.
/// Throws errc::distributed unless all ranks have the same blocks and settings.
template <autoencoder_configuration C, class Space>
evaluation evaluate_model(context<typename Space::backend>& ctx, autoencoder<C, Space> const& model,
                          detail::blocks_to_evaluate const& given, special_tokens const& special,
                          evaluation_settings const& settings, process_group* ranks = nullptr) {
    auto const blocks = given.of(settings.block_tokens);
    evaluation e;
    e.block = settings.block_tokens;
    e.seed = settings.seed;
    detail::chosen_parts chosen(blocks, settings, C.patch_size, special);
    auto const screen = screen_if_faster<typename Space::scalar>(ctx, model.embed_tokens.weight.read());
    autoencoder_scoring<C, Space> scores(ctx, model, special.pad, settings.seed, ranks, screen.get());
    detail::for_each_block(blocks, settings, C.patch_size, ranks, [&](index_t number, std::span<token_id const> block) {
        detail::add_patches(scores, chosen, number, block);
    });
    e.add(scores.result());
    return e;
}

/// Evaluates a language model on blocks, of which settings.batch are in memory at once. Each of the P - 1 predictions
/// of a block is sampled N times and scored, unless its target, the next max(K, 4) tokens, runs past the block, or EOS
/// or PAD is the last token before it. Blocks are the sequences of the jackknife. With K < 4 every sample continues
/// along its own tokens (count_pairs).
///
/// Prediction p of block b has number b (P - 1) + p in stream::evaluation, and its further patches draw at step 1. So
/// scores depend neither on the batch nor on what else is scored. With settings.positions, a uniformly random subset of
/// predictions is scored, and as many patches for the autoencoder. The loss needs an objective (head_objective_of gives
/// a stored model's): it is the mean over all drawn predictions, with the noise of training at step 0. The references
/// need a table, and are scored at the same positions.
///
/// Throws errc::config for incomplete patches, errc::data if nothing can be scored, errc::tokenizer for ids of another
/// vocabulary, and the errors of the source.
template <class Model, class Backend>
evaluation evaluate_model(context<Backend>& ctx, Model& model, detail::blocks_to_evaluate const& given,
                          special_tokens const& special, bigram_table const* table, evaluation_settings const& settings,
                          std::optional<typename Model::objective> const& objective = {},
                          process_group* ranks = nullptr) {
    constexpr index_t K = Model::K;
    evaluation e = detail::begun(settings, table, model.vocabulary());
    auto const blocks = given.of(settings.block_tokens);
    detail::reseeded const scope_of_seed(ctx, settings.seed);
    detail::chosen_parts chosen(blocks, settings, K, special);
    auto const screen = screen_if_faster<typename Model::scalar>(ctx, model.ae_model.embed_tokens.weight.read());
    detail::brier_scoring<Model, Backend> scores(ctx, model, table, settings, objective, ranks, screen.get());
    autoencoder_scoring patches(ctx, model.ae_model, special.pad, settings.seed, ranks, screen.get());
    detail::for_each_block(blocks, settings, K, ranks, [&](index_t number, std::span<token_id const> block) {
        scores.add(number, block, chosen.positions(block));
        detail::add_patches(patches, chosen, number, block);
    });
    scores.report_to(e);
    e.skipped = chosen.skipped();
    e.add(patches.result());
    return e;
}

/// Evaluates a model with exact next-token probabilities: only the collision term uses N samples (likelihood_scoring).
/// Adds cross-entropy, perplexity and, given the bytes of every token in the vocabulary, bits per byte, all at T = 1.
template <gives_logits Model, class Backend>
evaluation evaluate_model(context<Backend>& ctx, Model& model, detail::blocks_to_evaluate const& given,
                          special_tokens const& special, bigram_table const* table,
                          token_evaluation_settings const& settings, std::span<index_t const> bytes_of_tokens = {},
                          process_group* ranks = nullptr) {
    evaluation e = detail::begun(settings, table, model.vocabulary());
    auto const blocks = given.of(settings.block_tokens);
    detail::chosen_parts chosen(blocks, settings, 1, special);
    likelihood_scoring<Model, Backend> scores(ctx, model, table, settings, special.pad, bytes_of_tokens, ranks);
    detail::for_each_block(blocks, settings, 1, ranks, [&](index_t number, std::span<token_id const> block) {
        scores.add(number, block, chosen.positions(block));
    });
    scores.report_to(e);
    e.skipped = chosen.skipped();
    return e;
}

}  // namespace calm
