// Messages between ranks that generate texts together.

#include "text/text_messages.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/sentences.hpp"

using namespace calm;
using namespace calm::apps;
using calm::test::distributed_sentence;
using calm::test::has;

namespace {

constexpr message_limits most{300, 64, 40};

// Numbers in the format of a message.
std::vector<std::byte> words(std::vector<index_t> const& all) {
    message_writer to;
    to.add_all(std::span(all));
    return to.bytes();
}

}  // namespace

BOOST_AUTO_TEST_CASE(prompts_and_texts_arrive_as_they_are) {
    prompt_lot const lot{{{1, 2, 299}, {}, std::vector<token_id>(64, 7)}, 300};
    auto const bytes = message_of(lot);
    auto const came = prompt_lot_in({bytes, "prompts"}, most);
    BOOST_TEST((came.prompts == lot.prompts && came.first == 300));
    BOOST_TEST(bytes.size() <= most_bytes_of_prompts(most));

    std::vector<generation_result> const texts{{{5, 6, 7}, true, 3, 24, 1},
                                               {std::vector<token_id>(40, 299), false, 10, 10, 0}};
    auto const sent = message_of(texts);
    auto const found = texts_in({sent, "texts"}, 2, most);
    BOOST_TEST_REQUIRE(found.size() == 2U);
    for (std::size_t i = 0; i < 2; ++i)
        BOOST_TEST((found[i].tokens == texts[i].tokens && found[i].stopped_at_eos == texts[i].stopped_at_eos &&
                    found[i].patches == texts[i].patches && found[i].draws == texts[i].draws &&
                    found[i].capped == texts[i].capped));
    BOOST_TEST(sent.size() <= most_bytes_of_texts(most));
}

BOOST_AUTO_TEST_CASE(invalid_data_of_a_rank_is_refused) {
    std::vector<generation_result> const one{{{5, 6, 7}, true, 3, 24, 1}};
    auto const texts = [](std::vector<std::byte> const& bytes, std::size_t asked) {
        return distributed_sentence([&] { texts_in({bytes, "the texts of rank 1"}, asked, most); });
    };
    auto const good = message_of(one);
    BOOST_TEST(texts(good, 1) == "");
    // More texts than requested, fewer, and incomplete ones.
    BOOST_TEST(has(texts(message_of(std::vector(3, one[0])), 1), "the texts of rank 1: expected no more bytes, found"));
    BOOST_TEST(has(texts(good, 2), "found a message that ends after 0 bytes"));
    BOOST_TEST(has(texts({good.begin(), good.end() - 1}, 1), "found a message that ends after 7 bytes"));
    // More ids than present, more than a text may have, and a negative number.
    BOOST_TEST(has(texts(words({40, 0, 2, 2, 0, 97, 98}), 1), "expected 40 of token ids, found a message that ends"));
    BOOST_TEST(
        has(texts(words({1000, 0, 2, 2, 0, 97, 98}), 1), "expected a number of tokens from 0 to 40, found 1000"));
    BOOST_TEST(has(texts(words({-1}), 1), "expected a number of tokens from 0 to 40, found -1"));
    // Ids outside the vocabulary, and impossible counts.
    for (token_id const id : {-1, 300, std::numeric_limits<token_id>::min()})
        BOOST_TEST(has(texts(message_of(std::vector<generation_result>{{{id}, false, 1, 1, 0}}), 1),
                       "expected token ids from 0 to 299, found " + std::to_string(id)));
    BOOST_TEST(has(texts(message_of(std::vector<generation_result>{{{}, false, 41, 1, 0}}), 1), "a number of patches"));
    BOOST_TEST(has(texts(message_of(std::vector<generation_result>{{{}, false, 1, -1, 0}}), 1), "a number of draws"));
    BOOST_TEST(has(texts(message_of(std::vector<generation_result>{{{}, false, 1, 1, 2}}), 1), "capped patches"));

    auto const prompts = [](std::vector<std::byte> const& bytes) {
        return distributed_sentence([&] { prompt_lot_in({bytes, "the prompts of rank 0"}, most); });
    };
    BOOST_TEST(has(prompts(words({index_t{1} << 40, 0})), "expected a number of prompts from 0 to 256, found"));
    BOOST_TEST(has(prompts(message_of(prompt_lot{{std::vector<token_id>(65, 1)}, 0})), "from 0 to 64, found 65"));
    BOOST_TEST(has(prompts(message_of(prompt_lot{{{300}}, 0})), "expected token ids from 0 to 299, found 300"));
    BOOST_TEST(has(prompts(message_of(prompt_lot{{}, std::numeric_limits<std::uint32_t>::max()})), "the first prompt"));
}
