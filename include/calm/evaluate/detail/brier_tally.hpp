#pragma once
// Scores of blocks: of the model, and of the references at the same positions (docs/mathematics/scores.md).

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "calm/evaluate/distributed_evaluation.hpp"
#include "calm/evaluate/evaluation.hpp"
#include "calm/evaluate/evaluation_settings.hpp"
#include "calm/loss/brier.hpp"
#include "calm/text/bigram.hpp"

namespace calm::detail {

// Sums of scores, block by block. The table outlives it; without one no references are scored. With several ranks each
// has some of the blocks.
class brier_tally {
public:
    // The table has the model's vocabulary.
    explicit brier_tally(bigram_table const* table, process_group* ranks = nullptr) :
        table_(table), blocks_(
                           ranks, [this](scores const& one) { take(one); }, can_be) {}

    // Adds the scores of the references at one position of the next block: of its target (at least 4 tokens), after the
    // token `before`.
    void add_references(token_id before, std::span<token_id const> target) {
        if (table_ == nullptr) return;
        auto const next = target.first<brier_orders>();
        block_.unigram.add(table_->unigram_brier(next));
        block_.bigram.add(table_->bigram_brier(before, next));
    }
    // Ends block `number` with the model's scores; a block with counted positions is a sequence of the jackknife.
    // Numbers ascend.
    void add(index_t number, brier_sequence const& block) {
        block_.model = block;
        if (block.count > 0) blocks_.add(number, block_);
        block_ = {};
    }

    // Writes the scores of all `blocks`, and how they were sampled, to an evaluation. Throws errc::data if nothing was
    // scored.
    template <class Rule> void report_to(evaluation& e, settings_of_evaluation<Rule> const& settings, index_t blocks) {
        blocks_.end(blocks);
        auto const report = report_brier(sequences_);
        e.brier = report.brier;
        e.brier_se = report.brier_error;
        e.brier_lm = report.brier_lm;
        e.brier_lm_se = report.brier_lm_error;
        e.positions = report.positions;
        e.sequences = report.sequences;
        e.samples = settings.samples;
        e.temperature = settings.sampler.T;
        e.sampler = settings.sampler.name();
        if (table_ == nullptr) return;
        e.unigram_brier = report_brier(std::span(&unigram_, 1)).brier;
        e.bigram_brier = report_brier(std::span(&bigram_, 1)).brier;
        e.bigram_brier_lm = brier_lm(*e.bigram_brier);
    }

private:
    // Of one block.
    struct scores {
        brier_sequence model, unigram, bigram;
    };
    // Whether another rank's scores are valid: counts whose sum over all blocks cannot overflow.
    static bool can_be(scores const& block) {
        constexpr std::int64_t most = std::int64_t{1} << 40;
        auto const is_count = [](std::int64_t count) { return count >= 0 && count <= most; };
        return block.model.count > 0 && is_count(block.model.count) && is_count(block.unigram.count) &&
               is_count(block.bigram.count);
    }
    void take(scores const& block) {
        sequences_.push_back(block.model);
        add(unigram_, block.unigram);
        add(bigram_, block.bigram);
    }
    static void add(brier_sequence& all, brier_sequence const& block) {
        for (std::size_t n = 0; n < brier_orders; ++n) all.sum[n] += block.sum[n];
        all.count += block.count;
    }

    bigram_table const* table_;
    piece_results<scores> blocks_;
    scores block_;                           // of the current block
    std::vector<brier_sequence> sequences_;  // of blocks with a scored position
    brier_sequence unigram_, bigram_;        // of the references, at the same positions
};

}  // namespace calm::detail
