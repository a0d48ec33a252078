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

// The patches of sequences that are read (all but the last of each) and those that are predicted (all but the first).
template <class Backend> struct shifted_tokens {
    vector_view<token_id const, dyn, Backend> inputs;  // (B, P - 1, K), flat
    vector_view<token_id const, dyn, Backend> labels;  // (B, P - 1, K), flat, a patch later
};
// Of tokens (B, P, K), in ctx.saved: P patches a sequence, K tokens a patch. Throws errc::usage where tokens are no
// whole sequences of at least 2 patches.
template <class Backend>
shifted_tokens<Backend> shift_tokens(context<Backend>& ctx, vector_view<token_id const, dyn, Backend> const& tokens,
                                     index_t P, index_t K) {
    require(P >= 2 && K >= 1 && tokens.size() % (P * K) == 0, errc::usage,
            "calm::shift_tokens: expected whole sequences of at least 2 patches of ", K, " tokens, found ",
            tokens.size(), " tokens for sequences of ", P, " patches");
    extents<dyn> const kept(tokens.size() / P * (P - 1));
    auto const inputs = ctx.saved.template take<token_id>(kept);
    auto const labels = ctx.saved.template take<token_id>(kept);
    for_each(ctx, kept.size(), detail::shift_token{inputs.data(), labels.data(), tokens.data(), P * K, K});
    return {inputs, labels};
}

}  // namespace calm
