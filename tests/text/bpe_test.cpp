#include "calm/text/detail/bpe.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "calm/base/random.hpp"
#include "calm/text/bpe_trainer.hpp"
#include "calm/text/detail/keyed_hash.hpp"
#include "calm/text/detail/merge_order.hpp"
#include "calm/text/detail/piece_counts.hpp"
#include "support/sanitized.hpp"

namespace {

using calm::token_id;

calm::detail::token_table all_bytes() {
    return calm::bpe_trainer().train(0);
}

// A vocabulary not made by merging: its ids follow no order, and some tokens are unreachable.
calm::detail::token_table random_tokens(calm::random_sequence& random, token_id size) {
    auto table = all_bytes();
    while (table.size() < 256 + size) {
        std::string token;
        for (std::uint32_t i = 2 + random.below(4); i > 0; --i) token += "abc"[random.below(3)];
        table.add(token);
    }
    return table;
}

std::string random_piece(calm::random_sequence& random, std::uint32_t longest) {
    std::string piece;
    for (std::uint32_t i = 1 + random.below(longest); i > 0; --i) piece += "abc"[random.below(3)];
    return piece;
}

// The definition, taken literally.
template <class Rules>
std::vector<token_id> by_definition(calm::detail::token_table const& table, Rules const& rules,
                                    std::string const& piece) {
    std::vector<token_id> ids;
    for (char const c : piece) ids.push_back(table.find(std::string(1, c)));
    while (true) {
        std::size_t best = ids.size();
        std::int32_t lowest = -1;
        for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
            auto const joined = std::string(table.bytes(ids[i])) + std::string(table.bytes(ids[i + 1]));
            auto const rank = rules.rank(ids[i], ids[i + 1], joined);
            if (rank >= 0 && (best == ids.size() || rank < lowest)) best = i, lowest = rank;
        }
        if (best == ids.size()) return ids;
        ids[best] = rules.merged(lowest);
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
}

template <class Rules>
void merges_as_defined(calm::detail::token_table const& table, Rules const& rules, std::string piece) {
    calm::detail::bpe_merger merger(table, rules);
    auto const expected = by_definition(table, rules, piece);
    std::vector<token_id> ids;
    merger.merge(piece, ids);
    BOOST_REQUIRE(ids == expected);
    ids.clear();
    merger.merge_many(piece, ids);
    BOOST_REQUIRE(ids == expected);
    merger.merge_many(piece, ids);  // its workspace is clean again
    BOOST_REQUIRE(ids.size() == 2 * expected.size());
    if (piece.size() > 64) return;
    ids.clear();
    merger.merge_few(piece, ids);
    BOOST_REQUIRE(ids == expected);
}

// The pair from which each token of a trained vocabulary is merged.
calm::detail::merge_list trained_merges(calm::detail::token_table const& table) {
    calm::detail::merge_list merges;
    for (token_id id = 256; id < table.size(); ++id) {
        calm::detail::token_table below;
        for (token_id i = 0; i < id; ++i) below.add(table.bytes(i));
        auto const parts = by_definition(below, calm::detail::merge_rules{below}, std::string(table.bytes(id)));
        BOOST_REQUIRE(parts.size() == 2);
        merges.add(parts[0], parts[1], id);
    }
    return merges;
}

calm::detail::token_table trained(calm::random_sequence& random, token_id merges) {
    calm::bpe_trainer trainer;
    for (int i = 0; i < 10; ++i) trainer.add(random_piece(random, 400));
    return trainer.train(merges);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_way_to_merge_is_the_definition) {
    calm::random_sequence random({.seed = 3});
    for (int round = 0; round < 60; ++round) {
        auto const table = round % 2 == 0 ? random_tokens(random, 40) : trained(random, 60);
        for (int i = 0; i < 20; ++i)
            merges_as_defined(table, calm::detail::merge_rules{table}, random_piece(random, i < 15 ? 64 : 200));
        calm::detail::merge_list list;  // any pairs that form tokens, in random order
        for (int i = 0; i < 2000; ++i) {
            auto const left = static_cast<token_id>(random.below(static_cast<std::uint32_t>(table.size())));
            auto const right = static_cast<token_id>(random.below(static_cast<std::uint32_t>(table.size())));
            auto const id = table.find(std::string(table.bytes(left)) + std::string(table.bytes(right)));
            if (id >= 0) list.add(left, right, id);
        }
        for (auto const* pair : {"ab", "bc", "ca", "aa", "cb"})
            if (auto const id = table.find(pair); id >= 0)
                list.add(table.find({pair, 1}), table.find({pair + 1, 1}), id);
        for (int i = 0; i < 20; ++i)
            merges_as_defined(table, calm::detail::merge_rules{table, &list}, random_piece(random, i < 15 ? 64 : 200));
    }
}

BOOST_AUTO_TEST_CASE(a_list_in_the_order_of_ids_is_known) {
    calm::random_sequence random({.seed = 4});
    for (int round = 0; round < 10; ++round) {
        auto const table = trained(random, 40);
        auto list = trained_merges(table);
        auto order = calm::detail::order_of(list, table);
        BOOST_TEST(order.by_id);
        BOOST_TEST(order.all_reached);
        // Without its last pair, or reordered, the list is not by id.
        calm::detail::merge_list shorter;
        calm::detail::merge_list turned;
        auto const size = static_cast<std::int32_t>(list.size());
        for (std::int32_t i = 0; i < size; ++i) {
            if (i + 1 < size) shorter.add(list.left(i), list.right(i), list.merged(i));
            std::int32_t const j = i < 2 ? 1 - i : i;
            turned.add(list.left(j), list.right(j), list.merged(j));
        }
        BOOST_TEST(!calm::detail::order_of(shorter, table).by_id);
        BOOST_TEST(!calm::detail::order_of(turned, table).by_id);
    }
}

// For any vocabulary, the list of all pairs ordered by merged token is by id. Any list that is reported as by id must
// merge that way.
BOOST_AUTO_TEST_CASE(a_list_called_by_id_merges_by_id) {
    calm::random_sequence random({.seed = 5});
    int kept = 0;
    int reached = 0;
    for (int round = 0; round < 600; ++round) {
        auto const table = random_tokens(random, 1 + static_cast<token_id>(random.below(12)));
        calm::detail::merge_list all;
        calm::detail::merge_list some;
        for (token_id id = 256; id < table.size(); ++id) {
            std::string const token(table.bytes(id));
            for (std::size_t cut = 1; cut < token.size(); ++cut) {
                auto const left = table.find(token.substr(0, cut));
                auto const right = table.find(token.substr(cut));
                if (left < 0 || right < 0) continue;
                all.add(left, right, id);
                if (random.below(8) > 0) some.add(left, right, id);
            }
        }
        BOOST_REQUIRE(calm::detail::order_of(all, table).by_id);
        for (auto const* list : {&all, &some}) {
            auto const order = calm::detail::order_of(*list, table);
            if (!order.by_id) continue;
            kept += list == &some;
            reached += order.all_reached;
            for (int i = 0; i < 20; ++i) {
                auto const piece = random_piece(random, 60);
                auto const expected = by_definition(table, calm::detail::merge_rules{table, &*list}, piece);
                BOOST_REQUIRE(by_definition(table, calm::detail::merge_rules{table}, piece) == expected);
            }
            for (token_id id = 256; id < table.size() && order.all_reached; ++id)
                BOOST_REQUIRE(
                    by_definition(table, calm::detail::merge_rules{table, &*list}, std::string(table.bytes(id)))
                        .size() == 1);
        }
    }
    BOOST_TEST(kept > 100);
    BOOST_TEST(kept < 500);
    BOOST_TEST(reached > 20);
}

BOOST_AUTO_TEST_CASE(hashes_are_siphash_1_3) {
    // Reference values of CPython 3.11: PYTHONHASHSEED=0 python3 -c 'print(hash(b"abc") % 2**64)'.
    calm::detail::keyed_hash const zero(0, 0);
    BOOST_TEST(zero("a") == 0x407448d2b89b1813U);
    BOOST_TEST(zero("ab") == 0x555508cbc6add439U);
    BOOST_TEST(zero("abc") == 0xc03bc3a0042630f2U);
    BOOST_TEST(zero("abcd") == 0xe3d1d5fdd52aae89U);
    BOOST_TEST(zero("abcdefg") == 0x6db12aae9070f506U);
    BOOST_TEST(zero("abcdefgh") == 0x3f7b849c0b8e35eaU);
    BOOST_TEST(zero(std::uint64_t{0x6867666564636261}) == zero("abcdefgh"));
    BOOST_TEST(zero("abcdefghi") == 0xf89b34a3d11eb6e5U);
    std::string hundred;
    for (char c = 0; c < 100; ++c) hundred += c;
    BOOST_TEST(zero(hundred) == 0x1c6a66e1506e7908U);
    BOOST_TEST(calm::detail::keyed_hash(1, 0)("abc") != zero("abc"));
    BOOST_TEST(calm::detail::keyed_hash(0, 1)("abc") != zero("abc"));
    BOOST_TEST(calm::detail::keyed_hash()("abc") == calm::detail::keyed_hash()("abc"));
    BOOST_TEST(calm::detail::keyed_hash()("abc") != zero("abc"));  // fails in one of 2^64 processes
}

namespace {

// The best of three CPU times of this process, so that other load does not count.
template <class Work> double seconds_of(Work const& work) {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
        auto const start = std::clock();
        work();
        best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    }
    return best;
}

std::string letters(std::size_t size, std::uint32_t of) {
    calm::random_sequence random({.seed = 6});
    std::string text;
    while (text.size() < size) text += static_cast<char>('a' + random.below(of));
    return text;
}

}  // namespace

// Words that collide in a table with an unkeyed multiply-and-fold hash.
BOOST_AUTO_TEST_CASE(tokens_that_collide_elsewhere_take_no_longer) {
    constexpr std::uint64_t odd = 0x9e3779b97f4a7c15U;
    auto const step = [](std::uint64_t hash, std::uint64_t word) {
        hash = (hash ^ word) * odd;
        return hash ^ hash >> 32;
    };
    std::vector<std::string> met, others;
    for (std::uint64_t i = 1; i <= 20'000; ++i) {
        std::uint64_t const first = i * odd;
        std::uint64_t const second = step(16, first);
        BOOST_REQUIRE(step(second, second ^ 7) == step(0, 7));
        auto const word = [](std::uint64_t value) { return std::string(reinterpret_cast<char const*>(&value), 8); };
        met.push_back(word(first) + word(second ^ 7));
        others.push_back(word(first) + word(i));
    }
    auto const seconds = [](std::vector<std::string> const& tokens) {
        return seconds_of([&] {
            auto table = all_bytes();
            for (auto const& token : tokens) table.add(token);
            BOOST_TEST(table.size() == 20'256);
        });
    };
    BOOST_TEST(seconds(met) < 8 * seconds(others) + 0.01);  // a thousand times slower with collisions
}

BOOST_AUTO_TEST_CASE(long_pieces_take_time_in_proportion) {
    auto const sample = letters(100'000, 26);
    calm::bpe_trainer trainer;
    trainer.add(sample);
    trainer.add(std::string(1 << 12, 'a'));
    auto const table = trainer.train(400);
    calm::detail::bpe_merger merger(table, calm::detail::merge_rules{table});
    std::size_t const most = std::size_t{1} << (calm::test::is_sanitized ? 17 : 20);
    for (auto const& text : {letters(most, 26), letters(most, 2), std::string(most, 'a')}) {
        auto const merging = [&](std::size_t size) {
            return seconds_of([&] {
                std::vector<token_id> ids;
                merger.merge(std::string_view(text).substr(0, size), ids);
                BOOST_TEST(ids.size() < size);
            });
        };
        // Linear: 16, and about four times that beyond the caches. Quadratic: 256.
        BOOST_TEST(merging(most) < 16 * 8 * merging(most / 16) + 0.01);
    }
    std::vector<token_id> ids;
    BOOST_CHECK_THROW(merger.merge(std::string(calm::detail::longest_piece + 1, 'a'), ids), calm::error);
}

BOOST_AUTO_TEST_CASE(learning_from_long_pieces_takes_time_in_proportion) {
    auto const learning = [](std::string const& text, std::size_t size) {
        return seconds_of([&] {
            calm::bpe_trainer trainer;
            trainer.add(std::string_view(text).substr(0, size));
            BOOST_TEST(trainer.train(300).size() > 256);
        });
    };
    std::size_t const most = std::size_t{1} << (calm::test::is_sanitized ? 16 : 18);
    for (auto const& text : {letters(most, 26), std::string(most, 'a')})
        BOOST_TEST(learning(text, most) < 64 * 8 * learning(text, most / 64) + 0.05);
}

BOOST_AUTO_TEST_CASE(the_rarest_pieces_are_forgotten_when_there_are_too_many) {
    calm::detail::piece_counts counts(40);
    for (auto const* piece : {"aaaa", "bbbb", "aaaa", "cccc", "bbbb", "aaaa", "x", "dddd"}) counts.add(piece);
    BOOST_TEST(counts.size() == 4U);
    BOOST_TEST(counts.bytes() == 16U);
    counts.add("01234567890123456789");
    BOOST_TEST(counts.size() == 5U);
    BOOST_TEST(counts.forgotten() == 0U);
    counts.add("eeeee");  // 41 bytes: pieces that occurred once are dropped
    BOOST_TEST(counts.forgotten() == 3U);
    BOOST_REQUIRE(counts.size() == 3U);
    BOOST_TEST(counts.piece(0) == "aaaa");
    BOOST_TEST(counts.count(0) == 3);
    BOOST_TEST(counts.piece(1) == "bbbb");
    BOOST_TEST(counts.count(1) == 2);
    BOOST_TEST(counts.piece(2) == "eeeee");
    BOOST_TEST(counts.count(2) == 1);
    // The limit holds whatever is added.
    calm::random_sequence random({.seed = 7});
    for (int i = 0; i < 2000; ++i) {
        counts.add(random_piece(random, 12));
        BOOST_REQUIRE(counts.bytes() <= 40U);
    }
}

BOOST_AUTO_TEST_CASE(many_places_take_time_in_proportion) {
    // Ranks that fall while other merges wait: each merge of "ab" makes "abc", which goes first.
    auto table = all_bytes();
    for (auto const* token : {"abca", "abc", "ab"}) table.add(token);
    calm::detail::bpe_merger merger(table, calm::detail::merge_rules{table});
    auto const seconds = [&](std::size_t size) {
        std::string piece;
        while (piece.size() < size) piece += "abc";
        std::vector<token_id> ids;
        double const best = seconds_of([&] {
            ids.clear();
            merger.merge(piece, ids);
        });
        BOOST_TEST(ids.size() < piece.size());
        return best;
    };
    double const one = seconds(std::size_t{1} << 14);
    BOOST_TEST(seconds(std::size_t{1} << 18) < 16 * 8 * one);  // linear: 16, quadratic: 256
}
