#pragma once
// The body of POST /v1/completions.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "calm/base/token.hpp"
#include "calm/runs/detail/loaded_model.hpp"

namespace calm::apps {

// A request as its client wrote it. Fields that are missing or null have their defaults.
struct completion_request {
    std::string model;                                                      // empty: not given
    std::vector<std::variant<std::string, std::vector<token_id>>> prompts;  // text or ids
    index_t max_tokens = 16;
    double temperature = 1;
    std::string sampler;  // of a CALM; empty: chosen by the temperature
    double top_p = 1;
    index_t top_k = 0;  // 0: all
    index_t n = 1;      // texts per prompt
    std::optional<std::uint64_t> seed;
    std::vector<std::string> stop;
    bool echo = false;           // the text begins with its prompt
    bool stream = false;         // server-sent events
    bool include_usage = false;  // in a last event
    bool patches = false;        // report the draws of every patch
    bool ignore_eos = false;     // texts end at max_tokens or a stop string only

    static constexpr index_t most_texts = 128;           // prompts times n
    static constexpr std::size_t most_echoed = 1 << 20;  // bytes of all echoed prompts
    static constexpr std::size_t most_stops = 4;
    static constexpr std::size_t longest_stop = 1024;  // bytes
};

// Parses a body. Unknown fields are ignored. Throws api_error for a field that is invalid, or that asks for what no
// server of samples can do.
completion_request parse_completion_request(std::string_view body);

// The sampler that a request asks for. Without a name, a CALM takes adaptive at T = 1/n, exact at another T between 0
// and 1 with at most `exact_draws` draws per patch, and else noise. Throws api_error.
any_sampler sampler_of_request(completion_request const& request, bool autoregressive, index_t pool,
                               index_t exact_draws);

}  // namespace calm::apps
