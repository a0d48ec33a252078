#pragma once
// The training loop of a run, for any model: learning rates, updates, intervals and reports. loop.hpp has the models.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "calm/model/autoencoder.hpp"
#include "calm/model/detail/limits.hpp"
#include "calm/tensor/detail/ops/bf16_copies.hpp"
#include "calm/train/detail/data_parallel.hpp"
#include "calm/train/detail/gradient_hooks.hpp"
#include "calm/train/detail/gradient_tree.hpp"
#include "calm/train/detail/sharded_optimizer.hpp"
#include "calm/train/detail/step_losses.hpp"
#include "calm/train/detail/throughput.hpp"
#include "calm/train/optimizer.hpp"
#include "calm/train/recipe.hpp"
#include "calm/train/training_callbacks.hpp"

namespace calm::detail {

template <class Space> std::size_t bytes_of_parameters(std::vector<any_parameter<Space>> const& parameters) {
    std::size_t bytes = 0;
    for (auto const& p : parameters) bytes += static_cast<std::size_t>(p.size()) * sizeof(typename Space::scalar);
    return bytes;
}

// Whether an interval of `every` steps, or of a tenth of the run if `every` is 0, ends with this step.
inline bool is_due(index_t every, progress const& now, double done_before) {
    if (every > 0) return (now.step + 1) % every == 0;
    return static_cast<int>(now.done * 10) > static_cast<int>(done_before * 10);
}

// Size of one step.
struct step_size {
    index_t tokens;                  // of the only phase, or of the second
    double flops;                    // the same in both phases
    index_t first_phase_tokens = 0;  // 0: no first phase
};

// What a model gives to its training.
template <class Backend> struct training_work {
    step_size size;
    std::size_t frozen_bytes = 0;  // of parameters that are not trained
    // Adds the gradients of ctx.micro_batch and stores its losses; a gradient_tree adds up the gradients of several.
    std::function<void(progress&, losses_view<Backend> const&)> micro;
    // Takes the next micro-batch from the text, also if another rank computes it. May be empty.
    std::function<void(progress const&)> next_batch = {};
};

// Runs steps of micro-batches. The class depends on parameters but not on a model, so it is compiled once per space.
template <class Space> class training {
public:
    using Backend = typename Space::backend;

    // All references outlive it.
    training(context<Backend>& ctx, std::vector<any_parameter<Space>> const& parameters, training_recipe const& r,
             training_callbacks const& callbacks, training_work<Backend> const& work, data_parallel* part) :
        ctx_(ctx),
        recipe_(r), callbacks_(callbacks), work_(work), part_(part),
        own_micro_batches_(is_distributed() ? part->micro_batches(r.accumulation) : r.accumulation),
        weights_(bytes_of_parameters(parameters)), schedules_{schedule_of(r, r.steps - first_phase_steps(r)),
                                                              r.first_phase > 0 ? schedule_of(r, first_phase_steps(r))
                                                                                : schedule_of(r, r.steps)},
        optimizer_(parameters, r.optimizer, part), tree_(parameters, own_micro_batches_),
        logs_at_once_(host_memory<Backend> || r.skip_nonfinite > 0),
        losses_(extents<dyn>((logs_at_once_ ? 1 : r.log_every) * r.accumulation)) {
        add_matrices(copies_, parameters);
        require(r.rounding == weight_rounding::nearest || multiplies_in_bf16(ctx), errc::usage,
                "training: expected a context that multiplies in bf16 for stochastic rounding of weights; call "
                "multiply_in_bf16 for it, or set the recipe's rounding to nearest");
        if (is_distributed() && host_memory<Backend>) hooks_.emplace(parameters, part->bucket_begins());
    }

    void run() {
        dry_run();
        auto const planned = plan();
        memory_ = planned.total();
        if (callbacks_.start) callbacks_.start(planned);
        resume();
        // From here on all ranks act alike, if they begin alike.
        if (is_distributed()) part_->begin_run(ctx_.seed, state_, recipe_, work_.size.tokens);
        sync_clock();
        earlier_seconds_ = state_.seconds;
        throughput speed(is_distributed() ? std::function<double()>([this] { return clock_; }) : steady_seconds);
        done_ = progress_fraction(recipe_, state_.step, earlier_seconds_);
        pending_.reserve(static_cast<std::size_t>(recipe_.log_every));
        for (bool last = done_ >= 1; !last;) {
            if (in_first_phase() && done_ >= recipe_.first_phase) state_.first_phase_steps = state_.step;
            double const done_before = done_;
            std::optional<error> skip_reason;
            try {
                enqueue_step(skip_reason);
            } catch (error const&) {
                if (!pending_.empty()) report_steps(speed, {});
                throw;
            }
            done_ = progress_fraction(recipe_, state_.step, earlier_seconds_ + speed.elapsed());
            if (can_report_later(done_before)) continue;
            report_steps(speed, skip_reason);
            last = report_intervals(pending_.back(), done_before, speed);
            pending_.clear();
            speed.resume();
        }
    }

private:
    [[nodiscard]] bool is_distributed() const { return part_ != nullptr; }
    [[nodiscard]] int rank() const { return is_distributed() ? part_->rank() : 0; }
    // Several ranks use the time of rank 0, so that all decide alike.
    void sync_clock() {
        if (is_distributed()) clock_ = part_->sync_clock(state_.step);
    }

    void dry_run() {
        ctx_.step = 0;
        ctx_.set_dry_run(true);
        step(false, 0);
        if (in_first_phase()) step(true, 0);
        ctx_.set_dry_run(false);
    }

    [[nodiscard]] bool in_first_phase() const { return recipe_.first_phase > 0 && state_.first_phase_steps == 0; }
    // Learning rate of the next step.
    [[nodiscard]] double learning_rate() const {
        return schedules_[in_first_phase()](state_.step - state_.first_phase_steps, phase_progress());
    }
    [[nodiscard]] double phase_progress() const {
        double const first = recipe_.first_phase;
        return in_first_phase() ? done_ / first : std::max(done_ - first, 0.0) / (1 - first);
    }
    // Tokens of all steps done.
    [[nodiscard]] index_t tokens() const {
        index_t const first = in_first_phase() ? state_.step : state_.first_phase_steps;
        return first * work_.size.first_phase_tokens + (state_.step - first) * work_.size.tokens;
    }
    [[nodiscard]] memory_plan plan() {
        bool const gathers =
            is_distributed() && rank() == 0 && host_memory<Backend>;  // the state of all ranks, to save it
        return {{{"parameters", weights_ + work_.frozen_bytes + copies_.bytes()},
                 {"gradients", weights_ * (1 + static_cast<std::size_t>(tree_.max_pending(own_micro_batches_))) +
                                   (is_distributed() ? part_->buffer_bytes() : 0)},
                 {"optimizer state",
                  (is_distributed() || recipe_.optimizer.muon > 0 ? optimizer_.state_arena().peak() : 2 * weights_) +
                      (gathers ? whole_bytes(optimizer_.tensors()) : 0)},
                 {ctx_.saved.name(), ctx_.saved.peak()},
                 {ctx_.workspace.name(), ctx_.workspace.peak()}}};
    }

    void resume() {
        state_.optimizer_state = optimizer_.tensors();
        if (callbacks_.resume) callbacks_.resume(state_);
        require(state_.step >= 0 && state_.step <= limits::steps && state_.skipped >= 0 && state_.seconds >= 0 &&
                    state_.first_phase_steps >= 0 && state_.first_phase_steps <= state_.step,
                errc::usage, "training: expected a state to resume from without negative numbers, of at most ",
                limits::steps, " steps");
        require(recipe_.first_phase > 0 || state_.first_phase_steps == 0, errc::usage,
                "training: expected a recipe of two phases to resume a run of two phases, found one phase");
        optimizer_.resume_after(ctx_, state_.updates, state_.hidden_from);
        if (is_distributed()) forget_optimizer_state();
    }
    // With several ranks, rank 0 has the state of all only while it is saved.
    void forget_optimizer_state() {
        state_.optimizer_state.clear();
        optimizer_.forget_copies();
    }
    void copy_state_to_host() {
        if (!is_distributed()) return optimizer_.copy_state_to_host(ctx_);
        state_.optimizer_state = optimizer_.gather_state();
    }

    // One step; its outcome on a device is not known yet.
    progress step(bool first_phase, double learning_rate) {
        progress now;
        now.first_phase = first_phase;
        now.loss = now.cross_entropy = now.kl = now.posterior_std = 0;
        auto* const losses = losses_.data() + std::ssize(pending_) * recipe_.accumulation;
        // Micro-batches are alike: one is enough to measure memory.
        index_t const micro_batches = ctx_.is_dry_run() ? 1 : recipe_.accumulation;
        index_t const first = ctx_.is_dry_run() ? 0 : rank() * own_micro_batches_;
        std::optional copies(copies_.use(ctx_, recipe_.rounding));
        for (ctx_.micro_batch = 0; ctx_.micro_batch < micro_batches; ++ctx_.micro_batch) {
            if (work_.next_batch && !ctx_.is_dry_run()) work_.next_batch(now);
            index_t const number = ctx_.micro_batch - first;
            if (number < 0 || number >= own_micro_batches_) continue;
            add_gradients(number, first_phase, [&] {
                auto* const loss = losses + ctx_.micro_batch;
                if constexpr (device_memory<Backend>) {
                    work_.micro(now, {newest_.data(), extents<1>()});
                    for_each(ctx_, 1, keep_losses{loss, newest_.data()});
                } else {
                    work_.micro(now, {loss, extents<1>()});
                }
            });
        }
        ctx_.micro_batch = 0;
        copies.reset();  // the weights change
        std::span const of_step(losses, static_cast<std::size_t>(recipe_.accumulation));
        if (is_distributed() && !ctx_.is_dry_run()) part_->reduce_gradients(std::as_writable_bytes(of_step));
        now.learning_rate = learning_rate;
        if constexpr (device_memory<Backend>) {
            for_each(ctx_, 1, loss_of_step{loss_.data(), losses, recipe_.accumulation});
            optimizer_.step(ctx_, learning_rate, vector_view<double const, 1, Backend>(loss_.data(), extents<1>()));
        } else {
            add_losses(now, of_step);
            now.gradient_norm = optimizer_.step(ctx_, learning_rate, now.loss);
        }
        if (is_distributed() && !ctx_.is_dry_run()) part_->all_gather_values();
        return now;
    }
    // Adds the gradients of one micro-batch to the earlier ones. Buckets that the last micro-batch completes are
    // exchanged while it runs.
    template <class Micro> void add_gradients(index_t number, bool first_phase, Micro const& micro) {
        if (!hooks_ || (number + 1 < own_micro_batches_ && !ctx_.is_dry_run())) {
            micro();
            tree_.add(ctx_, number);
        } else if (ctx_.is_dry_run()) {
            hooks_->learn(first_phase, micro);
        } else {
            auto const& begins = part_->bucket_begins();
            auto const begin = [&](std::size_t bucket) {
                tree_.add(ctx_, number, begins[bucket], begins[bucket + 1]);
                part_->begin_reduce(bucket);
            };
            hooks_->run(ctx_, first_phase, micro, begin, [&] { part_->make_progress(); });
        }
    }
    // Adds the mean over all micro-batches.
    static void add_losses(progress& now, std::span<autoencoder_losses const> micro_batches) {
        double const weight = 1.0 / static_cast<double>(micro_batches.size());
        for (auto const& one : micro_batches) {
            now.loss += weight * one.loss;
            now.cross_entropy += weight * one.cross_entropy;
            now.kl += weight * one.kl;
            now.posterior_std += weight * one.posterior_std;
        }
    }

    // A step that is not finite has changed nothing, so it can be skipped if the host knows before the next one.
    progress step_or_skip(std::optional<error>& why) {
        try {
            auto now = step(in_first_phase(), learning_rate());
            if (device_memory<Backend> && logs_at_once_)
                set_outcome(now, optimizer_.last_outcome(ctx_), has_parts(now) ? losses_on_host(1) : no_losses());
            return now;
        } catch (error const& problem) {
            if (problem.code() != errc::non_finite || state_.skipped >= recipe_.skip_nonfinite) throw;
            why = problem;
        }
        optimizer_.discard();
        ++state_.skipped;
        progress now;
        now.first_phase = in_first_phase();
        now.learning_rate = learning_rate();
        return now;
    }

    // Enqueues the next step; the host may not know its outcome yet.
    void enqueue_step(std::optional<error>& skip_reason) {
        index_t const number = state_.step;
        ctx_.step = static_cast<std::uint32_t>(number);
        auto now = step_or_skip(skip_reason);
        now.step = number;
        now.skipped = state_.skipped;
        now.memory = memory_;
        state_.step = number + 1;
        state_.updates = optimizer_.updates();
        sync_clock();
        now.tokens = tokens();
        pending_.push_back(now);
    }

    // Whether the report of the enqueued steps can wait.
    [[nodiscard]] bool can_report_later(double done_before) const {
        auto now = pending_.back();
        now.done = done_;
        return !logs_at_once_ && std::ssize(pending_) < recipe_.log_every && done_ < 1 &&
               !is_evaluation_due(now, done_before) && !is_due(recipe_.save_every, now, done_before);
    }

    // Reports the enqueued steps in order. Throws errc::non_finite for the first that was not finite.
    void report_steps(throughput& speed, std::optional<error> const& skip_reason) {
        std::size_t const finite = logs_at_once_ ? pending_.size() : copy_outcomes_to_host();
        index_t tokens = 0;
        for (auto const& now : pending_) tokens += now.first_phase ? work_.size.first_phase_tokens : work_.size.tokens;
        speed.add(tokens, std::ssize(pending_));
        for (std::size_t i = 0; i < finite; ++i) {
            auto& now = pending_[i];
            complete(now, speed);
            if (skip_reason && callbacks_.skipped) callbacks_.skipped(now, *skip_reason);
            if (callbacks_.step) callbacks_.step(now);
        }
        if (finite < pending_.size()) optimizer_.require_finite(ctx_);
        done_ = pending_.back().done;
    }
    // Waits for a device; returns how many steps, from the first, were finite.
    std::size_t copy_outcomes_to_host() {
        auto const outcomes = optimizer_.outcomes(ctx_, std::ssize(pending_));
        auto const losses = has_parts(pending_.front()) ? losses_on_host(pending_.size()) : no_losses();
        auto const each = losses.size() / pending_.size();
        for (std::size_t i = 0; i < outcomes.size(); ++i)
            set_outcome(pending_[i], outcomes[i], losses.subspan(i * each, each));
        return outcomes.size();
    }
    // Whether a loss has parts, which the optimizer does not keep; the loss of a language model has none.
    static bool has_parts(progress const& now) { return !std::isnan(now.cross_entropy); }
    static void set_outcome(progress& now, step_outcome const& outcome,
                            std::span<autoencoder_losses const> micro_batches) {
        if (!micro_batches.empty()) add_losses(now, micro_batches);
        now.loss = outcome.loss;
        now.gradient_norm = outcome.norm;
    }
    static std::span<autoencoder_losses const> no_losses() { return {}; }
    // Losses of the first enqueued steps, on the host.
    std::span<autoencoder_losses const> losses_on_host(std::size_t steps) {
        auto const count = static_cast<index_t>(steps) * recipe_.accumulation;
        return to_host(ctx_, vector_view<autoencoder_losses, dyn, Backend>(losses_.data(), extents<dyn>(count)),
                       losses_found_);
    }
    // Fills in the values that are known only after the step.
    void complete(progress& now, throughput const& speed) const {
        constexpr auto forever = std::numeric_limits<double>::infinity();
        constexpr auto any = std::numeric_limits<index_t>::max();
        now.tokens_per_second = speed.tokens_per_second();
        now.share_of_peak = share_of_peak(work_.size.flops / (is_distributed() ? part_->count() : 1),
                                          speed.seconds_per_step(), recipe_.machine_peak);
        now.seconds = earlier_seconds_ + speed.elapsed();
        now.seconds_left = speed.seconds_left(recipe_.steps > 0 ? recipe_.steps - now.step - 1 : any,
                                              recipe_.seconds > 0 ? recipe_.seconds - earlier_seconds_ : forever);
        now.done = progress_fraction(recipe_, now.step + 1, now.seconds);
    }

    // Whether an evaluation is due after this step, which is not the last.
    [[nodiscard]] bool is_evaluation_due(progress const& now, double done_before) const {
        return is_due(recipe_.evaluate_every, now, done_before) || (done_before < 0.2 && now.done >= 0.2);
    }

    // Evaluation, saving and checkpoint, each if it is due after this step; returns whether the run ends.
    bool report_intervals(progress const& now, double done_before, throughput const& speed) {
        bool const whole = now.done >= 1;
        bool const last = whole || (callbacks_.stop && callbacks_.stop());
        bool const evaluates = !whole && is_evaluation_due(now, done_before);
        if (evaluates && callbacks_.evaluate) callbacks_.evaluate(now);
        bool const due = !last && is_due(recipe_.save_every, now, done_before);
        if (due && callbacks_.save) callbacks_.save(now);
        if (evaluates || due) sync_clock();
        if (last || due || evaluates) {
            state_.seconds = earlier_seconds_ + speed.elapsed();
            if (last && callbacks_.ended) callbacks_.ended(now);
            if (callbacks_.checkpoint || is_distributed()) copy_state_to_host();
            if (callbacks_.checkpoint && rank() == 0)
                callbacks_.checkpoint(state_, last  ? state_after::end
                                              : due ? state_after::interval
                                                    : state_after::evaluation);
            if (is_distributed()) forget_optimizer_state();
            sync_clock();
        }
        return last;
    }

    context<Backend>& ctx_;
    training_recipe const& recipe_;
    training_callbacks const& callbacks_;
    training_work<Backend> const& work_;
    data_parallel* part_;                // null for one rank
    index_t own_micro_batches_;          // per step
    std::size_t weights_;                // bytes
    std::array<schedule, 2> schedules_;  // of the only or second phase, then of the first
    adamw<Space> optimizer_;
    gradient_tree<Space> tree_;
    std::optional<gradient_hooks<Space>> hooks_;  // with several ranks
    bf16_copies<Backend> copies_;                 // rounded weights for the products of one step
    training_state state_;
    std::size_t memory_ = 0;         // bytes of the plan
    double earlier_seconds_ = 0;     // seconds before the run was resumed
    double done_ = 0;                // progress, 0 .. 1
    double clock_ = 0;               // seconds, with several ranks
    std::vector<progress> pending_;  // steps not reported yet
    bool logs_at_once_;              // the host knows the outcome of each step before it enqueues the next
    tensor<autoencoder_losses, extents<dyn>, Backend> losses_;  // one per micro-batch of the steps in pending_
    tensor<autoencoder_losses, extents<1>, Backend> newest_;    // on a device: of the last micro-batch
    tensor<double, extents<1>, Backend> loss_;                  // on a device: of the last step
    std::vector<autoencoder_losses> losses_found_;              // host buffer for the losses of a device
};

// A whole run, on one rank or several.
template <class Space, class Ranks = std::nullptr_t>
void train(context<typename Space::backend>& ctx, std::vector<any_parameter<Space>> const& parameters,
           training_recipe const& r, training_callbacks const& callbacks,
           training_work<typename Space::backend> const& work, Ranks ranks = nullptr) {
    // Every rank that has part of a matrix runs Muon on all of it, and a single bucket splits the fewest matrices.
    auto const when = r.optimizer.muon > 0 ? gradient_exchange::after_backward : gradient_exchange::during_backward;
    auto const part = part_of(ctx, parameters, when, ranks);
    training<Space>(ctx, parameters, r, callbacks, work, part.get()).run();
}

}  // namespace calm::detail
