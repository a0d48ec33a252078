// sweep: trains and evaluates configurations on one source, to see what the patch size K (CALM, section on semantic
// bandwidth) or another head costs and gains. Writes a table, and a plot by gnuplot.

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "calm/base/quoted.hpp"
#include "calm/io/replaced_directory.hpp"
#include "calm/model/flops.hpp"
#include "calm/runs/run_directory.hpp"
#include "command/command_line.hpp"
#include "program.hpp"
#include "registry.hpp"
#include "run/gnuplot.hpp"
#include "run/report.hpp"
#include "run/run_record.hpp"
#include "text/text_output.hpp"

using namespace calm::apps;
using calm::index_t;

namespace {

struct row {
    std::string name;
    calm::configuration<calm::any_head> sizes;
    double training_flops;    // a token
    double generation_flops;  // a token, one draw, in the middle of a block
    double seconds;           // of the steps of the CALM
    double milliseconds;      // a patch of one text, one draw; as the machine was
    calm::evaluation found;
};

// So many steps of `tokens_per_step` as the tokens allow, at least one.
std::optional<index_t> steps_of(std::optional<index_t> tokens, index_t tokens_per_step) {
    if (!tokens) return std::nullopt;
    return std::max<index_t>(1, *tokens / tokens_per_step);
}

// Of the steps of a run that was trained, whichever calls made them.
double seconds_of(std::string const& run) {
    auto const newest = calm::run_directory(run).newest();
    return newest ? newest->record.state.seconds : 0;
}

row trained_and_evaluated(sweep_options const& o, std::string const& name) {
    auto const& one = configuration_named(name);
    std::string const folder = o.out + "/" + name;
    calm::detail::make_directories(folder);
    train_options t;
    t.configuration = name;
    t.tokenizer = o.tokenizer;
    t.data = o.data;
    t.seed = o.seed;
    t.threads = o.threads;
    t.record = o.record;
    t.out = folder + "/autoencoder";
    t.minutes = o.autoencoder_minutes;
    t.steps = steps_of(o.autoencoder_tokens, one.defaults.autoencoder.batch_tokens);
    t.kl_weight = o.kl_weight;
    t.random_patches = o.random_patches;
    if (int const code = one.train_autoencoder(t); code != 0) std::exit(code);

    index_t const block = o.block.value_or(256);
    t.autoencoder = t.out;
    t.out = folder + "/calm";
    t.block = block;
    t.rate = o.rate;
    t.minutes = o.minutes;
    t.steps = steps_of(o.tokens, one.defaults.calm.sequences * block);
    if (int const code = one.train_calm(t); code != 0) std::exit(code);

    auto const model = calm::read_model_description(t.out);
    evaluate_options e;
    e.model = t.out;
    e.data = o.data;
    e.block = block;
    e.samples = o.samples;
    e.positions = o.positions;
    e.seed = o.seed;
    e.threads = o.threads;
    auto const& c = one.sizes;
    index_t const K = c.autoencoder.patch_size;
    auto const patch = static_cast<double>(K);
    index_t const P = block / K;
    return {name,
            c,
            calm::flops::train_calm_per_token(c, model.vocabulary(), one.defaults.calm.sequences, block,
                                              one.defaults.calm.objective.samples()),
            calm::flops::generate(c, model.vocabulary(), static_cast<double>(P) / 2, 1) / patch,
            seconds_of(t.out),
            1e3 * one.seconds_per_patch(model, o.seed, o.threads),
            one.evaluate(e, model)};
}

// Tab-separated; the error is empty where it is not known.
void write_table(std::vector<row> const& rows, std::string const& path) {
    std::ostringstream file;
    file << "configuration\tK\tL\ttraining FLOPs a token\tgeneration FLOPs a token\tseconds\tBrier-1\tBrier-2\t"
            "Brier-3\tBrier-4\tBrierLM\tstandard error\thead\n";
    for (auto const& r : rows) {
        file << r.name << '\t' << r.sizes.autoencoder.patch_size << '\t' << r.sizes.autoencoder.latent_size << '\t'
             << r.training_flops << '\t' << r.generation_flops << '\t' << r.seconds;
        for (double const score : *r.found.brier) file << '\t' << score;
        file << '\t' << *r.found.brier_lm << '\t';
        if (r.found.brier_lm_se) file << *r.found.brier_lm_se;
        file << '\t' << r.sizes.head.name() << '\n';
    }
    calm::replace_file(path, file.str());
}

// One colour a configuration, named in the keys: names beside points would overlap where scores are alike.
std::string script_of(std::vector<row> const& rows) {
    std::string names;
    for (auto const& r : rows) names += (names.empty() ? "" : " ") + r.name;
    std::string const each = "for [i=1:" + std::to_string(rows.size()) + "] \"sweep.tsv\" every ::i::i using ";
    return R"(# gnuplot sweep.gp, in this folder
set datafile separator "\t"
set terminal pngcairo size 1000,420
set output "sweep.png"
set multiplot layout 1,2
set grid
set xlabel "K, tokens a patch"
set logscale x 2
set xrange [0.7:12]
set tmargin 4
set key above horizontal samplen 1
set ylabel "BrierLM"
set yrange [0:*]
names = ")" +
           names + "\"\nplot " + each +
           R"(2:11:(strlen(strcol(12)) ? column(12) : 0) with yerrorbars pointtype 7 linecolor i title word(names, i)
set ylabel "FLOPs a token"
set logscale y
set yrange [*:*]
set format y "%.0s %c"
plot "sweep.tsv" every ::1 using 2:4 with points pointtype 7 linecolor "black" title "training", \
     "" every ::1 using 2:5 with points pointtype 6 linecolor "black" title "generation"
)";
}

}  // namespace

int main(int argc, char** argv) {
    return run_program("sweep", [&] {
        auto const options = read_sweep(argc, argv);
        if (!options) return 0;
        calm::detail::make_directories(options->out);
        write_record(options->out, options->record, 0);
        std::vector<row> rows;
        for (auto const& name : options->configurations) rows.push_back(trained_and_evaluated(*options, name));

        write_table(rows, options->out + "/sweep.tsv");
        text_output out;
        out.put(formatted("%-14s %-9s %3s %4s %11s %11s %8s %9s %7s %7s  %s\n", "", "head", "K", "L", "train FLOP",
                          "write FLOP", "seconds", "ms/patch", "Brier-1", "bigram", "BrierLM"));
        for (auto const& r : rows)
            out.put(formatted(
                "%-14s %-9s %3lld %4lld %11.3g %11.3g %8.0f %9.2f %7.4f %7.4f  %.2f%s\n", r.name.c_str(),
                std::string(r.sizes.head.name()).c_str(), static_cast<long long>(r.sizes.autoencoder.patch_size),
                static_cast<long long>(r.sizes.autoencoder.latent_size), r.training_flops, r.generation_flops,
                r.seconds, r.milliseconds, (*r.found.brier)[0], r.found.bigram_brier ? (*r.found.bigram_brier)[0] : 0.0,
                *r.found.brier_lm, r.found.brier_lm_se ? formatted(" +- %.2f", *r.found.brier_lm_se).c_str() : ""));
        out.put("FLOPs are a token's, of matrix products; writing takes one draw a patch, timed on one text. All in " +
                calm::printable_line(options->out) + "/sweep.tsv\n");
        out.put(calm::printable_line(plotted(options->out, "sweep", script_of(rows), "sweep.png")) + "\n");
        return 0;
    });
}
