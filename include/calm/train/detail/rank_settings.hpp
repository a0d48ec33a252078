#pragma once
// Settings, by name, in which ranks that train together must agree.

#include <cstdint>
#include <string>
#include <vector>

#include "calm/base/detail/number_text.hpp"
#include "calm/ranks/detail/setting.hpp"
#include "calm/train/recipe.hpp"
#include "calm/train/training_callbacks.hpp"

namespace calm::detail {

// All settings of a recipe except those that only describe the machine.
inline std::vector<setting> settings_of(training_recipe const& r) {
    auto const& a = r.optimizer;
    return {{"steps", std::to_string(r.steps)},
            {"seconds", shortest(r.seconds)},
            {"accumulation", std::to_string(r.accumulation)},
            {"learning-rate", shortest(r.learning_rate)},
            {"warmup", std::to_string(r.warmup)},
            {"schedule", r.schedule == learning_rate_schedule::cosine ? "cosine" : "constant"},
            {"beta1", shortest(a.beta1)},
            {"beta2", shortest(a.beta2)},
            {"eps", shortest(a.eps)},
            {"weight-decay", shortest(a.weight_decay)},
            {"clip", shortest(a.clip)},
            {"muon", shortest(a.muon)},
            {"rounding", r.rounding == weight_rounding::stochastic ? "stochastic" : "nearest"},
            {"evaluate-every", std::to_string(r.evaluate_every)},
            {"save-every", std::to_string(r.save_every)},
            {"steps per report", std::to_string(r.log_every)},
            {"first phase", shortest(r.first_phase)},
            {"skip-nonfinite", std::to_string(r.skip_nonfinite)}};
}

// The counters of a state to resume from.
inline std::vector<setting> settings_of(training_state const& s) {
    return {{"steps done", std::to_string(s.step)},
            {"updates done", std::to_string(s.updates)},
            {"updates before Muon's", std::to_string(s.hidden_from)},
            {"steps skipped", std::to_string(s.skipped)},
            {"steps of the first phase", std::to_string(s.first_phase_steps)},
            {"seconds done", shortest(s.seconds)}};
}

}  // namespace calm::detail
