// Any bytes as plan.json: refused, or choices whose record reads back equal.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>

#include "calm/base/error.hpp"
#include "command/text_choices.hpp"
#include "file_in_memory.hpp"
#include "run/text_record.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    static calm::test::file_in_memory file(calm::apps::plan_file);
    auto const folder = std::filesystem::path(file.with(std::span(data, size))).parent_path().string();
    try {
        auto const read = calm::apps::read_text_record(folder);
        if (!read) std::abort();
        for (auto const* const record : {&read->given, &read->plan}) {
            auto const made = calm::apps::record_of(calm::apps::choices_of(*record, "fuzz"));
            if (made.size() > record->size()) std::abort();
            if (calm::apps::record_of(calm::apps::choices_of(made, "fuzz")) != made) std::abort();
        }
    } catch (calm::error const& wrong) {
        bool const usage = wrong.code() == calm::errc::usage;  // a holdout
        if (wrong.code() != calm::errc::model_file && !usage) std::abort();
    }
    return 0;
}
