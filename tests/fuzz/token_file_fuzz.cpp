// Any bytes as a token file: refused, or all its entries are ids of the vocabulary. With an odd length, the checksums
// are made to match first, so that the checks after them are reached.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "calm/text/token_file.hpp"
#include "file_in_memory.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    static calm::test::file_in_memory file("a.calm-tokens");
    constexpr calm::token_id vocabulary = 300;
    std::vector<std::uint8_t> bytes(data, data + size);
    calm::token_file_facts facts;
    if (size % 2 == 1 && size > sizeof facts) {
        bytes.pop_back();
        calm::token_file_facts const ours;
        std::memcpy(&facts, bytes.data(), sizeof facts);
        facts.magic = ours.magic;
        facts.byte_order = ours.byte_order;
        facts.bytes_of_token = ours.bytes_of_token;
        calm::portion_sum sum;
        sum.add(std::as_bytes(std::span(bytes).subspan(sizeof facts)));
        facts.body = sum.value();
        facts.header = calm::detail::header_sum(facts);
        std::memcpy(bytes.data(), &facts, sizeof facts);
    }
    std::string why;
    auto const opened = calm::token_file::open(file.with(bytes), vocabulary, why);
    if ((opened == nullptr) == why.empty()) std::abort();
    if (!opened) return 0;
    std::size_t tokens = 0;
    for (std::size_t i = 0; i < opened->entries(); ++i)
        for (calm::token_id const id : opened->ids(i)) {
            if (id < 0 || id >= vocabulary) std::abort();
            ++tokens;
        }
    if (tokens != opened->facts().tokens) std::abort();
    return 0;
}
