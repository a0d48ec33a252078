#pragma once
// The one include of simdjson's DOM parser.

// simdjson's library selects the instruction set at run time. Without these lines the header also defines an unused
// parser for three instruction sets and takes half a second longer to compile.
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

// Parses a text, which is copied. simdjson needs a non-null pointer even for an empty text.
inline auto parse_json(simdjson::dom::parser& parser, std::string_view text) {
    return parser.parse(text.empty() ? "" : text.data(), text.size());
}

}  // namespace calm::detail
