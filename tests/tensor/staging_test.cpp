#include "calm/tensor/detail/device/staging.hpp"

#include <boost/test/unit_test.hpp>
#include <functional>
#include <numeric>
#include <vector>

namespace {

// A queue that copies as late as possible: when something waits.
struct late_queue {
    struct state {
        std::vector<std::function<void()>> asked;
        std::size_t done = 0;
        std::size_t marked[2] = {};
        int waits = 0;
    };
    state& s;

    void copy(void* dst, void const* src, std::size_t bytes) const {
        s.asked.push_back([=] { std::memcpy(dst, src, bytes); });
    }
    void mark(std::size_t room) const { s.marked[room] = s.asked.size(); }
    void wait(std::size_t room) const {
        ++s.waits;
        run(s.marked[room]);
    }
    void run(std::size_t end) const {
        for (; s.done < end; ++s.done) s.asked[s.done]();
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE(uploads_arrive_however_late_they_are_read) {
    constexpr std::size_t room = 256;
    std::vector<std::byte> memory(calm::detail::staging<room>::bytes);
    calm::detail::staging<room> staging(memory.data());
    late_queue::state state;
    late_queue const queue{state};
    std::vector<std::size_t> const sizes{0, 1, 63, 64, 65, 256, 1, 200, 1000, 257, 255, 512, 3};
    std::vector<std::vector<unsigned char>> expected;
    std::vector<std::vector<unsigned char>> got;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        expected.emplace_back(sizes[i]);
        std::iota(expected[i].begin(), expected[i].end(), static_cast<unsigned char>(17 * i));
        got.emplace_back(sizes[i]);
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        auto given = expected[i];
        staging.upload(queue, got[i].data(), given.data(), given.size());
        std::fill(given.begin(), given.end(), 0xEE);  // the source may change
    }
    queue.run(state.asked.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) BOOST_TEST(got[i] == expected[i], "upload " << i);
}

BOOST_AUTO_TEST_CASE(staging_that_fits_does_not_wait) {
    constexpr std::size_t room = 256;
    std::vector<std::byte> memory(calm::detail::staging<room>::bytes);
    calm::detail::staging<room> staging(memory.data());
    late_queue::state state;
    std::vector<unsigned char> there(room);
    std::vector<unsigned char> const here(room, 7);
    for (std::size_t at = 0; at < room; at += 64) staging.upload(late_queue{state}, there.data() + at, here.data(), 64);
    BOOST_TEST(state.waits == 0);
    BOOST_TEST(state.asked.size() == 4U);
    staging.upload(late_queue{state}, there.data(), here.data(), 1);  // the other buffer, which nothing reads
    BOOST_TEST(state.waits == 1);
    BOOST_TEST(state.done == 0U);
    staging.upload(late_queue{state}, there.data(), here.data(), room);  // the rest of it, and the first again
    BOOST_TEST(state.waits == 2);
    BOOST_TEST(state.done == 4U);
}
