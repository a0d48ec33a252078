#pragma once
// Which numbers a config.json may have: one table for all of its objects; the head's stand in its own header.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "calm/base/error.hpp"
#include "calm/model/limits.hpp"

namespace calm::detail {

// From least to most, or between them. Whole numbers are exact here.
struct number_range {
    std::string_view key;
    double least;
    double most;
    bool without_ends = false;

    [[nodiscard]] constexpr bool holds(double x) const {
        return without_ends ? least < x && x < most : least <= x && x <= most;
    }
    [[nodiscard]] constexpr bool holds(std::int64_t n) const {
        return n >= static_cast<std::int64_t>(least) && n <= static_cast<std::int64_t>(most);
    }
};

inline constexpr std::array number_ranges{
    number_range{"vocab_size", 1, limits::vocabulary},
    number_range{"bos_token_id", 0, limits::vocabulary - 1},
    number_range{"eos_token_id", 0, limits::vocabulary - 1},
    number_range{"pad_token_id", 0, limits::vocabulary - 1},
    number_range{"patch_size", 1, limits::patch_size},
    number_range{"latent_size", 1, limits::width},
    number_range{"hidden_size", 1, limits::width},
    number_range{"intermediate_size", 1, limits::width},
    number_range{"num_attention_heads", 1, limits::width},
    number_range{"num_key_value_heads", 1, limits::width},
    number_range{"num_encoder_layers", 1, limits::layers},
    number_range{"num_decoder_layers", 1, limits::layers},
    number_range{"num_hidden_layers", 1, limits::layers},
    number_range{"block_tokens", 1, limits::block_tokens},
    number_range{"max_position_embeddings", 1, limits::text_tokens},
    number_range{"ae_dropout", 0, 0.99},
    number_range{"kl_clamp", 0, limits::weight},
    number_range{"kl_weight", 0, limits::weight},
    number_range{"posterior_std", 0, 1e39},  // as training found it, in float
    number_range{"rope_theta", 1, 1e12},
    number_range{"rms_norm_eps", 0, 1},
    number_range{"initializer_range", 0, 1000},
};

// The range of a key that has a number. Throws errc::usage for a key that the table lacks.
inline number_range const& range_of(std::string_view key) {
    for (auto const& range : number_ranges)
        if (range.key == key) return range;
    throw error(errc::usage, sentence("calm::number_ranges: expected a range for the key ", key, ", found none"));
}

}  // namespace calm::detail
