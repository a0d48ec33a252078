#include <boost/test/unit_test.hpp>

#include "run/training_curve.hpp"

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "calm/base/detail/number_text.hpp"
#include "calm/base/error.hpp"
#include "run/event_file.hpp"
#include "run/metrics_lines.hpp"
#include "run/svg_plot.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::apps;
using calm::test::has;
using calm::test::temporary_folder;

namespace {

// The curve of this name in the panel with these axes.
plot_curve curve_of(plot_figure const& figure, std::string const& x, std::string const& y, std::string const& name) {
    for (auto const& panel : figure.panels)
        for (auto const& curve : panel.curves)
            if (panel.x.title == x && panel.y.title == y && curve.name == name) return curve;
    return {};
}

// Points as "x y error", separated by commas.
std::string points_of(plot_curve const& curve) {
    std::string text;
    for (auto const& p : curve.points)
        text += (text.empty() ? "" : ", ") + shortest(p.x) + " " + shortest(p.y) +
                (p.error != 0 ? " " + shortest(p.error) : "");
    return text;
}

constexpr char const* brier_lm = "BrierLM on held-out text";
constexpr char const* brier_1 = "Brier-1 on held-out text";

}  // namespace

BOOST_AUTO_TEST_CASE(evaluations_are_plotted_between_logged_steps) {
    temporary_folder const folder;
    static_cast<void>(folder.with(
        "metrics.jsonl", "{\"step\":10,\"tokens\":100,\"seconds\":1,\"loss\":5.5,\"kl\":null}\n"
                         "{\"step\":11,\"skipped\":1,\"why\":\"not finite\"}\n"
                         "{\"step\":12,\"brier_lm\":4,\"brier_lm_se\":0.5,\"bigram_brier_lm\":8,\"heldout_loss\":5}\n"
                         "{\"step\":20,\"tokens\":200,\"seconds\":3,\"loss\":4.5}\n"
                         "{\"step\":20,\"tokens\":200,\"seconds\":4,\"loss\":4.25}\n"
                         "{\"step\":20,\"brier_lm\":6}\n"
                         "no JSON\n{\"step\":30,\"lo"));
    auto const figure = training_figure(folder.path(""));
    BOOST_TEST(points_of(curve_of(figure, "steps", "training loss", "loss")) == "10 5.5, 20 4.25");
    BOOST_TEST(points_of(curve_of(figure, "tokens", "training loss", "held-out loss")) == "120 5");
    auto const scores = curve_of(figure, "seconds", brier_lm, "model");
    BOOST_TEST(points_of(scores).starts_with("1.6 4 0.5, 4 6"));
    BOOST_TEST(scores.band);
    BOOST_TEST(has(plot_training(folder.path("")).sentence, "plotted in " + folder.path("curve.svg")));
    BOOST_TEST(folder.content("curve.svg") == svg_of(figure));
}

// Horizontal lines at the last reference scores, and another run as a curve; Brier-1 has a separate row.
BOOST_AUTO_TEST_CASE(baselines_are_horizontal_lines) {
    temporary_folder const folder;
    auto const evaluation = [](std::string const& step, std::string const& more) {
        return "{\"step\":" + step + ",\"brier\":[0.1,0.01,0,0],\"brier_lm\":1,\"unigram_brier\":[0.05,0,0,0]," + more +
               "}\n";
    };
    std::string const step = "{\"step\":20,\"tokens\":200,\"seconds\":3,\"loss\":4.5}\n";
    static_cast<void>(
        folder.with("metrics.jsonl",
                    evaluation("10", "\"bigram_brier\":[0.2,0.1,0,0],\"bigram_brier_lm\":3,\"baseline_brier_1\":null") +
                        step + evaluation("20", "\"bigram_brier\":[0.25,0.1,0,0],\"bigram_brier_lm\":4")));
    auto const figure = training_figure(folder.path(""));
    BOOST_TEST(figure.columns == 3U);
    BOOST_TEST(figure.panels.size() == 9U);
    auto const bigrams = curve_of(figure, "steps", brier_lm, "bigrams");
    BOOST_TEST(points_of(bigrams) == "0 4, 20 4");
    BOOST_TEST(bigrams.dashed);
    BOOST_TEST(points_of(curve_of(figure, "steps", brier_1, "bigrams")) == "0 0.25, 20 0.25");
    BOOST_TEST(points_of(curve_of(figure, "tokens", brier_1, "unigrams")) == "0 0.05, 200 0.05");
    BOOST_TEST(points_of(curve_of(figure, "steps", brier_1, "AR baseline")).empty());

    static_cast<void>(
        folder.with("metrics.jsonl",
                    step + evaluation("20", "\"bigram_brier_lm\":4,\"baseline_brier_1\":0.3,\"baseline_brier_lm\":5")));
    auto const compared = training_figure(folder.path(""));
    BOOST_TEST(points_of(curve_of(compared, "steps", brier_lm, "AR baseline")) == "20 5");
    BOOST_TEST(points_of(curve_of(compared, "seconds", brier_1, "AR baseline")) == "3 0.3");
}

BOOST_AUTO_TEST_CASE(a_missing_gnuplot_is_reported) {
    temporary_folder const folder;
    static_cast<void>(folder.with("metrics.jsonl", "{\"step\":1,\"seconds\":1,\"loss\":5.5}\n"));
    std::string const path = std::getenv("PATH");
    ::setenv("PATH", folder.path("").c_str(), 1);
    auto const png = plot_training(folder.path(""), "png");
    auto const svg = plot_training(folder.path(""));
    ::setenv("PATH", path.c_str(), 1);
    BOOST_TEST(has(png.sentence, "no plot: a png needs gnuplot"), png.sentence);
    BOOST_TEST(has(png.sentence, "--format svg"), png.sentence);
    BOOST_TEST(!png.made);
    BOOST_TEST(!folder.content("curve.gp").empty());
    BOOST_TEST(!std::filesystem::exists(folder.path("curve.png")));
    BOOST_TEST(svg.made);
}

BOOST_AUTO_TEST_CASE(an_older_run_without_tokens_has_two_axes) {
    temporary_folder const folder;
    static_cast<void>(folder.with("metrics.jsonl",
                                  "{\"step\":1,\"seconds\":1,\"loss\":5.5,\"cross_entropy\":5,\"kl\":3}\n"
                                  "{\"step\":2,\"seconds\":2,\"loss\":5,\"cross_entropy\":4,\"kl\":2}\n"));
    auto const figure = training_figure(folder.path(""));
    BOOST_TEST_REQUIRE(figure.panels.size() == 2U);
    BOOST_TEST(figure.columns == 2U);
    BOOST_TEST(figure.panels[0].y.logarithm == 10);
    BOOST_TEST(points_of(figure.panels[0].curves.at(2)) == "1 0.03, 2 0.02");
    auto const said = plot_training(folder.path(""), "png").sentence;
    BOOST_TEST(has(said, "plotted in"), "the tests need gnuplot (Debian: gnuplot-nox): " << said);
    BOOST_TEST(folder.content("curve.png").starts_with("\x89PNG\r\n"));
}

// Evaluations begin later than steps, but their panel has the axis of the panel above.
BOOST_AUTO_TEST_CASE(the_axes_of_a_column_agree) {
    temporary_folder const folder;
    static_cast<void>(folder.with("metrics.jsonl", "{\"step\":1,\"tokens\":2048,\"seconds\":1,\"loss\":5.5}\n"
                                                   "{\"step\":700,\"tokens\":1433600,\"seconds\":300,\"loss\":5}\n"
                                                   "{\"step\":720,\"brier_lm\":4,\"heldout_loss\":5}\n"
                                                   "{\"step\":1000,\"tokens\":2048000,\"seconds\":600,\"loss\":4}\n"));
    auto const figure = training_figure(folder.path(""));
    BOOST_TEST_REQUIRE(figure.panels.size() == 6U);
    std::pair<char const*, double> const axes[] = {{"steps", 1000}, {"tokens", 2048000}, {"minutes", 10}};
    for (std::size_t i = 0; i < figure.panels.size(); ++i) {
        BOOST_TEST(figure.panels[i].x.title == axes[i % 3].first);
        auto const scale = scale_of_x(figure.panels[i]);
        BOOST_TEST(scale.low == 0);
        BOOST_TEST(scale.high == axes[i % 3].second);
    }
}

BOOST_AUTO_TEST_CASE(other_directories_are_refused) {
    temporary_folder const folder;
    BOOST_CHECK_THROW(plot_training(folder.path("none")), error);
    static_cast<void>(folder.with("metrics.jsonl", "{\"step\":1}\n[]\n"));
    BOOST_CHECK_THROW(plot_training(folder.path("")), error);
}

BOOST_AUTO_TEST_CASE(memory_follows_from_steps_not_from_bytes) {
    std::string text = "{\"step\":1,\"loss\":2,\"seconds\":1}\n";
    // longer than any line of ours
    text += "{\"step\":2,\"loss\":1,\"more\":\"" + std::string(1'000'000, 'x') + "\"}\n";
    text.append(900'000, '[');
    temporary_folder const folder;
    auto const read = read_metrics(folder.with("metrics.jsonl", text));
    BOOST_TEST(read.steps.size() == 1U);
    BOOST_TEST(read.steps.at(1)["loss"] == 2);
}

BOOST_AUTO_TEST_CASE(a_plot_goes_through_no_link) {
    temporary_folder const folder;
    static_cast<void>(folder.with("metrics.jsonl", "{\"step\":1,\"seconds\":1,\"loss\":5.5}\n"));
    auto const kept = folder.with("kept", "kept");
    for (auto const* const name : {"curve.gp", "curve.png", "curve.png.partial", "curve.svg", "curve.svg.partial",
                                   "events.out.tfevents.0.calm", "events.out.tfevents.0.calm.partial"})
        std::filesystem::create_symlink(kept, folder.path(name));
    static_cast<void>(folder.with("run.json", R"({"calls": [{"date": "2026-11-27T09:00:00Z"}]})"));
    static_cast<void>(plot_training(folder.path("")));
    static_cast<void>(plot_training(folder.path(""), "png"));
    static_cast<void>(write_events(folder.path("")));
    BOOST_TEST(folder.content("kept") == "kept");
    BOOST_TEST(has(folder.content("curve.gp"), "plot"));
    for (auto const* const name : {"curve.gp", "curve.png", "curve.svg", "events.out.tfevents.0.calm"})
        BOOST_TEST(!std::filesystem::is_symlink(folder.path(name)), name);
}
