#include "run/baseline_scores.hpp"

#include <cmath>
#include <utility>

#include "calm/base/error.hpp"
#include "calm/io/read_model_description.hpp"
#include "program.hpp"
#include "run/report.hpp"

namespace calm::apps {

namespace {

bool same_text(calm_description const& a, calm_description const& b) {
    return a.data && b.data && a.data->sources == b.data->sources && a.data->holdout == b.data->holdout &&
           a.data->data_seed == b.data->data_seed && a.data->mode == b.data->mode &&
           a.data->block_tokens == b.data->block_tokens;
}

std::string share_text(double score, double of, char const* format) {
    return of > 0 && score >= 0 ? formatted(format, 100 * score / of) : "";
}

}  // namespace

baseline_scores::baseline_scores(run_metrics const& metrics, std::string const& path) {
    for (auto const& [step, line] : metrics.evaluations) {
        scores const one{place_of(step, metrics.steps).seconds, line["brier"], line["brier_lm"]};
        if (std::isfinite(one.seconds + one.brier_1 + one.brier_lm)) by_seconds_[one.seconds] = one;
    }
    if (by_seconds_.empty())
        throw error(errc::data, path, "",
                    "expected scores on held-out text to compare with, found none: train that run with --holdout, or "
                    "until it is first evaluated");
}

std::optional<baseline_scores::scores> baseline_scores::at(double seconds) const {
    auto const after = by_seconds_.upper_bound(seconds);
    return after == by_seconds_.begin() ? std::nullopt : std::optional(std::prev(after)->second);
}

baseline_scores read_baseline_scores(std::string const& directory, calm_description const& ours) {
    auto const d = read_model_description(directory).description;
    require(d.kind == model_kind::autoregressive, errc::usage, "--baseline: expected the run of train ar, ", directory,
            " holds another kind of model");
    require(d.calm && d.calm->tokenizer && d.calm->tokenizer->fingerprint == ours.tokenizer->fingerprint, errc::usage,
            "--baseline: expected a run with the same tokenizer, ", directory,
            " has another: train it with the same --tokenizer");
    if (!same_text(*d.calm, ours))
        log_line(
            sentence("--baseline: ", directory,
                     " was trained with another --data, --data-seed, --holdout, --mode or --block, so its scores are "
                     "for another text than this run's"));
    auto const path = calm::in_directory(directory, metrics_file);
    return {read_metrics(path), path};
}

std::string baseline_text(baseline_scores::scores const& baseline, double brier_1, double brier_lm) {
    return "autoregressive after " + duration_text(baseline.seconds) + formatted(": Brier-1 %.3f", baseline.brier_1) +
           share_text(brier_1, baseline.brier_1, " (this has %.0f %%)") +
           formatted(", BrierLM %.2f", baseline.brier_lm) + share_text(brier_lm, baseline.brier_lm, " (%.0f %%)");
}

}  // namespace calm::apps
