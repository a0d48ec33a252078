#pragma once
// AdamW over everything that a model's visit() names, with clipping and the check for finite gradients (Loshchilov and
// Hutter 2019; AdamW in docs/mathematics.md).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "calm/base/number_text.hpp"
#include "calm/nn/param.hpp"
#include "calm/train/adamw.hpp"

namespace calm {

// The published recipe.
struct adamw_settings {
    double beta1 = 0.9;         // of the mean of gradients, in [0, 1)
    double beta2 = 0.95;        // of the mean of their squares, in [0, 1)
    double eps = 1e-8;          // beside the root, above 0
    double weight_decay = 0.1;  // of matrices, not of biases and norms
    double clip = 1.0;          // largest norm of all gradients together; 0 leaves them as they are
};

// A tensor of an optimizer's memory, to be saved and to be filled again: float where an element has 4 bytes, double
// where it has 8. The optimizer owns the bytes.
struct optimizer_tensor {
    std::string name;            // exp_avg. or exp_avg_sq. and the parameter's name
    std::size_t element;         // bytes of one: 4 or 8
    std::span<std::byte> bytes;  // of all elements
};

// AdamW: decoupled decay, then the step along the corrected moments, as torch.optim.AdamW does. It keeps the addresses
// of the model's parameters: the model must stay where it is as long as the optimizer lives. `adamw optimizer(model)`
// takes the model's space, float or double.
template <class Space = space<>> class adamw {
    using T = typename Space::master;
    using Backend = typename Space::backend;
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>,
                  "calm::adamw: parameters must be float or double");

public:
    // All parameters need memory for value and gradient; throws errc::usage naming the first that has none, or the
    // setting that cannot be.
    template <class Model>
    explicit adamw(Model& model, adamw_settings const& settings = {}) : adamw(parameters_of(model), settings) {}
    // The same of a model's parameters.
    explicit adamw(std::vector<any_parameter<Space>> const& parameters, adamw_settings const& settings = {}) :
        settings_(settings) {
        check(settings);
        for (auto const& p : parameters) {
            require(p.value.data() != nullptr && p.grad.data() != nullptr, errc::usage,
                    "calm::adamw: expected memory for value and gradient of ", p.name,
                    ", found none; call calm::allocate with an arena for each first");
            auto const moment = [&] {
                auto const zeros = moments_.template take<T>(p.value.extents());
                detail::memory_of<Backend>::clear(zeros.data(), static_cast<std::size_t>(zeros.size()) * sizeof(T));
                return zeros.data();
            };
            T* const first = moment();
            T* const second = moment();
            add_ranges(p.value.size());
            slots_.push_back(
                {p.name, p.value.data(), p.grad.data(), first, second, p.value.size(), p.received_gradient, p.decays});
        }
        sums_ = moments_.template take<double>(extents<dyn>(1 + static_cast<index_t>(ranges_.size())));
    }
    adamw(adamw const&) = delete;
    adamw& operator=(adamw const&) = delete;

    // The norm of all gradients together, summed in double over ranges that do not depend on the threads. Not finite
    // where some gradient is not.
    double gradient_norm(context<Backend> const& ctx) {
        return ctx.rehearsing() ? 0 : std::sqrt(detail::sum_of_squared_gradients(ctx, sums_.data(), slots_, ranges_));
    }

    // One update with the gradients that were added since the last one, which are then zero. `loss` is that of the
    // step, to be checked with them. Returns the norm of the gradients before clipping. Throws errc::usage naming the
    // first parameter that received no gradient, and errc::non_finite naming the first bad tensor and ctx.step; no
    // weight and no moment has then changed. In a rehearsal only the former is checked.
    double step(context<Backend> const& ctx, double rate, double loss = 0) {
        for (auto const& slot : slots_)
            require(*slot.received, errc::usage, "calm::adamw: step ", ctx.step,
                    ": expected a gradient for every parameter, found none for ", slot.name,
                    "; run a backward pass through it before each update, or leave it out of the model's visit");
        double norm = 0;
        if (!ctx.rehearsing()) {
            norm = gradient_norm(ctx);
            require_finite(ctx, rate, loss, norm);
            update(ctx, rate, norm);
        }
        for (auto const& slot : slots_) *slot.received = false;
        return norm;
    }

    // Forgets the gradients that were added since the last update: they are zero again.
    void discard() {
        for (auto const& slot : slots_) {
            detail::memory_of<Backend>::clear(slot.gradient, static_cast<std::size_t>(slot.size) * sizeof(T));
            *slot.received = false;
        }
    }

    // Both moments of every parameter, as torch's AdamW names them: exp_avg.<parameter>, exp_avg_sq.<parameter>. With
    // updates() they are all that an optimizer knows. They lie in host memory and live as long as it does; a
    // device's are copies, which `bring_moments` makes and `resume_after` takes.
    [[nodiscard]] std::vector<optimizer_tensor> tensors() {
        std::vector<optimizer_tensor> all;
        copies_.resize(device_memory<Backend> ? 2 * slots_.size() : 0);
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            auto const& slot = slots_[i];
            auto const add = [&](char const* name, T* moment, std::size_t number) {
                std::span there(moment, static_cast<std::size_t>(slot.size));
                if constexpr (device_memory<Backend>) {
                    copies_[number].resize(there.size());
                    there = copies_[number];
                }
                all.push_back({name + slot.name, sizeof(T), std::as_writable_bytes(there)});
            };
            add("exp_avg.", slot.first, 2 * i);
            add("exp_avg_sq.", slot.second, 2 * i + 1);
        }
        return all;
    }
    // What tensors() gave has the moments of now; waits for a device.
    void bring_moments(context<Backend> const& ctx) {
        if constexpr (device_memory<Backend>)
            for_each_copy([&](auto const& there, auto const& here) { copy(ctx, here, there); });
    }
    // Goes on as after so many updates, with the moments that tensors() was filled with. Throws errc::usage below 0.
    void resume_after(context<Backend> const& ctx, index_t updates) {
        require(updates >= 0, errc::usage, "calm::adamw: expected a number of updates of at least 0");
        updates_ = updates;
        if constexpr (device_memory<Backend>)
            for_each_copy([&](auto const& there, auto const& here) { copy(ctx, there, here); });
    }

    // Updates made so far: the bias corrections follow from it.
    [[nodiscard]] index_t updates() const { return updates_; }
    [[nodiscard]] adamw_settings const& settings() const { return settings_; }  // as they were given
    // The memory of both moments and of the partial sums, for the plan.
    [[nodiscard]] arena<Backend> const& moments() const { return moments_; }

private:
    static void check(adamw_settings const& s) {
        auto const must = [](bool holds, char const* expected, double found) {
            require(holds, errc::usage, "calm::adamw: expected ", expected, ", found ", found);
        };
        must(s.beta1 >= 0 && s.beta1 < 1, "beta1 in [0, 1)", s.beta1);
        must(s.beta2 >= 0 && s.beta2 < 1, "beta2 in [0, 1)", s.beta2);
        must(s.eps > 0 && std::isfinite(s.eps), "eps above 0", s.eps);
        must(s.weight_decay >= 0 && std::isfinite(s.weight_decay), "weight_decay of at least 0", s.weight_decay);
        must(s.clip >= 0 && std::isfinite(s.clip), "clip of at least 0", s.clip);
    }

    // Calls f(moment on the device, its copy on the host).
    template <class F> void for_each_copy(F const& f) {
        for (std::size_t i = 0; i < copies_.size(); ++i) {
            auto const& slot = slots_[i / 2];
            extents<dyn> const shape(slot.size);
            f(vector_view<T, dyn, Backend>(i % 2 == 0 ? slot.first : slot.second, shape),
              vector_view<T>(copies_[i].data(), shape));
        }
    }

    void add_ranges(index_t n) {
        for (index_t begin = 0; begin < n; begin += detail::adamw_grain)
            ranges_.push_back({slots_.size(), begin, std::min(n, begin + detail::adamw_grain)});
    }

    void require_finite(context<Backend> const& ctx, double rate, double loss, double norm) const {
        auto const fail = [&](std::string const& what) {
            throw error(errc::non_finite, sentence("step ", ctx.step, ": ", what,
                                                   "; no weight was changed. Try a lower rate or a longer warm-up"));
        };
        for (std::size_t r = 0; r < ranges_.size() && !std::isfinite(norm); ++r)
            if (!std::isfinite(fetch(ctx, sums_.data() + 1 + r)))
                fail("expected finite gradients, the first that is not is that of " + slots_[ranges_[r].slot].name);
        if (!std::isfinite(norm))
            fail("expected a finite norm of all gradients together, found " + std::to_string(norm));
        if (!std::isfinite(loss)) fail("expected a finite loss, found " + std::to_string(loss));
        // The first update is by rate / (1 - beta1), a number of the weights' type.
        if (!(rate <= static_cast<double>(std::numeric_limits<T>::max()) * (1 - settings_.beta1)))
            fail("expected a rate that the weights can be changed by, found " + detail::six_digits(rate));
    }

    void update(context<Backend> const& ctx, double rate, double norm) {
        auto const count = static_cast<double>(++updates_);
        double const scale = settings_.clip > 0 ? std::min(1.0, settings_.clip / (norm + 1e-6)) : 1.0;
        double const second_root = std::sqrt(1 - std::pow(settings_.beta2, count));
        detail::update_all(ctx, slots_, ranges_, [&](detail::adamw_slot<T> const& slot) {
            return detail::adamw_step<T>{slot.value,
                                         slot.gradient,
                                         slot.first,
                                         slot.second,
                                         static_cast<T>(scale),
                                         static_cast<T>(slot.decays ? 1 - rate * settings_.weight_decay : 1),
                                         static_cast<T>(1 - settings_.beta1),
                                         static_cast<T>(settings_.beta2),
                                         static_cast<T>(1 - settings_.beta2),
                                         static_cast<T>(rate / (1 - std::pow(settings_.beta1, count))),
                                         static_cast<T>(1 / second_root),
                                         static_cast<T>(settings_.eps)};
        });
    }

    adamw_settings settings_;
    arena<Backend> moments_{"moments"};
    std::vector<detail::adamw_slot<T>> slots_;  // in the order of visit
    std::vector<detail::adamw_range> ranges_;
    view<double, extents<dyn>, Backend> sums_;  // of squares: all, then each range's
    index_t updates_ = 0;
    std::vector<std::vector<T>> copies_;  // of a device's moments, two a slot, once tensors() was asked for
};

// `adamw optimizer(model)`: the space is the model's.
template <class Model> adamw(Model&, adamw_settings const& = {}) -> adamw<space_of<Model>>;

}  // namespace calm
