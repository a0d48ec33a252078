#include "calm/text/packing.hpp"

#include <boost/test/unit_test.hpp>

#include <array>

#include "shared_data.hpp"
#include "support/sentences.hpp"

namespace {

constexpr calm::token_id bos = 256;
constexpr calm::token_id eos = 257;
constexpr calm::token_id pad = 258;
using ids = std::vector<calm::token_id>;

calm::corpus corpus_of(std::vector<std::string> const& documents) {
    calm::corpus made({bos, eos, pad});
    for (auto const& d : documents) made.add(ids(d.begin(), d.end()));
    return made;
}

}  // namespace

BOOST_AUTO_TEST_CASE(offsets_are_uniform_and_change_with_the_epoch) {
    for (std::size_t const K : {1U, 2U, 4U, 7U}) {
        calm::packing_rule const rule{.K = K, .seed = 11};
        std::array<int, 7> counts{};
        int const n = 20000;
        for (int i = 0; i < n; ++i) ++counts[rule.offset(0, static_cast<std::uint64_t>(i))];
        double chi_square = 0;
        for (std::size_t o = 0; o < K; ++o) {
            double const expected = static_cast<double>(n) / static_cast<double>(K);
            chi_square += (counts[o] - expected) * (counts[o] - expected) / expected;
        }
        BOOST_TEST(chi_square < 25.0);
        bool differs = K == 1;
        for (std::uint64_t i = 0; i < 20; ++i) differs |= rule.offset(0, i) != rule.offset(1, i);
        BOOST_TEST(differs);
    }
    calm::packing_rule const rule{.K = 4, .seed = 3};
    calm::key const k{3, calm::stream::alignment, 2};
    BOOST_TEST(rule.offset(2, 9) == calm::below(calm::philox(k, 9).v[0], 4));
}

BOOST_AUTO_TEST_CASE(padded_documents_are_whole_patches) {
    auto const documents = corpus_of({"abc", "", "defghij", "k"});
    calm::packing_rule const rule{.K = 4, .seed = 5};
    for (std::uint64_t epoch = 0; epoch < 20; ++epoch)
        for (std::size_t i = 0; i < documents.documents(); ++i) {
            ids out{1};
            rule.append(documents, epoch, i, out);
            out.erase(out.begin());
            std::size_t const o = rule.offset(epoch, i);
            auto const text = documents.document(i);
            BOOST_TEST(out.size() % 4 == 0U);
            BOOST_TEST(out.size() == rule.packed_size(text.size(), o));
            BOOST_TEST(out.size() < o + text.size() + 2 + 4);
            ids expected(o, pad);
            expected.push_back(bos);
            expected.insert(expected.end(), text.begin(), text.end());
            expected.push_back(eos);
            expected.resize(out.size(), pad);
            BOOST_TEST(out == expected);
        }
}

BOOST_AUTO_TEST_CASE(published_modes_pack_as_published) {
    auto const documents = corpus_of({"abc", "d"});
    BOOST_TEST(calm::packed_tokens(documents, {.mode = calm::packing::published_autoencoder, .K = 4}) ==
               (ids{bos, 'a', 'b', 'c', eos, pad, pad, pad, bos, 'd', eos, pad}));
    BOOST_TEST(calm::packed_tokens(documents, {.mode = calm::packing::published_language_model, .K = 4}) ==
               (ids{bos, 'a', 'b', 'c', bos, 'd'}));
}

BOOST_AUTO_TEST_CASE(evaluation_is_the_whole_blocks_in_order) {
    auto const documents = corpus_of({"abcdefghij", "klm", "nopqrstuvw"});
    calm::packing_rule const rule{.K = 2, .seed = 1};
    auto const all = calm::packed_tokens(documents, rule);
    auto const blocks = calm::evaluation_blocks(documents, rule, 8);
    BOOST_TEST(blocks.size() == all.size() / 8 * 8);
    BOOST_TEST(std::equal(blocks.begin(), blocks.end(), all.begin()));
    // Takes only as many documents as give enough tokens, but at least one block.
    BOOST_TEST((calm::evaluation_blocks(documents, rule, 4, 1) == ids(all.begin(), all.begin() + 12)));
    BOOST_TEST((calm::evaluation_blocks(documents, rule, 8, 13).size() == 16U));
    using calm::test::sentence_of;
    BOOST_TEST(sentence_of<calm::error>([&] {
                   (void)calm::evaluation_blocks(documents, rule, 64);
               }).find("has only 30 tokens when packed, but a block has 64") != std::string::npos);
    for (std::size_t const bad : {0U, 7U})
        BOOST_TEST(sentence_of<calm::error>([&] {
                       (void)calm::evaluation_blocks(documents, rule, bad);
                   }).find("not a whole number of patches of 2") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_mode_and_a_use_name_a_packing) {
    using calm::packed_for;
    using calm::packing;
    calm::special_tokens const specials{bos, eos, pad};
    calm::special_tokens const none{-1, -1, -1};
    for (auto const use : {packed_for::autoencoder, packed_for::language_model}) {
        BOOST_TEST((calm::packing_of("padded", use, specials) == packing::padded));
        BOOST_TEST((calm::packing_of("padded", use, none) == packing::unbroken));
        for (auto const* const mode : {"padded", "published"})
            BOOST_TEST(calm::mode_name(calm::packing_of(mode, use, specials)) == mode);
        BOOST_TEST(calm::mode_name(calm::packing_of("unbroken", use, none)) == "unbroken");
    }
    BOOST_TEST((calm::packing_of("published", packed_for::autoencoder, specials) == packing::published_autoencoder));
    BOOST_TEST(
        (calm::packing_of("published", packed_for::language_model, specials) == packing::published_language_model));
    using calm::test::sentence_of;
    for (auto const* const bad : {"pad", "", "unbroken"})
        BOOST_TEST(sentence_of<calm::error>([&] {
                       (void)calm::packing_of(bad, packed_for::autoencoder, specials);
                   }).find("padded") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(symbols_are_packed_unbroken) {
    calm::corpus symbols({-1, -1, -1});
    symbols.add(ids{5, 6, 7, 8, 9, 10, 11});
    calm::packing_rule const rule{.mode = calm::packing::unbroken, .K = 2};
    BOOST_TEST(calm::packed_tokens(symbols, rule, 3) == (ids{5, 6, 7, 8, 9, 10, 11}));
    BOOST_TEST(calm::evaluation_blocks(symbols, rule, 4) == (ids{5, 6, 7, 8}));
    using calm::test::sentence_of;
    auto const padded = [&] { (void)calm::evaluation_blocks(symbols, {.K = 2}, 4); };
    BOOST_TEST(sentence_of<calm::error>(padded).find("unbroken") != std::string::npos);
    auto const text = [&] { (void)calm::evaluation_blocks(corpus_of({"abcdef"}), rule, 4); };
    BOOST_TEST(sentence_of<calm::error>(text).find("unbroken") != std::string::npos);
}
