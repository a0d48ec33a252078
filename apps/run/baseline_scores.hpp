#pragma once
// Scores of a baseline run by training time, to compare a run with.

#include <limits>
#include <map>
#include <optional>
#include <string>

#include "calm/io/model_description.hpp"
#include "run/metrics_lines.hpp"

namespace calm::apps {

class baseline_scores {
public:
    struct scores {
        double seconds = 0;  // training time of the baseline
        double brier_1 = 0;
        double brier_lm = 0;
    };

    // From a parsed metrics.jsonl; errors call it `path`. Throws errc::data if it has no scores on held-out text.
    baseline_scores(run_metrics const& metrics, std::string const& path);

    // The last scores after at most this many seconds; nothing before the first.
    [[nodiscard]] std::optional<scores> at(double seconds) const;

private:
    std::map<double, scores> by_seconds_;
};

// Reads the run of an autoregressive model as a baseline for a model described by `ours`. Warns if text or evaluation
// differ. Throws errc::usage for another kind of model or another tokenizer, and errc::storage or errc::data if the run
// cannot be read.
baseline_scores read_baseline_scores(std::string const& directory, calm_description const& ours);

// "autoregressive after 2:00: Brier-1 0.202 (this has 65 %), BrierLM 2.10 (43 %)". Negative scores get no percentage.
std::string baseline_text(baseline_scores::scores const& baseline, double brier_1, double brier_lm);

}  // namespace calm::apps
