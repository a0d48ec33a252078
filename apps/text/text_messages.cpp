#include "text/text_messages.hpp"

#include <limits>
#include <utility>

namespace calm::apps {

namespace {

// Draws per text, above the limit of every sampler.
constexpr index_t most_draws = std::numeric_limits<index_t>::max() / 1024;

void add(message_writer& to, std::vector<token_id> const& ids) {
    to.add(static_cast<index_t>(ids.size()));
    to.add_all(std::span(ids));
}
std::vector<token_id> ids_in(message_reader& from, index_t most, index_t vocabulary) {
    auto const count = from.number<index_t>("a number of tokens", 0, most);
    return from.numbers<token_id>("token ids", static_cast<std::size_t>(count), 0,
                                  static_cast<token_id>(vocabulary - 1));
}
std::uint64_t bytes_of_ids(index_t count) {
    return sizeof(index_t) + static_cast<std::uint64_t>(count) * sizeof(token_id);
}

}  // namespace

std::vector<std::byte> message_of(prompt_lot const& lot) {
    message_writer to;
    to.add(static_cast<index_t>(lot.prompts.size()));
    to.add(lot.first);
    for (auto const& prompt : lot.prompts) add(to, prompt);
    return to.bytes();
}

prompt_lot prompt_lot_in(message_reader from, message_limits const& most) {
    auto const count = from.number<index_t>("a number of prompts", 0, index_t{prompt_lot::most});
    prompt_lot lot{{},
                   from.number<std::uint32_t>("the number of the first prompt", 0,
                                              std::numeric_limits<std::uint32_t>::max() - prompt_lot::most)};
    for (index_t i = 0; i < count; ++i) lot.prompts.push_back(ids_in(from, most.prompt_tokens, most.vocabulary));
    from.require_end();
    return lot;
}

std::uint64_t most_bytes_of_prompts(message_limits const& most) {
    return sizeof(index_t) + sizeof(std::uint32_t) + prompt_lot::most * bytes_of_ids(most.prompt_tokens);
}

std::vector<std::byte> message_of(std::span<generation_result const> texts) {
    message_writer to;
    for (auto const& text : texts) {
        add(to, text.tokens);
        to.add(static_cast<std::uint8_t>(text.stopped_at_eos ? 1 : 0));
        for (auto const count : {text.patches, text.draws, text.capped}) to.add(count);
    }
    return to.bytes();
}

std::vector<generation_result> texts_in(message_reader from, std::size_t count, message_limits const& most) {
    std::vector<generation_result> texts;
    for (std::size_t i = 0; i < count; ++i) {
        generation_result text;
        text.tokens = ids_in(from, most.new_tokens, most.vocabulary);
        text.stopped_at_eos = from.number<std::uint8_t>("an end at EOS", 0, 1) == 1;
        text.patches = from.number<index_t>("a number of patches", 0, most.new_tokens);
        text.draws = from.number<index_t>("a number of draws", 0, most_draws);
        text.capped = from.number<index_t>("a number of capped patches", 0, text.patches);
        texts.push_back(std::move(text));
    }
    from.require_end();
    return texts;
}

std::uint64_t most_bytes_of_texts(message_limits const& most) {
    return prompt_lot::most * (bytes_of_ids(most.new_tokens) + 1 + 3 * sizeof(index_t));
}

}  // namespace calm::apps
