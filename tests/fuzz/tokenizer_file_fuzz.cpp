// Arbitrary bytes as a tokenizer file: refused, or a tokenizer that restores every text, unless it normalizes text. If
// it can be written as lines, reading them gives an equal tokenizer.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "calm/text/load_tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    std::string_view const bytes(reinterpret_cast<char const*>(data), size);
    std::string text = "The cat isn't 12345 \xff\xe2\x80 caf\xc3\xa9\n\n abcabc zzz";
    text += bytes.substr(0, 200);
    try {
        auto const words = calm::parse_tokenizer(bytes, "fuzz");
        auto const restored = words.decode(words.encode(text));
        if (!words.normalizes() && restored != text) std::abort();
        std::string lines;
        try {
            lines = words.lines();
        } catch (calm::error const& e) {
            if (e.code() != calm::errc::usage) std::abort();
            return 0;
        }
        if (calm::parse_tokenizer(lines, "lines").encode(text) != words.encode(text)) std::abort();
    } catch (calm::error const&) {
    }
    return 0;
}
