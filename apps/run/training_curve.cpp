#include "run/training_curve.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/error.hpp"
#include "calm/evaluate/detail/metric.hpp"
#include "run/metrics_lines.hpp"
#include "run/report.hpp"

namespace calm::apps {

namespace {

run_metrics metrics_of(std::string const& path) {
    if (!calm::is_there(path))
        throw error(errc::storage, path, "", "cannot be read, there is none: is this the directory of a run?");
    return read_metrics(path);
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
        for (auto const* const key : keys) values.push_back(line[key]);
        for (std::size_t i = 0; i < values.size(); ++i) {
            file << (i > 0 ? "\t" : "") << (std::isfinite(values[i]) ? shortest(values[i]) : missing);
        }
        file << '\n';
    }
    replace_file(path, file.str());
}

bool any(lines_by_step const& lines, char const* key) {
    return std::any_of(lines.begin(), lines.end(), [&](auto const& each) { return !std::isnan(each.second[key]); });
}

// An x axis: a column of the tables divided by a unit of measure.
struct axis {
    int column;
    char const* title;
    double most;      // largest value in the column
    double unit = 1;  // axis value = column / unit
};

axis time_axis(double seconds) {
    if (seconds < 300) return {3, "seconds", seconds};
    if (seconds < 3 * 3600) return {3, "minutes", seconds, 60};
    return {3, "hours", seconds, 3600};
}

// A curve of y against an axis; y is a column number or, in parentheses, an expression of columns.
std::string curve(std::string const& table, axis const& x, std::string const& y, std::string const& style,
                  std::string const& title) {
    return "\"" + table + "\" every ::1 using (column(" + std::to_string(x.column) + ")/" + formatted("%g", x.unit) +
           "):" + y + " with " + style + " title \"" + title + "\"";
}

// A further curve of a plot: a horizontal line at a key's last value; "" if it has none.
std::string level(lines_by_step const& lines, char const* key, std::string const& style, std::string const& title) {
    double last = std::numeric_limits<double>::quiet_NaN();
    for (auto const& [step, line] : lines)
        if (!std::isnan(line[key])) last = line[key];
    return std::isnan(last) ? "" : formatted(", %.6g with lines ", last) + style + " title \"" + title + "\"";
}

constexpr char const* steps_table = "curve-steps.tsv";
constexpr char const* scores_table = "curve-evaluations.tsv";

std::vector<axis> axes_of(run_metrics const& m) {
    double last = 0;  // evaluations may follow the last logged step
    for (auto const* const lines : {&m.steps, &m.evaluations})
        if (!lines->empty()) last = std::max(last, lines->rbegin()->first);
    run_place most{last, 0, 0};
    for (auto const& [step, line] : m.steps) {
        most.tokens = std::fmax(most.tokens, line["tokens"]);
        most.seconds = std::fmax(most.seconds, line["seconds"]);
    }
    std::vector<axis> axes{{1, "steps", most.step}};
    if (any(m.steps, "tokens")) axes.push_back({2, "tokens", most.tokens});
    axes.push_back(time_axis(most.seconds));
    return axes;
}

// A picture with this many rows of plots. Equal margins, in characters, align the axes of plots below each other. Keys
// are drawn in the upper margin.
std::string layout(std::size_t rows, std::size_t columns, std::string const& format) {
    return "# gnuplot curve.gp, in this folder\nset datafile separator \"\\t\"\nset datafile missing \"" +
           std::string(missing) + "\"\nset terminal " + (format == "svg" ? "svg" : "pngcairo") + " size " +
           std::to_string(480 * columns) + "," + std::to_string(rows == 1 ? 420 : 400 * rows) +
           "\nset output \"curve." + format + "\"\nset multiplot layout " + std::to_string(rows) + "," +
           std::to_string(columns) +
           "\nset grid\nset lmargin 10\nset rmargin 4\nset tmargin 4\nset bmargin 4\n"
           "set key above horizontal samplen 1\n";
}

std::string losses(run_metrics const& m, axis const& x) {
    bool const of_autoencoder = any(m.steps, "cross_entropy");
    std::string text = std::string("set ylabel \"") +
                       (of_autoencoder ? "nats; divergence / 100\"\nset logscale y\n" : "loss\"\n") + "plot " +
                       curve(steps_table, x, "4", "lines linewidth 2", "loss");
    if (of_autoencoder)
        text += ", " + curve(steps_table, x, "5", "lines", "cross-entropy") + ", " +
                curve(steps_table, x, "($6/100)", "lines", "divergence") + ", " +
                curve(steps_table, x, "7", "lines", "posterior std");
    if (any(m.evaluations, "heldout_loss"))
        text += ", " + curve(scores_table, x, "4", "linespoints pointtype 7", "held-out loss");
    return text;
}

// A further curve of a plot: the baseline's score; "" if there is no baseline.
std::string beside(run_metrics const& m, axis const& x, char const* key, std::string const& column) {
    if (!any(m.evaluations, key)) return "";
    return ", " + curve(scores_table, x, column, "lines dashtype 4 linecolor 4", "AR beside");
}

std::string tokens_right(run_metrics const&, axis const& x) {
    return "set ylabel \"held-out tokens right\"\nplot " +
           curve(scores_table, x, "8", "linespoints pointtype 7", "from the mean") + ", " +
           curve(scores_table, x, "9", "linespoints pointtype 5", "with posterior noise");
}

std::string brier_lm_curves(run_metrics const& m, axis const& x) {
    std::string text = "set ylabel \"BrierLM on held-out text\"\nplot ";
    if (any(m.evaluations, "brier_lm_se"))
        text += curve(scores_table, x, "($5-$6):($5+$6)", "filledcurves fillstyle transparent solid 0.25 linecolor 1",
                      "standard error") +
                ", ";
    return text + curve(scores_table, x, "5", "linespoints pointtype 7 linecolor 1", "model") +
           level(m.evaluations, "bigram_brier_lm", "dashtype 2 linecolor 2", "bigrams") +
           beside(m, x, "beside_brier_lm", "14");
}

std::string brier_1_curves(run_metrics const& m, axis const& x) {
    return "set ylabel \"Brier-1 on held-out text\"\nplot " +
           curve(scores_table, x, "10", "linespoints pointtype 7 linecolor 1", "model") +
           level(m.evaluations, "bigram_brier", "dashtype 2 linecolor 2", "bigrams") +
           level(m.evaluations, "unigram_brier", "dashtype 3 linecolor 3", "unigrams") +
           beside(m, x, "beside_brier_1", "13");
}

// One plot per axis.
std::string row_of_plots(run_metrics const& m, std::vector<axis> const& axes,
                         std::string (*plot)(run_metrics const&, axis const&)) {
    std::string text;
    for (auto const& x : axes)
        text += "set xlabel \"" + std::string(x.title) + "\"\n" + x_axis(x.most / x.unit) + plot(m, x) + "\n";
    return text;
}

std::string script_of(run_metrics const& m, std::string const& format) {
    auto const axes = axes_of(m);
    bool const scored = !m.evaluations.empty(), has_brier = any(m.evaluations, "brier");
    auto text = layout(std::size_t{1} + scored + has_brier, axes.size(), format) + row_of_plots(m, axes, losses) +
                "unset logscale y\n";
    if (scored) text += row_of_plots(m, axes, any(m.evaluations, "brier_lm") ? brier_lm_curves : tokens_right);
    if (has_brier) text += row_of_plots(m, axes, brier_1_curves);
    return text;
}

}  // namespace

plot_outcome plot_training(std::string const& directory, std::string const& format) {
    std::filesystem::path const in(directory);
    auto const m = metrics_of((in / metrics_file).string());
    write_table((in / steps_table).string(), m.steps, m.steps, {"loss", "cross_entropy", "kl", "posterior_std"});
    write_table((in / scores_table).string(), m.evaluations, m.steps,
                {"heldout_loss", "brier_lm", "brier_lm_se", "bigram_brier_lm", "token_accuracy",
                 "token_accuracy_posterior", "brier", "unigram_brier", "bigram_brier", "beside_brier_1",
                 "beside_brier_lm"});
    return plotted(directory, "curve", script_of(m, format), "curve." + format);
}

}  // namespace calm::apps
