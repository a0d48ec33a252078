// Arbitrary bytes as state.json: refused, or a record that is unchanged after a save and a load. As a directory's
// manifest they are accepted only if they equal the manifest computed from its files.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "calm/runs/checkpoint.hpp"
#include "calm/runs/detail/manifest.hpp"
#include "support/temporary_folder.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    std::string_view const text(reinterpret_cast<char const*>(data), size);
    try {
        auto const read = calm::parse_record(text, "fuzz");
        auto const again = calm::detail::state_text(read);
        if (calm::detail::state_text(calm::parse_record(again, "fuzz")) != again) std::abort();
    } catch (calm::error const& wrong) {
        if (wrong.code() != calm::errc::model_file || wrong.path() != "fuzz") std::abort();
    }

    static calm::test::temporary_folder const folder;
    static auto const whole = [] {
        static_cast<void>(folder.with("a", "content"));
        return calm::manifest_of(folder.path(""));
    }();
    static_cast<void>(folder.with(calm::manifest_file, text));
    if (calm::damage_of(folder.path("")).has_value() != (text != whole)) std::abort();
    return 0;
}
