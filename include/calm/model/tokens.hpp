#pragma once
// What models do with token ids.

#include <cstdint>

#include "calm/base/random.hpp"
#include "calm/base/token.hpp"
#include "calm/tensor/for_each.hpp"
#include "calm/tensor/view.hpp"

namespace calm {

namespace detail {

struct hide_token {
    token_id* shown;
    token_id const* tokens;
    key draws;
    std::uint64_t first;
    double rate;
    CALM_HD void operator()(index_t i) const {
        bool const hidden = static_cast<double>(uniform(draws, first + static_cast<std::uint64_t>(i))) < rate;
        shown[i] = hidden ? 0 : tokens[i];
    }
};

struct shift_token {
    token_id* inputs;
    token_id* labels;
    token_id const* tokens;
    index_t length;
    index_t patch;
    CALM_HD void operator()(index_t i) const {
        index_t const kept = length - patch;
        index_t const from = i / kept * length + i % kept;
        inputs[i] = tokens[from];
        labels[i] = tokens[from + patch];
    }
};

}  // namespace detail

// shown (n): tokens (n), or id 0 where number first + i of the key's uniforms is below the rate.
template <class Backend>
void hide_tokens(context<Backend> const& ctx, vector_view<token_id, dyn, Backend> const& shown,
                 vector_view<token_id const, dyn, Backend> const& tokens, key draws, std::uint64_t first, double rate) {
    for_each(ctx, tokens.size(), detail::hide_token{shown.data(), tokens.data(), draws, first, rate});
}

// Of sequences of `length` tokens: all but the last `patch` into inputs, all but the first into labels.
template <class Backend>
void shift_tokens(context<Backend> const& ctx, vector_view<token_id, dyn, Backend> const& inputs,
                  vector_view<token_id, dyn, Backend> const& labels,
                  vector_view<token_id const, dyn, Backend> const& tokens, index_t length, index_t patch) {
    for_each(ctx, inputs.size(), detail::shift_token{inputs.data(), labels.data(), tokens.data(), length, patch});
}

}  // namespace calm
