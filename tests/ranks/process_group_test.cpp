#include "calm/ranks/process_group.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "calm/ranks/thread_ranks.hpp"

#include "support/sentences.hpp"

using namespace calm;
using calm::test::has;

namespace {

// Rank r's value of element i: its sums are rounded and depend on their order.
float term(int r, std::size_t i) {
    return 1.0F / static_cast<float>(3 + 7 * r + static_cast<int>(i % 101));
}

// The sum over ranks first .. first + n - 1 in the order of the tree.
float tree_sum(int first, int n, std::size_t i) {
    if (n == 1) return term(first, i);
    int half = 1;
    while (2 * half < n) half *= 2;
    return tree_sum(first, half, i) + tree_sum(first + half, n - half, i);
}

std::string what_comes_of(int ranks, std::function<void(process_group&)> const& f) {
    try {
        on_ranks(ranks, f);
    } catch (error const& problem) {
        return std::to_string(static_cast<int>(problem.code())) + " " + problem.what();
    }
    return "nothing";
}

}  // namespace

BOOST_AUTO_TEST_CASE(broadcast_and_gather_deliver_the_bytes) {
    for (int const R : {1, 2, 3, 4, 7}) {
        std::atomic<int> good = 0;
        on_ranks(R, [&](process_group& ranks) {
            int const r = ranks.rank();
            bool fine = ranks.ranks() == R && ranks.is_first() == (r == 0);
            for (int from = 0; from < R; ++from) {
                fine &= ranks.broadcast(100 + r, from) == 100 + from;
                fine &= ranks.broadcast_text(std::string(static_cast<std::size_t>(r), 'x'), from) ==
                        std::string(static_cast<std::size_t>(from), 'x');
            }
            std::vector<int> all(static_cast<std::size_t>(R));
            ranks.all_gather(std::span<int const>(&r, 1), std::span(all));
            for (int other = 0; other < R; ++other) fine &= all[static_cast<std::size_t>(other)] == other;
            // Rank r contributes r numbers, which are already in place.
            std::vector<std::size_t> starts{0};
            for (std::size_t n = 0; n < static_cast<std::size_t>(R); ++n) starts.push_back(starts.back() + n);
            std::vector<double> numbers(starts.back(), -1);
            auto const own =
                std::span(numbers).subspan(starts[static_cast<std::size_t>(r)], static_cast<std::size_t>(r));
            std::iota(own.begin(), own.end(), 10.0 * r);
            ranks.all_gather(std::span<double const>(own), std::span(numbers), starts);
            for (int n = 0; n < R; ++n)
                for (int i = 0; i < n; ++i)
                    fine &= numbers[starts[static_cast<std::size_t>(n)] + static_cast<std::size_t>(i)] == 10.0 * n + i;
            ranks.barrier();
            good += fine ? 1 : 0;
        });
        BOOST_TEST(good == R);
    }
}

BOOST_AUTO_TEST_CASE(sums_match_the_tree) {
    constexpr std::size_t n = 1000;
    for (int const R : {1, 2, 3, 4, 5, 8}) {
        std::vector<std::vector<float>> sums(static_cast<std::size_t>(R));
        on_ranks(R, [&](process_group& ranks) {
            // Rank d's shard has n + d elements.
            std::vector<std::vector<float>> own;
            std::vector<std::span<float>> parts;
            for (std::size_t d = 0; d < static_cast<std::size_t>(R); ++d) {
                own.emplace_back(n + d);
                for (std::size_t i = 0; i < own.back().size(); ++i) own.back()[i] = term(ranks.rank(), i + d);
            }
            for (auto& each : own) parts.emplace_back(each);
            std::vector<float> room(static_cast<std::size_t>(R) * (n + static_cast<std::size_t>(R)));
            ranks.reduce_scatter(std::span<std::span<float> const>(parts), std::span(room));
            sums[static_cast<std::size_t>(ranks.rank())] = own[static_cast<std::size_t>(ranks.rank())];
        });
        bool same = true;
        bool in_turn = true;
        for (int d = 0; d < R; ++d) {
            auto const& got = sums[static_cast<std::size_t>(d)];
            BOOST_TEST(got.size() == n + static_cast<std::size_t>(d));
            for (std::size_t i = 0; i < got.size(); ++i) {
                auto const at = i + static_cast<std::size_t>(d);
                float one_by_one = 0;
                for (int r = 0; r < R; ++r) one_by_one += term(r, at);
                same &= got[i] == tree_sum(0, R, at);
                in_turn &= got[i] == one_by_one;
            }
        }
        BOOST_TEST(same, R << " ranks");
        BOOST_TEST(in_turn == (R <= 3));
    }
}

// Any size, also below the number of ranks, and integers, whose sums are exact.
BOOST_AUTO_TEST_CASE(sums_of_all_are_the_same_on_all) {
    for (int const R : {1, 2, 3, 4, 5, 8}) {
        std::atomic<int> good = 0;
        on_ranks(R, [&](process_group& ranks) {
            bool fine = true;
            for (std::size_t const n : {0U, 1U, 3U, 8U, 1000U}) {
                std::vector<float> values(n);
                for (std::size_t i = 0; i < n; ++i) values[i] = term(ranks.rank(), i);
                auto const before = ranks.bytes_sent();
                ranks.all_reduce(std::span(values));
                for (std::size_t i = 0; i < n; ++i) fine &= values[i] == tree_sum(0, R, i);
                auto const count = static_cast<std::size_t>(R);
                if (n % count == 0) fine &= ranks.bytes_sent() - before == 2 * 4 * n / count * (count - 1);
            }
            std::array<std::int64_t, 2> counts{ranks.rank(), std::int64_t{1} << (40 + ranks.rank())};
            ranks.all_reduce(std::span<std::int64_t>(counts));
            fine &= counts[0] == R * (R - 1) / 2 && counts[1] == ((std::int64_t{1} << R) - 1) << 40;
            good += fine ? 1 : 0;
        });
        BOOST_TEST(good == R, R << " ranks");
    }
}

// Several exchanges in flight, whichever rank is ahead. Nothing else may be exchanged meanwhile.
BOOST_AUTO_TEST_CASE(exchanges_that_are_begun_end_in_their_order) {
    constexpr int many = 5;
    for (int const R : {1, 2, 3}) {
        std::atomic<int> good = 0;
        on_ranks(R, [&](process_group& ranks) {
            auto const count = static_cast<std::size_t>(R);
            int const r = ranks.rank();
            // sent[n][d]: to rank d in exchange n; places[n][s]: from rank s.
            std::vector<std::vector<int>> sent(many, std::vector<int>(count)),
                places(many, std::vector<int>(count, -1));
            bool fine = ranks.test_exchange();
            for (int n = 0; n < many; ++n) {
                auto const at = static_cast<std::size_t>(n);
                std::vector<process_group::sent> to;
                std::vector<process_group::received> from;
                for (std::size_t d = 0; d < count; ++d) {
                    sent[at][d] = 100 * n + 10 * r + static_cast<int>(d);
                    to.push_back(std::as_bytes(std::span(sent[at]).subspan(d, 1)));
                    from.push_back(std::as_writable_bytes(std::span(places[at]).subspan(d, 1)));
                }
                if (r == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
                ranks.start_exchange(to, from);
                fine &= ranks.in_flight() == n + 1;
            }
            try {
                ranks.barrier();
                fine = false;
            } catch (error const& why) {
                fine &= has(why.what(), "expected no exchange under way, found 5; call wait_exchange() first");
            }
            for (int n = 0; n < many; ++n) {
                while (n % 2 == 0 && !ranks.test_exchange()) std::this_thread::yield();
                ranks.wait_exchange();
                for (std::size_t s = 0; s < count; ++s)
                    fine &= static_cast<int>(s) == r ||
                            places[static_cast<std::size_t>(n)][s] == 100 * n + 10 * static_cast<int>(s) + r;
            }
            fine &= ranks.broadcast(r) == 0;
            good += fine ? 1 : 0;
        });
        BOOST_TEST(good == R, R << " ranks");
    }
    BOOST_TEST(has(what_comes_of(1, [](process_group& ranks) { ranks.wait_exchange(); }), "found none"));
}

BOOST_AUTO_TEST_CASE(the_failure_of_one_ends_all_by_its_name) {
    for (int const R : {2, 4}) {
        std::atomic<int> heard = 0;
        auto const came = what_comes_of(R, [&](process_group& ranks) {
            ranks.barrier();
            if (ranks.rank() == R - 1) throw error(errc::data, "no more text");
            try {
                ranks.barrier();
            } catch (error const& why) {
                heard += why.code() == errc::data && has(why.what(), "rank " + std::to_string(R - 1) + ": no more text")
                             ? 1
                             : 0;
                throw;
            }
        });
        BOOST_TEST(came == "4 no more text");
        BOOST_TEST(heard == R - 1);
    }
}

// One rank fails, or is silent, between the start and the end of an exchange; the other already waits for the end.
BOOST_AUTO_TEST_CASE(an_exchange_that_one_rank_never_finishes_ends) {
    std::array<int, 2> const sent{5, 6};
    std::array<std::array<int, 2>, 2> places{};
    auto const start = [&](process_group& ranks) {
        auto const r = static_cast<std::size_t>(ranks.rank());
        std::vector<process_group::sent> const to(2, std::as_bytes(std::span(&sent[r], 1)));
        std::vector<process_group::received> const from{std::as_writable_bytes(std::span(&places[r][0], 1)),
                                                        std::as_writable_bytes(std::span(&places[r][1], 1))};
        ranks.start_exchange(to, from);
    };
    auto const failed = what_comes_of(2, [&](process_group& ranks) {
        start(ranks);
        if (ranks.rank() == 0) return ranks.wait_exchange();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        throw error(errc::data, "no more text");
    });
    BOOST_TEST(failed == "4 no more text");
    std::atomic<bool> given_up = false;
    auto const silent = what_comes_of(2, [&](process_group& ranks) {
        ranks.timeout_active = true;
        ranks.timeout = 0.1;
        start(ranks);
        if (ranks.rank() == 1) {
            while (!given_up) std::this_thread::sleep_for(std::chrono::milliseconds(5));
            return;
        }
        try {
            ranks.wait_exchange();
        } catch (error const&) {
            given_up = true;
            throw;
        }
    });
    BOOST_TEST(has(silent, "9 rank 1 gave no answer for 0.1 s: expected one from each of 2 ranks"), silent);
    BOOST_TEST(has(silent, "run the same command again, with any number of ranks"), silent);
}

BOOST_AUTO_TEST_CASE(a_rank_that_does_not_answer_is_named_within_the_timeout) {
    using clock = std::chrono::steady_clock;
    std::array<std::atomic<double>, 3> waited = {-1, -1, -1};
    auto const came = what_comes_of(3, [&](process_group& ranks) {
        ranks.timeout_active = true;
        ranks.barrier();
        ranks.timeout = 4;  // the two that wait may be late themselves
        ranks.steps_done = 7;
        if (ranks.rank() == 1) {
            while (waited[0] < 0 || waited[2] < 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
            return;
        }
        auto const begun = clock::now();
        try {
            ranks.barrier();
        } catch (error const&) {
            waited[static_cast<std::size_t>(ranks.rank())] =
                std::chrono::duration<double>(clock::now() - begun).count();
            throw;
        }
    });
    BOOST_TEST(has(came, "9 rank 1 gave no answer for 4 s after step 7: expected one from each of 3 ranks"), came);
    BOOST_TEST(has(came, "the same command resumes from the last checkpoint, with any number of ranks"), came);
    double const longest = std::max(waited[0].load(), waited[2].load());
    BOOST_TEST(longest >= 4);  // on one of them; the other may hear of the failure earlier
}

BOOST_AUTO_TEST_CASE(before_work_others_are_waited_for) {
    auto const came = what_comes_of(2, [&](process_group& ranks) {
        ranks.timeout = 0.01;
        if (ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        ranks.barrier();
    });
    BOOST_TEST(came == "nothing");
}

BOOST_AUTO_TEST_CASE(ranks_with_different_settings_are_reported) {
    auto const came = what_comes_of(2, [&](process_group& ranks) {
        std::vector<int> all(ranks.rank() == 0 ? 2 : 4);
        std::vector<int> const own(all.size() / 2);
        ranks.all_gather(std::span<int const>(own), std::span(all));
    });
    BOOST_TEST(has(came, "do all ranks run the same program with the same options and files?"), came);
    BOOST_TEST(has(what_comes_of(2, [](process_group& ranks) { ranks.exchange({}, {}); }), "found 0 and 0"));
}
