#pragma once
// Several processes generate texts together.

#include <functional>

#include "text/batch.hpp"
#include "text/text_messages.hpp"
#include "text/write_prompts.hpp"

namespace calm::apps {

// Runs program(write) and returns its status; `program` calls the `write` it receives for texts, which arrive in order.
// With several ranks only rank 0 runs it. Each call is split among all ranks by prompt number, and tokens are streamed
// only for rank 0's part. The outer `write` generates the texts of this process; a text depends on its prompt and
// number, not on the rank. Throws errc::distributed for messages beyond the limits.
int on_all_ranks(message_limits const& most, write_with_callback const& write,
                 std::function<int(write_with_callback const&)> const& program);

// The function without streaming of tokens.
write_texts without_callback(write_with_callback const& write);

}  // namespace calm::apps
