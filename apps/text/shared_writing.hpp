#pragma once
// Texts that several processes write together.

#include <functional>

#include "text/batch.hpp"
#include "text/text_messages.hpp"
#include "text/write_prompts.hpp"

namespace calm::apps {

// program(write), which asks for texts, some at a time, and is given them in order; the status that it returns. Of
// several ranks rank 0 alone runs it: all of them write a part of each lot, cut by the numbers of the prompts, and only
// what rank 0 writes is told as it comes. `write` writes the texts of this process; a text follows from its prompt and
// its number, whoever writes it. What ranks send each other is within the limits, or an errc::distributed.
int on_all_ranks(message_limits const& most, write_and_tell const& write,
                 std::function<int(write_and_tell const&)> const& program);

// The same where nothing is told of a text before its end.
write_texts untold(write_and_tell const& write);

}  // namespace calm::apps
