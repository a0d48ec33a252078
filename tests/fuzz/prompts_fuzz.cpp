// Arbitrary bytes as lines of prompts: every line that is not blank gets one line of JSON as its answer.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "calm/base/detail/simdjson.hpp"
#include "text/batch.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    static calm::tokenizer const words;
    calm::apps::prompt_source in("input", std::string(reinterpret_cast<char const*>(data), size),
                                 calm::apps::longest_batch_line);
    std::size_t good = 0;
    auto const echoed = [&](std::span<std::vector<calm::token_id> const> prompts, std::uint32_t) {
        std::vector<calm::generation_result> made;
        for (auto const& prompt : prompts) made.push_back({.tokens = prompt});
        good += made.size();
        return made;
    };
    std::size_t answers = 0;
    simdjson::dom::parser parser;
    try {
        auto const count = calm::apps::answer_lines(in, words, 4, echoed, [&](std::string const& line) {
            ++answers;
            simdjson::dom::object answer;
            if (line.find('\n') != line.size() - 1 || parser.parse(line).get(answer)) std::abort();
        });
        if (answers != count.lines || good + count.bad != count.lines) std::abort();
    } catch (calm::error const& whole) {  // UTF-16 or UTF-32
        if (whole.code() != calm::errc::data) std::abort();
    }
    return 0;
}
