// Arbitrary bytes as token files: refused, or documents with ids of the vocabulary. For an odd length the facts and
// their checksums are repaired first, so that the code after the checks is reached.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "calm/text/detail/token_file.hpp"
#include "file_in_memory.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    static calm::test::file_in_memory file("text.tokens");
    constexpr calm::token_id vocabulary = 300;
    std::vector<std::uint8_t> bytes(data, data + size);
    calm::token_file_facts facts;
    if (size % 2 == 1 && size > sizeof facts) {
        bytes.pop_back();
        calm::token_file_facts const ours;
        auto const body = std::span(bytes).first(bytes.size() - sizeof facts);
        std::memcpy(&facts, body.data() + body.size(), sizeof facts);
        facts.magic = ours.magic;
        facts.byte_order = ours.byte_order;
        facts.bytes_of_token = ours.bytes_of_token;
        calm::checksum sum;
        sum.add(std::as_bytes(body));
        facts.body = sum.value();
        facts.own = calm::detail::own_sum(facts);
        std::memcpy(body.data() + body.size(), &facts, sizeof facts);
    }
    std::string why;
    auto const opened = calm::token_file::open(file.with(bytes), vocabulary, why);
    if ((opened == nullptr) == why.empty()) std::abort();
    if (!opened) return 0;
    std::size_t tokens = 0;
    for (std::size_t i = 0; i < opened->documents(); ++i)
        for (calm::token_id const id : opened->ids(i)) {
            if (id < 0 || id >= vocabulary) std::abort();
            ++tokens;
        }
    if (tokens != opened->facts().tokens) std::abort();
    return 0;
}
