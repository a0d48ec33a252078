#pragma once
// Messages between ranks that generate texts together. All received numbers are checked.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "calm/ranks/detail/message.hpp"
#include "calm/sample/generate.hpp"

namespace calm::apps {

// Upper limits of a message's content.
struct message_limits {
    index_t vocabulary;     // ids are below it
    index_t prompt_tokens;  // per prompt
    index_t new_tokens;     // per text
};

// Prompts that are continued together.
struct prompt_lot {
    static constexpr std::size_t most = 256;  // prompts

    std::vector<std::vector<token_id>> prompts;  // empty: no more prompts
    std::uint32_t first = 0;                     // number of the first prompt among all
};

std::vector<std::byte> message_of(prompt_lot const& lot);
// Throws errc::distributed for an invalid message.
prompt_lot prompt_lot_in(message_reader from, message_limits const& most);
// Size limit of the message in bytes.
std::uint64_t most_bytes_of_prompts(message_limits const& most);

std::vector<std::byte> message_of(std::span<generation_result const> texts);
// Expects `count` texts. Throws errc::distributed for an invalid message.
std::vector<generation_result> texts_in(message_reader from, std::size_t count, message_limits const& most);
// Size limit of the message in bytes.
std::uint64_t most_bytes_of_texts(message_limits const& most);

}  // namespace calm::apps
