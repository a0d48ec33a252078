#include "calm/nn/kv_cache.hpp"

#include <boost/test/unit_test.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace calm;

namespace {

std::vector<float> positions(index_t count, float first) {
    std::vector<float> values;
    for (index_t i = 0; i < 3 * count; ++i) values.push_back(first + static_cast<float>(i));
    return values;
}

matrix_view<float const, 3> in_rows(std::vector<float> const& values) {
    return {values.data(), extents<dyn, 3>(static_cast<index_t>(values.size()) / 3)};
}

// Bytes of memory that the cache holds now.
std::size_t held_by(kv_cache<3> const& cache) {
    auto const page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::size_t held = 0;
    for (auto const* part : {&cache.keys, &cache.values}) {
        std::vector<unsigned char> there((static_cast<std::size_t>(part->extents().size()) * sizeof(float) + page - 1) /
                                         page);
        BOOST_REQUIRE(::mincore(const_cast<float*>(part->data()), there.size() * page, there.data()) == 0);
        held += page * static_cast<std::size_t>(
                           std::count_if(there.begin(), there.end(), [](unsigned char one) { return one % 2 == 1; }));
    }
    return held;
}

}  // namespace

BOOST_AUTO_TEST_CASE(sequences_grow_and_shrink_independently) {
    context<> ctx(1, 1);
    kv_cache<3> cache(2, 4);
    BOOST_TEST(cache.sequences() == 2);
    BOOST_TEST(cache.capacity() == 4);
    BOOST_TEST(cache.all() == (std::vector<index_t>{0, 1}), boost::test_tools::per_element());
    auto const add = [&](index_t sequence, index_t count, float first) {
        auto const k = positions(count, first);
        auto const v = positions(count, -first);
        cache.append(ctx, sequence, in_rows(k), in_rows(v));
    };
    add(1, 3, 10);
    add(0, 1, 50);
    BOOST_TEST(cache.lengths == (std::vector<index_t>{1, 3}), boost::test_tools::per_element());
    cache.truncate(1, 1);
    add(1, 2, 100);  // appended after the kept positions
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

BOOST_AUTO_TEST_CASE(a_full_cache_is_an_error_and_stays_valid) {
    context<> ctx(1, 1);
    kv_cache<3> cache(1, 2);
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
                   cache.append(ctx, 0, in_rows(three), in_rows(three));
               }).find("holds 2 positions, but 3 are needed; make it larger") != std::string::npos);
    BOOST_TEST(cache.length(0) == 0);
    BOOST_TEST(told([&] { cache.truncate(0, -1); }).find("at least 0, found -1") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(sequences_of_any_length_keep_their_contents) {
    context<> ctx(1, 1);
    constexpr index_t many = index_t{1} << 30;
    kv_cache<3> cache(2, many);
    BOOST_TEST(cache.capacity() == many);
    std::vector<float> first, second;
    for (index_t n = 0; n < 40; ++n) {
        auto const add = [&](index_t sequence, index_t count, std::vector<float>& all) {
            auto const k = positions(count, static_cast<float>(100 * n + 10'000 * sequence));
            auto v = k;
            for (float& x : v) x = -x;
            cache.append(ctx, sequence, in_rows(k), in_rows(v));
            all.insert(all.end(), k.begin(), k.end());
        };
        add(0, 5, first);
        add(1, n % 3, second);
    }
    auto const check = [&](index_t sequence, std::vector<float> const& want) {
        BOOST_REQUIRE(3 * cache.length(sequence) == static_cast<index_t>(want.size()));
        for (std::size_t i = 0; i < want.size(); ++i) {
            auto const at = sequence * cache.room() * 3 + static_cast<index_t>(i);
            BOOST_REQUIRE(cache.keys[at] == want[i]);
            BOOST_REQUIRE(cache.values[at] == -want[i]);
        }
    };
    check(0, first);
    check(1, second);
    // A capacity beyond all addresses is an error.
    BOOST_CHECK_EXCEPTION((kv_cache<3>(index_t{1} << 60, many)), error,
                          [](error const& e) { return e.code() == errc::memory; });
    BOOST_CHECK_EXCEPTION((kv_cache<3>(index_t{1} << 20, many)), error,
                          [](error const& e) { return e.code() == errc::memory; });
    BOOST_CHECK_EXCEPTION((kv_cache<3>(1, -1)), error, [](error const& e) { return e.code() == errc::memory; });
}

BOOST_AUTO_TEST_CASE(memory_is_proportional_to_the_length_of_each_sequence) {
    context<> ctx(1, 1);
    constexpr index_t sequences = 8, capacity = 100'000, filled = 20'000;
    kv_cache<3> cache(sequences, capacity);
    auto const bytes_of = [&](index_t positions) { return static_cast<std::size_t>(positions * 3) * sizeof(float); };
    // The sequence's own pages and few others, for keys and values.
    auto const near = [&](std::size_t held, index_t positions) {
        auto const page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
        return held >= 2 * bytes_of(positions) && held <= 2 * (bytes_of(positions) + 6 * page);
    };
    BOOST_TEST(held_by(cache) == 0u);
    auto const x = positions(filled, 1);
    cache.append(ctx, 3, in_rows(x), in_rows(x));
    BOOST_TEST(near(held_by(cache), filled), "found " << held_by(cache) << " bytes");
    auto const few = positions(100, 7);
    cache.append(ctx, 4, in_rows(few), in_rows(few));
    cache.append(ctx, 2, in_rows(few), in_rows(few));
    cache.release(3);
    BOOST_TEST(near(held_by(cache), 200), "found " << held_by(cache) << " bytes");
    BOOST_TEST(cache.length(3) == 0);
    // Its neighbours keep their contents, and its place serves another text.
    cache.append(ctx, 3, in_rows(few), in_rows(few));
    for (index_t const sequence : {2, 3, 4})
        for (std::size_t i = 0; i < few.size(); ++i)
            BOOST_REQUIRE(cache.keys[sequence * capacity * 3 + static_cast<index_t>(i)] == few[i]);
}
