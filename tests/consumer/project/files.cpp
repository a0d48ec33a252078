// What the components text and io provide: calm::calm, PCRE2, simdjson, zlib, zstd, nlohmann-json.
#include <calm/io/bounded_reader.hpp>
#include <calm/text/byte_stream.hpp>
#include <calm/text/pretokenizer.hpp>

#include <simdjson.h>

#if !__has_include(<nlohmann/json.hpp>)
#error "calm::io brings nlohmann-json"
#endif

int main() {
    int pieces = 0;
    calm::pretokenizer::shared()->cut("two words", [&](std::string_view) { ++pieces; });
    bool const inflates = ::ZSTD_versionNumber() > 0 && ::zlibVersion() != nullptr;
    return pieces == 2 && inflates && simdjson::get_active_implementation() != nullptr ? 0 : 1;
}
