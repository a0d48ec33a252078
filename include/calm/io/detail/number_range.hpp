#pragma once
// The ranges of numbers in a config.json other than model sizes: one table for all of its objects.

#include <array>
#include <string_view>

#include "calm/base/error.hpp"
#include "calm/model/detail/limits.hpp"
#include "calm/model/head.hpp"

namespace calm::detail {

inline constexpr std::array number_ranges{
    number_field{"vocab_size", "", 1, limits::vocabulary},
    number_field{"bos_token_id", "", 0, limits::vocabulary - 1},
    number_field{"eos_token_id", "", 0, limits::vocabulary - 1},
    number_field{"pad_token_id", "", 0, limits::vocabulary - 1},
    number_field{"block_tokens", "", 1, limits::block_tokens},
    number_field{"max_position_embeddings", "", 1, limits::text_tokens},
    number_field{"ae_dropout", "", 0, 0.99},
    number_field{"kl_clamp", "", 0, limits::weight},
    number_field{"kl_weight", "", 0, limits::weight},
    number_field{"posterior_std", "", 0, 1e39},  // as float, measured in training
    number_field{"rope_theta", "", 1, 1e12},
    number_field{"factor", "", 1, 1e6},
    number_field{"low_freq_factor", "", 0, 1e6},
    number_field{"high_freq_factor", "", 0, 1e6},
    number_field{"original_max_position_embeddings", "", 1, limits::text_tokens},
    number_field{"head_dim", "", 2, limits::width},
    number_field{"rms_norm_eps", "", 0, 1},
    number_field{"initializer_range", "", 0, 1000},
};

// The range of a numeric key. Throws errc::usage for a key that the table lacks.
inline number_field const& range_of(std::string_view key) {
    for (auto const& range : number_ranges)
        if (range.key == key) return range;
    throw error(errc::usage, sentence("calm::number_ranges: expected a range for the key ", key, ", found none"));
}

}  // namespace calm::detail
