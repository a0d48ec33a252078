#pragma once
// What ranks that generate texts together send each other, and how it is read: no rank believes another's numbers.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "calm/ranks/message.hpp"
#include "calm/sample/generate.hpp"

namespace calm::apps {

// What a message can hold at most.
struct message_limits {
    index_t vocabulary;     // ids lie below it
    index_t prompt_tokens;  // of a prompt
    index_t new_tokens;     // of a text
};

// Prompts that are continued together.
struct prompt_lot {
    static constexpr std::size_t most = 256;  // prompts

    std::vector<std::vector<token_id>> prompts;  // none: there are no more
    std::uint32_t first = 0;                     // the number of the first among all
};

std::vector<std::byte> message_of(prompt_lot const& lot);
// Throws errc::distributed.
prompt_lot prompt_lot_in(message_reader from, message_limits const& most);
// Bytes of such a message at most.
std::uint64_t most_bytes_of_prompts(message_limits const& most);

std::vector<std::byte> message_of(std::span<generation_result const> texts);
// As many texts as were asked for. Throws errc::distributed.
std::vector<generation_result> texts_in(message_reader from, std::size_t count, message_limits const& most);
// Bytes of such a message at most.
std::uint64_t most_bytes_of_texts(message_limits const& most);

}  // namespace calm::apps
