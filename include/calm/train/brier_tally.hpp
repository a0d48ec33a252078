#pragma once
// What blocks scored: a model's positions, and the references at the same ones (docs/mathematics.md).

#include <span>
#include <vector>

#include "calm/loss/brier.hpp"
#include "calm/text/bigram.hpp"
#include "calm/train/evaluation.hpp"
#include "calm/train/evaluation_settings.hpp"

namespace calm {

// Sums of scores, block by block. The table outlives it; without one the references are not scored.
class brier_tally {
public:
    explicit brier_tally(bigram_table const* table) : table_(table) {}  // of the model's vocabulary

    // The references' scores of a position: of its target (at least 4 tokens) after the token before it.
    void add_references(token_id before, std::span<token_id const> target) {
        if (table_ == nullptr) return;
        auto const next = target.first<brier_orders>();
        unigram_.add(table_->unigram_brier(next));
        bigram_.add(table_->bigram_brier(before, next));
    }
    // A block's positions; it is a sequence of the jackknife where one was counted.
    void add(brier_sequence const& block) {
        if (block.count > 0) sequences_.push_back(block);
    }

    // Puts the scores, and how they were drawn, into an evaluation. Throws errc::data where nothing was scored.
    template <class Rule> void tell(evaluation& e, settings_of_evaluation<Rule> const& settings) const {
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
    bigram_table const* table_;
    std::vector<brier_sequence> sequences_;  // of blocks with a scored position
    brier_sequence unigram_, bigram_;        // the references' scores at the same positions
};

}  // namespace calm
