#include "calm/nn/kv_cache.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

using namespace calm;

namespace {

std::vector<float> positions(index_t count, float first) {
    std::vector<float> values;
    for (index_t i = 0; i < 3 * count; ++i) values.push_back(first + static_cast<float>(i));
    return values;
}

}  // namespace

BOOST_AUTO_TEST_CASE(sequences_grow_and_shrink_on_their_own) {
    context<> ctx(1, 1);
    kv_cache<float, 3> cache(2, 4);
    BOOST_TEST(cache.sequences() == 2);
    BOOST_TEST(cache.capacity() == 4);
    BOOST_TEST(cache.all() == (std::vector<index_t>{0, 1}), boost::test_tools::per_element());
    auto const add = [&](index_t sequence, index_t count, float first) {
        auto const k = positions(count, first);
        auto const v = positions(count, -first);
        cache.append(ctx, sequence, k.data(), v.data(), count);
    };
    add(1, 3, 10);
    add(0, 1, 50);
    BOOST_TEST(cache.lengths == (std::vector<index_t>{1, 3}), boost::test_tools::per_element());
    cache.truncate(1, 1);
    add(1, 2, 100);  // behind what was kept
    BOOST_TEST(cache.length(1) == 3);
    std::vector<float> const want{10, 11, 12, 100, 101, 102, 103, 104, 105};
    BOOST_TEST(std::vector<float>(cache.keys.data() + 12, cache.keys.data() + 21) == want,
               boost::test_tools::per_element());
    BOOST_TEST(cache.values[12 + 3] == -100.0F);
    BOOST_TEST(cache.keys[0] == 50.0F);
    cache.truncate(2);
    BOOST_TEST(cache.lengths == (std::vector<index_t>{1, 2}), boost::test_tools::per_element());
    cache.truncate(0);
    BOOST_TEST(cache.lengths == (std::vector<index_t>{0, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_full_cache_says_so_and_keeps_what_it_has) {
    context<> ctx(1, 1);
    kv_cache<float, 3> cache(1, 2);
    auto const three = positions(3, 1);
    auto const told = [](auto&& call) -> std::string {
        try {
            call();
        } catch (error const& e) {
            BOOST_TEST((e.code() == errc::usage));
            return e.what();
        }
        return "";
    };
    BOOST_TEST(told([&] {
                   cache.append(ctx, 0, three.data(), three.data(), 3);
               }).find("holds 2 positions, 3 were asked for; make it larger") != std::string::npos);
    BOOST_TEST(cache.length(0) == 0);
    BOOST_TEST(told([&] { cache.truncate(0, -1); }).find("at least 0, found -1") != std::string::npos);
}
