#include "run/run_plan.hpp"

#include <filesystem>
#include <system_error>

#include "calm/base/quoted.hpp"
#include "calm/runs/run_directory.hpp"
#include "run/report.hpp"

namespace calm::apps {

namespace {

std::string limit_of(training_recipe const& r) {
    if (r.seconds <= 0) return grouped(r.steps);
    std::string const time = "as many as " + duration_text(r.seconds) + " allow";
    return r.steps > 0 ? time + ", at most " + grouped(r.steps) : time;
}

// Free space of the file system that will hold the path.
std::string free_text(std::string const& out) {
    std::error_code failed;
    auto place = std::filesystem::absolute(out, failed);
    while (!std::filesystem::exists(place, failed) && place.has_relative_path()) place = place.parent_path();
    auto const space = std::filesystem::space(place, failed);
    return failed ? "" : ", " + bytes_text(space.available) + " are free";
}

// The newest checkpoints, the best one, and one being written, each with weights and optimizer state.
std::size_t checkpoint_bytes(run_plan const& plan, index_t keep) {
    std::size_t one = 0;
    for (auto const& part : plan.memory.parts)
        if (part.name == "parameters" || part.name == "optimizer state") one += part.bytes;
    return one * static_cast<std::size_t>(keep + 2);
}

}  // namespace

std::string patch_level_text(patch_level const& level) {
    return formatted(
        "positions of %lld tokens for a share of %.4g of the tokens (the first %.3g of the run): %.3g of the cost",
        static_cast<long long>(level.patch), level.share, level.first_phase(), level.cost());
}

std::string short_text(patch_level const& level) {
    return formatted("%lld:%.4g", static_cast<long long>(level.patch), level.share);
}

std::string to_text(run_plan const& p, train_options const& o) {
    std::string text;
    auto const line = [&](char const* name, std::string const& value) {
        text += formatted("%-16s", name) + printable_line(value) + "\n";
    };
    line("configuration", p.configuration);
    line("parameters", grouped(p.parameters) + " to train, vocabulary " + grouped(p.vocabulary));
    line("text", grouped(static_cast<index_t>(p.documents)) +
                     (p.documents == 1 ? " document with " : " documents with ") +
                     grouped(static_cast<index_t>(p.tokens)) + " tokens; " +
                     (p.heldout_tokens > 0 ? grouped(static_cast<index_t>(p.heldout_tokens)) + " tokens held out"
                                           : "nothing is held out, so nothing is evaluated"));
    line("steps", limit_of(p.recipe) + ", of " + grouped(p.tokens_per_step) + " tokens in " +
                      grouped(p.recipe.accumulation) + (p.recipe.accumulation > 1 ? " micro-batches" : " batch"));
    if (p.recipe.steps > 0) {
        auto recipe = p.recipe;
        recipe.first_phase = p.level.first_phase();
        auto const first = static_cast<double>((p.level.patch - 1) * calm::first_phase_steps(recipe));
        auto const all = (static_cast<double>(p.recipe.steps) + first) * static_cast<double>(p.tokens_per_step);
        line("tokens", formatted("%s%.4g, %.2f times the text", p.recipe.seconds > 0 ? "at most " : "", all,
                                 all / static_cast<double>(p.tokens)));
    }
    if (p.level.first_phase() > 0) line("patch level", patch_level_text(p.level));
    line("learning rate", formatted("%g after %s steps", p.recipe.learning_rate, grouped(p.recipe.warmup).c_str()));
    if (double const muon = p.recipe.optimizer.muon; muon > 0)
        line("muon", formatted("used for hidden matrices, with %g times the learning rate", muon));
    if (o.in_bf16)
        line("products", std::string("in bf16, ") +
                             (o.rounding == weight_rounding::stochastic ? "weights rounded at random, " : "") +
                             "their sums and all else in fp32");
    auto const tokens = static_cast<double>(p.tokens_per_step);
    double const step = p.flops_per_token * tokens + p.muon_flops;
    line("FLOPs", formatted("%.3g per step, %.3g per token, in matrix products", step, step / tokens) +
                      (p.muon_flops > 0 ? formatted(", including %.3g per step for Muon", p.muon_flops) : ""));
    line("memory", bytes_text(p.memory.total()));
    for (auto const& part : p.memory.parts)
        line("", formatted("%-18s %10s", part.name.c_str(), bytes_text(part.bytes).c_str()));
    line("disk", bytes_text(checkpoint_bytes(p, o.keep)) + " at most for checkpoints" + free_text(o.out));
    line("directory", o.out + (run_directory::holds_run(o.out) && !o.fresh ? ", which holds a run to resume" : ""));
    return text;
}

index_t fewest_micro_batches(index_t in_recipe, index_t ranks, std::size_t memory,
                             std::function<std::size_t(index_t)> const& bytes) {
    index_t count = in_recipe;
    while (count % (2 * ranks) == 0 && bytes(count / 2) <= memory / 10 * 9) count /= 2;
    return count;
}

training_callbacks only_the_plan(memory_plan& to, training_recipe const& recipe) {
    training_callbacks calls;
    calls.start = [&to](memory_plan const& plan) { to = plan; };
    calls.resume = [recipe](training_state& state) {  // the run counts as finished
        state.step = recipe.steps;
        state.seconds = recipe.seconds;
    };
    return calls;
}

}  // namespace calm::apps
