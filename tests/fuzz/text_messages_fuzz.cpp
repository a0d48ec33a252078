// Any bytes as messages between ranks that generate together: refused, or prompts and texts within the limits.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "text/text_messages.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    using namespace calm::apps;
    constexpr message_limits most{300, 64, 40};
    constexpr std::size_t asked = 3;
    auto const bytes = std::as_bytes(std::span(data, size));
    auto const good = [&](std::vector<calm::token_id> const& ids, calm::index_t longest) {
        return std::ssize(ids) <= longest &&
               std::ranges::all_of(ids, [](calm::token_id id) { return id >= 0 && id < 300; });
    };
    try {
        auto const lot = prompt_lot_in({bytes, "fuzz"}, most);
        if (size > most_bytes_of_prompts(most) || lot.prompts.size() > prompt_lot::most) std::abort();
        for (auto const& prompt : lot.prompts)
            if (!good(prompt, most.prompt_tokens)) std::abort();
        if (!std::ranges::equal(message_of(lot), bytes)) std::abort();
    } catch (calm::error const& wrong) {
        if (wrong.code() != calm::errc::distributed) std::abort();
    }
    try {
        auto const texts = texts_in({bytes, "fuzz"}, asked, most);
        if (size > most_bytes_of_texts(most) || texts.size() != asked) std::abort();
        for (auto const& text : texts)
            if (!good(text.tokens, most.new_tokens) || text.patches < 0 || text.draws < 0 || text.capped < 0)
                std::abort();
        if (!std::ranges::equal(message_of(texts), bytes)) std::abort();
    } catch (calm::error const& wrong) {
        if (wrong.code() != calm::errc::distributed) std::abort();
    }
    return 0;
}
