#pragma once
// Reads a run's metrics.jsonl.

#include <array>
#include <limits>
#include <map>
#include <string>
#include <string_view>

namespace calm::apps {

// The used numbers of one line. A list counts by its first element; a missing number or null is NaN.
class metrics_line {
public:
    static constexpr std::array<std::string_view, 18> keys{"step",
                                                           "tokens",
                                                           "seconds",
                                                           "loss",
                                                           "cross_entropy",
                                                           "kl",
                                                           "posterior_std",
                                                           "heldout_loss",
                                                           "brier_lm",
                                                           "brier_lm_se",
                                                           "bigram_brier_lm",
                                                           "token_accuracy",
                                                           "token_accuracy_posterior",
                                                           "brier",
                                                           "unigram_brier",
                                                           "bigram_brier",
                                                           "baseline_brier_1",
                                                           "baseline_brier_lm"};
    metrics_line() { values_.fill(std::numeric_limits<double>::quiet_NaN()); }
    // `key` must be in `keys`.
    [[nodiscard]] double& operator[](std::string_view key) { return values_.at(place_of(key)); }
    [[nodiscard]] double operator[](std::string_view key) const { return values_.at(place_of(key)); }

private:
    static std::size_t place_of(std::string_view key);
    std::array<double, keys.size()> values_;
};

// Lines of one kind by step; the last line of a step counts.
using lines_by_step = std::map<double, metrics_line>;

struct run_metrics {
    lines_by_step steps, evaluations;
};

// A position in a run.
struct run_place {
    double step, tokens, seconds;
};
// The position of an evaluation, interpolated between the logged steps. `steps` must not be empty.
run_place place_of(double step, lines_by_step const& steps);

// Reads a metrics.jsonl line by line, ignoring incomplete lines and skipped steps. Throws errc::storage if the file
// cannot be read, and errc::data if no step or more than a million lines were logged.
run_metrics read_metrics(std::string const& path);

}  // namespace calm::apps
