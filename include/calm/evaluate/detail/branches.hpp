#pragma once
// One text and sampled continuations of its prefixes, for BrierLM of short patches (Brier-n of K < 4 in
// docs/mathematics/scores.md).

#include <cstddef>
#include <span>

#include "calm/loss/detail/token_screen.hpp"
#include "calm/model/calm.hpp"
#include "calm/sample/detail/sample_next.hpp"

namespace calm {

// Samples what follows some position of the text and then further patches. The text is read once; a branch is read
// after its position into the same cache and overwrites what was there. So positions come from the last to the first,
// and the branches of one position depth first. Model and context outlive it. Sizes: K tokens per patch, D hidden.
template <class Model, class Backend = cpu> class branches {
public:
    using T = typename Model::scalar;  // element of a hidden state
    static constexpr index_t K = Model::K;

    // For texts of at most `positions` patches and branches of at most `depth` patches. The screen is for the model's
    // vocabulary, or null.
    branches(context<Backend>& ctx, Model const& model, index_t positions, index_t depth,
             token_screen const* screen = nullptr) :
        ctx_(ctx),
        model_(model), cache_(model.make_cache(1, positions + depth)), screen_(screen) {}

    // Replaces the text, in whole patches of K tokens. Throws errc::usage if it is too long.
    void set_text(std::span<token_id const> text) {
        cache_.truncate(0);
        arena_scope const saved(ctx_.saved);
        arena_scope const workspace(ctx_.workspace);
        extend(text);
    }

    // Fills `out` (m, K) with patches sampled by the rule, with noise from `place`, after patches 0..position of the
    // text and then `prefix`. The prefix has at least one patch; all but its last must already be in the cache.
    void draw(index_t position, std::span<token_id const> prefix, std::span<token_id> out, row_rng const& place,
              sampler const& rule, sampling_totals& total) {
        arena_scope const saved(ctx_.saved);
        arena_scope const workspace(ctx_.workspace);
        total.add(sample_many(ctx_, model_, out, hidden_after(position, prefix), static_cast<index_t>(out.size()) / K,
                              rule, std::span(&place, 1), screen_));
    }

    // The hidden state (1, D) after text and prefix as in draw(), in ctx.saved.
    matrix_view<T const, Model::D, Backend> hidden_after(index_t position, std::span<token_id const> prefix) {
        cache_.truncate(position + static_cast<index_t>(prefix.size()) / K);
        return extend(prefix.last(static_cast<std::size_t>(K)));
    }

private:
    auto extend(std::span<token_id const> tokens) {
        return model_.extend(ctx_, tokens, cache_, std::span<index_t const>(&only_, 1));
    }

    context<Backend>& ctx_;
    Model const& model_;
    typename Model::cache cache_;
    token_screen const* screen_;
    static constexpr index_t only_ = 0;  // the only sequence of the cache
};

}  // namespace calm
