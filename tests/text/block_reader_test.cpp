#include "calm/text/block_reader.hpp"

#include <boost/test/unit_test.hpp>

#include <map>

#include "shared_data.hpp"
#include "support/sentences.hpp"

namespace {

using ids = std::vector<calm::token_id>;

calm::corpus corpus_of(std::uint32_t n, std::uint64_t seed) {
    calm::corpus made({256, 257, 258});
    calm::random_sequence random({.seed = seed});
    for (std::uint32_t i = 0; i < n; ++i) {
        ids document(random.below(40));
        for (auto& id : document) id = static_cast<calm::token_id>(random.below(256));
        made.add(document);
    }
    return made;
}

// The expected ids by definition: pack the shuffled documents of an epoch, cut into blocks, drop the rest.
ids epoch_by_definition(calm::corpus const& documents, calm::packing_rule const& rule, std::size_t block,
                        std::uint64_t epoch) {
    ids all;
    for (std::size_t const i : calm::block_reader::order_of(documents.documents(), rule.seed, epoch))
        rule.append(documents, epoch, i, all);
    all.resize(all.size() / block * block);
    return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_epoch_has_its_own_permutation) {
    auto const first = calm::block_reader::order_of(50, 1, 0);
    auto sorted = first;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < 50; ++i) BOOST_TEST(sorted[i] == i);
    BOOST_TEST((first == calm::block_reader::order_of(50, 1, 0)));
    BOOST_TEST((first != calm::block_reader::order_of(50, 1, 1)));
    BOOST_TEST((first != calm::block_reader::order_of(50, 2, 0)));
    BOOST_TEST(calm::block_reader::order_of(0, 1, 0).empty());
    std::map<std::vector<std::size_t>, int> counts;
    for (std::uint64_t epoch = 0; epoch < 6000; ++epoch) ++counts[calm::block_reader::order_of(3, 1, epoch)];
    BOOST_TEST(counts.size() == 6U);
    double chi_square = 0;
    for (auto const& [order, count] : counts) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
    BOOST_TEST(chi_square < 25.0);
}

BOOST_AUTO_TEST_CASE(blocks_are_the_definition_epoch_after_epoch) {
    for (std::size_t const K : {1U, 2U, 4U})
        for (auto const mode :
             {calm::packing::padded, calm::packing::published_autoencoder, calm::packing::published_language_model}) {
            auto const documents = corpus_of(30, K);
            calm::packing_rule const rule{.mode = mode, .K = K, .seed = 9};
            calm::block_reader reader(documents, rule, 24);
            ids block(24);
            for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
                ids read;
                auto const expected = epoch_by_definition(documents, rule, 24, epoch);
                BOOST_TEST(reader.blocks_in(epoch) == expected.size() / 24);
                for (std::size_t i = 0; i < expected.size() / 24; ++i) {
                    reader.next(block);
                    BOOST_TEST((reader.position() == calm::block_position{epoch, i + 1}));
                    read.insert(read.end(), block.begin(), block.end());
                }
                BOOST_TEST(read == expected);
            }
        }
}

BOOST_AUTO_TEST_CASE(a_saved_position_restores_the_following_blocks) {
    auto const documents = corpus_of(25, 7);
    calm::packing_rule const rule{.K = 4, .seed = 2};
    calm::block_reader reader(documents, rule, 16);
    std::vector<calm::block_position> positions;
    std::vector<ids> blocks;
    for (int i = 0; i < 100; ++i) {
        positions.push_back(reader.position());
        blocks.emplace_back(16);
        reader.next(blocks.back());
    }
    BOOST_TEST(positions.back().epoch >= 1U);
    for (std::size_t i = 0; i < positions.size(); ++i) {
        calm::block_reader other(documents, rule, 16);
        other.seek(positions[i]);
        ids block(16);
        for (std::size_t j = i; j < std::min(i + 5, blocks.size()); ++j) {
            other.next(block);
            BOOST_TEST(block == blocks[j]);
        }
    }
    BOOST_TEST(calm::test::sentence_of<calm::error>([&] {
                   reader.seek({0, 10'000});
               }).find("has ") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(too_little_text_is_an_error) {
    auto const documents = corpus_of(2, 1);
    BOOST_TEST(calm::test::sentence_of<calm::error>([&] {
                   calm::block_reader(documents, {.K = 4}, 4096);
               }).find("give more text or choose shorter blocks") != std::string::npos);
    calm::block_reader reader(documents, {.K = 4}, 8);
    ids wrong(7);
    BOOST_CHECK_THROW(reader.next(wrong), calm::error);
    calm::corpus one({256, 257, 258});
    one.add(ids{1, 2, 3, 4, 5, 6});
    calm::block_reader exact(one, {.K = 4}, 8);  // one block per epoch, whatever the offset
    ids block(8);
    for (int i = 0; i < 50; ++i) exact.next(block);
    BOOST_TEST(exact.position().epoch >= 24U);
}
