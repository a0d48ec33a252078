#include "run/training_curve.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "run/metrics_lines.hpp"
#include "run/report.hpp"
#include "run/svg_plot.hpp"

namespace calm::apps {

namespace {

run_metrics metrics_of(std::string const& path) {
    if (!calm::is_there(path))
        throw error(errc::storage, path, "", "cannot be read, there is none: is this the directory of a run?");
    return read_metrics(path);
}

struct located_line {
    run_place at;
    metrics_line const* line;
};
using located_lines = std::vector<located_line>;

located_lines located(lines_by_step const& lines, lines_by_step const& steps) {
    located_lines all;
    for (auto const& [step, line] : lines) all.push_back({place_of(step, steps), &line});
    return all;
}

bool any(located_lines const& lines, char const* key) {
    return std::any_of(lines.begin(), lines.end(), [&](auto const& each) { return std::isfinite((*each.line)[key]); });
}

// An x axis: a member of run_place in a unit of measure.
struct run_axis {
    char const* title;
    double run_place::*value;
    double most;  // in the unit
    double unit = 1;
};

run_axis time_axis(double seconds) {
    if (seconds < 300) return {"seconds", &run_place::seconds, seconds};
    if (seconds < 3 * 3600) return {"minutes", &run_place::seconds, seconds / 60, 60};
    return {"hours", &run_place::seconds, seconds / 3600, 3600};
}

class run_figure {
public:
    run_figure(run_metrics const& m) : steps_(located(m.steps, m.steps)), scores_(located(m.evaluations, m.steps)) {
        run_place most{0, 0, 0};
        for (auto const* const lines : {&steps_, &scores_})
            for (auto const& each : *lines) {
                most.step = std::fmax(most.step, each.at.step);
                most.tokens = std::fmax(most.tokens, each.at.tokens);
                most.seconds = std::fmax(most.seconds, each.at.seconds);
            }
        axes_.push_back({"steps", &run_place::step, most.step});
        if (any(steps_, "tokens")) axes_.push_back({"tokens", &run_place::tokens, most.tokens});
        axes_.push_back(time_axis(most.seconds));
    }

    [[nodiscard]] plot_figure figure(std::string const& title) const {
        plot_figure f{title, axes_.size(), {}};
        auto const row = [&](auto const& panel) {
            for (auto const& x : axes_) f.panels.push_back(panel(x));
        };
        row([&](auto const& x) { return losses(x); });
        if (any(scores_, "brier_lm"))
            row([&](auto const& x) { return brier_lm(x); });
        else if (!scores_.empty())
            row([&](auto const& x) { return tokens_right(x); });
        if (any(scores_, "brier")) row([&](auto const& x) { return brier_1(x); });
        return f;
    }

private:
    static plot_panel panel(run_axis const& x, std::string const& y) {
        return {{.title = x.title, .from_zero = true, .most = x.most}, {.title = y}, {}};
    }

    static plot_curve curve(located_lines const& lines, run_axis const& x, char const* key, std::string const& name,
                            std::size_t style, double unit = 1, char const* error_key = nullptr) {
        std::vector<plot_point> points;
        for (auto const& [at, line] : lines)
            if (double const value = (*line)[key]; !std::isnan(value))
                points.push_back(
                    {at.*x.value / x.unit, value / unit, error_key != nullptr ? (*line)[error_key] / unit : 0});
        return {.name = name, .points = thinned(std::move(points), panel_columns), .style = style};
    }

    // Dots show when the evaluations were, unless there are too many to tell apart.
    [[nodiscard]] plot_curve score(run_axis const& x, char const* key, std::string const& name, std::size_t style,
                                   char const* error_key = nullptr) const {
        auto c = curve(scores_, x, key, name, style, 1, error_key);
        c.dots = c.points.size() <= 50;
        c.band = error_key != nullptr;
        return c;
    }

    // A horizontal line at a key's last value, if it has one.
    void add_level(plot_panel& to, run_axis const& x, char const* key, std::string const& name,
                   std::size_t style) const {
        auto const values = curve(scores_, x, key, name, style).points;
        if (values.empty()) return;
        double const y = values.back().y;
        to.curves.push_back({.name = name, .points = {{0, y}, {x.most, y}}, .style = style, .dashed = true});
    }

    // The scores of the run that --baseline names.
    void add_baseline(plot_panel& to, run_axis const& x, char const* key) const {
        if (!any(scores_, key)) return;
        auto c = curve(scores_, x, key, "AR baseline", 3);
        c.dashed = true;
        to.curves.push_back(std::move(c));
    }

    [[nodiscard]] plot_panel losses(run_axis const& x) const {
        bool const of_autoencoder = any(steps_, "cross_entropy");
        auto p = panel(x, of_autoencoder ? "training losses in nats" : "training loss");
        if (of_autoencoder) p.y.logarithm = 10;
        p.curves.push_back(curve(steps_, x, "loss", "loss", 0));
        if (of_autoencoder) {
            p.curves.push_back(curve(steps_, x, "cross_entropy", "cross-entropy", 1));
            p.curves.push_back(curve(steps_, x, "kl", "divergence / 100", 2, 100));
            p.curves.push_back(curve(steps_, x, "posterior_std", "posterior std", 3));
        }
        if (any(scores_, "heldout_loss")) p.curves.push_back(score(x, "heldout_loss", "held-out loss", 4));
        return p;
    }

    [[nodiscard]] plot_panel tokens_right(run_axis const& x) const {
        auto p = panel(x, "share of held-out tokens right");
        p.curves.push_back(score(x, "token_accuracy", "from the mean", 0));
        p.curves.push_back(score(x, "token_accuracy_posterior", "with posterior noise", 1));
        return p;
    }

    [[nodiscard]] plot_panel brier_lm(run_axis const& x) const {
        auto p = panel(x, "BrierLM on held-out text");
        p.y.from_zero = true;
        p.curves.push_back(score(x, "brier_lm", "model", 0, "brier_lm_se"));
        add_level(p, x, "bigram_brier_lm", "bigrams", 1);
        add_baseline(p, x, "baseline_brier_lm");
        return p;
    }

    [[nodiscard]] plot_panel brier_1(run_axis const& x) const {
        auto p = panel(x, "Brier-1 on held-out text");
        p.y.from_zero = true;
        p.curves.push_back(score(x, "brier", "model", 0));
        add_level(p, x, "bigram_brier", "bigrams", 1);
        add_level(p, x, "unigram_brier", "unigrams", 2);
        add_baseline(p, x, "baseline_brier_1");
        return p;
    }

    located_lines steps_, scores_;
    std::vector<run_axis> axes_;
};

}  // namespace

plot_figure training_figure(std::string const& directory) {
    auto const m = metrics_of(calm::in_directory(directory, metrics_file));
    return run_figure(m).figure("Training of " + printable_line(directory));
}

plot_outcome plot_training(std::string const& directory, std::string const& format) {
    auto const figure = training_figure(directory);
    if (format == "png") return plotted_as_png(figure, directory, "curve");
    auto const path = calm::in_directory(directory, "curve.svg");
    replace_file(path, svg_of(figure));
    return {"plotted in " + path, true};
}

}  // namespace calm::apps
