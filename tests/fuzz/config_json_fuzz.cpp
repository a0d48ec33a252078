// Arbitrary bytes as config.json: refused, or written and read again with equal text.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "calm/io/detail/config_json.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    try {
        auto const read = calm::parse_config_json(std::string_view(reinterpret_cast<char const*>(data), size), "fuzz");
        auto const text = calm::config_json_text(read);
        if (calm::config_json_text(calm::parse_config_json(text, "fuzz")) != text) std::abort();
    } catch (calm::error const&) {
    }
    return 0;
}
