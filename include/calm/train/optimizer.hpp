#pragma once
// AdamW over everything that a model's visit() names, with clipping and the check for finite gradients (spec 11).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/nn/param.hpp"
#include "calm/tensor/elementwise.hpp"
#include "calm/tensor/math.hpp"
#include "calm/tensor/packet.hpp"

namespace calm {

// The published recipe (spec 11).
struct adamw_settings {
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double weight_decay = 0.1;  // of matrices, not of biases and norms
    double clip = 1.0;          // largest norm of all gradients together; 0 leaves them as they are
};

namespace detail {

// The numbers of one update that are the same for every element.
struct adamw_update {
    double gradient_scale;
    double keep;  // 1 - rate * weight_decay, for parameters that decay
    double beta1;
    double beta2;
    double rate;         // over the first moment's bias correction
    double second_root;  // of the second moment's bias correction
    double eps;
};

// One parameter's memory, its element type erased.
struct adamw_slot {
    std::string name;
    void* value;
    void* gradient;
    void* first;
    void* second;
    bool* received;
    bool decays;
    double (*squares)(adamw_slot const&, index_t begin, index_t end);
    void (*update)(adamw_slot const&, adamw_update const&, index_t begin, index_t end);
};

// A packet of doubles from as many elements.
[[gnu::always_inline]] inline packet<double> widened(double const* p) {
    return load<packet<double>>(p);
}
[[gnu::always_inline]] inline packet<double> widened(float const* p) {
    using half __attribute__((vector_size(32))) = float;
    half h;
    std::memcpy(&h, p, sizeof(h));
    return __builtin_convertvector(h, packet<double>);
}

// The sum of squares of g[begin .. end), in double and in a fixed order.
template <class T> double sum_of_squares(T const* g, index_t begin, index_t end) {
    using V = packet<double>;
    constexpr index_t width = lanes<V>;
    V a{};
    V b{};
    index_t i = begin;
    for (; i + 2 * width <= end; i += 2 * width) {
        V const x = widened(g + i);
        V const y = widened(g + i + width);
        a += x * x;
        b += y * y;
    }
    double rest = 0;
    for (; i < end; ++i) rest += static_cast<double>(g[i]) * static_cast<double>(g[i]);
    return sum(a + b) + rest;
}

// AdamW on elements [begin, end) of one parameter; its gradient is zero afterwards.
template <class T> void adamw_elements(adamw_slot const& slot, adamw_update const& u, index_t begin, index_t end) {
    auto* const value = static_cast<T*>(slot.value);
    auto* const gradient = static_cast<T*>(slot.gradient);
    auto* const first = static_cast<T*>(slot.first);
    auto* const second = static_cast<T*>(slot.second);
    auto const scale = static_cast<T>(u.gradient_scale);
    auto const keep = static_cast<T>(slot.decays ? u.keep : 1.0);
    auto const towards = static_cast<T>(1 - u.beta1);
    auto const beta2 = static_cast<T>(u.beta2);
    auto const rest2 = static_cast<T>(1 - u.beta2);
    auto const rate = static_cast<T>(u.rate);
    auto const root = static_cast<T>(1 / u.second_root);
    auto const eps = static_cast<T>(u.eps);
    for_packets<T>(begin, end, [&]<class V>(index_t i) {
        V const g = load<V>(gradient + i) * splat<V>(scale);
        V const m0 = load<V>(first + i);
        V const m = m0 + (g - m0) * splat<V>(towards);
        V const v = load<V>(second + i) * splat<V>(beta2) + g * g * splat<V>(rest2);
        V const p =
            load<V>(value + i) * splat<V>(keep) - splat<V>(rate) * m / (math::sqrt(v) * splat<V>(root) + splat<V>(eps));
        store(first + i, m);
        store(second + i, v);
        store(value + i, p);
        store(gradient + i, V{});
    });
}

}  // namespace detail

// AdamW: decoupled decay, then the step along the corrected moments, as torch.optim.AdamW does. It keeps the addresses
// of the model's parameters: the model must stay where it is as long as the optimizer lives.
class adamw {
public:
    // All parameters need memory for value and gradient; throws errc::usage naming the first that has none, or the
    // setting that cannot be.
    template <class Model> explicit adamw(Model& model, adamw_settings const& settings = {}) : settings_(settings) {
        check(settings);
        for (auto const& p : parameters_of(model)) {
            using T = typename std::remove_cvref_t<decltype(p)>::scalar;
            static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>,
                          "calm::adamw: parameters must be float or double");
            require(p.value.data() != nullptr && p.grad.data() != nullptr, errc::usage, [&] {
                return "calm::adamw: expected memory for value and gradient of " + p.name +
                       ", found none; call calm::allocate with an arena for each first";
            });
            auto const moment = [&] {
                auto const zeros = moments_.take<T>(p.value.extents());
                std::fill_n(zeros.data(), zeros.size(), T{});
                return static_cast<void*>(zeros.data());
            };
            void* const first = moment();
            void* const second = moment();
            add_ranges(p.value.size());
            slots_.push_back({p.name, p.value.data(), p.grad.data(), first, second, p.received_gradient, p.decays,
                              [](detail::adamw_slot const& s, index_t begin, index_t end) {
                                  return detail::sum_of_squares(static_cast<T const*>(s.gradient), begin, end);
                              },
                              &detail::adamw_elements<T>});
        }
        partial_.resize(ranges_.size());
    }
    adamw(adamw const&) = delete;
    adamw& operator=(adamw const&) = delete;

    // The norm of all gradients together, summed in double over ranges that do not depend on the threads. Not finite
    // where some gradient is not.
    template <class Backend> double gradient_norm(context<Backend> const& ctx) {
        ctx.parallel(static_cast<index_t>(ranges_.size()), [this](index_t r) {
            auto const& part = ranges_[static_cast<std::size_t>(r)];
            auto const& slot = slots_[part.slot];
            partial_[static_cast<std::size_t>(r)] = slot.squares(slot, part.begin, part.end);
        });
        return std::sqrt(sum_partials(0, partial_.size()));
    }

    // One update with the gradients that were added since the last one, which are then zero. `loss` is that of the
    // step, to be checked with them. Returns the norm of the gradients before clipping. Throws errc::usage naming the
    // first parameter that received no gradient, and errc::non_finite naming the first bad tensor and ctx.step; no
    // weight and no moment has then changed. In a rehearsal only the former is checked.
    template <class Backend> double step(context<Backend> const& ctx, double rate, double loss = 0) {
        for (auto const& slot : slots_)
            require(*slot.received, errc::usage, [&] {
                return "calm::adamw: step " + std::to_string(ctx.step) +
                       ": expected a gradient for every parameter, found "
                       "none for " +
                       slot.name +
                       "; run a backward pass through it before each update, or leave it out of "
                       "the model's visit";
            });
        double norm = 0;
        if (!ctx.rehearsing()) {
            norm = gradient_norm(ctx);
            require_finite(ctx.step, rate, loss, norm);
            update(ctx, rate, norm);
        }
        for (auto const& slot : slots_) *slot.received = false;
        return norm;
    }

    // Updates made so far: the bias corrections follow from it.
    [[nodiscard]] index_t updates() const { return updates_; }
    [[nodiscard]] adamw_settings const& settings() const { return settings_; }
    // The memory of both moments, for the plan.
    [[nodiscard]] arena<cpu> const& moments() const { return moments_; }

private:
    static constexpr index_t grain = 16384;  // elements a task
    struct range {
        std::size_t slot;
        index_t begin;
        index_t end;
    };

    static void check(adamw_settings const& s) {
        auto const must = [](bool holds, char const* expected, double found) {
            require(holds, errc::usage, [&] {
                return "calm::adamw: expected " + std::string(expected) + ", found " + std::to_string(found);
            });
        };
        must(s.beta1 >= 0 && s.beta1 < 1, "beta1 in [0, 1)", s.beta1);
        must(s.beta2 >= 0 && s.beta2 < 1, "beta2 in [0, 1)", s.beta2);
        must(s.eps > 0 && std::isfinite(s.eps), "eps above 0", s.eps);
        must(s.weight_decay >= 0 && std::isfinite(s.weight_decay), "weight_decay of at least 0", s.weight_decay);
        must(s.clip >= 0 && std::isfinite(s.clip), "clip of at least 0", s.clip);
    }

    void add_ranges(index_t n) {
        for (index_t begin = 0; begin < n; begin += grain)
            ranges_.push_back({slots_.size(), begin, std::min(n, begin + grain)});
    }

    // The sum of partial_[begin .. end) by halves.
    [[nodiscard]] double sum_partials(std::size_t begin, std::size_t end) const {
        if (end - begin <= 1) return end > begin ? partial_[begin] : 0;
        std::size_t const middle = begin + (end - begin) / 2;
        return sum_partials(begin, middle) + sum_partials(middle, end);
    }

    void require_finite(std::uint32_t at, double rate, double loss, double norm) const {
        auto const fail = [&](std::string const& what) {
            throw error(errc::non_finite, "step " + std::to_string(at) + ": " + what +
                                              "; no weight was changed. Try a lower rate or a longer warm-up");
        };
        for (std::size_t r = 0; r < ranges_.size() && !std::isfinite(norm); ++r)
            if (!std::isfinite(partial_[r]))
                fail("expected finite gradients, the first that is not is that of " + slots_[ranges_[r].slot].name);
        if (!std::isfinite(norm))
            fail("expected a finite norm of all gradients together, found " + std::to_string(norm));
        if (!std::isfinite(loss)) fail("expected a finite loss, found " + std::to_string(loss));
        if (!std::isfinite(rate)) fail("expected a finite rate, found " + std::to_string(rate));
    }

    template <class Backend> void update(context<Backend> const& ctx, double rate, double norm) {
        auto const count = static_cast<double>(++updates_);
        detail::adamw_update const u{settings_.clip > 0 ? std::min(1.0, settings_.clip / (norm + 1e-6)) : 1.0,
                                     1 - rate * settings_.weight_decay,
                                     settings_.beta1,
                                     settings_.beta2,
                                     rate / (1 - std::pow(settings_.beta1, count)),
                                     std::sqrt(1 - std::pow(settings_.beta2, count)),
                                     settings_.eps};
        ctx.parallel(static_cast<index_t>(ranges_.size()), [&](index_t r) {
            auto const& part = ranges_[static_cast<std::size_t>(r)];
            auto const& slot = slots_[part.slot];
            slot.update(slot, u, part.begin, part.end);
        });
    }

    adamw_settings settings_;
    arena<cpu> moments_{"moments"};
    std::vector<detail::adamw_slot> slots_;  // in the order of visit
    std::vector<range> ranges_;
    std::vector<double> partial_;  // a sum of squares a range
    index_t updates_ = 0;
};

}  // namespace calm
