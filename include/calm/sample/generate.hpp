#pragma once
/// \file
/// Continues prompts patch after patch, each from the hidden state of everything before it (CALM, inference). Sizes: K
/// tokens per patch.
/// \shows{tests/sample/generate_tokens_test.cpp,tokens_come_as_they_are_made_and_a_text_can_be_ended}

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "calm/model/detail/limits.hpp"
#include "calm/sample/text_batch.hpp"

namespace calm {

namespace detail {

// The answer of on_tokens, or true if it returns nothing.
template <class OnTokens> bool notify(OnTokens& on_tokens, std::size_t prompt, std::span<token_id const> fresh) {
    if constexpr (std::same_as<std::invoke_result_t<OnTokens&, std::size_t, std::span<token_id const>>, bool>)
        return on_tokens(prompt, fresh);
    else
        on_tokens(prompt, fresh);
    return true;
}

}  // namespace detail

/// Continues every prompt (ids without BOS), each after its own BOS; results are in the order of the prompts. After
/// each patch it calls on_tokens(index of the prompt, new tokens), which may return false to end the text; the span is
/// valid during the call. A text ends at EOS or another of settings.ends, which is dropped with the rest of its patch,
/// or after exactly max_tokens; the next prompt then takes its place.
///
/// Throws errc::usage for settings outside of their ranges or a prompt that needs BOS or PAD where the vocabulary has
/// none, errc::tokenizer for an id outside of the vocabulary, errc::non_finite, errc::memory, and the errors of
/// on_tokens.
///
/// Patch p of prompt i draws with number p of stream::generation at step prompt_number + i, for any round, at_once and
/// threads. On the cpu these change no bit; on a device they change how many rows a product has, and with it the order
/// of additions.
template <class Model, class Backend, std::invocable<std::size_t, std::span<token_id const>> OnTokens>
std::vector<generation_result> generate(context<Backend>& ctx, Model const& model,
                                        std::span<std::vector<token_id> const> prompts, special_tokens const& special,
                                        settings_of_generation<rule_of<Model>> const& settings, OnTokens&& on_tokens) {
    require(settings.max_tokens >= 0 && settings.max_tokens <= limits::text_tokens && settings.at_once >= 1,
            errc::usage, "calm::generate: expected max_tokens from 0 to ", limits::text_tokens,
            " and at least 1 text at once, found ", settings.max_tokens, " and ", settings.at_once);
    std::vector<generation_result> results(prompts.size());
    if (settings.max_tokens == 0 || prompts.empty()) return results;
    index_t longest = 0;
    for (auto const& prompt : prompts)
        longest = std::max(longest, patches_needed(special, prompt, settings.max_tokens, Model::K));
    text_batch<Model, Backend> batch(ctx, model, special, std::min(settings.at_once, std::ssize(prompts)), longest);
    std::vector<std::size_t> prompt_at(prompts.size());  // by slot of the batch
    std::size_t next = 0;
    while (next < prompts.size() || !batch.empty()) {
        for (; next < prompts.size() && batch.free_slots() > 0; ++next) {
            auto own = settings;
            own.prompt_number += static_cast<std::uint32_t>(next);
            prompt_at[static_cast<std::size_t>(batch.begin(prompts[next], own))] = next;
        }
        batch.step([&](index_t slot, generated_patch const& patch) {
            auto const prompt = prompt_at[static_cast<std::size_t>(slot)];
            bool const wanted = patch.fresh.empty() || detail::notify(on_tokens, prompt, patch.fresh);
            if (patch.last || !wanted) results[prompt] = std::move(batch.result(slot));
            return wanted;
        });
    }
    return results;
}

/// Without on_tokens.
template <class Model, class Backend>
std::vector<generation_result> generate(context<Backend>& ctx, Model const& model,
                                        std::span<std::vector<token_id> const> prompts, special_tokens const& special,
                                        settings_of_generation<rule_of<Model>> const& settings) {
    return generate(ctx, model, prompts, special, settings, [](std::size_t, std::span<token_id const>) {});
}

/// For one prompt, with on_tokens(new tokens).
template <class Model, class Backend, std::invocable<std::span<token_id const>> OnTokens>
generation_result generate(context<Backend>& ctx, Model const& model, std::span<token_id const> prompt,
                           special_tokens const& special, settings_of_generation<rule_of<Model>> const& settings,
                           OnTokens&& on_tokens) {
    std::vector<std::vector<token_id>> const prompts{{prompt.begin(), prompt.end()}};
    return generate(ctx, model, std::span(prompts), special, settings,
                    [&](std::size_t, std::span<token_id const> fresh) { return on_tokens(fresh); })
        .front();
}
/// For one prompt, without on_tokens.
template <class Model, class Backend>
generation_result generate(context<Backend>& ctx, Model const& model, std::span<token_id const> prompt,
                           special_tokens const& special, settings_of_generation<rule_of<Model>> const& settings) {
    return generate(ctx, model, prompt, special, settings, [](std::span<token_id const>) {});
}

}  // namespace calm
