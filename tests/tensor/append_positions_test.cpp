#include "calm/tensor/detail/ops/positions.hpp"

#include <boost/test/unit_test.hpp>

#include <vector>

#include "calm/tensor/core/tensor.hpp"
#include "support/sentences.hpp"

using namespace calm;

namespace {
using memory = tensor<float, extents<dyn, dyn, 2>>;  // one row per sequence

struct cache {
    memory keys{extents<dyn, dyn, 2>(2, 3)}, values{extents<dyn, dyn, 2>(2, 3)};

    // Appends keys 1, 2, .. and values that are their negatives.
    void append(std::vector<cached_sequence> const& to, index_t count) {
        context<> ctx;
        index_t const rows = count * static_cast<index_t>(to.size());
        std::vector<float> k, v;
        for (index_t i = 0; i < 2 * rows; ++i) k.push_back(static_cast<float>(i + 1)), v.push_back(-k.back());
        detail::append_positions(ctx, keys.view(), values, {k.data(), extents<dyn, 2>(rows)},
                                 {v.data(), extents<dyn, 2>(rows)}, to_device(ctx, std::span(to)));
    }
};
}  // namespace

BOOST_AUTO_TEST_CASE(positions_come_behind_those_of_their_sequence) {
    cache c;
    for (index_t i = 0; i < c.keys.size(); ++i) c.keys.data()[i] = c.values.data()[i] = 0;
    c.append({{.sequence = 1, .length = 1}, {.sequence = 0, .length = 2}}, 1);
    std::vector<float> const want{0, 0, 0, 0, 3, 4, 0, 0, 1, 2, 0, 0};
    for (std::size_t i = 0; i < want.size(); ++i) {
        BOOST_TEST(c.keys.data()[i] == want[i]);
        BOOST_TEST(c.values.data()[i] == -want[i]);
    }
}

BOOST_AUTO_TEST_CASE(a_sequence_without_room_is_refused) {
    BOOST_TEST(test::has(test::usage_sentence([] { cache().append({{.sequence = 0, .length = 2}}, 2); }),
                         "expected room for 4 positions of a sequence, found room for 3"));
}
