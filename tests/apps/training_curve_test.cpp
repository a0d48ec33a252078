#include <boost/test/unit_test.hpp>

#include "run/training_curve.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "calm/base/error.hpp"
#include "run/gnuplot.hpp"
#include "run/metrics_lines.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::apps;
using calm::test::has;
using calm::test::temporary_folder;

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
    auto const said = plot_training(folder.path(""), "svg").sentence;
    BOOST_TEST(folder.content("curve-steps.tsv") == "step\ttokens\tseconds\tloss\tcross_entropy\tkl\tposterior_std\n"
                                                    "10\t100\t1\t5.5\t?\t?\t?\n20\t200\t4\t4.25\t?\t?\t?\n");
    BOOST_TEST(folder.content("curve-evaluations.tsv") ==
               "step\ttokens\tseconds\theldout_loss\tbrier_lm\tbrier_lm_se\tbigram_brier_lm\ttoken_accuracy\t"
               "token_accuracy_posterior\tbrier\tunigram_brier\tbigram_brier\tbeside_brier_1\tbeside_brier_lm\n"
               "12\t120\t1.6\t5\t4\t0.5\t8\t?\t?\t?\t?\t?\t?\t?\n"
               "20\t200\t4\t?\t6\t?\t?\t?\t?\t?\t?\t?\t?\t?\n");
    BOOST_TEST(has(folder.content("curve.gp"), "($5-$6):($5+$6) with filledcurves"));
    BOOST_TEST(has(said, "plotted in"), "the tests need gnuplot (Debian: gnuplot-nox): " << said);
    BOOST_TEST(has(folder.content("curve.svg"), "<svg"));
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
                    evaluation("10", "\"bigram_brier\":[0.2,0.1,0,0],\"bigram_brier_lm\":3,\"beside_brier_1\":null") +
                        step + evaluation("20", "\"bigram_brier\":[0.25,0.1,0,0],\"bigram_brier_lm\":4")));
    auto const said = plot_training(folder.path(""), "svg").sentence;
    BOOST_TEST(has(said, "plotted in"), "the tests need gnuplot (Debian: gnuplot-nox): " << said);
    auto const script = folder.content("curve.gp");
    BOOST_TEST(has(script, "layout 3,3"), script);
    BOOST_TEST(has(script, "size 1440,1200"), script);
    BOOST_TEST(has(script, ", 4 with lines dashtype 2 linecolor 2 title \"bigrams\""), script);
    BOOST_TEST(has(script, ", 0.25 with lines dashtype 2 linecolor 2 title \"bigrams\""), script);
    BOOST_TEST(has(script, ", 0.05 with lines dashtype 3 linecolor 3 title \"unigrams\""), script);
    BOOST_TEST(!has(script, "AR beside"), script);
    BOOST_TEST(has(folder.content("curve-evaluations.tsv"), "\t0.1\t0.05\t0.2\t?\t?\n"));

    static_cast<void>(
        folder.with("metrics.jsonl",
                    step + evaluation("20", "\"bigram_brier_lm\":4,\"beside_brier_1\":0.3,\"beside_brier_lm\":5")));
    BOOST_TEST(has(plot_training(folder.path(""), "svg").sentence, "plotted in"));
    BOOST_TEST(has(folder.content("curve.gp"), ":13 with lines dashtype 4 linecolor 4 title \"AR beside\""));
    BOOST_TEST(has(folder.content("curve.gp"), ":14 with lines dashtype 4 linecolor 4 title \"AR beside\""));
    BOOST_TEST(has(folder.content("curve-evaluations.tsv"), "\t0.1\t0.05\t?\t0.3\t5\n"));
}

BOOST_AUTO_TEST_CASE(a_missing_gnuplot_is_reported) {
    temporary_folder const folder;
    static_cast<void>(folder.with("metrics.jsonl", "{\"step\":1,\"seconds\":1,\"loss\":5.5}\n"));
    std::string const path = std::getenv("PATH");
    ::setenv("PATH", folder.path("").c_str(), 1);
    auto const [said, made] = plot_training(folder.path(""));
    ::setenv("PATH", path.c_str(), 1);
    BOOST_TEST(has(said, "no plot: install gnuplot"), said);
    BOOST_TEST(!made);
    BOOST_TEST(!folder.content("curve.gp").empty());
    BOOST_TEST(!std::filesystem::exists(folder.path("curve.png")));
}

// gnuplot's complaint becomes part of the message and is not printed elsewhere.
BOOST_AUTO_TEST_CASE(a_failing_gnuplot_is_reported_with_its_last_line) {
    temporary_folder const folder;
    auto const [said, made] = plotted(folder.path(""), "curve", "set output \"curve.png\"\nplot 1/0\n\n", "curve.png");
    BOOST_TEST(!made);
    BOOST_TEST(has(said, "no plot: gnuplot failed on " + folder.path("curve.gp") + ": "), said);
    BOOST_TEST(has(said, "line 3"), said);
    BOOST_TEST(!has(said, "\n"), said);
    BOOST_TEST(!std::filesystem::exists(folder.path("curve.png")));
    BOOST_TEST(!std::filesystem::exists(folder.path("curve.png.partial")));
}

BOOST_AUTO_TEST_CASE(an_older_run_without_tokens_has_two_axes) {
    temporary_folder const folder;
    static_cast<void>(folder.with("metrics.jsonl",
                                  "{\"step\":1,\"seconds\":1,\"loss\":5.5,\"cross_entropy\":5,\"kl\":3}\n"
                                  "{\"step\":2,\"seconds\":2,\"loss\":5,\"cross_entropy\":4,\"kl\":2}\n"));
    static_cast<void>(plot_training(folder.path("")));
    BOOST_TEST(folder.content("curve.png").starts_with("\x89PNG\r\n"));
    auto const script = folder.content("curve.gp");
    BOOST_TEST(has(script, "layout 1,2"));
    BOOST_TEST(!has(script, "\"tokens\""));
    BOOST_TEST(has(script, "divergence"));
}

// Evaluations begin later than steps, but their panel has the axis of the panel above.
BOOST_AUTO_TEST_CASE(the_axes_of_a_column_agree) {
    temporary_folder const folder;
    static_cast<void>(folder.with("metrics.jsonl", "{\"step\":1,\"tokens\":2048,\"seconds\":1,\"loss\":5.5}\n"
                                                   "{\"step\":700,\"tokens\":1433600,\"seconds\":300,\"loss\":5}\n"
                                                   "{\"step\":720,\"brier_lm\":4,\"heldout_loss\":5}\n"
                                                   "{\"step\":1000,\"tokens\":2048000,\"seconds\":600,\"loss\":4}\n"));
    static_cast<void>(plot_training(folder.path("")));
    std::map<std::string, std::multiset<std::string>> axes;  // ranges and ticks by title
    std::istringstream script(folder.content("curve.gp"));
    std::string title;
    for (std::string line; std::getline(script, line);) {
        if (line.starts_with("set xlabel ")) title = line.substr(11);
        if (line.starts_with("set xrange ") || line.starts_with("set xtics ")) axes[title].insert(line);
    }
    BOOST_TEST(axes.size() == 3U);
    for (auto const& [name, lines] : axes) {
        BOOST_TEST(lines.size() == 4U, name << " has " << lines.size() << " lines");
        for (auto const& line : lines) BOOST_TEST(lines.count(line) == 2U, name << ": " << line << " stands once");
    }
    BOOST_TEST(axes["\"tokens\""].count("set xrange [0:2048000]") == 2U);
    BOOST_TEST(has(folder.content("curve.gp"), "\"1.5 M\" 1500000"));
    BOOST_TEST(axes["\"minutes\""].count("set xrange [0:10]") == 2U);
}

BOOST_AUTO_TEST_CASE(an_axis_has_few_round_ticks) {
    for (auto const& [n, text] : {std::pair{0.0, "0"},
                                  {0.25, "0.25"},
                                  {200.0, "200"},
                                  {1500.0, "1.5 k"},
                                  {500000.0, "500 k"},
                                  {1.5e6, "1.5 M"},
                                  {2e9, "2 G"}})
        BOOST_TEST(tick_text(n) == text);
    BOOST_TEST(x_axis(2e6) == "set xrange [0:2000000]\nset xtics (\"0\" 0, \"500 k\" 500000, \"1 M\" 1000000, "
                              "\"1.5 M\" 1500000, \"2 M\" 2000000)\n");
    for (double most = 1; most < 1e9; most *= 1.37) {
        auto const text = x_axis(most);
        auto const ticks = std::count(text.begin(), text.end(), '"') / 2;
        BOOST_TEST((ticks >= 3 && ticks <= 6), most << " has " << ticks << " ticks");
    }
    BOOST_TEST(has(x_axis(0), "[0:1]"));
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
    for (auto const* const name :
         {"curve.gp", "curve-steps.tsv", "curve-evaluations.tsv", "curve.svg", "curve.svg.partial"})
        std::filesystem::create_symlink(kept, folder.path(name));
    static_cast<void>(plot_training(folder.path(""), "svg"));
    BOOST_TEST(folder.content("kept") == "kept");
    BOOST_TEST(has(folder.content("curve.gp"), "plot"));
    BOOST_TEST(!std::filesystem::is_symlink(folder.path("curve-steps.tsv")));
}
