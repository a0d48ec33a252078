#pragma once
// What the parts of a tokenizer hand over as they read a text.

#include <string_view>

#include "calm/base/detail/function_ref.hpp"
#include "calm/base/token.hpp"

namespace calm::detail {

// Receives text.
using text_callback = function_ref<void(std::string_view)>;
// Receives a part of a piece, and whether the piece ends with it.
using piece_part_callback = function_ref<void(std::string_view, bool)>;
// Receives an added token.
using added_token_callback = function_ref<void(token_id)>;

}  // namespace calm::detail
