#pragma once
// simdjson's DOM, the same for all who read JSON.

// Its parser chooses the instructions when the program runs, in the library. Without these lines its header also holds
// another parser, which is not used here, for three sets of instructions, and takes half a second longer to compile.
#ifndef SIMDJSON_IMPLEMENTATION_ICELAKE
#define SIMDJSON_IMPLEMENTATION_ICELAKE 0
#endif
#ifndef SIMDJSON_IMPLEMENTATION_HASWELL
// As above.
#define SIMDJSON_IMPLEMENTATION_HASWELL 0
#endif
#ifndef SIMDJSON_IMPLEMENTATION_WESTMERE
// As above.
#define SIMDJSON_IMPLEMENTATION_WESTMERE 0
#endif
#include <simdjson.h>

#include <string_view>

namespace calm::detail {

// Parses a text, which it copies. An empty text need not have an address, but simdjson wants one.
inline auto parse_json(simdjson::dom::parser& parser, std::string_view text) {
    return parser.parse(text.empty() ? "" : text.data(), text.size());
}

}  // namespace calm::detail
