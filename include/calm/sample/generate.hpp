#pragma once
// Continues prompts patch after patch, each from the hidden state of everything before it (CALM, inference). Sizes: K
// tokens per patch.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "calm/model/detail/limits.hpp"
#include "calm/sample/detail/sample_next.hpp"
#include "calm/sample/generation_session.hpp"
#include "calm/sample/sample_token.hpp"
#include "calm/sample/sampler.hpp"
#include "calm/text/special_tokens.hpp"

namespace calm {

// Settings that decide the text, together with model and prompt. Rule is the sampler type of the model.
template <class Rule> struct settings_of_generation {
    Rule sampler = {};                // default for a CALM: adaptive, T = 1/2; for an autoregressive model: T = 1
    index_t max_tokens = 256;         // new tokens, exactly, unless EOS comes first
    bool pad_left = true;             // false: on the right, as in the published code
    std::uint64_t seed = 1;           // of all draws
    std::uint32_t prompt_number = 0;  // of the first prompt; decides the noise, wherever a prompt is in a batch
    index_t at_once = 16;             // texts generated at the same time; changes memory, speed and last bits
    std::int64_t round = 0;           // draws per text and round; 0: automatic. Changes speed and last bits
    std::vector<token_id> ends = {};  // each of these ids ends a text; empty: only the vocabulary's EOS does
};
using generation_settings = settings_of_generation<sampler>;              // for a CALM
using token_generation_settings = settings_of_generation<token_sampler>;  // for an autoregressive model

// Result for one prompt.
struct generation_result {
    std::vector<token_id> tokens;  // new tokens, without the id that ends the text
    bool stopped_at_eos = false;   // at that id; false if it ended at max_tokens or on_tokens ended it
    index_t patches = 0;           // sampled
    index_t draws = 0;             // patches drawn from the head for them
    index_t capped = 0;            // patches at which the exact rule gave up
};

// A prompt after BOS, if prompts of the vocabulary begin with BOS or the prompt is empty.
inline std::vector<token_id> after_bos(special_tokens const& special, std::span<token_id const> prompt) {
    std::size_t const begin = special.exist() && (special.bos_first || prompt.empty()) ? 1 : 0;
    std::vector<token_id> tokens(begin + prompt.size(), special.bos);
    std::copy(prompt.begin(), prompt.end(), tokens.begin() + static_cast<std::ptrdiff_t>(begin));
    return tokens;
}

namespace detail {

// Adds a sampled patch to a text; returns its new tokens, up to one of `ends` or max_tokens.
inline std::span<token_id const> add_patch(generation_result& text, std::span<token_id const> patch,
                                           sampling_cost const& took, std::span<token_id const> ends,
                                           index_t max_tokens) {
    text.draws += took.draws;
    text.capped += took.capped ? 1 : 0;
    ++text.patches;
    auto const left = static_cast<std::size_t>(max_tokens) - text.tokens.size();
    auto const wanted = patch.first(std::min(patch.size(), left));
    auto const end = std::find_first_of(wanted.begin(), wanted.end(), ends.begin(), ends.end());
    text.stopped_at_eos = end != wanted.end();
    auto const fresh = wanted.first(static_cast<std::size_t>(end - wanted.begin()));
    text.tokens.insert(text.tokens.end(), fresh.begin(), fresh.end());
    return fresh;
}

// The answer of on_tokens, or true if it returns nothing.
template <class OnTokens> bool notify(OnTokens& on_tokens, std::size_t prompt, std::span<token_id const> fresh) {
    if constexpr (std::same_as<std::invoke_result_t<OnTokens&, std::size_t, std::span<token_id const>>, bool>)
        return on_tokens(prompt, fresh);
    else
        on_tokens(prompt, fresh);
    return true;
}

// Continuous batching: texts are rows of a session, and when one ends, the next prompt begins in its row.
template <class Model, class Backend, class OnTokens> class continuous_batching {
public:
    using settings_type = settings_of_generation<rule_of<Model>>;

    continuous_batching(context<Backend>& ctx, Model const& model, std::span<std::vector<token_id> const> prompts,
                        special_tokens const& special, settings_type const& settings, OnTokens& on_tokens) :
        ctx_(ctx),
        model_(model), prompts_(prompts), special_(special), settings_(settings),
        ends_(settings.ends.empty() ? std::vector{special.eos} : settings.ends), on_tokens_(on_tokens),
        session_(ctx, model, std::min(settings.at_once, static_cast<index_t>(prompts.size())),
                 patches_of_longest(prompts, settings)),
        sampler_state_(ctx, model), results_(prompts.size()) {}

    // The results, in the order of the prompts.
    std::vector<generation_result> run() {
        for (index_t row = 0; row < session_.hidden().extent(0); ++row) {
            prompt_of_.push_back(begin_next(row));
            active_.push_back(row);
        }
        while (!active_.empty()) {
            collect_rngs();
            patches_.resize(active_.size() * K);
            auto const took =
                sample_next(ctx_, model_, std::span<token_id>(patches_), session_.hidden(), settings_.sampler,
                            std::span<patch_rng const>(rngs_), settings_.round, &sampler_state_);
            append_patches(took);
            if (!continuing_.empty()) session_.append(continuing_, next_patches_);
            active_.swap(next_active_);
        }
        return std::move(results_);
    }

private:
    static constexpr auto K = static_cast<std::size_t>(Model::K);

    // Includes BOS, and all generated patches except the last, which nothing follows.
    static index_t patches_of_longest(std::span<std::vector<token_id> const> prompts, settings_type const& s) {
        std::size_t longest = 0;
        for (auto const& prompt : prompts) longest = std::max(longest, prompt.size() + 1);
        return static_cast<index_t>((longest + K - 1) / K) + (s.max_tokens + Model::K - 1) / Model::K - 1;
    }

    // Begins the next prompt on a row; returns its number.
    std::size_t begin_next(index_t row) {
        session_.begin(row,
                       padded_prompt(after_bos(special_, prompts_[next_]), Model::K, special_.pad, settings_.pad_left));
        return next_++;
    }

    void collect_rngs() {
        rngs_.clear();
        for (index_t const row : active_) {
            std::size_t const prompt = prompt_of_[static_cast<std::size_t>(row)];
            key const draws{settings_.seed, stream::generation,
                            settings_.prompt_number + static_cast<std::uint32_t>(prompt)};
            rngs_.push_back({row, {draws, results_[prompt].patches}});
        }
    }

    // Gives every text its patch; notes which texts continue and which rows are still in use.
    void append_patches(std::vector<sampling_cost> const& took) {
        continuing_.clear();
        next_active_.clear();
        next_patches_.clear();
        for (std::size_t i = 0; i < active_.size(); ++i) {
            index_t const row = active_[i];
            auto& prompt = prompt_of_[static_cast<std::size_t>(row)];
            auto const patch = std::span<token_id const>(patches_).subspan(i * K, K);
            auto& text = results_[prompt];
            auto const fresh = add_patch(text, patch, took[i], ends_, settings_.max_tokens);
            bool const wanted = fresh.empty() || notify(on_tokens_, prompt, fresh);
            if (wanted && !text.stopped_at_eos && static_cast<index_t>(text.tokens.size()) < settings_.max_tokens) {
                continuing_.push_back(row);
                next_patches_.insert(next_patches_.end(), patch.begin(), patch.end());
            } else if (next_ < prompts_.size()) {
                prompt = begin_next(row);
            } else {
                continue;
            }
            next_active_.push_back(row);
        }
    }

    context<Backend>& ctx_;
    Model const& model_;
    std::span<std::vector<token_id> const> prompts_;
    special_tokens const& special_;
    settings_type const& settings_;
    std::vector<token_id> ends_;
    OnTokens& on_tokens_;
    generation_session<Model, Backend> session_;
    sampler_cache<Backend> sampler_state_;
    std::vector<generation_result> results_;
    std::size_t next_ = 0;                // next prompt to begin
    std::vector<std::size_t> prompt_of_;  // per row
    std::vector<index_t> active_;         // rows of the session, in order
    std::vector<token_id> patches_;       // (active, K)
    std::vector<patch_rng> rngs_;
    std::vector<index_t> continuing_;     // rows whose text continues with its patch
    std::vector<index_t> next_active_;    // these, and rows whose next text has begun
    std::vector<token_id> next_patches_;  // (continuing_, K)
};

}  // namespace detail

// Continues every prompt (ids without BOS), each after its own BOS; results are in the order of the prompts. After each
// patch it calls on_tokens(index of the prompt, new tokens), which may return false to end the text. A text ends at
// EOS or another of settings.ends, which is dropped with the rest of its patch, or after exactly max_tokens; the next
// prompt then takes its row.
//
// Patch p of prompt i draws with number p of stream::generation at step prompt_number + i, for any round, at_once and
// (where D <= 128) threads. These change only how many rows a product has, and with it the order of additions and the
// last bits of sums.
template <class Model, class Backend, std::invocable<std::size_t, std::span<token_id const>> OnTokens>
std::vector<generation_result> generate(context<Backend>& ctx, Model const& model,
                                        std::span<std::vector<token_id> const> prompts, special_tokens const& special,
                                        settings_of_generation<rule_of<Model>> const& settings, OnTokens&& on_tokens) {
    require(settings.max_tokens >= 0 && settings.max_tokens <= limits::text_tokens && settings.at_once >= 1,
            errc::usage, "calm::generate: expected max_tokens from 0 to ", limits::text_tokens,
            " and at least 1 text at once, found ", settings.max_tokens, " and ", settings.at_once);
    if (settings.max_tokens == 0 || prompts.empty()) return std::vector<generation_result>(prompts.size());
    return detail::continuous_batching<Model, Backend, std::remove_reference_t<OnTokens>>(ctx, model, prompts, special,
                                                                                          settings, on_tokens)
        .run();
}

// Without on_tokens.
template <class Model, class Backend>
std::vector<generation_result> generate(context<Backend>& ctx, Model const& model,
                                        std::span<std::vector<token_id> const> prompts, special_tokens const& special,
                                        settings_of_generation<rule_of<Model>> const& settings) {
    return generate(ctx, model, prompts, special, settings, [](std::size_t, std::span<token_id const>) {});
}

// For one prompt, with on_tokens(new tokens).
template <class Model, class Backend, std::invocable<std::span<token_id const>> OnTokens>
generation_result generate(context<Backend>& ctx, Model const& model, std::span<token_id const> prompt,
                           special_tokens const& special, settings_of_generation<rule_of<Model>> const& settings,
                           OnTokens&& on_tokens) {
    std::vector<std::vector<token_id>> const prompts{{prompt.begin(), prompt.end()}};
    return generate(ctx, model, std::span(prompts), special, settings,
                    [&](std::size_t, std::span<token_id const> fresh) { return on_tokens(fresh); })
        .front();
}
// For one prompt, without on_tokens.
template <class Model, class Backend>
generation_result generate(context<Backend>& ctx, Model const& model, std::span<token_id const> prompt,
                           special_tokens const& special, settings_of_generation<rule_of<Model>> const& settings) {
    return generate(ctx, model, prompt, special, settings, [](std::span<token_id const>) {});
}

}  // namespace calm
