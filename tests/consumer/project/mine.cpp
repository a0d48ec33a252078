// Uses the dependencies of the components text and io: PCRE2, simdjson, zlib, zstd and nlohmann-json.
#include <calm/io/safetensors.hpp>
#include <calm/text/documents.hpp>
#include <calm/text/tokenizer.hpp>

#include <simdjson.h>

#if !__has_include(<nlohmann/json.hpp>)
#error "calm::io brings nlohmann-json"
#endif

int main() {
    calm::tokenizer const words;
    bool const whole = words.decode(words.encode("two words")) == "two words";
    bool const inflates = ::ZSTD_versionNumber() > 0 && ::zlibVersion() != nullptr;
    return whole && inflates && simdjson::get_active_implementation() != nullptr ? 0 : 1;
}
