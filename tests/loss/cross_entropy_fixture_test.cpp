#include "calm/loss/cross_entropy.hpp"
#include "support/models.hpp"

using namespace calm;
using namespace calm::test;

namespace {

template <index_t D> void agrees_with_the_oracle(char const* variant) {
    fixture const f(variant, "vocabulary");
    BOOST_TEST_REQUIRE(f.size("D") == D);
    context<> ctx(1, 2);
    auto const x = f.floats("in/x");
    auto const table = f.floats("in/embedding");
    auto const targets = f.integers<token_id>("in/targets");
    auto const rows = static_cast<index_t>(targets.size());
    std::vector<float> loss(targets.size()), dx(x.size()), dtable(table.size());
    cross_entropy(ctx, vector_view<float>(loss.data(), extents<dyn>(rows)),
                  matrix_view<float, D>(dx.data(), extents<dyn, D>(rows)),
                  matrix_view<float, D>(dtable.data(), extents<dyn, D>(f.size("V"))), as_rows<float, D>(x),
                  as_rows<float, D>(table), as_vector(targets), 1.0 / static_cast<double>(rows));
    double total = 0;
    for (float const l : loss) total += static_cast<double>(l);
    BOOST_TEST(total / static_cast<double>(rows) == f.scalar("out/loss"), boost::test_tools::tolerance(1e-5));
    BOOST_TEST(close(dx, f.floats("grad/x"), kind::gradient));
    BOOST_TEST(close(dtable, f.floats("grad/embedding"), kind::gradient));

    std::vector<token_id> best(targets.size());
    argmax_token(ctx, vector_view<token_id>(best.data(), extents<dyn>(rows)), as_rows<float, D>(x),
                 as_rows<float, D>(table));
    BOOST_TEST(best == f.integers<token_id>("out/argmax"), boost::test_tools::per_element());  // row 3: a tie of three
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_vocabulary_of_base, *with_fixtures) {
    agrees_with_the_oracle<32>("base");
}
BOOST_AUTO_TEST_CASE(the_vocabulary_of_two, *with_fixtures) {
    agrees_with_the_oracle<24>("two");
}
