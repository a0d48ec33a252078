#pragma once
/// \file
/// AdamW over all parameters that a model's visit() names, with gradient clipping and a check for non-finite gradients
/// (Loshchilov and Hutter 2019; docs/mathematics/optimizers.md).
/// \shows{examples/06_network.cpp,main}

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "calm/base/detail/number_text.hpp"
#include "calm/nn/param.hpp"
#include "calm/tensor/core/copy.hpp"
#include "calm/tensor/detail/device/graph.hpp"
#include "calm/train/adamw_settings.hpp"
#include "calm/train/detail/adamw.hpp"
#include "calm/train/detail/data_parallel.hpp"
#include "calm/train/detail/muon.hpp"
#include "calm/train/detail/optimizer_tensor.hpp"

namespace calm {

/// AdamW with decoupled weight decay, as torch.optim.AdamW. It keeps pointers to the model's parameters: the model must
/// not move while the optimizer lives. `adamw optimizer(model)` deduces the model's space, float or double.
template <class Space = space<>> class adamw {
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>,
                  "calm::adamw: parameters must be float or double");
    static_assert(is_trainable<Space>, "calm::adamw: expected trainable weights, found a space with bf16 weights, "
                                       "whose models are only for inference; train in float, then copy the parameters");

public:
    /// All parameters need memory for value and gradient; throws errc::usage naming the first that lacks it, or an
    /// invalid setting.
    template <class Model>
    explicit adamw(Model& model, adamw_settings const& settings = {}) : adamw(parameters_of(model), settings) {}
    /// From the parameters of a model. With several ranks it updates only this rank's shard and keeps only its state;
    /// all ranks make the same calls in the same order. `work` outlives it.
    explicit adamw(std::vector<any_parameter<Space>> const& parameters, adamw_settings const& settings = {},
                   data_parallel* work = nullptr) :
        settings_(settings),
        work_(work) {
        check(settings);
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            auto const& p = parameters[i];
            require(p.value.data() != nullptr && p.grad.data() != nullptr, errc::usage,
                    "calm::adamw: expected memory for value and gradient of ", p.name,
                    ", found none; call calm::allocate with an arena for each first");
            auto const [begin, end] = work != nullptr ? work->own(i) : data_parallel::part{0, p.value.size()};
            auto const moment = [&, size = end - begin] {
                auto const zeros = state_arena_.template take<T>(extents<dyn>(size));
                detail::memory_of<Backend>::clear(zeros.data(), static_cast<std::size_t>(zeros.size()) * sizeof(T));
                return zeros.data();
            };
            bool const uses_muon = settings.muon > 0 && p.is_hidden;
            T* const first = moment();
            T* const second = uses_muon && work == nullptr ? nullptr : moment();  // gather_on_rank_0 needs both
            uses_muon_.push_back(uses_muon);
            if (uses_muon) hidden_.push_back({std::ssize(slots_), p.grad.data(), begin, p.shape[0], p.shape[1]});
            slots_.push_back({p.value.data() + begin, p.grad.data() + begin, first, second, end - begin, p.decays,
                              p.is_hidden, uses_muon});
            marks_.push_back({p.name, p.received_gradients, p.grad.data(), p.value.size()});
        }
        ranges_ = detail::ranges_of(slots_);
        auto const count = static_cast<index_t>(ranges_.size());
        auto const one = extents<1>();
        memory_ = {device_table(state_arena_, slots_),
                   device_table(state_arena_, ranges_),
                   count,
                   state_arena_.template take<double>(extents<dyn>(1 + count)).data(),
                   state_arena_.template take<detail::adamw_arguments<T>>(one).data(),
                   state_arena_.template take<detail::adamw_record>(one).data()};
        detail::memory_of<Backend>::clear(memory_.record, sizeof(detail::adamw_record));
        all_ = memory_;
        if (work != nullptr) {
            all_.count = work->ranges();
            all_.sums = state_arena_.template take<double>(extents<dyn>(1 + all_.count)).data();
        }
        outcomes_.reserve(static_cast<std::size_t>(outcomes_kept));
    }
    adamw(adamw const&) = delete;
    adamw& operator=(adamw const&) = delete;

    /// One update with the gradients added since the last one; clears them. `loss` is the step's loss, which is checked
    /// too. Returns the gradient norm before clipping. Throws errc::usage naming the first parameter without a gradient
    /// (all that a dry run checks), and errc::non_finite naming the first bad tensor and ctx.step; weights and
    /// optimizer state are then unchanged.
    double step(context<Backend>& ctx, double learning_rate, double loss = 0) requires host_memory<Backend> {
        require_gradients(ctx);
        double norm = 0;
        if (ctx.is_dry_run())
            update_hidden(ctx);
        else
            norm = update(ctx, learning_rate, loss).norm;
        forget_marks();
        return norm;
    }
    /// Reads the loss from a view.
    double step(context<Backend>& ctx, double learning_rate,
                vector_view<double const, 1, Backend> const& loss) requires host_memory<Backend> {
        return step(ctx, learning_rate, loss[0]);
    }
    /// Enqueues the update on a device without waiting. The device checks loss and gradients: from the first non-finite
    /// step on it changes nothing until `require_finite` has reported. Throws errc::usage for parameters without
    /// gradients, and errc::non_finite for a learning rate that is not usable.
    void step(context<Backend>& ctx, double learning_rate, double loss = 0) requires device_memory<Backend> {
        ask(ctx, learning_rate, loss, nullptr);
    }
    /// Reads the loss in device memory.
    void step(context<Backend>& ctx, double learning_rate,
              vector_view<double const, 1, Backend> const& loss) requires device_memory<Backend> {
        ask(ctx, learning_rate, 0, loss.data());
    }

    /// Outcomes of the last n steps, in order, at most outcomes_kept; waits for a device. There are fewer if a step was
    /// not finite: it and later steps changed nothing, and `require_finite` reports why. Valid until the next call.
    std::span<step_outcome const> outcomes(context<Backend> const& ctx, index_t n) {
        outcomes_.clear();
        if (ctx.is_dry_run()) return outcomes_;
        auto const record = copy_to_host(ctx, memory_.record);
        index_t const last = record.bad_update != 0 ? record.bad_update - 1 : updates_;
        for (index_t u = updates_ - std::min({n, updates_, outcomes_kept}) + 1; u <= last; ++u)
            outcomes_.push_back(record.steps[u % outcomes_kept]);
        return outcomes_;
    }
    /// Outcome of the last step; waits for a device. Throws as `require_finite`; zeros in a dry run.
    step_outcome last_outcome(context<Backend> const& ctx) {
        auto const one = outcomes(ctx, 1);
        if (one.empty()) require_finite(ctx);
        return one.empty() ? step_outcome{} : one[0];
    }
    /// Throws errc::non_finite if a step was not finite, naming the first bad tensor and the step, and lets the next
    /// step update again; waits for a device. Gradients stay as they were: see `discard`.
    void require_finite(context<Backend> const& ctx) {
        auto const record = copy_to_host(ctx, memory_.record);
        if (record.bad_update == 0) return;
        updates_ = record.bad_update - 1;
        copy_to_device(ctx, &memory_.record->bad_update, index_t{});
        auto const bad = record.steps[record.bad_update % outcomes_kept];
        if (auto const slot = std::isfinite(bad.norm) ? marks_.size() : first_bad_slot(ctx); slot < marks_.size())
            fail(record.bad_step,
                 "expected finite gradients, found NaN or infinity first in the gradient of " + marks_[slot].name);
        if (!std::isfinite(bad.norm))
            fail(record.bad_step,
                 "expected a finite norm of all gradients together, found " + std::to_string(bad.norm));
        fail(record.bad_step, "expected a finite loss, found " + std::to_string(bad.loss));
    }
    static constexpr index_t outcomes_kept = detail::outcomes_kept;  ///< most steps that `outcomes` returns

    /// Clears the gradients added since the last update.
    void discard() {
        for (auto const& mark : marks_)
            detail::memory_of<Backend>::clear(mark.gradient, static_cast<std::size_t>(mark.size) * sizeof(T));
        forget_marks();
    }

    /// First and second moment of every parameter, named as in torch's AdamW: exp_avg.NAME and
    /// exp_avg_sq.NAME; Muon has only the first. With updates() they are the whole optimizer state; each rank
    /// has its shard. They are in host memory and live as long as the optimizer. On a device they are copies:
    /// `copy_state_to_host` fills, `resume_after` uploads and `forget_copies` frees them.
    [[nodiscard]] std::vector<detail::optimizer_tensor> tensors() {
        if constexpr (device_memory<Backend>) copies_.resize(2 * slots_.size());
        return tensors_of([&](std::size_t i, bool second, T* moment) {
            auto const size = static_cast<std::size_t>(slots_[i].size);
            auto const begin = static_cast<std::size_t>(work_ != nullptr ? work_->own(i).begin : 0);
            if constexpr (host_memory<Backend>) return place{{moment, size}, begin};
            auto& copy = copies_[2 * i + (second ? 1 : 0)];
            copy.resize(size);
            return place{copy, begin};
        });
    }
    /// Copies the current optimizer state into what tensors() returned; waits for a device.
    void copy_state_to_host(context<Backend> const& ctx) {
        for_each_copy([&](T* there, std::span<T> here) { copy_to_host(ctx, here, there); });
    }
    /// Gathers the optimizer state of all ranks: rank 0 has copies until `forget_copies`, other ranks only names and
    /// sizes. All ranks call it.
    [[nodiscard]] std::vector<detail::optimizer_tensor> gather_state() {
        copies_.resize(work_->rank() == 0 ? 2 * slots_.size() : 0);
        auto all = tensors_of([&](std::size_t i, bool second, T*) {
            if (copies_.empty()) return place{};
            auto& copy = copies_[2 * i + (second ? 1 : 0)];
            copy.resize(static_cast<std::size_t>(marks_[i].size));
            return place{copy, 0};
        });
        for (std::size_t const second : {0U, 1U}) {
            std::vector<void const*> own;
            std::vector<void*> to;
            for (auto const& slot : slots_) {
                to.push_back(copies_.empty() ? nullptr : copies_[2 * own.size() + second].data());
                own.push_back(second == 1 ? slot.second : slot.first);
            }
            work_->gather_on_rank_0(own, to);
        }
        return all;
    }
    /// Frees the copies.
    void forget_copies() { copies_ = {}; }
    /// Resumes after `updates` updates, with the state that tensors() was filled with. The state of hidden matrices
    /// began at zero after `hidden_from` updates. Throws errc::usage unless 0 <= hidden_from <= updates.
    void resume_after(context<Backend> const& ctx, index_t updates, index_t hidden_from = 0) {
        require(updates >= 0, errc::usage, "calm::adamw: expected a number of updates of at least 0");
        require(hidden_from >= 0 && hidden_from <= updates, errc::usage,
                "calm::adamw: expected an optimizer state that began after 0 to ", updates, " updates, found ",
                hidden_from);
        updates_ = updates;
        hidden_from_ = hidden_from;
        for_each_copy([&](T* there, std::span<T const> here) { copy_to_device(ctx, there, here); });
    }

    /// Updates made so far, or enqueued on a device; the bias corrections depend on it.
    [[nodiscard]] index_t updates() const { return updates_; }
    [[nodiscard]] adamw_settings const& settings() const { return settings_; }  ///< as given
    /// Arena of the optimizer state and the partial sums, for the memory plan.
    [[nodiscard]] arena<Backend> const& state_arena() const { return state_arena_; }

private:
    // Elements of a moment on the host, and their offset in it.
    struct place {
        std::span<T> elements;
        std::size_t begin;
    };
    // One tensor per moment; place_of(index of the parameter, whether it is the second moment, this rank's part).
    template <class PlaceOf> std::vector<detail::optimizer_tensor> tensors_of(PlaceOf const& place_of) const {
        std::vector<detail::optimizer_tensor> all;
        for (std::size_t i = 0; i < slots_.size(); ++i)
            for (bool const second : {false, true}) {
                if (second && slots_[i].uses_muon) continue;
                auto const [elements, begin] = place_of(i, second, second ? slots_[i].second : slots_[i].first);
                auto const kind =
                    second ? detail::optimizer_tensor::second_moment : detail::optimizer_tensor::first_moment;
                all.push_back({std::string(kind) + marks_[i].name, sizeof(T), std::as_writable_bytes(elements),
                               begin * sizeof(T), static_cast<std::size_t>(marks_[i].size) * sizeof(T)});
            }
        return all;
    }

    static void check(adamw_settings const& s) {
        auto const must = [](bool holds, char const* expected, double found) {
            require(holds, errc::usage, "calm::adamw: expected ", expected, ", found ", found);
        };
        must(s.beta1 >= 0 && s.beta1 < 1, "beta1 in [0, 1)", s.beta1);
        must(s.beta2 >= 0 && s.beta2 < 1, "beta2 in [0, 1)", s.beta2);
        must(s.eps > 0 && std::isfinite(s.eps), "eps above 0", s.eps);
        must(s.weight_decay >= 0 && std::isfinite(s.weight_decay), "weight_decay of at least 0", s.weight_decay);
        must(s.clip >= 0 && std::isfinite(s.clip), "clip of at least 0", s.clip);
        must(s.muon >= 0 && std::isfinite(s.muon), "muon of at least 0", s.muon);
    }

    // Calls f(moment, its copy).
    template <class F> void for_each_copy(F const& f) {
        for (std::size_t i = 0; i < copies_.size(); ++i)
            if (!copies_[i].empty()) f(i % 2 == 0 ? slots_[i / 2].first : slots_[i / 2].second, std::span(copies_[i]));
    }

    void require_gradients(context<Backend> const& ctx) const {
        for (auto const& mark : marks_)
            require(*mark.received > 0, errc::usage, "calm::adamw: step ", ctx.step,
                    ": expected a gradient for every parameter, found none for ", mark.name,
                    "; run a backward pass through it before each update, or leave it out of the model's visit");
    }
    void forget_marks() {
        for (auto const& mark : marks_) *mark.received = 0;
    }
    [[noreturn]] static void fail(index_t step, std::string const& what) {
        throw error(errc::non_finite,
                    sentence("step ", step, ": ", what,
                             "; no weight was changed. Try a lower learning rate or a longer warm-up"));
    }
    // The first update uses learning_rate / (1 - beta1), which T must be able to represent.
    [[nodiscard]] bool is_usable(double learning_rate) const {
        return learning_rate <= static_cast<double>(std::numeric_limits<T>::max()) * (1 - settings_.beta1);
    }
    void require_usable(context<Backend> const& ctx, double learning_rate) const {
        if (!is_usable(learning_rate))
            fail(ctx.step,
                 "expected a learning rate that fits the type of the weights, found " + six_digits(learning_rate));
    }

    // The next update, on the host.
    step_outcome update(context<Backend>& ctx, double learning_rate, double loss) {
        upload_arguments(ctx, learning_rate, loss);
        measure(ctx);
        require_finite(ctx);
        require_usable(ctx, learning_rate);
        detail::run_adamw(ctx, memory_);
        update_hidden(ctx);
        return memory_.record->steps[++updates_ % outcomes_kept];
    }
    // The updates by Muon, after run_adamw.
    void update_hidden(context<Backend>& ctx) {
        if (work_ != nullptr && !hidden_.empty() && !ctx.is_dry_run()) work_->all_gather_gradients(uses_muon_);
        for (auto const& m : hidden_) detail::update_by_muon(ctx, memory_, slots_[static_cast<std::size_t>(m.slot)], m);
    }
    // Sum of squares of all gradients, on all ranks, in double over ranges that do not depend on the number of threads;
    // then conclude() with `loss`.
    void measure(context<Backend> const& ctx, double const* loss = nullptr) {
        detail::run_range_squares(ctx, memory_);
        if (work_ != nullptr && !ctx.is_dry_run()) {
            std::vector<double> room;
            auto const own = to_host(ctx, rows(view_of_sums(), 1, memory_.count), room);
            copy_to_device(ctx, all_.sums + 1, work_->all_gather_squares(own));
        }
        detail::run_norm(ctx, all_, loss);
    }
    // Index of the first parameter whose gradient was not finite in the last sums, or the number of parameters.
    std::size_t first_bad_slot(context<Backend> const& ctx) const {
        if (work_ != nullptr) return work_->first_nonfinite();
        std::vector<double> room;
        auto const sums = to_host(ctx, view_of_sums(), room);
        for (std::size_t r = 0; r < ranges_.size(); ++r)
            if (!std::isfinite(sums[1 + r])) return static_cast<std::size_t>(ranges_[r].slot);
        return marks_.size();
    }
    // Enqueues the next update on a device.
    void ask(context<Backend>& ctx, double learning_rate, double loss, double const* loss_there) {
        require_gradients(ctx);
        if (!ctx.is_dry_run()) {
            require_usable(ctx, learning_rate);
            upload_arguments(ctx, learning_rate, loss);
        }
        auto const work = [&] {
            measure(ctx, loss_there);
            detail::run_adamw(ctx, memory_);
            update_hidden(ctx);
        };
        work_ != nullptr ? work() : void(updating_(ctx, {loss_there}, work));
        if (!ctx.is_dry_run()) ++updates_;
        forget_marks();
    }

    [[nodiscard]] vector_view<double const, dyn, Backend> view_of_sums() const {
        return {memory_.sums, extents<dyn>(1 + memory_.count)};
    }

    // Writes the arguments of the next update; a learning rate that is not usable becomes 0.
    void upload_arguments(context<Backend> const& ctx, double given, double loss) const {
        double const learning_rate = is_usable(given) ? given : 0;
        index_t const update = updates_ + 1;
        using corrected = typename detail::adamw_arguments<T>::corrected;
        auto const after = [&](index_t updates) {
            auto const count = static_cast<double>(updates);
            double const second_root = std::sqrt(1 - std::pow(settings_.beta2, count));
            return corrected{static_cast<T>(learning_rate / (1 - std::pow(settings_.beta1, count))),
                             static_cast<T>(1 / second_root)};
        };
        detail::adamw_arguments<T> const arguments{index_t{ctx.step},
                                                   update,
                                                   loss,
                                                   settings_.clip,
                                                   static_cast<T>(1 - learning_rate * settings_.weight_decay),
                                                   static_cast<T>(1 - settings_.beta1),
                                                   static_cast<T>(settings_.beta2),
                                                   static_cast<T>(1 - settings_.beta2),
                                                   after(update),
                                                   after(update - hidden_from_),
                                                   static_cast<T>(settings_.eps),
                                                   static_cast<T>(learning_rate * settings_.muon)};
        copy_to_device(ctx, memory_.arguments, arguments);
    }

    // A whole parameter; its slot may be only this rank's shard.
    struct own_mark {
        std::string name;
        int* received;  // gradients since the last update
        T* gradient;    // all elements
        index_t size;   // all elements
    };

    adamw_settings settings_;
    data_parallel* work_;  // null for one rank
    arena<Backend> state_arena_{"optimizer state"};
    std::vector<detail::adamw_slot<T>> slots_;      // in the order of visit
    std::vector<own_mark> marks_;                   // in the same order
    std::vector<bool> uses_muon_;                   // in the same order: whether Muon updates it
    std::vector<detail::hidden_matrix<T>> hidden_;  // in the same order
    std::vector<detail::parameter_range> ranges_;
    detail::adamw_memory<T> memory_;  // this rank's shard
    detail::adamw_memory<T> all_;     // memory_ with the sums of all ranks' ranges
    captured_graph<Backend> updating_;
    index_t updates_ = 0;
    index_t hidden_from_ = 0;  // updates before the state of hidden matrices began
    std::vector<step_outcome> outcomes_;
    std::vector<std::vector<T>> copies_;  // host copies of the state, two per parameter, after tensors()
};

/// `adamw optimizer(model)` deduces the model's space.
template <class Model> adamw(Model&, adamw_settings const& = {}) -> adamw<space_of<Model>>;

}  // namespace calm
