// sweep: trains and evaluates configurations on one source to compare patch sizes K (the paper's semantic bandwidth),
// heads, options and autoregressive models by cost and score. Writes a table and a plot.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "calm/base/quoted.hpp"
#include "calm/io/detail/replaced_directory.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/model/flops.hpp"
#include "calm/runs/run_directory.hpp"
#include "command/command_line.hpp"
#include "command/sweep_combinations.hpp"
#include "plugin/chosen_sizes.hpp"
#include "program.hpp"
#include "programs/programs.hpp"
#include "registry.hpp"
#include "run/figure.hpp"
#include "run/ranks.hpp"
#include "run/report.hpp"
#include "run/run_plan.hpp"
#include "run/run_record.hpp"
#include "run/svg_plot.hpp"
#include "stored_work.hpp"
#include "text/text_data.hpp"
#include "text/text_output.hpp"
#include "training_jobs.hpp"

namespace calm::apps {

namespace {

struct row {
    std::string configuration;
    std::vector<std::pair<std::string, std::string>> varied;  // as sweep_options has it
    std::string head;                                         // softmax for an autoregressive model
    index_t K = 1, L = 0;         // tokens per patch, latent size; 1 and 0 for an autoregressive model
    double training_flops = 0;    // per token, with Muon's
    double muon_flops = 0;        // per token, Muon's alone
    double before = 0;            // FLOPs of training the autoencoder
    double generation_flops = 0;  // per token, one draw, in the middle of a block
    double seconds = 0;           // of the language model's steps
    index_t tokens = 0;           // of training
    double milliseconds = 0;      // per patch of one text, one draw; depends on the machine's load
    calm::evaluation found;

    // "tiny, head-samples=2"; `seeded` with the seed too, if it varies.
    [[nodiscard]] std::string name(bool seeded = true) const {
        std::string text = configuration;
        for (auto const& [option, value] : varied)
            if (seeded || option != "seed") text += ", " + option + "=" + value;
        return text;
    }
};

// FLOPs of training.
struct training_cost {
    double step = 0;    // per step, of the model's products
    double muon = 0;    // per step, of Muon's products
    double before = 0;  // of the autoencoder, all steps
    [[nodiscard]] double whole_step() const { return step + muon; }
};

// Number of steps that the tokens or FLOPs allow, at least one; none if time limits the run. Throws errc::usage if the
// autoencoder uses up all FLOPs.
std::optional<index_t> steps_of(sweep_options const& o, std::string const& name, double tokens_per_step,
                                training_cost const& cost) {
    if (!o.tokens && !o.teraflops) return std::nullopt;
    auto const at_least_one = [](double steps) { return std::max<index_t>(1, static_cast<index_t>(steps)); };
    if (o.tokens) return at_least_one(static_cast<double>(*o.tokens) / tokens_per_step);
    double const given = 1e12 * *o.teraflops;
    if (!o.counts_all) return at_least_one(given / cost.step);
    if (cost.before >= given)
        throw calm::error(calm::errc::usage,
                          formatted("--teraflops %g: the autoencoder of %s alone takes %.3g; give more, train "
                                    "autoencoders for less, or use --count paper, which leaves them out",
                                    *o.teraflops, name.c_str(), cost.before / 1e12));
    return at_least_one((given - cost.before) / cost.whole_step());
}

// Options that all trainings of a configuration share.
train_options training_of(sweep_options const& o, std::string const& name) {
    train_options t;
    t.configuration = name;
    t.tokenizer = o.tokenizer;
    t.pattern = o.pattern;
    t.tokens = calm::in_directory(o.out, tokens_file);
    t.data = o.data;
    if (o.positions > 0) t.heldout_positions = std::min(o.positions, t.heldout_positions);
    static_cast<execution_options&>(t) = o;
    t.record = o.record;
    return t;
}

// Whether autoencoders differ by an option.
bool changes_autoencoder(std::string const& option) {
    auto const& names = autoencoder_numbers::names;
    return option == "seed" || std::find(names.begin(), names.end(), option) != names.end();
}

// The folder of a stage: its name and what varies, as "calm,head-samples=2". Options that do not change an autoencoder
// share it.
std::string stage_folder(sweep_options const& o, std::string const& folder, std::string const& stage) {
    auto name = folder + "/" + stage;
    for (auto const& [option, value] : o.varied)
        if (stage != "autoencoder" || changes_autoencoder(option)) name += "," + option + "=" + value;
    return name;
}

// State after all steps of a run, including steps of earlier calls.
calm::training_state state_of(std::string const& run) {
    auto const newest = calm::run_directory(run).newest();
    return newest ? newest->record.state : calm::training_state();
}

// Throws errc::usage if an earlier sweep has trained for longer, since the table would compare unequal budgets.
void trained(std::function<int(train_options const&)> const& train, train_options const& t) {
    auto const before = state_of(t.out);
    auto const require_at_most = [&](auto most, auto found, bool fits, char const* unit) {
        require(fits, calm::errc::usage, t.out, ": expected at most ", most, unit, ", as this sweep allows, found ",
                found, " of an earlier sweep; choose another --out, or remove the directory");
    };
    if (t.steps) require_at_most(*t.steps, before.step, before.step <= *t.steps, " steps");
    // A run ends after its time, with its last step.
    if (t.minutes) require_at_most(*t.minutes, before.seconds / 60, before.seconds <= 66 * *t.minutes + 10, " minutes");
    if (int const code = train(t); code != 0) std::exit(code);
}

// Evaluates the language model in a directory.
calm::evaluation evaluated(sweep_options const& o, compiled_functions const& work, calm::stored_model const& model,
                           index_t block) {
    evaluate_options e;
    e.model = model.directory;
    e.data = o.data;
    e.block = block;
    e.samples = o.samples;
    e.positions = o.positions;
    static_cast<execution_options&>(e) = o;
    return evaluate_stored(work, e, model);
}

// Options of the training of a language model, whose stage has this name.
train_options training_of_model(sweep_options const& o, std::string const& name, std::string const& folder,
                                std::string const& stage) {
    auto t = training_of(o, name);
    t.out = stage_folder(o, folder, stage);
    t.block = o.block.value_or(256);
    t.learning_rate = o.learning_rate;
    t.muon = o.muon;
    t.minutes = o.minutes;
    return t;
}

// What a training as `t` cost per token, and the time and scores of its model.
row measured(sweep_options const& o, compiled_functions const& work, train_options const& t, training_cost const& cost,
             double tokens_per_step) {
    auto const model = calm::read_model_description(t.out);
    row r;
    r.configuration = t.configuration;
    r.varied = o.varied;
    r.training_flops = cost.whole_step() / tokens_per_step;
    r.muon_flops = cost.muon / tokens_per_step;
    r.before = cost.before;
    r.seconds = state_of(t.out).seconds;
    r.milliseconds = 1e3 * seconds_per_patch(work, o, model);
    r.found = evaluated(o, work, model, *t.block);
    return r;
}

// FLOPs per training step of an autoencoder.
double step_of_autoencoder(entry const& one, compiled_functions const& work, index_t V) {
    auto const& c = one.calm().autoencoder;
    auto const& recipe = one.defaults.autoencoder;
    index_t const patches = recipe.batch_tokens / c.patch_size;
    return static_cast<double>(patches) * calm::flops::train_autoencoder(c, V, patches / recipe.accumulation) +
           (recipe.optimizer.muon > 0 ? work.muon_of_autoencoder() : 0);
}

// V is the size of the shared vocabulary.
row row_of_calm(sweep_options const& o, entry const& one, index_t V, std::string const& folder) {
    index_t const block = o.block.value_or(256);
    auto const& work = one.on(o.device);
    auto const& c = one.calm();
    index_t const K = c.autoencoder.patch_size;
    auto t = training_of(o, one.name);
    t.out = stage_folder(o, folder, "autoencoder");
    t.minutes = o.autoencoder_minutes;
    if (o.autoencoder_tokens)
        t.steps = std::max<index_t>(1, *o.autoencoder_tokens / one.defaults.autoencoder.batch_tokens);
    t.of_autoencoder = o.of_autoencoder;
    index_t const step = one.defaults.calm.sequences * block;
    training_cost cost;
    auto objective = one.defaults.calm.objective;
    take(objective.fields, o.head);
    cost.step = static_cast<double>(step) *
                calm::flops::train_calm_per_token(c, V, one.defaults.calm.sequences, block, objective.samples());
    if (o.muon.value_or(one.defaults.calm.optimizer.muon) > 0) cost.muon = work.muon_of_model();
    double const autoencoder_step = step_of_autoencoder(one, work, V);
    // Fails before any training if the number of steps is known.
    if (t.steps) {
        cost.before = static_cast<double>(*t.steps) * autoencoder_step;
        static_cast<void>(steps_of(o, one.name, static_cast<double>(step), cost));
    }
    trained([&](train_options const& of) { return train_autoencoder({one, work}, of); }, t);
    cost.before = static_cast<double>(state_of(t.out).step) * autoencoder_step;

    auto m = training_of_model(o, one.name, folder, "calm");
    m.autoencoder = t.out;
    m.head = o.head;
    m.steps = steps_of(o, one.name, static_cast<double>(step), cost);
    trained([&](train_options const& of) { return train_calm({one, work}, of); }, m);
    auto r = measured(o, work, m, cost, static_cast<double>(step));
    r.head = c.head.name();
    r.K = K;
    r.L = c.autoencoder.latent_size;
    r.generation_flops = calm::flops::generate(c, V, static_cast<double>(block / K) / 2, 1) / static_cast<double>(K);
    r.tokens = state_of(m.out).step * step;
    return r;
}

row row_of_autoregressive(sweep_options const& o, entry const& one, index_t V, std::string const& folder) {
    index_t const block = o.block.value_or(256);
    auto const& work = one.on(o.device);
    auto const& c = one.autoregressive();
    auto const& level = one.defaults.autoregressive.level;
    index_t const step = one.defaults.autoregressive.sequences * block;
    // A step of the first phase takes K times the tokens at the cost of an ordinary step.
    double const mean_step = static_cast<double>(step) / level.cost();
    training_cost cost;
    cost.step = static_cast<double>(step) * calm::flops::train_autoregressive(c.llama, V, block);
    if (o.muon.value_or(one.defaults.autoregressive.optimizer.muon) > 0) cost.muon = work.muon_of_model();
    auto t = training_of_model(o, one.name, folder, "ar");
    t.steps = steps_of(o, one.name, mean_step, cost);
    trained([&](train_options const& of) { return train_autoregressive({one, work}, of); }, t);
    auto r = measured(o, work, t, cost, mean_step);
    auto const state = state_of(t.out);
    r.head = level.first_phase() > 0 ? "softmax " + short_text(level) : "softmax";
    r.generation_flops = calm::flops::generate_autoregressive(c.llama, V, static_cast<double>(block) / 2);
    r.tokens = (state.step + state.first_phase_steps * (level.patch - 1)) * step;
    return r;
}

row trained_and_evaluated(sweep_options const& o, std::string const& name, index_t V) {
    auto const& one = configuration_named(name);
    std::string const folder = calm::in_directory(o.out, folder_name(name));
    calm::make_directories(folder);
    return one.is_autoregressive() ? row_of_autoregressive(o, one, V, folder) : row_of_calm(o, one, V, folder);
}

// Of training, including the autoencoder.
double all_flops(row const& r) {
    return r.before + r.training_flops * static_cast<double>(r.tokens);
}

// Tab-separated; unknown or inapplicable cells are empty.
void write_table(std::vector<row> const& rows, std::string const& path) {
    std::ostringstream file;
    file << "configuration\tK\tL\ttraining FLOPs per token\tgeneration FLOPs per token\tseconds\tBrier-1\tBrier-2\t"
            "Brier-3\tBrier-4\tBrierLM\tstandard error\thead\tbits per byte\tits standard error\ttraining tokens\t"
            "training seconds per token\tms per patch\tms per token\tbigram Brier-1\tMuon's FLOPs per "
            "token\tautoencoder FLOPs\t"
            "all training FLOPs\tvaried\n";
    auto const optional = [&](std::optional<double> const& x) {
        file << '\t';
        if (x) file << *x;
    };
    for (auto const& r : rows) {
        file << r.configuration << '\t' << r.K << '\t';
        if (r.L > 0) file << r.L;
        file << '\t' << r.training_flops << '\t' << r.generation_flops << '\t' << r.seconds;
        for (double const score : *r.found.brier) file << '\t' << score;
        optional(r.found.brier_lm);
        optional(r.found.brier_lm_se);
        file << '\t' << r.head;
        optional(r.found.bits_per_byte);
        optional(r.found.bits_per_byte_se);
        file << '\t' << r.tokens << '\t' << r.seconds / static_cast<double>(r.tokens) << '\t' << r.milliseconds << '\t'
             << r.milliseconds / static_cast<double>(r.K);
        optional(r.found.bigram_brier ? std::optional((*r.found.bigram_brier)[0]) : std::nullopt);
        file << '\t' << r.muon_flops << '\t' << r.before << '\t' << all_flops(r) << '\t';
        for (std::size_t i = 0; i < r.varied.size(); ++i)
            file << (i == 0 ? "" : ", ") << r.varied[i].first << '=' << r.varied[i].second;
        file << '\n';
    }
    calm::replace_file(path, file.str());
}

std::string line_of(row const& r, int width) {
    auto const& e = r.found;
    std::string line =
        formatted("%-*s %-14s %3lld %4s %10.3g %8.3g %10.3g %7.0f %8.2f %8.3f %8.3f %7.4f %7.4f  %.2f%s", width,
                  r.name().c_str(), r.head.c_str(), static_cast<long long>(r.K),
                  r.L > 0 ? std::to_string(r.L).c_str() : "", r.training_flops, all_flops(r) / 1e12, r.generation_flops,
                  r.seconds, 1e6 * r.seconds / static_cast<double>(r.tokens), r.milliseconds,
                  r.milliseconds / static_cast<double>(r.K), (*e.brier)[0], e.bigram_brier ? (*e.bigram_brier)[0] : 0.0,
                  *e.brier_lm, e.brier_lm_se ? formatted(" +- %.2f", *e.brier_lm_se).c_str() : "");
    if (e.bits_per_byte)
        line += formatted("  %.4f%s", *e.bits_per_byte,
                          e.bits_per_byte_se ? formatted(" +- %.4f", *e.bits_per_byte_se).c_str() : "");
    return line + "\n";
}

// The one option that varies, besides seeds, if it is a number and all K are equal; else null.
std::string const* varied_number(std::vector<row> const& rows) {
    std::string const* number = nullptr;
    for (auto const& r : rows) {
        if (r.K != rows.front().K) return nullptr;
        for (auto const& [option, value] : r.varied) {
            if (option == "seed") continue;
            if (number != nullptr && *number != option) return nullptr;
            number = &option;
        }
    }
    return number;
}

// Scores and costs by K, or by the option that varies. One colour per curve, named in the legend: labels at the points
// would overlap for similar scores.
plot_figure figure_of(std::vector<row> const& rows, std::string const& out) {
    auto const* const varied = varied_number(rows);
    auto const x_of = [&](row const& r) {
        if (varied != nullptr)
            for (auto const& [option, value] : r.varied)
                if (option == *varied) return std::stod(value);
        return static_cast<double>(r.K);
    };
    auto const panel = [&](std::string const& y) {
        plot_axis x{.title = "K, tokens per patch", .logarithm = 2};
        if (varied != nullptr) x = {.title = *varied};
        return plot_panel{x, {.title = y}, {}};
    };
    auto const dots = [](std::string const& name, std::size_t style) {
        return plot_curve{.name = name, .points = {}, .style = style, .line = false, .dots = true};
    };
    // A panel of scores with their standard errors, for the rows that have one.
    auto const scores = [&](std::string const& y, auto const& score_of, auto const& error_of) {
        auto p = panel(y);
        std::vector<std::string> names;
        for (auto const& r : rows) {
            auto const name = varied != nullptr ? r.configuration : r.name(false);
            auto const style = static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
            if (style == names.size()) names.push_back(name);
            auto const score = score_of(r.found);
            if (!score) continue;
            auto curve =
                std::find_if(p.curves.begin(), p.curves.end(), [&](auto const& one) { return one.name == name; });
            if (curve == p.curves.end()) curve = p.curves.insert(curve, dots(name, style));
            curve->points.push_back({x_of(r), *score, error_of(r.found).value_or(0.0)});
        }
        return p;
    };
    // A panel of costs of training and generation.
    auto const costs = [&](std::string const& y, auto const& training_of, auto const& generation_of) {
        auto p = panel(y);
        p.y.logarithm = 10;
        p.curves = {dots("training", 0), dots("generation", 1)};
        for (auto const& r : rows) {
            p.curves[0].points.push_back({x_of(r), training_of(r)});
            p.curves[1].points.push_back({x_of(r), generation_of(r)});
        }
        return p;
    };
    plot_figure f{"Sweep " + calm::printable_line(out), 2, {}};
    f.panels.push_back(scores(
        "BrierLM", [](auto const& e) { return e.brier_lm; }, [](auto const& e) { return e.brier_lm_se; }));
    f.panels.back().y.from_zero = true;
    auto bits = scores(
        "bits per byte", [](auto const& e) { return e.bits_per_byte; },
        [](auto const& e) { return e.bits_per_byte_se; });
    if (!bits.curves.empty()) f.panels.push_back(std::move(bits));
    f.columns = f.panels.size() == 2 ? 2 : 3;
    f.panels.push_back(costs(
        "FLOPs per token", [](row const& r) { return r.training_flops; },
        [](row const& r) { return r.generation_flops; }));
    f.panels.push_back(costs(
        "milliseconds per token", [](row const& r) { return 1e3 * r.seconds / static_cast<double>(r.tokens); },
        [](row const& r) { return r.milliseconds / static_cast<double>(r.K); }));
    return f;
}

// The mean BrierLM of the seeds of each name, with its standard error if there are several.
std::string means_of_seeds(std::vector<row> const& rows) {
    std::vector<std::string> names;
    for (auto const& r : rows)
        if (std::find(names.begin(), names.end(), r.name(false)) == names.end()) names.push_back(r.name(false));
    std::string text;
    for (auto const& name : names) {
        double sum = 0, squares = 0, n = 0;
        for (auto const& r : rows) {
            if (r.name(false) != name || !r.found.brier_lm) continue;
            ++n;
            sum += *r.found.brier_lm;
            squares += *r.found.brier_lm * *r.found.brier_lm;
        }
        if (n == 0) continue;
        double const mean = sum / n;
        text += formatted("%s: BrierLM %.2f", name.c_str(), mean);
        if (n > 1) text += formatted(" +- %.2f", std::sqrt(std::max(0.0, squares / n - mean * mean) / (n - 1)));
        text += formatted(", mean of %.0f seeds\n", n);
    }
    return text;
}

}  // namespace

int sweep_main(int argc, char const* const* argv) {
    return run_program("sweep", [&] {
        refuse_ranks();
        auto const options = read_options<sweep_options>(argc, argv);
        if (!options) return 0;
        // Fails before anything is written or trained. With auto, each configuration reports its device when its turn
        // comes.
        auto const combinations = combinations_of_sweep(argc, argv, *options);
        if (options->device.name != "auto")
            for (auto const& one : combinations)
                for (auto const& name : one.configurations)
                    static_cast<void>(configuration_named(name).on(options->device));
        calm::make_directories(options->out);
        write_record(options->out, options->record, 0);
        index_t const V = tokenizer_named(options->tokenizer, options->pattern).vocabulary_size();
        std::vector<row> rows;
        for (auto const& one : combinations)
            for (auto const& name : one.configurations) rows.push_back(trained_and_evaluated(one, name, V));

        write_table(rows, calm::in_directory(options->out, "sweep.tsv"));
        text_output out;
        int width = 14;
        for (auto const& r : rows) width = std::max(width, static_cast<int>(r.name().size()));
        out.put(formatted("%-*s %-14s %3s %4s %10s %8s %10s %7s %8s %8s %8s %7s %7s  %s\n", width, "", "head", "K", "L",
                          "train FLOP", "all TF", "gen. FLOP", "seconds", "us/token", "ms/patch", "ms/token", "Brier-1",
                          "bigram", "BrierLM, bits per byte"));
        for (auto const& r : rows) out.put(line_of(r, width));
        if (!options->seeds.empty()) out.put(means_of_seeds(rows));
        out.put("FLOPs are per token, of matrix products, including Muon; all TF is 10^12 FLOPs of all training, "
                "including the autoencoder; seconds and us/token are of training the language model; ms are of "
                "generating one text with one draw per patch. All in " +
                calm::printable_line(options->out) + "/sweep.tsv\n");
        auto const picture = calm::in_directory(options->out, "sweep.svg");
        calm::replace_file(picture, svg_of(figure_of(rows, options->out)));
        out.put("plotted in " + calm::printable_line(picture) + "\n");
        return 0;
    });
}

}  // namespace calm::apps
