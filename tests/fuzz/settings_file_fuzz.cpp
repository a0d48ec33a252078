// Arbitrary bytes as an options file in TOML and JSON: only settings and problems result. Quoting a value and parsing
// it again restores it.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "calm/base/detail/utf8.hpp"
#include "command/settings_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    std::string const text(reinterpret_cast<char const*>(data), size);
    for (auto const* const path : {"a.toml", "a.json"})
        for (auto const& each : calm::apps::parse_settings(text, path).settings) {
            if (!each.place.starts_with(path)) std::abort();
            for (auto const& value : each.values) {
                if (calm::valid_prefix(value) != value.size()) std::abort();
                auto const again = calm::apps::parse_settings("a = " + calm::apps::toml_string(value) + "\n", "a.toml");
                if (!again.problems.empty() || again.settings.at(0).values.at(0) != value) std::abort();
            }
        }
    return 0;
}
