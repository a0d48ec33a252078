// Any bytes as lines of prompts: every line that is not blank has an answer, one line of JSON each.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "calm/base/simdjson.hpp"
#include "text/batch.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    static calm::tokenizer const words;
    std::istringstream in(std::string(reinterpret_cast<char const*>(data), size));
    std::size_t good = 0;
    auto const echoed = [&](std::span<std::vector<calm::token_id> const> prompts, std::uint32_t) {
        std::vector<calm::generation_result> made;
        for (auto const& prompt : prompts) made.push_back({.tokens = prompt});
        good += made.size();
        return made;
    };
    std::size_t answers = 0;
    simdjson::dom::parser parser;
    auto const count = calm::apps::answer_lines(in, words, 4, echoed, [&](std::string const& line) {
        ++answers;
        simdjson::dom::object answer;
        if (line.find('\n') != line.size() - 1 || parser.parse(line).get(answer)) std::abort();
    });
    if (answers != count.lines || good + count.bad != count.lines) std::abort();
    return 0;
}
