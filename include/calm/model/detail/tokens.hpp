#pragma once
// Operations on token ids that the models share.

#include <concepts>
#include <cstdint>
#include <span>

#include "calm/base/random.hpp"
#include "calm/base/token.hpp"
#include "calm/tensor/detail/core/for_each.hpp"
#include "calm/tensor/ops/row_ids.hpp"

namespace calm {

// Unchecked token ids in host memory; a view's ids are in backend memory.
template <class Tokens>
concept span_of_tokens = std::same_as<Tokens, std::span<token_id const>> || std::same_as<Tokens, std::span<token_id>>;

namespace detail {

// shown[i] = tokens[i], or id 0 if uniform number first + i of the key is below the rate.
struct hide_token {
    token_id* shown;
    token_id const* tokens;
    key draws;
    rng_counter first;
    double rate;
    CALM_HD void operator()(index_t i) const {
        bool const hidden = static_cast<double>(uniform(draws, first.now() + static_cast<std::uint64_t>(i))) < rate;
        shown[i] = hidden ? 0 : tokens[i];
    }
};

// Element i of inputs and labels, from sequences of `length` tokens: all but the last patch, and all but the first
// patch.
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

// The patches read (all but the last of each sequence) and the patches predicted (all but the first).
template <class Backend> struct shifted_tokens {
    row_ids<Backend> inputs;  // (B, P - 1, K), flat
    row_ids<Backend> labels;  // (B, P - 1, K), flat, shifted by one patch
};

namespace detail {
// Number of tokens in (B, P - 1, K), given the number in (B, P, K).
inline index_t shifted_size(index_t tokens, index_t P, index_t K) {
    require(P >= 2 && K >= 1 && tokens % (P * K) == 0, errc::usage,
            "calm::shift_tokens: expected whole sequences of at least 2 patches of ", K, " tokens, found ", tokens,
            " tokens for sequences of ", P, " patches");
    return tokens / P * (P - 1);
}
}  // namespace detail

// Inputs and labels of tokens (B, P, K), in ctx.saved. Throws errc::usage unless the tokens are whole sequences of at
// least 2 patches.
template <class Backend>
shifted_tokens<Backend> shift_tokens(context<Backend>& ctx, std::type_identity_t<row_ids<Backend>> const& tokens,
                                     index_t P, index_t K) {
    extents<dyn> const kept(detail::shifted_size(tokens.size(), P, K));
    auto const inputs = ctx.saved.template take<token_id>(kept);
    auto const labels = ctx.saved.template take<token_id>(kept);
    for_each(ctx, kept.size(), detail::shift_token{inputs.data(), labels.data(), tokens.data(), P * K, K});
    return {row_ids<Backend>::validated(inputs, tokens.limit()), row_ids<Backend>::validated(labels, tokens.limit())};
}

// Inputs and labels of host tokens (B, P, K): (B, P - 1, K) each, written into an upload and not yet checked. Throws as
// shift_tokens does.
template <class Backend> struct shifted_on_host {
    std::span<token_id> inputs;  // all but the last patch of each sequence
    std::span<token_id> labels;  // all but the first

    // A dry run does not read the tokens.
    shifted_on_host(context<Backend> const& ctx, id_upload<Backend>& upload, std::span<token_id const> tokens,
                    index_t P, index_t K) :
        inputs(upload.take(detail::shifted_size(std::ssize(tokens), P, K))),
        labels(upload.take(std::ssize(inputs))) {
        detail::shift_token const shift{inputs.data(), labels.data(), tokens.data(), P * K, K};
        if (!ctx.is_dry_run())
            for (index_t i = 0; i < std::ssize(inputs); ++i) shift(i);
    }
};

}  // namespace calm
