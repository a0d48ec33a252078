#pragma once
// metrics.jsonl of a run, read back.

#include <array>
#include <limits>
#include <map>
#include <string>
#include <string_view>

namespace calm::apps {

// The numbers of a line that are used, of a list its first; what the line has not, or null, is NaN.
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
                                                           "beside_brier_1",
                                                           "beside_brier_lm"};
    metrics_line() { values_.fill(std::numeric_limits<double>::quiet_NaN()); }
    // `key` is one of the keys.
    [[nodiscard]] double& operator[](std::string_view key) { return values_.at(place_of(key)); }
    [[nodiscard]] double operator[](std::string_view key) const { return values_.at(place_of(key)); }

private:
    static std::size_t place_of(std::string_view key);
    std::array<double, keys.size()> values_;
};

// Lines of one kind; of lines of one step the last counts.
using lines_by_step = std::map<double, metrics_line>;

struct run_metrics {
    lines_by_step steps, evaluations;
};

// A place in a run.
struct run_place {
    double step, tokens, seconds;
};
// Where an evaluation lies between the steps that were logged, of which there is one at least.
run_place place_of(double step, lines_by_step const& steps);

// Reads a metrics.jsonl line by line. Lines that are not whole are passed over, and those of steps that were left out.
// Throws errc::storage where the file cannot be read, errc::data where no step was logged, or more than a million.
run_metrics read_metrics(std::string const& path);

}  // namespace calm::apps
