// Arbitrary bytes as a file of bigram counts: refused, or a valid frequency model that saves to the same bytes.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "calm/base/detail/file.hpp"
#include "calm/text/bigram.hpp"
#include "file_in_memory.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    static calm::test::file_in_memory file("bigram.counts");
    auto const& path = file.with(std::span(data, size));
    try {
        auto const table = calm::bigram_table::load(path);
        auto const last = table.vocabulary_size() - 1;
        if (!(table.probability(0) >= 0 && table.probability(0) <= 1)) std::abort();
        if (!(table.probability(last, 0) >= 0 && table.probability(last, 0) <= 1)) std::abort();
        calm::token_id const next[4] = {0, last, last, 0};
        for (double const score : table.bigram_brier(last, next))
            if (!(std::abs(score) <= 2)) std::abort();
        static auto const again = std::string(path) + ".again";
        table.save(again);
        if (calm::mapped_file::open(again).text() != calm::mapped_file::open(path).text()) std::abort();
    } catch (calm::error const& wrong) {
        if (wrong.code() != calm::errc::data || wrong.path() != path) std::abort();
    }
    return 0;
}
