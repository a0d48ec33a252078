// Messages whose size and content another rank controls.

#include "calm/ranks/detail/message.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "calm/evaluate/distributed_evaluation.hpp"
#include "calm/ranks/thread_ranks.hpp"

#include "support/sentences.hpp"

using namespace calm;
using calm::test::distributed_sentence;
using calm::test::has;

namespace {

// The errors of a job of R ranks, and of each rank.
std::set<std::string> thrown_by(int R, std::function<void(process_group&)> const& f) {
    std::mutex together;
    std::set<std::string> all;
    try {
        on_ranks(R, [&](process_group& ranks) {
            try {
                f(ranks);
            } catch (error const& why) {
                std::scoped_lock const lock(together);
                all.insert(why.what());
            }
        });
    } catch (error const& why) {
        all.insert(why.what());
    }
    return all;
}
std::string only(std::set<std::string> const& all) {
    BOOST_TEST(all.size() == 1U);
    return all.empty() ? "nothing" : *all.begin();
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_message_is_read_as_it_was_written) {
    message_writer to;
    to.add(std::int64_t{-3});
    to.add_text("two\nlines");
    std::array<std::int32_t, 3> const three{7, 8, 9};
    to.add_all(std::span<std::int32_t const>(three));
    message_reader from(to.bytes(), "a message");
    BOOST_TEST(from.number<std::int64_t>("a number", -3, 0) == -3);
    BOOST_TEST(from.text("bytes") == "two\nlines");
    BOOST_TEST(!from.at_end());
    BOOST_TEST(from.numbers<std::int32_t>("ids", 3, 7, 9) == (std::vector<std::int32_t>{7, 8, 9}));
    from.require_end();
}

BOOST_AUTO_TEST_CASE(messages_are_validated) {
    message_writer to;
    to.add(std::uint64_t{1} << 62);
    auto const& bytes = to.bytes();
    auto const read = [&] { return message_reader(bytes, "the texts of rank 1"); };
    BOOST_TEST(has(distributed_sentence([&] { read().number<std::int64_t>("a number", 0, 7); }),
                   "the texts of rank 1: expected a number from 0 to 7, found 4611686018427387904; do all ranks"));
    BOOST_TEST(has(distributed_sentence([&] { read().text("bytes of a text"); }),
                   "expected bytes of a text from 0 to 0, found"));
    BOOST_TEST(has(distributed_sentence([&] { read().values<std::int32_t>("ids", 3); }),
                   "expected 3 of ids, found a message that ends after 8 bytes"));
    // Products of counts do not overflow.
    BOOST_TEST(has(distributed_sentence([&] { read().values<std::int64_t>("ids", (std::size_t{1} << 61) + 1); }),
                   "of ids, found"));
    BOOST_TEST(has(distributed_sentence([&] { read().numbers<std::int32_t>("ids", 2, 0, 9); }),
                   "expected ids from 0 to 9, found"));
    BOOST_TEST(has(distributed_sentence([&] { read().require_end(); }), "expected no more bytes, found 8"));
    BOOST_TEST(has(distributed_sentence([&] { static_cast<void>(detail::settings_in(read())); }),
                   "the texts of rank 1: expected"));
}

BOOST_AUTO_TEST_CASE(sizes_that_wrap_or_are_too_large_take_no_memory) {
    constexpr auto huge = std::numeric_limits<std::uint64_t>::max();
    for (auto const& sizes : {std::vector<std::uint64_t>{huge - 63, 64}, {64, huge - 63}, {101}, {0, huge}})
        BOOST_TEST(has(distributed_sentence([&] { messages(sizes, 100); }),
                       "expected a message of at most 100 bytes, found one of"));
    BOOST_TEST(has(distributed_sentence([&] {
                       messages(std::vector<std::uint64_t>{60, 50}, 100, 100);
                   }),
                   "rank 1: expected"));
    messages const all(std::vector<std::uint64_t>{60, 0, 40}, 100, 100);
    BOOST_TEST(all.ranks() == 3);
    BOOST_TEST(all.of(2).size() == 40U);
    // As sent by a rank that lies.
    auto const lied = thrown_by(2, [](process_group& ranks) {
        if (ranks.is_first()) {
            gather_messages(ranks, {}, 100);
        } else {
            std::vector<std::uint64_t> sizes(2);
            std::uint64_t const size = huge - 63;
            ranks.all_gather(std::span(&size, 1), std::span(sizes));
        }
    });
    BOOST_TEST(has(only(lied), "rank 1: expected a message of at most 100 bytes, found one of 18446744073709551552"));
    auto const text = thrown_by(2, [](process_group& ranks) {
        if (ranks.is_first())
            ranks.broadcast(std::uint64_t{1} << 60);
        else
            ranks.broadcast_text("");
    });
    BOOST_TEST(has(only(text), "rank 0: expected a text of at most 67108864 bytes, found one of"));
}

BOOST_AUTO_TEST_CASE(gather_and_broadcast_deliver_the_bytes) {
    auto const none = thrown_by(3, [](process_group& ranks) {
        std::string const own(static_cast<std::size_t>(ranks.rank()) * 3, static_cast<char>('a' + ranks.rank()));
        auto const all = gather_messages(ranks, std::as_bytes(std::span(own)), 6);
        auto const first = broadcast_message(ranks, all.of(2), 6);
        for (int r = 0; r < 3; ++r) {
            message_reader from = all.read(r, "letters");
            for (char const c : from.values<char>("letters", static_cast<std::size_t>(r) * 3))
                if (c != 'a' + r) throw error(errc::usage, "other letters");
            from.require_end();
        }
        if (first.size() != 6) throw error(errc::usage, "another size");
    });
    BOOST_TEST(none.empty());
}

BOOST_AUTO_TEST_CASE(every_rank_reports_the_same_difference) {
    auto const heard = [](std::function<std::vector<setting>(int)> const& of) {
        return thrown_by(4, [&](process_group& ranks) { require_same_settings(ranks, of(ranks.rank())); });
    };
    BOOST_TEST(heard([](int) { return std::vector<setting>{{"--seed", "1"}, {"--holdout", ""}}; }).empty());
    BOOST_TEST(
        only(heard([](int r) {
            return std::vector<setting>{{"--seed", "1"}, {"--temperature", r < 2 ? "1" : "1/" + std::to_string(r)}};
        })) == "--temperature: rank 2 has '1/2', rank 0 has '1': give all ranks the same command, variables and "
               "files");
    BOOST_TEST(has(only(heard([](int r) {
                       return r == 3 ? std::vector<setting>{{"a", "1"}, {"b", "2"}} : std::vector<setting>{{"a", "1"}};
                   })),
                   "b: rank 3 has '2', rank 0 has none"));
    BOOST_TEST(has(only(heard([](int r) {
                       return r == 1 ? std::vector<setting>{} : std::vector<setting>{{"a", "\x1b[31m"}};
                   })),
                   "a: rank 1 has none, rank 0 has '\\x1b[31m'"));
    // Long values are shortened to the part that differs.
    auto const path = [](int r) { return std::string(5000, 'x') + std::to_string(r); };
    BOOST_TEST(has(only(heard([&](int r) {
                       return std::vector<setting>{{"--data", path(r / 2)}};
                   })),
                   "--data: rank 2 has '...xxxxxxxxxxxxxxxxxxxx1', rank 0 has '...xxxxxxxxxxxxxxxxxxxx0'"));
}

// A rank that is still working on its pieces learns that another one failed.
BOOST_AUTO_TEST_CASE(a_failure_is_noticed_between_pieces) {
    auto const heard = thrown_by(2, [](process_group& ranks) {
        if (!ranks.is_first()) {
            error const why(errc::data, "text.txt", "line 3", "is damaged");
            ranks.fail(why);
            throw why;
        }
        auto const end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        for (index_t piece = 0; std::chrono::steady_clock::now() < end; ++piece)
            static_cast<void>(detail::is_done_here(&ranks, piece));
    });
    BOOST_TEST(heard.count("rank 1: text.txt, line 3: is damaged") == 1U);
}
