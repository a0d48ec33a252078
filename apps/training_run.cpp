#include "training_run.hpp"

#include <filesystem>

#include "program.hpp"

namespace calm::apps {

namespace {

void take_common(training_recipe& r, train_options const& o) {
    if (o.steps || o.minutes) {
        r.steps = o.steps.value_or(0);
        r.seconds = 60 * o.minutes.value_or(0);
    }
    r.rate = o.rate.value_or(r.rate);
    r.warmup = o.warmup.value_or(r.warmup);
    r.schedule = o.schedule.value_or(r.schedule);
    r.accumulation = o.accumulation.value_or(r.accumulation);
    r.evaluate_every = o.evaluate_every.value_or(r.evaluate_every);
    r.save_every = o.save_every.value_or(r.save_every);
}

}  // namespace

autoencoder_recipe recipe_for(autoencoder_recipe r, train_options const& o) {
    take_common(r, o);
    r.batch_tokens = o.batch.value_or(r.batch_tokens);
    r.objective.kl_weight = o.kl_weight.value_or(r.objective.kl_weight);
    r.random_patches = o.random_patches.value_or(r.random_patches);
    return r;
}

calm_recipe<energy_objective> recipe_for(calm_recipe<energy_objective> r, train_options const& o) {
    take_common(r, o);
    r.sequences = o.batch.value_or(r.sequences);
    r.block_tokens = o.block.value_or(r.block_tokens);
    r.objective.samples = o.samples.value_or(r.objective.samples);
    r.objective.targets = o.targets.value_or(r.objective.targets);
    r.objective.beta = o.beta.value_or(r.objective.beta);
    return r;
}

calm_description description_of(std::string const& configuration, train_options const& o, std::uint64_t data_seed,
                                index_t block, packing mode, tokenizer const& words) {
    calm_description ours;
    ours.configuration = configuration;
    ours.data = data_description{.mode = std::string(mode_name(mode)),
                                 .block_tokens = block,
                                 .data_seed = data_seed,
                                 .holdout = o.data.holdout,
                                 .sources = o.data.sources,
                                 .extras = {}};
    ours.tokenizer = tokenizer_description{.file = tokenizer_description{}.file,
                                           .pattern = std::string(words.pattern()),
                                           .fingerprint = words.fingerprint(),
                                           .extras = {}};
    return ours;
}

int end_of_run(run_report& report, std::string const& out) {
    int const signal = noted_signal();
    report.say((signal != 0 ? "stopped by a signal; wrote " : "wrote ") + out);
    return signal != 0 ? 128 + signal : 0;
}

void make_directory(std::string const& out) {
    refuse_existing(out);
    std::error_code failed;
    std::filesystem::create_directories(out, failed);
    if (failed) throw error(errc::storage, out, "", "the directory cannot be made: " + failed.message());
}

std::string no_context_sentence(double brier_1, double unigram_brier_1, double rate) {
    return formatted(
        "a fifth of the run is done and Brier-1 on held-out text is %.4f, not above the unigram's %.4f: the model has "
        "learned no context. Mostly the rate is too high: stop, and start again with --rate %.1e",
        brier_1, unigram_brier_1, rate / 2);
}

}  // namespace calm::apps
