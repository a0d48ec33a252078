// Any bytes as metrics.jsonl: refused, or lines by step number.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "calm/base/error.hpp"
#include "file_in_memory.hpp"
#include "run/metrics_lines.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    static calm::test::file_in_memory file("metrics.jsonl");
    auto const& path = file.with(std::span(data, size));
    try {
        auto const read = calm::apps::read_metrics(path);
        if (read.steps.empty()) std::abort();
        for (auto const* const lines : {&read.steps, &read.evaluations})
            for (auto const& [step, line] : *lines)
                if (!std::isfinite(step) || line["step"] != step) std::abort();
    } catch (calm::error const& wrong) {
        if (wrong.code() != calm::errc::data || wrong.path() != path) std::abort();
    }
    return 0;
}
