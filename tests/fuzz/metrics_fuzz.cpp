// Any bytes as metrics.jsonl: refused, or numbers by step.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "calm/base/error.hpp"
#include "run/metrics_lines.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    try {
        auto const read = calm::apps::read_metrics(std::string_view(reinterpret_cast<char const*>(data), size), "fuzz");
        if (read.steps.empty()) std::abort();
        for (auto const* const lines : {&read.steps, &read.evaluations})
            for (auto const& [step, line] : *lines)
                if (!std::isfinite(step) || line["step"] != step) std::abort();
    } catch (calm::error const& wrong) {
        if (wrong.code() != calm::errc::data || wrong.path() != "fuzz") std::abort();
    }
    return 0;
}
