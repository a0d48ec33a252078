#pragma once
// Training: steps of an autoencoder or of a language model until their number or their time is up. Prints nothing: what
// happens is told to callbacks. The same seed gives the same weights at any number of threads where steps limit the
// run. A run that stopped goes on where it was: bit for bit, if steps limit it and model, text and state are as they
// were.

#include <algorithm>
#include <array>
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
#include "calm/model/autoregressive.hpp"
#include "calm/model/calm.hpp"
#include "calm/model/flops.hpp"
#include "calm/model/limits.hpp"
#include "calm/train/optimizer.hpp"
#include "calm/train/recipe.hpp"
#include "calm/train/throughput.hpp"
#include "calm/train/training_callbacks.hpp"

namespace calm {

// Fills a place of whole patches or blocks with the next tokens, B P K or R K of them.
template <class Source>
concept token_source = std::invocable<Source&, std::span<token_id>>;

namespace detail {

template <class Space> std::size_t bytes_of_parameters(std::vector<any_parameter<Space>> const& parameters) {
    std::size_t bytes = 0;
    for (auto const& p : parameters)
        bytes += static_cast<std::size_t>(p.value.size()) * sizeof(typename Space::storage);
    return bytes;
}

// Whether an interval ends with this step: of `every` steps, or of a tenth of the run.
inline bool is_due(index_t every, progress const& now, double done_before) {
    if (every > 0) return (now.step + 1) % every == 0;
    return static_cast<int>(now.done * 10) > static_cast<int>(done_before * 10);
}

// What a step takes.
struct step_size {
    index_t tokens;                  // of the only phase, or of the second
    double flops;                    // of either phase
    index_t first_phase_tokens = 0;  // where there are two
};

// Runs steps of `micro(losses)`, which adds the gradients of ctx.micro_batch of the step, and its share of the losses.
// It knows parameters and no model: it is compiled once for all of a space.
template <class Space> class training {
public:
    using Backend = typename Space::backend;

    // What it refers to outlives it.
    training(context<Backend>& ctx, std::vector<any_parameter<Space>> const& parameters, training_recipe const& r,
             training_callbacks const& tell, step_size size, std::size_t frozen_bytes,
             std::function<void(progress&)> const& micro) :
        ctx_(ctx),
        recipe_(r), tell_(tell), size_(size), weights_(bytes_of_parameters(parameters)), frozen_bytes_(frozen_bytes),
        micro_(micro), rates_{schedule_of(r, r.steps - first_phase_steps(r)),
                              r.first_phase > 0 ? schedule_of(r, first_phase_steps(r)) : schedule_of(r, r.steps)},
        optimizer_(parameters, r.optimizer) {}

    void run() {
        rehearse();
        auto const planned = plan();
        memory_ = planned.total();
        if (tell_.start) tell_.start(planned);
        resume();
        used_ = state_.seconds;
        throughput speed;
        done_ = share_done(recipe_, state_.step, used_);
        for (bool last = done_ >= 1; !last;) {
            if (in_first_phase() && done_ >= recipe_.first_phase) state_.first_phase_steps = state_.step;
            std::optional<error> left_out;
            auto const now = one_of_the_run(speed, left_out);
            if (left_out && tell_.skipped) tell_.skipped(now, *left_out);
            if (tell_.step) tell_.step(now);
            last = tell_intervals(now, done_, speed);
            speed.resume();
            done_ = now.done;
        }
    }

private:
    void rehearse() {
        ctx_.step = 0;
        ctx_.rehearse(true);
        step(false, 0);
        if (in_first_phase()) step(true, 0);
        ctx_.rehearse(false);
    }

    [[nodiscard]] bool in_first_phase() const { return recipe_.first_phase > 0 && state_.first_phase_steps == 0; }
    // Of the next step.
    [[nodiscard]] double rate() const {
        return rates_[in_first_phase()](state_.step - state_.first_phase_steps, done_of_phase());
    }
    [[nodiscard]] double done_of_phase() const {
        double const first = recipe_.first_phase;
        return in_first_phase() ? done_ / first : std::max(done_ - first, 0.0) / (1 - first);
    }
    // Of all steps that are done.
    [[nodiscard]] index_t tokens() const {
        index_t const first = in_first_phase() ? state_.step : state_.first_phase_steps;
        return first * size_.first_phase_tokens + (state_.step - first) * size_.tokens;
    }

    [[nodiscard]] memory_plan plan() const {
        return {{{"values", weights_ + frozen_bytes_},
                 {"gradients", weights_},
                 {"moments", 2 * weights_},
                 {ctx_.saved.name(), ctx_.saved.peak()},
                 {ctx_.scratch.name(), ctx_.scratch.peak()}}};
    }

    void resume() {
        state_.moments = optimizer_.tensors();
        if (tell_.resume) tell_.resume(state_);
        require(state_.step >= 0 && state_.step <= limits::steps && state_.skipped >= 0 && state_.seconds >= 0 &&
                    state_.first_phase_steps >= 0 && state_.first_phase_steps <= state_.step,
                errc::usage, "training: expected a state to go on from without negative numbers, of at most ",
                limits::steps, " steps");
        require(recipe_.first_phase > 0 || state_.first_phase_steps == 0, errc::usage,
                "training: expected a recipe of two phases to go on with a run of two, found one of one");
        optimizer_.resume_after(ctx_, state_.updates);
    }

    progress step(bool first_phase, double rate) {
        progress now;
        now.first_phase = first_phase;
        now.loss = now.cross_entropy = now.kl = now.posterior_std = 0;
        // Micro-batches are alike: one tells what memory they take.
        index_t const micro_batches = ctx_.rehearsing() ? 1 : recipe_.accumulation;
        for (ctx_.micro_batch = 0; ctx_.micro_batch < micro_batches; ++ctx_.micro_batch) micro_(now);
        ctx_.micro_batch = 0;
        now.rate = rate;
        now.gradient_norm = optimizer_.step(ctx_, rate, now.loss);
        return now;
    }

    // A step with bad numbers has changed nothing: it can be left out.
    progress step_or_skip(std::optional<error>& why) {
        try {
            return step(in_first_phase(), rate());
        } catch (error const& problem) {
            if (problem.code() != errc::non_finite || state_.skipped >= recipe_.skip_nonfinite) throw;
            why = problem;
        }
        optimizer_.discard();
        ++state_.skipped;
        progress now;
        now.first_phase = in_first_phase();
        now.rate = rate();
        return now;
    }

    // The next step, and all that is told of it.
    progress one_of_the_run(throughput& speed, std::optional<error>& left_out) {
        constexpr auto forever = std::numeric_limits<double>::infinity();
        constexpr auto any = std::numeric_limits<index_t>::max();
        index_t const number = state_.step;
        ctx_.step = static_cast<std::uint32_t>(number);
        auto now = step_or_skip(left_out);
        speed.add(now.first_phase ? size_.first_phase_tokens : size_.tokens);
        now.step = number;
        now.skipped = state_.skipped;
        now.tokens_per_second = speed.tokens_per_second();
        now.share_of_peak = share_of_peak(size_.flops, speed.seconds_per_step(), recipe_.machine_peak);
        now.memory = memory_;
        now.seconds = used_ + speed.elapsed();
        now.seconds_left = speed.seconds_left(recipe_.steps > 0 ? recipe_.steps - number - 1 : any,
                                              recipe_.seconds > 0 ? recipe_.seconds - used_ : forever);
        now.done = share_done(recipe_, number + 1, now.seconds);
        state_.step = number + 1;
        state_.updates = optimizer_.updates();
        now.tokens = tokens();
        return now;
    }

    // Evaluation, saving and the state, each where it is due after a step; whether the run ends.
    bool tell_intervals(progress const& now, double done_before, throughput const& speed) {
        bool const whole = now.done >= 1;
        bool const last = whole || (tell_.stop && tell_.stop());
        bool const measured =
            !whole && (is_due(recipe_.evaluate_every, now, done_before) || (done_before < 0.2 && now.done >= 0.2));
        if (measured && tell_.evaluate) tell_.evaluate(now);
        bool const due = !last && is_due(recipe_.save_every, now, done_before);
        if (due && tell_.save) tell_.save(now);
        if (tell_.checkpoint && (last || due || measured)) {
            state_.seconds = used_ + speed.elapsed();
            optimizer_.bring_moments(ctx_);
            tell_.checkpoint(state_, last ? state_after::end : due ? state_after::interval : state_after::evaluation);
        }
        return last;
    }

    context<Backend>& ctx_;
    training_recipe const& recipe_;
    training_callbacks const& tell_;
    step_size size_;
    std::size_t weights_;  // bytes
    std::size_t frozen_bytes_;
    std::function<void(progress&)> const& micro_;
    std::array<schedule, 2> rates_;  // of the only or second phase, of the first
    adamw<Space> optimizer_;
    training_state state_;
    std::size_t memory_ = 0;  // bytes of the plan
    double used_ = 0;         // seconds, before it went on
    double done_ = 0;         // of the run, 0 .. 1
};

// A whole run.
template <class Space>
void train(context<typename Space::backend>& ctx, std::vector<any_parameter<Space>> const& parameters,
           training_recipe const& r, training_callbacks const& tell, step_size size, std::size_t frozen_bytes,
           std::function<void(progress&)> const& micro) {
    training<Space>(ctx, parameters, r, tell, size, frozen_bytes, micro).run();
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

private:
    arena<> memory_{"ids of a batch"};
    vector_view<token_id> ids_;
};

// Replaces a share of the patches of `tokens` by random tokens below V; the first patch of the place is the step's
// number `first`. Patch i draws elements i (K + 1) .. of the key.
inline void put_random_patches(key draws, std::span<token_id> tokens, index_t K, index_t V, double share,
                               index_t first) {
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
template <autoencoder_configuration C, class Space, token_source Source>
void train_autoencoder(context<typename Space::backend>& ctx, autoencoder<C, Space>& model, Source&& source,
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
                detail::put_random_patches(ctx.random(stream::random_patches), tokens.ids(), K, model.vocabulary(),
                                           recipe.random_patches, first);
        }
        arena_scope const scope(ctx.saved);
        arena_scope const of_ids(ctx.scratch);
        auto const labels = upload(ctx, tokens.ids());
        auto const noise = model.draw(ctx, labels, recipe.objective.dropout, first);
        auto const losses = model.loss_and_gradient(ctx, labels, noise, recipe.objective, share);
        now.loss += share * losses.loss;
        now.cross_entropy += share * losses.cross_entropy;
        now.kl += share * losses.kl;
        now.posterior_std += share * losses.posterior_std;
    };
    double const work = flops::train_autoencoder(C, model.vocabulary(), count / K) *
                        static_cast<double>(recipe.batch_tokens) / static_cast<double>(K);
    detail::train(ctx, parameters_of(model), recipe, tell, {recipe.batch_tokens, work}, 0, micro);
}

// Trains backbone and head of a language model whose autoencoder is trained (docs/mathematics.md). The source is asked
// for whole blocks. Throws as train_autoencoder.
template <model_configuration auto C, class Space, token_source Source>
void train_calm(context<typename Space::backend>& ctx, calm_model<C, Space>& model, Source&& source,
                calm_recipe<typename calm_model<C, Space>::objective> const& recipe,
                training_callbacks const& tell = {}) {
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
        arena_scope const of_ids(ctx.scratch);
        auto const blocks = upload(ctx, tokens.ids());
        index_t const first = ctx.micro_batch * sequences * (patches - 1);
        now.loss += share * model.loss_and_gradient(ctx, blocks, patches, recipe.objective, first, share);
        now.cross_entropy = now.kl = now.posterior_std = progress::none;
    };
    double const work =
        flops::train_calm(C, model.ae_model.vocabulary(), sequences, patches - 1, recipe.objective.samples) *
        static_cast<double>(recipe.sequences * (patches - 1));
    detail::train(ctx, parameters_of(model), recipe, tell, {recipe.sequences * recipe.block_tokens, work},
                  detail::bytes_of_parameters(parameters_of(model.ae_model)), micro);
}

// Trains an autoregressive model with memory for values and gradients, token level or first patch level (Autoregressive
// model in docs/mathematics.md). The source is asked for sequences of P tokens, of K P in the first phase, in which
// neighbouring blocks go on where they follow one another in a text. Throws as train_autoencoder.
template <autoregressive_configuration C, class Space, token_source Source>
void train_autoregressive(context<typename Space::backend>& ctx, autoregressive_model<C, Space>& model, Source&& source,
                          autoregressive_recipe const& given, training_callbacks const& tell = {}) {
    auto recipe = given;
    index_t const P = recipe.block_tokens, K = recipe.level.patch;
    require(P >= 2, errc::usage, "training: expected blocks of at least 2 tokens, found ", P);
    require(K >= 1 && K <= limits::step_tokens / P && recipe.level.share >= 0 && recipe.level.share < 1, errc::usage,
            "training: expected a patch level of at least 1 token and a share of the tokens from 0 to below 1, found ",
            K, " and ", recipe.level.share);
    recipe.first_phase = recipe.level.first_phase();
    detail::check(recipe);
    bool const two_phases = recipe.first_phase > 0;
    index_t const sequences =
        detail::micro_size(recipe.sequences, recipe.accumulation, 1, "sequences", (two_phases ? K : 1) * P);
    detail::batch_place const place(sequences * (two_phases ? K : 1) * P);
    double const share = 1.0 / static_cast<double>(recipe.accumulation);
    auto const micro = [&](progress& now) {
        index_t const patch = now.first_phase ? K : 1;
        index_t const count = sequences * patch * P;
        if (!ctx.rehearsing()) source(place.ids().first(static_cast<std::size_t>(count)));
        arena_scope const of_ids(ctx.scratch);
        auto const tokens = upload(ctx, place.ids().first(static_cast<std::size_t>(count)));
        now.loss += share * model.loss_and_gradient(ctx, tokens, P, patch, share);
        now.cross_entropy = now.kl = now.posterior_std = progress::none;
    };
    index_t const step = recipe.sequences * P;
    double const work = flops::train_autoregressive(C.llama, model.vocabulary(), P) * static_cast<double>(step);
    detail::train(ctx, parameters_of(model), recipe, tell, {step, work, K * step}, 0, micro);
}

}  // namespace calm
