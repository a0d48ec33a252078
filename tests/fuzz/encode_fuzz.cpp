// Arbitrary bytes as text, for all kinds of tokenizers: decoding restores them, and the merge algorithms for short and
// long pieces agree.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/text/bpe_trainer.hpp"
#include "calm/text/detail/bpe.hpp"
#include "calm/text/tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace {

void require_equal(bool equal) {
    if (!equal) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    static std::vector<std::string_view> const sample{
        "The cat sat on the mat, and the other cat sat on the other mat. She's sure it isn't 12345 shells!\n\n  abcabc",
        "caf\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98\x80\xf0\x9f\x98\x80 \xff\xff\xff\xff aaaaaaaaaaaaaaaa"};
    static calm::tokenizer const bytes;
    static calm::tokenizer const trained = calm::tokenizer::train(sample, 300);
    static calm::detail::token_table const table = [] {
        calm::bpe_trainer trainer;
        for (auto const text : sample) trainer.add(text);
        return trainer.train(40);
    }();
    std::string_view const text(reinterpret_cast<char const*>(data), size);
    for (auto const* words : {&bytes, &trained}) require_equal(words->decode(words->encode(text)) == text);

    std::string_view const piece = text.substr(0, 64);
    if (piece.empty()) return 0;
    calm::detail::bpe_merger merger(table, calm::detail::merge_rules{table});
    std::vector<calm::token_id> few;
    std::vector<calm::token_id> many;
    merger.merge_few(piece, few);
    merger.merge_many(piece, many);
    require_equal(few == many);
    return 0;
}
