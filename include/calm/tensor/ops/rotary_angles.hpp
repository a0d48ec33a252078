#pragma once
/// \file
/// The angles of rotary embeddings (Su et al. 2021), and their scaling for texts longer than in pretraining.
/// \shows{tests/tensor/rotary_angles_test.cpp,llama3_scaling_divides_low_frequencies}

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>

#include "calm/tensor/core/extents.hpp"

namespace calm {

/// How frequencies are scaled: `rope_type` of config.json, where unscaled is "default".
enum class rope_type : index_t { unscaled, linear, llama3 };

/// Its name in config.json.
constexpr std::string_view name_of(rope_type type) {
    constexpr std::array<std::string_view, 3> names{"default", "linear", "llama3"};
    return names[static_cast<std::size_t>(type)];
}

/// Scaling of the frequencies, named as in config.json. `linear` divides each by `factor`. `llama3` (Llama 3.1) divides
/// low frequencies, keeps high ones and interpolates between. A frequency is low if its pair turns at most
/// low_freq_factor times in the original positions. It is high if the pair turns at least high_freq_factor times.
struct rotary_scaling {
    rope_type type = rope_type::unscaled;             ///< by which rule
    double factor = 1;                                ///< of linear and llama3
    double low_freq_factor = 1;                       ///< of llama3
    double high_freq_factor = 4;                      ///< of llama3, above low_freq_factor
    index_t original_max_position_embeddings = 8192;  ///< of llama3: positions in pretraining

    /// Visits the numbers that the type has.
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        if (self.type == rope_type::unscaled) return;
        visitor("factor", self.factor);
        if (self.type == rope_type::linear) return;
        visitor("low_freq_factor", self.low_freq_factor);
        visitor("high_freq_factor", self.high_freq_factor);
        visitor("original_max_position_embeddings", self.original_max_position_embeddings);
    }
    friend constexpr bool operator==(rotary_scaling const&, rotary_scaling const&) = default;
};

/// The angles of all pairs of a head. A base alone gives unscaled ones.
struct rotary_angles {
    double theta;            ///< the base
    rotary_scaling scaling;  ///< of the frequencies

    /// From a base, unscaled unless a scaling is given.
    constexpr rotary_angles(double base, rotary_scaling const& scaled = {}) : theta(base), scaling(scaled) {}

    /// Angle by which pair i turns per position. Host only: a GPU's powf differs in the last bits, and the position
    /// multiplies the difference. Single precision, like the published tables.
    [[nodiscard]] float frequency(index_t i, index_t head_size) const {
        float const plain =
            std::pow(static_cast<float>(theta), -static_cast<float>(2 * i) / static_cast<float>(head_size));
        if (scaling.type == rope_type::unscaled) return plain;
        double const share = kept(plain);
        return static_cast<float>(plain * (share + (1 - share) / scaling.factor));
    }

private:
    // The share of a frequency that is not divided by `factor`.
    [[nodiscard]] double kept(double frequency) const {
        if (scaling.type == rope_type::linear) return 0;
        double const turns =
            static_cast<double>(scaling.original_max_position_embeddings) * frequency / (2 * std::numbers::pi);
        return std::clamp((turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor), 0.0,
                          1.0);
    }
};

}  // namespace calm
