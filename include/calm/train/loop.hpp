#pragma once
// Training: steps of an autoencoder or of a language model until their number or their time is up. Prints nothing: what
// happens is told to callbacks. The same seed gives the same weights at any number of threads where steps limit the
// run. A run that stopped goes on where it was: bit for bit, if steps limit it and model, text and state are as they
// were.

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calm/base/token.hpp"
#include "calm/model/calm.hpp"
#include "calm/model/flops.hpp"
#include "calm/model/limits.hpp"
#include "calm/train/optimizer.hpp"
#include "calm/train/schedule.hpp"
#include "calm/train/throughput.hpp"

namespace calm {

// Fills a place of whole patches or blocks with the next tokens, B P K or R K of them.
template <class Source>
concept token_source = std::invocable<Source&, std::span<token_id>>;

// How the rate goes on after the warm-up; see schedule.
enum class rate_schedule { constant, cosine };

// How long and how fast; whichever of steps and seconds is reached first ends the run.
struct training_recipe {
    index_t steps = 0;         // 0: as many as the time allows
    double seconds = 0;        // 0: as long as the steps take
    index_t accumulation = 1;  // micro-batches a step; it changes memory and rounding, not the result
    double rate = 1e-3;        // at its peak
    index_t warmup = 100;      // steps until the peak
    rate_schedule schedule = rate_schedule::constant;  // after the warm-up
    adamw_settings optimizer;                          // moments, decay and clipping
    index_t evaluate_every = 0;                        // steps; 0: every tenth of the run
    index_t save_every = 0;                            // steps; 0: every tenth of the run
    double machine_peak = 0;                           // FLOP/s, from measure_peak; 0: unknown
    // So many steps of a run, at most, whose loss or gradients are not finite are left out; one more ends the run.
    index_t skip_nonfinite = 0;
};

// All that a run knows between two steps besides its model and its text: with these it goes on bit for bit (see
// checkpoint.hpp and run_directory.hpp for files). The moments are the optimizer's own memory.
struct training_state {
    index_t step = 0;                       // steps done: the number of the next one, and of its random numbers
    index_t updates = 0;                    // of the weights
    index_t skipped = 0;                    // steps left out: step = updates + skipped
    double seconds = 0;                     // that the run has taken
    std::vector<optimizer_tensor> moments;  // of the optimizer, which owns the bytes
};

// Why a state is offered: its interval, an evaluation that was just told of, the end of the run.
enum class state_after { interval, evaluation, end };

// How an autoencoder is trained: batches of R = batch_tokens / K patches.
struct autoencoder_recipe : training_recipe {
    index_t batch_tokens = 4096;      // R K of a step
    autoencoder_objective objective;  // dropout and the variational term
    // The share of a step's patches that are replaced by uniformly random tokens: it teaches unseen patches.
    double random_patches = 0;
};

// How a language model is trained: batches of B sequences of P patches.
template <class Objective> struct calm_recipe : training_recipe {
    index_t sequences = 16;      // B of a step
    index_t block_tokens = 256;  // P K
    Objective objective;         // of the head's loss
};

// The same recipe with the objective of a head that is known.
template <head_objective Objective> calm_recipe<Objective> with_objective(calm_recipe<any_objective> const& r) {
    return {r, r.sequences, r.block_tokens, static_cast<Objective>(r.objective)};
}

// Bytes by kind, known before the first step; evaluation may ask for more saved activations and scratch.
struct memory_plan {
    // One kind of memory.
    struct part {
        std::string name;   // of the kind, or of its arena
        std::size_t bytes;  // the most at once
    };
    std::vector<part> parts;  // in the order in which they are printed
    // Bytes of all parts.
    [[nodiscard]] std::size_t total() const {
        std::size_t sum = 0;
        for (auto const& p : parts) sum += p.bytes;
        return sum;
    }
};

// A step that was done. Parts that the model does not have are NaN.
struct progress {
    static constexpr double none = std::numeric_limits<double>::quiet_NaN();  // of a part that there is not

    index_t step = 0;                 // from 0
    double loss = none;               // of the step, a mean over its positions or patches
    double cross_entropy = none;      // of an autoencoder, as autoencoder_losses
    double kl = none;                 // of an autoencoder
    double posterior_std = none;      // of an autoencoder
    double gradient_norm = none;      // before clipping
    double rate = none;               // of the step
    double tokens_per_second = none;  // over the last steps, at most throughput::window
    double share_of_peak = none;      // products of a step over what measure_peak found, at most 1
    std::size_t memory = 0;           // bytes
    double seconds = 0;               // of the run so far
    double seconds_left = none;       // as far as the speed of now lasts
    double done = 0;                  // of the run, 0 .. 1
    index_t skipped = 0;              // steps left out so far
};

// All may be empty. What evaluation and saving take counts as time of the run, not in the tokens a second.
struct training_callbacks {
    std::function<void(memory_plan const&)> start;  // once, before the first step
    // Before the first step: fills in the numbers and the moments to go on from. The model has its weights already.
    std::function<void(training_state&)> resume;
    std::function<void(progress const&)> step;      // after each
    std::function<void(progress const&)> evaluate;  // at its interval, and once a fifth of the run is done
    std::function<void(progress const&)> save;      // at its interval; not at the end
    // The state, to be kept: where `save` is told, after an evaluation, and after the last step, also where `stop` ends
    // the run. Once a step at most; the spans of its moments are to be read before it returns.
    std::function<void(training_state const&, state_after)> checkpoint;
    // A step was left out (skip_nonfinite), for the reason given; told before `step`.
    std::function<void(progress const&, error const&)> skipped;
    std::function<bool()> stop;  // true ends the run after this step
};

namespace detail {

template <class T> std::size_t bytes_of_parameters(std::vector<any_parameter<T>> const& parameters) {
    std::size_t bytes = 0;
    for (auto const& p : parameters) bytes += static_cast<std::size_t>(p.value.size()) * sizeof(T);
    return bytes;
}

inline schedule schedule_of(training_recipe const& r) {
    return r.schedule == rate_schedule::cosine ? schedule::cosine(r.rate, r.warmup, r.steps)
                                               : schedule::constant(r.rate, r.warmup);
}

inline void check(training_recipe const& r) {
    require(r.steps >= 0 && r.seconds >= 0 && (r.steps > 0 || r.seconds > 0), errc::usage,
            "training: expected a number of steps or a time above 0, found neither; give one of them, or both");
    require(r.steps <= limits::steps && std::isfinite(r.seconds), errc::usage, "training: expected at most ",
            limits::steps, " steps and a time that ends, found ", r.steps, " steps and ", r.seconds, " seconds");
    require(r.schedule != rate_schedule::cosine || r.steps > 0, errc::usage,
            "training: the cosine schedule falls towards the last step, so it needs a number of steps");
    require(r.accumulation >= 1, errc::usage, "training: expected at least 1 micro-batch a step");
    require(r.skip_nonfinite >= 0, errc::usage, "training: expected at least 0 steps that may be left out");
}

// Whether an interval ends with this step: of `every` steps, or of a tenth of the run.
inline bool is_due(index_t every, progress const& now, double done_before) {
    if (every > 0) return (now.step + 1) % every == 0;
    return static_cast<int>(now.done * 10) > static_cast<int>(done_before * 10);
}

// Of the run, by steps or by time, whichever is further: 0 .. 1.
inline double share_done(training_recipe const& r, index_t steps, double seconds) {
    double done = 0;
    if (r.steps > 0) done = static_cast<double>(steps) / static_cast<double>(r.steps);
    if (r.seconds > 0) done = std::max(done, seconds / r.seconds);
    return std::min(done, 1.0);
}

// Runs steps of `micro(losses)`, which adds the gradients of ctx.micro_batch of the step, and its share of the losses.
// It knows parameters and no model: it is compiled once for all of a scalar.
template <class T>
void train(context<cpu>& ctx, std::vector<any_parameter<T>> const& parameters, training_recipe const& r,
           training_callbacks const& tell, index_t tokens, double flops, std::size_t frozen_bytes,
           std::function<void(progress&)> const& micro) {
    auto const rate = schedule_of(r);
    adamw<T, cpu> optimizer(parameters, r.optimizer);
    auto const one_step = [&](double step_rate) {
        progress now;
        now.loss = now.cross_entropy = now.kl = now.posterior_std = 0;
        // Micro-batches are alike: one tells what memory they take.
        index_t const micro_batches = ctx.rehearsing() ? 1 : r.accumulation;
        for (ctx.micro_batch = 0; ctx.micro_batch < micro_batches; ++ctx.micro_batch) micro(now);
        ctx.micro_batch = 0;
        now.rate = step_rate;
        now.gradient_norm = optimizer.step(ctx, step_rate, now.loss);
        return now;
    };
    ctx.step = 0;
    ctx.rehearse(true);
    one_step(0);
    ctx.rehearse(false);

    std::size_t const weights = bytes_of_parameters(parameters);
    auto const plan = [&] {
        return memory_plan{{{"values", weights + frozen_bytes},
                            {"gradients", weights},
                            {"moments", 2 * weights},
                            {ctx.saved.name(), ctx.saved.peak()},
                            {ctx.scratch.name(), ctx.scratch.peak()}}};
    };
    if (tell.start) tell.start(plan());

    training_state state;
    state.moments = optimizer.tensors();
    if (tell.resume) tell.resume(state);
    require(state.step >= 0 && state.step <= limits::steps && state.skipped >= 0 && state.seconds >= 0, errc::usage,
            "training: expected a state to go on from without negative numbers, of at most ", limits::steps, " steps");
    optimizer.resume_after(state.updates);
    // A step with bad numbers has changed nothing: it can be left out.
    auto const step_or_skip = [&](std::optional<error>& why) {
        try {
            return one_step(rate(state.step));
        } catch (error const& problem) {
            if (problem.code() != errc::non_finite || state.skipped >= r.skip_nonfinite) throw;
            why = problem;
        }
        optimizer.discard();
        ++state.skipped;
        progress now;
        now.rate = rate(state.step);
        return now;
    };

    throughput speed;
    double const used = state.seconds;
    double done = share_done(r, state.step, used);
    for (bool last = done >= 1; !last;) {
        index_t const step = state.step;
        ctx.step = static_cast<std::uint32_t>(step);
        std::optional<error> left_out;
        auto now = step_or_skip(left_out);
        speed.add(tokens);
        now.step = step;
        now.skipped = state.skipped;
        now.tokens_per_second = speed.tokens_per_second();
        now.share_of_peak = share_of_peak(flops, speed.seconds_per_step(), r.machine_peak);
        now.memory = plan().total();
        now.seconds = used + speed.elapsed();
        constexpr auto forever = std::numeric_limits<double>::infinity();
        now.seconds_left = speed.seconds_left(r.steps > 0 ? r.steps - step - 1 : std::numeric_limits<index_t>::max(),
                                              r.seconds > 0 ? r.seconds - used : forever);
        now.done = share_done(r, step + 1, now.seconds);
        state.step = step + 1;
        state.updates = optimizer.updates();
        if (left_out && tell.skipped) tell.skipped(now, *left_out);
        if (tell.step) tell.step(now);
        bool const whole = now.done >= 1;
        last = whole || (tell.stop && tell.stop());
        bool const measured = !whole && (is_due(r.evaluate_every, now, done) || (done < 0.2 && now.done >= 0.2));
        if (measured && tell.evaluate) tell.evaluate(now);
        bool const due = !last && is_due(r.save_every, now, done);
        if (due && tell.save) tell.save(now);
        if (tell.checkpoint && (last || due || measured)) {
            state.seconds = used + speed.elapsed();
            tell.checkpoint(state, last ? state_after::end : due ? state_after::interval : state_after::evaluation);
        }
        speed.resume();
        done = now.done;
    }
}

// The micro-batches of a step are equal parts of it. A step has `tokens` tokens in each of the batch's sequences.
inline index_t micro_size(index_t batch, index_t accumulation, index_t unit, char const* what, index_t tokens = 1) {
    index_t const part = checked_count(what, {accumulation, unit});
    require(batch > 0 && batch % part == 0, errc::usage, "training: expected a batch that is a multiple of ", part, " ",
            what, " (", accumulation, " micro-batches), found ", batch);
    require(batch <= limits::step_tokens / tokens, errc::usage, "training: expected a step of at most ",
            limits::step_tokens, " tokens, found ", batch, " ", what, tokens > 1 ? " of as many tokens as a block" : "",
            "; use a smaller batch or shorter blocks");
    return batch / accumulation;
}

// Place for the ids of a micro-batch, which nothing touches before they are read.
class batch_place {
public:
    explicit batch_place(index_t tokens) : ids_(memory_.take<token_id>(extents<dyn>(tokens))) {}

    [[nodiscard]] std::span<token_id> ids() const { return {ids_.data(), static_cast<std::size_t>(ids_.size())}; }
    [[nodiscard]] vector_view<token_id const> view() const { return ids_; }

private:
    arena<> memory_{"ids of a batch"};
    vector_view<token_id> ids_;
};

// Replaces a share of the patches of `tokens` by random tokens below V; the first patch of the place is the step's
// number `first`. Patch i draws elements i (K + 1) .. of the stream.
inline void put_random_patches(context<cpu> const& ctx, std::span<token_id> tokens, index_t K, index_t V, double share,
                               index_t first) {
    key const draws = ctx.random(stream::random_patches);
    auto const word = [&](index_t i) { return philox(draws, static_cast<std::uint64_t>(i) / 4).v[i % 4]; };
    for (index_t p = 0; p < static_cast<index_t>(tokens.size()) / K; ++p) {
        index_t const at = (first + p) * (K + 1);
        if (uniform_from(word(at)) >= static_cast<float>(share)) continue;
        for (index_t k = 0; k < K; ++k)
            tokens[static_cast<std::size_t>(p * K + k)] =
                static_cast<token_id>(below(word(at + 1 + k), static_cast<std::uint32_t>(V)));
    }
}

}  // namespace detail

// Trains an autoencoder with memory for values and gradients (autoencoder, AdamW and rates in docs/mathematics.md). The
// source is asked for whole patches. Throws errc::usage for a recipe that cannot be, errc::non_finite naming tensor and
// step before any weight changes, and what the source and the callbacks throw.
template <autoencoder_configuration C, class T, token_source Source>
void train_autoencoder(context<cpu>& ctx, autoencoder<C, T, cpu>& model, Source&& source,
                       autoencoder_recipe const& recipe, training_callbacks const& tell = {}) {
    detail::check(recipe);
    constexpr index_t K = C.patch_size;
    index_t const count = detail::micro_size(recipe.batch_tokens, recipe.accumulation, K, "tokens");
    detail::batch_place const tokens(count);
    double const share = 1.0 / static_cast<double>(recipe.accumulation);
    auto const micro = [&](progress& now) {
        index_t const first = ctx.micro_batch * (count / K);  // patches of the step before this micro-batch
        if (!ctx.rehearsing()) {
            source(tokens.ids());
            if (recipe.random_patches > 0)
                detail::put_random_patches(ctx, tokens.ids(), K, model.vocabulary(), recipe.random_patches, first);
        }
        arena_scope const scope(ctx.saved);
        auto const labels = tokens.view();
        auto const noise = model.draw(ctx, labels, recipe.objective.dropout, first);
        auto const losses = model.loss_and_gradient(ctx, labels, noise, recipe.objective, share);
        now.loss += share * losses.loss;
        now.cross_entropy += share * losses.cross_entropy;
        now.kl += share * losses.kl;
        now.posterior_std += share * losses.posterior_std;
    };
    double const work = flops::train_autoencoder(C, model.vocabulary(), count / K) *
                        static_cast<double>(recipe.batch_tokens) / static_cast<double>(K);
    detail::train(ctx, parameters_of(model), recipe, tell, recipe.batch_tokens, work, 0, micro);
}

// Trains backbone and head of a language model whose autoencoder is trained (docs/mathematics.md). The source is asked
// for whole blocks. Throws as train_autoencoder.
template <model_configuration auto C, class T, token_source Source>
void train_calm(context<cpu>& ctx, calm_model<C, T>& model, Source&& source,
                calm_recipe<typename calm_model<C, T>::objective> const& recipe, training_callbacks const& tell = {}) {
    detail::check(recipe);
    constexpr index_t K = C.autoencoder.patch_size;
    require(recipe.block_tokens >= 2 * K && recipe.block_tokens % K == 0, errc::usage,
            "training: expected blocks of at least 2 whole patches of ", K, " tokens, found ", recipe.block_tokens,
            " tokens");
    index_t const sequences =
        detail::micro_size(recipe.sequences, recipe.accumulation, 1, "sequences", recipe.block_tokens);
    index_t const patches = recipe.block_tokens / K;
    detail::batch_place const tokens(sequences * recipe.block_tokens);
    double const share = 1.0 / static_cast<double>(recipe.accumulation);
    auto const micro = [&](progress& now) {
        if (!ctx.rehearsing()) source(tokens.ids());
        auto const blocks = tokens.view();
        index_t const first = ctx.micro_batch * sequences * (patches - 1);
        now.loss += share * model.loss_and_gradient(ctx, blocks, patches, recipe.objective, first, share);
        now.cross_entropy = now.kl = now.posterior_std = progress::none;
    };
    double const work =
        flops::train_calm(C, model.ae_model.vocabulary(), sequences, patches - 1, recipe.objective.samples) *
        static_cast<double>(recipe.sequences * (patches - 1));
    detail::train(ctx, parameters_of(model), recipe, tell, recipe.sequences * recipe.block_tokens, work,
                  detail::bytes_of_parameters(parameters_of(model.ae_model)), micro);
}

}  // namespace calm
