#pragma once
// Samples and scores the predictions of a language model in blocks of text (docs/mathematics/scores.md). Sizes: P
// patches per block, K tokens per patch, N samples, D hidden.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "calm/evaluate/detail/branches.hpp"
#include "calm/evaluate/detail/brier_tally.hpp"
#include "calm/evaluate/distributed_evaluation.hpp"
#include "calm/evaluate/evaluation.hpp"
#include "calm/evaluate/evaluation_settings.hpp"
#include "calm/loss/brier.hpp"
#include "calm/loss/detail/token_screen.hpp"
#include "calm/model/calm.hpp"
#include "calm/sample/detail/sample_next.hpp"

namespace calm::detail {

// A block with its scored predictions, ascending in 0 .. P - 2.
struct scored_block {
    index_t number;
    std::span<token_id const> tokens;
    std::vector<index_t> positions;
};

// Rows (n, P - 1) of a batch that are drawn: each scored position with the further patches that its score needs, or all
// rows.
inline std::vector<row_id> rows_to_draw(std::span<scored_block const> blocks, index_t P, index_t K, bool all) {
    auto const patches = static_cast<index_t>(brier_patches(static_cast<std::size_t>(K)));
    std::vector<row_id> rows;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        auto const first = static_cast<index_t>(b) * (P - 1);
        index_t next = 0;
        for (index_t const p : blocks[b].positions)
            for (next = std::max(next, p); next < p + patches; ++next)
                rows.push_back(static_cast<row_id>(first + next));
    }
    if (all) {
        rows.resize(blocks.size() * static_cast<std::size_t>(P - 1));
        std::iota(rows.begin(), rows.end(), 0);
    }
    return rows;
}

// Samples and scores blocks that come one after another, in batches; with several ranks each does some batches.
// Context, model and table outlive it; the context has the seed of the evaluation and step 0.
template <class Model, class Backend> class brier_scoring {
public:
    using T = typename Model::scalar;             // of the model's values
    using objective = typename Model::objective;  // settings of the loss
    static constexpr index_t K = Model::K;

    // Without a table no references are scored, without `loss` there is no loss. The screen is for the model's
    // vocabulary, or null.
    brier_scoring(context<Backend>& ctx, Model& model, bigram_table const* table, evaluation_settings const& settings,
                  std::optional<objective> const& loss, process_group* ranks = nullptr,
                  token_screen const* screen = nullptr) :
        ctx_(ctx),
        model_(model), settings_(settings), loss_(loss), ranks_(ranks), screen_(screen), P_(settings.block_tokens / K),
        on_(ctx, model, patches > 1 ? P_ - 1 : 0, static_cast<index_t>(patches) - 1, screen), tally_(table, ranks),
        losses_(ranks, [this](double of_batch) { loss_sum_ += of_batch; }) {}

    // Adds block `number` with its scored predictions. Without settings.positions the other predictions are drawn too,
    // for the loss.
    void add(index_t number, std::span<token_id const> block, std::vector<index_t> positions) {
        if (positions.empty() && settings_.positions > 0) return;
        blocks_seen_ = number + 1;
        tokens_.insert(tokens_.end(), block.begin(), block.end());
        blocks_.push_back({number, {}, std::move(positions)});
        if (static_cast<index_t>(blocks_.size()) == settings_.batch) score();
    }

    // Scores the remaining blocks and writes all results to an evaluation. Throws errc::data if nothing was scored.
    void report_to(evaluation& e) {
        score();
        tally_.report_to(e, settings_, blocks_seen_);
        losses_.end(batch_);
        std::array counts{took_.patches, took_.draws, took_.capped};
        all_reduce(ranks_, counts);
        took_ = {counts[0], counts[1], counts[2]};
        e.draws_per_patch = static_cast<double>(took_.draws) / static_cast<double>(std::max<index_t>(1, took_.patches));
        e.capped = took_.capped;
        if (loss_) e.head_loss = loss_sum_ / static_cast<double>(drawn_);
    }

private:
    static constexpr auto k = static_cast<std::size_t>(K);
    static constexpr auto patches = brier_patches(k);

    void score() {
        if (blocks_.empty()) return;
        auto const length = static_cast<std::size_t>(P_) * k;
        for (std::size_t b = 0; b < blocks_.size(); ++b)
            blocks_[b].tokens = std::span<token_id const>(tokens_).subspan(b * length, length);
        auto const rows = rows_to_draw(blocks_, P_, K, settings_.positions == 0);
        if (is_done_here(ranks_, batch_)) score(rows);
        drawn_ += std::ssize(rows);
        ++batch_;
        blocks_.clear();
        tokens_.clear();
    }
    void score(std::vector<row_id> const& rows) {
        auto const samples = draw(rows);
        for (std::size_t b = 0; b < blocks_.size(); ++b) {
            auto const first = static_cast<row_id>(static_cast<index_t>(b) * (P_ - 1));
            brier_sequence sum;
            score_block(blocks_[b], sum, [&](index_t p) {
                auto const row = std::lower_bound(rows.begin(), rows.end(), first + static_cast<row_id>(p));
                auto const size = static_cast<std::size_t>(settings_.samples) * k;
                return std::span<token_id const>(samples).subspan(static_cast<std::size_t>(row - rows.begin()) * size,
                                                                  patches * size);
            });
            tally_.add(blocks_[b].number, sum);
        }
    }

    // The samples (R, N, K) of rows (R) of the batch; adds up their loss.
    std::vector<token_id> draw(std::vector<row_id> const& rows) {
        arena_scope const saved(ctx_.saved);
        arena_scope const workspace(ctx_.workspace);
        auto const R = static_cast<index_t>(rows.size());
        auto const inputs = tokens_read();
        auto const read = model_.backbone_input(ctx_, std::span<token_id const>(inputs));
        auto const all = model_.transformer.forward(ctx_, read, P_ - 1).y;
        if (ranks_ != nullptr) ranks_->heartbeat();
        auto const hidden = ctx_.saved.template take<T>(extents<dyn, Model::D>(R));
        gather_rows(ctx_, hidden, all, ids_to_device(ctx_, std::span<row_id const>(rows), all.extent(0)));
        std::vector<token_id> labels;
        std::vector<row_rng> rngs;
        for (row_id const row : rows) {
            index_t const b = row / (P_ - 1), p = row % (P_ - 1);
            auto const next = tokens_.begin() + (b * P_ + p + 1) * K;
            labels.insert(labels.end(), next, next + K);
            rngs.push_back({ctx_.random(stream::evaluation),
                            number_of(blocks_[static_cast<std::size_t>(b)], p) * settings_.samples});
        }
        if (loss_)
            losses_.add(batch_, model_.loss_sum(
                                    ctx_, hidden,
                                    unique_ids_to_device(ctx_, std::span<token_id const>(labels), model_.vocabulary()),
                                    *loss_, drawn_));
        std::vector<token_id> made(
            static_cast<std::size_t>(checked_count("sampled tokens", {R, settings_.samples, K}, sizeof(token_id))));
        took_.add(sample_many(ctx_, model_, std::span<token_id>(made), matrix_view<T const, Model::D, Backend>(hidden),
                              settings_.samples, settings_.sampler, rngs, screen_));
        return made;
    }

    // All patches but the last of every waiting block.
    [[nodiscard]] std::vector<token_id> tokens_read() const {
        std::vector<token_id> read;
        for (auto const& block : blocks_) read.insert(read.end(), block.tokens.begin(), block.tokens.end() - K);
        return read;
    }

    // Number among the predictions of all blocks.
    [[nodiscard]] index_t number_of(scored_block const& block, index_t p) const { return block.number * (P_ - 1) + p; }

    // Scores the positions of a block, from the last to the first. samples_of(p) are the samples of prediction p and of
    // the further patches that its score needs.
    template <class SamplesOf>
    void score_block(scored_block const& block, brier_sequence& sum, SamplesOf const& samples_of) {
        if (patches > 1 && !block.positions.empty()) on_.set_text(block.tokens.first(block.tokens.size() - k));
        for (auto at = block.positions.rbegin(); at != block.positions.rend(); ++at) {
            if (ranks_ != nullptr) ranks_->heartbeat();
            auto const first = static_cast<std::size_t>(*at + 1) * k;
            auto const target = brier_target(block.tokens, first, k);
            sum.add(score_of(block, *at, samples_of(*at), target));
            tally_.add_references(block.tokens[first - 1], target);
        }
    }

    brier_scores score_of(scored_block const& block, index_t p, std::span<token_id const> samples,
                          std::span<token_id const> target) {
        if constexpr (patches == 1) {
            return brier_position(samples, target);
        } else {
            index_t const N = settings_.samples;
            row_rng place{{settings_.seed, stream::evaluation, 1},
                          number_of(block, p) * static_cast<index_t>(patches - 1) * N};
            auto const advance = [&](std::span<token_id const> prefix, std::span<token_id> out) {
                on_.draw(p, prefix, out, place, settings_.sampler, took_);
                place.first += static_cast<index_t>(out.size()) / K;
            };
            auto const own = samples.first(static_cast<std::size_t>(N) * k);
            return brier_of(count_hits(samples, k, target), count_pairs(own, k, advance), static_cast<std::size_t>(N));
        }
    }

    context<Backend>& ctx_;
    Model& model_;
    evaluation_settings settings_;
    std::optional<objective> loss_;
    process_group* ranks_;  // null for one rank
    token_screen const* screen_;
    index_t P_;
    branches<Model, Backend> on_;
    std::vector<token_id> tokens_;      // (blocks, P K)
    std::vector<scored_block> blocks_;  // waiting to be scored
    brier_tally tally_;
    piece_results<double> losses_;  // per batch
    double loss_sum_ = 0;           // over all drawn predictions
    index_t drawn_ = 0;             // predictions drawn, on all ranks
    index_t batch_ = 0;             // number of the current batch
    index_t blocks_seen_ = 0;       // up to the last scored one, on all ranks
    sampling_totals took_;          // on this rank
};

}  // namespace calm::detail
