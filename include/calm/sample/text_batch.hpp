#pragma once
/// \file
/// Texts that are generated together, one patch each per step, and begin and end independently (continuous batching).
/// Sizes: K tokens per patch.
/// \shows{examples/15_serve.cpp,main}

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <deque>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "calm/sample/detail/independent_rows.hpp"
#include "calm/sample/detail/sample_next.hpp"
#include "calm/sample/generation_session.hpp"
#include "calm/sample/generation_settings.hpp"
#include "calm/sample/sample_token.hpp"
#include "calm/tensor/ops/row_ids.hpp"
#include "calm/text/special_tokens.hpp"

namespace calm {

/// A prompt after BOS, if prompts of the vocabulary begin with BOS or the prompt is empty.
inline std::vector<token_id> after_bos(special_tokens const& special, std::span<token_id const> prompt) {
    std::size_t const begin = special.exist() && (special.bos_first || prompt.empty()) ? 1 : 0;
    std::vector<token_id> tokens(begin + prompt.size(), special.bos);
    std::copy(prompt.begin(), prompt.end(), tokens.begin() + static_cast<std::ptrdiff_t>(begin));
    return tokens;
}

/// Patches of K tokens of a prompt after BOS and of max_tokens new tokens, all that a text's cache has to hold: nothing
/// follows the last patch.
inline index_t patches_needed(special_tokens const& special, std::span<token_id const> prompt, index_t max_tokens,
                              index_t K) {
    index_t const begun = std::ssize(after_bos(special, prompt));
    return (begun + K - 1) / K + (std::max<index_t>(1, max_tokens) + K - 1) / K - 1;
}

/// What a step adds to a text.
struct generated_patch {
    std::span<token_id const> fresh;  ///< new tokens; fewer than K at the text's end
    sampling_cost took;               ///< to sample the patch
    bool last;                        ///< the text ended, at an end id or at max_tokens
};

/// A text depends on its model, prompt and settings only. On the cpu not even the last bits depend on the other texts
/// in the batch, on the time at which it began, or on threads; a device computes more rows in another order. Prompts
/// are computed in parts of fixed size (chunked prefill), each part alone, so that other texts can continue between two
/// parts. Model and context outlive the batch.
template <class Model, class Backend = cpu> class text_batch {
public:
    using settings_type = settings_of_generation<rule_of<Model>>;  ///< of one text
    static constexpr index_t K = Model::K;                         ///< tokens per patch

    /// Called for every patch with the slot of its text; false ends the text.
    using on_patch = std::function<bool(index_t slot, generated_patch const&)>;

    /// Room for this many texts at a time. Each has a slot, 0 .. texts - 1, of `capacity` patches with its prompt.
    /// Memory grows with their length. Throws errc::usage if a limit is less than 1.
    text_batch(context<Backend>& ctx, Model const& model, special_tokens const& special, index_t texts,
               index_t capacity, step_limits const& limits = {}) :
        ctx_(ctx),
        model_(model), special_(special), capacity_(capacity), limits_(limits), session_(ctx, model, texts, capacity),
        sampler_state_(ctx, model), texts_(static_cast<std::size_t>(texts)) {
        require(limits.prompt_patches >= 1 && limits.draws >= 1, errc::usage,
                "calm::text_batch: expected at least 1 patch of prompts and 1 draw per step, found ",
                limits.prompt_patches, " and ", limits.draws);
    }

    /// How many more texts can begin.
    [[nodiscard]] index_t free_slots() const {
        return std::ssize(texts_) - std::ssize(active_) - std::ssize(beginning_);
    }
    /// Whether no text is under way.
    [[nodiscard]] bool empty() const { return active_.empty() && beginning_.empty(); }

    /// Begins a text with its prompt (ids without BOS), in a free slot, and returns its index. The next steps
    /// compute the prompt. `at_once` of the settings is unused. Throws errc::usage if no slot is free, if max_tokens is
    /// less than 1, or if the text is empty or needs more patches than the capacity; errc::tokenizer for an id outside
    /// the vocabulary.
    index_t begin(std::span<token_id const> prompt, settings_type const& settings) {
        require(free_slots() > 0, errc::usage, "calm::text_batch: expected at most ", texts_.size(), " texts");
        require(settings.max_tokens >= 1, errc::usage, "calm::text_batch: expected max_tokens of at least 1, found ",
                settings.max_tokens);
        index_t const needed = patches_needed(special_, prompt, settings.max_tokens, K);
        require(needed <= capacity_, errc::usage, "calm::text_batch: expected a prompt and max_tokens of at most ",
                capacity_, " patches of ", K, " tokens, found ", needed);
        auto tokens = padded_prompt(after_bos(special_, prompt), K, special_.pad, settings.pad_left);
        require(!tokens.empty(), errc::usage, "calm::text_batch: expected a prompt of at least one patch");
        detail::check_ids(tokens, model_.vocabulary());
        index_t slot = 0;
        while (is_under_way(slot)) ++slot;
        auto& one = text_in(slot);
        one = {settings, {}, std::move(tokens), 0, 0};
        if (one.settings.ends.empty()) one.settings.ends = {special_.eos};
        beginning_.push_back(slot);
        return slot;
    }

    /// Ends a text before its time; its slot is free.
    void end(index_t slot) {
        std::erase(active_, slot);
        std::erase(beginning_, slot);
        session_.end(slot);
    }

    /// What a text has so far. After its end valid until its slot is taken again.
    [[nodiscard]] generation_result& result(index_t slot) { return text_in(slot).result; }

    /// Computes parts of prompts, each text's in turn. Then generates one patch for every text whose prompt is
    /// complete, and ends those whose patch is the last. With a limit on draws, texts whose patches take many get
    /// theirs in turn.
    void step(on_patch const& report) {
        compute_prompts();
        if (active_.empty()) return;
        choose_texts();
        detail::independent_rows_scope<Backend> const one_order(ctx_);
        sample();
        continuing_.clear();
        next_patches_.clear();
        for (std::size_t i = 0; i < chosen_.size(); ++i) {
            auto const patch = std::span<token_id const>(patches_).subspan(i * width, width);
            if (!add_patch(chosen_[i], patch, took_[i], report)) {
                session_.end(chosen_[i]);
                std::erase(active_, chosen_[i]);
                continue;
            }
            continuing_.push_back(chosen_[i]);
            next_patches_.insert(next_patches_.end(), patch.begin(), patch.end());
        }
        if (!continuing_.empty()) session_.append(continuing_, next_patches_);
    }

private:
    static constexpr auto width = static_cast<std::size_t>(K);

    struct text {
        settings_type settings;
        generation_result result;
        std::vector<token_id> prompt;  // (patches, K), while it is computed
        std::size_t computed = 0;      // tokens of it
        index_t last_step = 0;         // in which it had its turn
    };

    // For the next patch: as many as the patches so far on average, at first about n^2 for n equal ones.
    static index_t draws_expected(text const& one) {
        if (one.result.patches > 0) return one.result.draws / one.result.patches;
        if constexpr (std::same_as<rule_of<Model>, sampler>) {
            auto const& rule = one.settings.sampler;
            return rule.n < rule.max_draws / rule.n ? rule.n * rule.n : rule.max_draws;
        }
        return 1;
    }

    [[nodiscard]] bool is_under_way(index_t slot) const {
        auto const is_in = [&](auto const& slots) {
            return std::find(slots.begin(), slots.end(), slot) != slots.end();
        };
        return is_in(active_) || is_in(beginning_);
    }

    // The parts begin at fixed patches and each is computed alone, so that its bits depend on its prompt only.
    void compute_prompts() {
        for (index_t patches = 0; patches < limits_.prompt_patches && !beginning_.empty();) {
            index_t const slot = beginning_.front();
            auto& one = text_in(slot);
            auto const rest = std::span<token_id const>(one.prompt).subspan(one.computed);
            auto const part = rest.first(std::min(rest.size(), static_cast<std::size_t>(prompt_part) * width));
            if (one.computed == 0)
                session_.begin(slot, part);
            else
                session_.append({&slot, 1}, part);
            one.computed += part.size();
            patches += std::ssize(part) / K;
            beginning_.pop_front();
            if (part.size() < rest.size()) {
                beginning_.push_back(slot);
                continue;
            }
            one.prompt = {};
            active_.insert(std::upper_bound(active_.begin(), active_.end(), slot), slot);
        }
    }

    // chosen_: the texts that this step samples. Those that need few draws are always among them. The others take
    // turns, the one that waits longest first, while draws are left of those that the limit has granted.
    void choose_texts() {
        chosen_.clear();
        waiting_.clear();
        ++steps_;
        for (index_t const slot : active_) {
            bool const is_cheap = draws_expected(text_in(slot)) <= limits_.draws / std::ssize(texts_);
            (is_cheap ? chosen_ : waiting_).push_back(slot);
        }
        if (waiting_.empty()) return;
        std::stable_sort(waiting_.begin(), waiting_.end(),
                         [&](index_t a, index_t b) { return text_in(a).last_step < text_in(b).last_step; });
        // Nothing is saved up. Where no other text waits, nothing is owed.
        granted_ = chosen_.empty() ? limits_.draws : limits_.draws + std::min<index_t>(0, granted_);
        index_t left = granted_;
        for (index_t const slot : waiting_) {
            if (left <= 0) break;
            left -= draws_expected(text_in(slot));
            text_in(slot).last_step = steps_;
            chosen_.push_back(slot);
        }
        std::sort(chosen_.begin(), chosen_.end());
    }

    [[nodiscard]] text& text_in(index_t slot) { return texts_[static_cast<std::size_t>(slot)]; }
    [[nodiscard]] text const& text_of(std::size_t chosen) const {
        return texts_[static_cast<std::size_t>(chosen_[chosen])];
    }

    // patches_ and took_ of the chosen texts; texts of equal rules are sampled together.
    void sample() {
        patches_.resize(chosen_.size() * width);
        took_.resize(chosen_.size());
        std::vector<std::size_t> rest(chosen_.size());
        std::iota(rest.begin(), rest.end(), std::size_t{0});
        while (!rest.empty()) {
            auto const& first = text_of(rest.front()).settings;
            auto const others = std::stable_partition(rest.begin(), rest.end(), [&](std::size_t i) {
                auto const& its = text_of(i).settings;
                return its.sampler == first.sampler && its.round == first.round;
            });
            sample_some(std::span(rest.begin(), others), first);
            rest.erase(rest.begin(), others);
        }
    }

    // Of these chosen texts, all with the sampler and round of the settings.
    void sample_some(std::span<std::size_t const> some, settings_type const& settings) {
        std::vector<patch_rng> rngs;
        for (std::size_t const i : some) {
            auto const& its = text_of(i).settings;
            auto const made = text_of(i).result.patches;
            rngs.push_back({chosen_[i], {{its.seed, stream::generation, its.prompt_number}, made}});
        }
        std::vector<token_id> tokens(some.size() * width);
        auto const costs = sample_next(ctx_, model_, std::span<token_id>(tokens), session_.hidden(), settings.sampler,
                                       std::span<patch_rng const>(rngs), settings.round, &sampler_state_);
        for (std::size_t j = 0; j < some.size(); ++j) {
            std::copy_n(&tokens[j * width], width, &patches_[some[j] * width]);
            took_[some[j]] = costs[j];
        }
    }

    // Adds a patch to a text, up to an end id or max_tokens; false if the text ends.
    bool add_patch(index_t slot, std::span<token_id const> patch, sampling_cost const& took, on_patch const& report) {
        auto& one = text_in(slot);
        auto const& settings = one.settings;
        auto& result = one.result;
        if (one.last_step == steps_) granted_ -= took.draws;
        result.draws += took.draws;
        result.capped += took.capped ? 1 : 0;
        ++result.patches;
        auto const left = static_cast<std::size_t>(settings.max_tokens) - result.tokens.size();
        auto const wanted = patch.first(std::min(patch.size(), left));
        auto const end = std::find_first_of(wanted.begin(), wanted.end(), settings.ends.begin(), settings.ends.end());
        result.stopped_at_eos = end != wanted.end();
        auto const fresh = wanted.first(static_cast<std::size_t>(end - wanted.begin()));
        result.tokens.insert(result.tokens.end(), fresh.begin(), fresh.end());
        bool const last = result.stopped_at_eos || static_cast<index_t>(result.tokens.size()) == settings.max_tokens;
        return report(slot, {fresh, took, last}) && !last;
    }

    context<Backend>& ctx_;
    Model const& model_;
    special_tokens special_;
    index_t capacity_;
    step_limits limits_;
    generation_session<Model, Backend> session_;
    sampler_cache<Backend> sampler_state_;
    std::vector<text> texts_;          // by slot
    std::deque<index_t> beginning_;    // slots of texts whose prompts are not complete, the next one first
    std::vector<index_t> active_;      // slots of texts whose prompts are complete, ascending
    std::vector<index_t> chosen_;      // of these, that this step samples, ascending
    std::vector<index_t> waiting_;     // of these, that need many draws
    index_t steps_ = 0;                // that sampled
    index_t granted_ = 0;              // draws for waiting texts; negative: owed
    std::vector<token_id> patches_;    // (chosen, K)
    std::vector<sampling_cost> took_;  // (chosen)
    std::vector<index_t> continuing_;
    std::vector<token_id> next_patches_;  // (continuing, K)
};

}  // namespace calm
