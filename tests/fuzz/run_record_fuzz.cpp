// Any bytes as run.json and samples.jsonl of a resumed run: this call is added to the readable ones, and only whole
// lines of earlier steps stay.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>

#include "run/run_record.hpp"
#include "support/temporary_folder.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    static calm::test::temporary_folder const folder;
    std::string_view const bytes(reinterpret_cast<char const*>(data), size);
    static_cast<void>(folder.with(calm::apps::run_file, bytes));
    static_cast<void>(folder.with(calm::apps::samples_file, bytes));
    calm::apps::write_record(folder.path(""), {.options = "", .words = {"train"}}, 7);
    auto const record = nlohmann::json::parse(folder.content(calm::apps::run_file));
    if (record.at("calls").back().at("after_step") != 7) std::abort();
    calm::apps::samples_log(folder.path(""), 7).add(8, 1, "a", "b");
    std::istringstream lines(folder.content(calm::apps::samples_file));
    std::size_t count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
        auto const sample = nlohmann::json::parse(line);
        if (sample.at("step").get<calm::index_t>() > (lines.peek() < 0 ? 8 : 7)) std::abort();
    }
    if (count == 0) std::abort();
    return 0;
}
