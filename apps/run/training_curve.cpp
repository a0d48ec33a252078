#include "run/training_curve.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>
#include <vector>

#include "calm/io/file.hpp"
#include "calm/tensor/error.hpp"
#include "calm/train/metrics.hpp"
#include "run/gnuplot.hpp"
#include "run/metrics_lines.hpp"
#include "run/report.hpp"

namespace calm::apps {

namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

struct point {
    double step = none, tokens = none, seconds = none;
};

double number_in(metrics_line const& line, char const* key) {
    return line[key];
}

run_metrics metrics_of(std::string const& path) {
    if (!calm::detail::is_there(path))
        throw error(errc::storage, path, "", "cannot be read, there is none: is this the directory of a run?");
    return read_metrics(mapped_file::open(path).text(), path);
}

point point_of(metrics_line const& line) {
    return {number_in(line, "step"), number_in(line, "tokens"), number_in(line, "seconds")};
}

// Where an evaluation lies between the steps that were logged.
point place_of(double step, lines_by_step const& steps) {
    auto after = steps.lower_bound(step);
    if (after == steps.end()) --after;
    auto const before = after == steps.begin() ? after : std::prev(after);
    auto const a = point_of(before->second), b = point_of(after->second);
    double const share = b.step > a.step ? std::clamp((step - a.step) / (b.step - a.step), 0.0, 1.0) : 1.0;
    return {step, a.tokens + share * (b.tokens - a.tokens), a.seconds + share * (b.seconds - a.seconds)};
}

constexpr char const* missing = "?";

void write_table(std::string const& path, lines_by_step const& lines, lines_by_step const& steps,
                 std::vector<char const*> const& keys) {
    std::ostringstream file;
    file << "step\ttokens\tseconds";
    for (auto const* const key : keys) file << '\t' << key;
    file << '\n';
    for (auto const& [step, line] : lines) {
        auto const at = place_of(step, steps);
        std::vector<double> values{at.step, at.tokens, at.seconds};
        for (auto const* const key : keys) values.push_back(number_in(line, key));
        for (std::size_t i = 0; i < values.size(); ++i) {
            std::string cell;
            detail::append_json(cell, values[i]);
            file << (i > 0 ? "\t" : "") << (cell == "null" ? missing : cell);
        }
        file << '\n';
    }
    replace_file(path, file.str());
}

bool any(lines_by_step const& lines, char const* key) {
    return std::any_of(lines.begin(), lines.end(),
                       [&](auto const& each) { return !std::isnan(number_in(each.second, key)); });
}

std::string curve(std::string const& table, int x, int y, std::string const& style, std::string const& title) {
    return "\"" + table + "\" every ::1 using " + std::to_string(x) + ":" + std::to_string(y) + " with " + style +
           " title \"" + title + "\"";
}

// The axes are columns of the tables.
struct axis {
    int column;
    char const* title;
};

std::string script_of(run_metrics const& m, std::string const& format) {
    constexpr char const* steps = "curve-steps.tsv";
    constexpr char const* scores = "curve-evaluations.tsv";
    std::vector<axis> axes{{1, "steps"}};
    if (any(m.steps, "tokens")) axes.push_back({2, "tokens"});
    axes.push_back({3, "seconds"});
    bool const of_autoencoder = any(m.steps, "cross_entropy");
    bool const has_scores = !m.evaluations.empty();
    std::string text = "# gnuplot curve.gp, in this folder\nset datafile separator \"\\t\"\nset datafile missing \"" +
                       std::string(missing) + "\"\nset terminal " + (format == "svg" ? "svg" : "pngcairo") + " size " +
                       std::to_string(450 * axes.size()) + "," + (has_scores ? "760" : "400") +
                       "\nset output \"curve." + format + "\"\nset multiplot layout " + (has_scores ? "2," : "1,") +
                       std::to_string(axes.size()) + "\nset grid\nset key top right\nset xtics rotate by -30\n";
    for (auto const& x : axes) {
        text += "set xlabel \"" + std::string(x.title) + "\"\nset ylabel \"" +
                (of_autoencoder ? "nats; divergence / 100\"\nset logscale y\n" : "loss\"\n") + "plot " +
                curve(steps, x.column, 4, "lines linewidth 2", "loss");
        if (of_autoencoder)
            text += ", " + curve(steps, x.column, 5, "lines", "cross-entropy") + ", \"" + steps +
                    "\" every ::1 using " + std::to_string(x.column) + ":($6/100) with lines title \"divergence\", " +
                    curve(steps, x.column, 7, "lines", "posterior std");
        if (any(m.evaluations, "heldout_loss"))
            text += ", " + curve(scores, x.column, 4, "linespoints pointtype 7", "held-out loss");
        text += "\n";
    }
    text += "unset logscale y\nset key bottom right\n";
    for (auto const& x : axes) {
        if (!has_scores) break;
        std::string const column = std::to_string(x.column);
        text += "set xlabel \"" + std::string(x.title) + "\"\n";
        if (any(m.evaluations, "brier_lm")) {
            text += "set ylabel \"BrierLM on held-out text\"\nplot ";
            if (any(m.evaluations, "brier_lm_se"))
                text += "\"" + std::string(scores) + "\" every ::1 using " + column +
                        ":($5-$6):($5+$6) with filledcurves fillstyle transparent solid 0.25 linecolor 1 "
                        "title \"standard error\", ";
            text += curve(scores, x.column, 5, "linespoints pointtype 7 linecolor 1", "CALM") + ", " +
                    curve(scores, x.column, 7, "lines dashtype 2", "bigram table") + "\n";
        } else {
            text += "set ylabel \"held-out tokens right\"\nplot " +
                    curve(scores, x.column, 8, "linespoints pointtype 7", "from the mean") + ", " +
                    curve(scores, x.column, 9, "linespoints pointtype 5", "with posterior noise") + "\n";
        }
    }
    return text;
}

}  // namespace

std::string plot_training(std::string const& directory, std::string const& format) {
    std::filesystem::path const in(directory);
    auto const m = metrics_of((in / metrics_file).string());
    write_table((in / "curve-steps.tsv").string(), m.steps, m.steps, {"loss", "cross_entropy", "kl", "posterior_std"});
    write_table(
        (in / "curve-evaluations.tsv").string(), m.evaluations, m.steps,
        {"heldout_loss", "brier_lm", "brier_lm_se", "bigram_brier_lm", "token_accuracy", "token_accuracy_posterior"});
    return plotted(directory, "curve", script_of(m, format), "curve." + format);
}

}  // namespace calm::apps
