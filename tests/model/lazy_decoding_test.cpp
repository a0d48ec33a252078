#include "calm/model/detail/lazy_decoding.hpp"

#include <boost/test/unit_test.hpp>

#include <set>

#include "support/untrained.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using ids = std::vector<token_id>;
constexpr token_id no = not_decoded;

ids sorted(ids x) {
    std::sort(x.begin(), x.end());
    return x;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_token_is_decoded_while_enough_of_the_group_agree) {
    ids const patches{5, no, no, 7, no, no, 5, no, no, 5, no, no, 5, 1, no};
    BOOST_TEST(undecided_patches(patches, 3, 0, {5, 1}).empty());
    BOOST_TEST(sorted(undecided_patches(patches, 3, 1, {5, 1})) == (ids{0, 1, 2, 3}), boost::test_tools::per_element());
    BOOST_TEST(sorted(undecided_patches(patches, 3, 1, {5, 2})) == (ids{0, 2, 3}), boost::test_tools::per_element());
    BOOST_TEST(undecided_patches(patches, 3, 1, {5, 5}).empty());
    // Groups of two: (5, 7), (5, 5), and 5 alone.
    BOOST_TEST(sorted(undecided_patches(patches, 3, 1, {2, 2})) == (ids{2, 3}), boost::test_tools::per_element());
    BOOST_TEST(undecided_patches(patches, 3, 2, {5, 2}).empty());
    BOOST_TEST(undecided_patches(patches, 3, 2, {5, 1}) == (ids{4}), boost::test_tools::per_element());
    BOOST_TEST(undecided_patches(ids{no, no}, 2, 0, {3, 3}).empty());
}

BOOST_AUTO_TEST_CASE(equal_patches_are_decoded_as_far_as_they_agree) {
    untrained const u;
    using model = untrained::model_type;
    constexpr auto K = static_cast<std::size_t>(model::K);
    constexpr index_t R = 60;
    context<> ctx(1, 1);
    tensor<float, extents<dyn, model::L>> z{extents<dyn, model::L>(R)};
    fill_normal(ctx, z.view(), key{3});
    // Some latents are repeated, some nearly.
    for (index_t r = 0; r + 3 < R; r += 4) copy(ctx, rows(z.view(), r + 1, 1), rows(z.view(), r, 1));
    for (index_t r = 2; r + 1 < R; r += 4)
        evaluate(ctx, rows(z.view(), r + 1, 1), rows(z.view(), r, 1) * 1.0 + rows(z.view(), r + 1, 1) * 0.2);
    auto const view_of = [](ids& x) {
        return vector_view<token_id, dyn>(x.data(), extents<dyn>(static_cast<index_t>(x.size())));
    };
    ids whole(R * K);
    u.model.ae_model.decode_tokens(ctx, view_of(whole), z.view());
    std::set<std::size_t> lengths;
    std::ptrdiff_t to_the_end = 0;  // additional tokens
    for (lazy_groups const groups : {lazy_groups{2, 2}, {3, 3}, {4, 2}, {60, 2}, {1, 1}, {7, 8}}) {
        ids some(R * K, no);
        u.model.ae_model.decode_lazily(ctx, std::span(some), z.view(), groups);
        for (std::size_t r = 0; r < R; ++r) {
            std::size_t const first = r / groups.size * groups.size;
            std::size_t known = 0;  // number of tokens to decode
            for (bool wanted = true; known < K; ++known) {
                std::size_t same = 0;
                for (std::size_t other = first; other < std::min<std::size_t>(R, first + groups.size); ++other)
                    same += std::equal(&whole[r * K], &whole[r * K] + known, &whole[other * K]) ? 1 : 0;
                wanted = same >= groups.least;
                if (!wanted) break;
            }
            lengths.insert(known);
            for (std::size_t k = 0; k < K; ++k)
                BOOST_TEST(some[r * K + k] == (k < known ? whole[r * K + k] : no), "patch " << r << ", token " << k);
        }
        // With `few`, a small number of patches is decoded to the end from the second token on; all others stop as
        // before.
        ids more(R * K, no);
        auto with_few = groups;
        with_few.few = 50;
        u.model.ae_model.decode_lazily(ctx, std::span(more), z.view(), with_few);
        for (std::size_t i = 0; i < R * K; ++i)
            BOOST_TEST(more[i] == (some[i] == no && more[i] == no ? no : whole[i]), "token " << i);
        to_the_end += std::count(some.begin(), some.end(), no) - std::count(more.begin(), more.end(), no);
        // The missing tokens can be decoded later.
        u.model.ae_model.decode_lazily(ctx, std::span(some), z.view(), {1, 1});
        BOOST_TEST(some == whole, boost::test_tools::per_element());
    }
    BOOST_TEST(lengths.size() > 2U);
    BOOST_TEST(to_the_end > 0);
    BOOST_TEST(ctx.saved.used() == 0U);
}
