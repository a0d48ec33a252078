// Arbitrary bytes as a file of JSON lines: read or refused; skipping malformed lines keeps all the others.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/text/detail/text_file.hpp"
#include "file_in_memory.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    static calm::test::file_in_memory lines("a.jsonl");
    static calm::test::file_in_memory document("a.txt");
    constexpr calm::text_limits limits{.line = 200, .file = 1000};
    for (auto* const file : {&lines, &document}) {
        auto const& path = file->with(std::span(data, size));
        std::vector<std::string> strict, lenient;
        auto const into = [](std::vector<std::string>& all) {
            return [&all, document = std::string()](std::string_view part, bool ends) mutable {
                document += part;
                if (ends) all.push_back(std::exchange(document, {}));
            };
        };
        bool refused = false;
        try {
            calm::read_documents(path, limits, nullptr, into(strict));
        } catch (calm::error const& wrong) {
            refused = true;
            if (wrong.code() != calm::errc::data || wrong.path() != path) std::abort();
        }
        calm::skipped_documents skipped;
        calm::read_documents(path, limits, &skipped, into(lenient));
        if (refused != (skipped.count > 0) || lenient.size() < strict.size()) std::abort();
        for (std::size_t i = 0; i < lenient.size(); ++i) {
            if (calm::valid_prefix(lenient[i]) != lenient[i].size() || lenient[i].size() > limits.file) std::abort();
            if (i < strict.size() && strict[i] != lenient[i]) std::abort();
        }
    }
    return 0;
}
