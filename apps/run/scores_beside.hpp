#pragma once
// The scores of another run, by its seconds: what this run's are judged by.

#include <limits>
#include <map>
#include <optional>
#include <string>

#include "calm/io/model_description.hpp"
#include "run/metrics_lines.hpp"

namespace calm::apps {

class scores_beside {
public:
    struct scores {
        double seconds = 0;  // of its run, when it was measured
        double brier_1 = 0;
        double brier_lm = 0;
    };

    // Of metrics.jsonl as it was read back; `path` is what errors call it. Throws errc::data where nothing was measured
    // on held-out text.
    scores_beside(run_metrics const& metrics, std::string const& path);

    // The last that were measured after at most so many seconds; nothing before the first.
    [[nodiscard]] std::optional<scores> at(double seconds) const;

private:
    std::map<double, scores> by_seconds_;
};

// Reads the run of an autoregressive model, to be judged by one of `ours`. Says so where it was trained or measured on
// other text. Throws errc::usage where it is of another kind or has another tokenizer, errc::storage and errc::data
// where it cannot be read.
scores_beside read_scores_beside(std::string const& directory, calm_description const& ours);

// "autoregressive after 2:00: Brier-1 0.202 (this has 65 %), BrierLM 2.10 (43 %)": no share of what is negative.
std::string beside_text(scores_beside::scores const& beside, double brier_1, double brier_lm);

}  // namespace calm::apps
