#include "calm/loss/cross_entropy.hpp"
#include "support/models.hpp"

using namespace calm;
using namespace calm::test;

namespace {

template <class Backend, index_t D> void agrees_with_the_oracle(char const* variant) {
    using matrix = matrix_view<float, D, Backend>;
    using const_matrix = matrix_view<float const, D, Backend>;
    fixture const f(variant, "vocabulary");
    BOOST_TEST_REQUIRE(f.size("D") == D);
    context<Backend> ctx(1, 2);
    auto const x = f.floats("in/x");
    auto const table = f.floats("in/embedding");
    auto const targets = f.integers<token_id>("in/targets");
    auto const rows = static_cast<index_t>(targets.size());
    std::vector<float> loss(targets.size()), dx(x.size()), dtable(table.size());
    extents<dyn, D> const shape(rows);
    extents<dyn, D> const vocabulary(f.size("V"));
    const_matrix const seen_x(x.data(), shape);
    const_matrix const seen_table(table.data(), vocabulary);
    cross_entropy(ctx, vector_view<float, dyn, Backend>(loss.data(), extents<dyn>(rows)), matrix(dx.data(), shape),
                  matrix(dtable.data(), vocabulary), seen_x, seen_table,
                  vector_view<token_id const, dyn, Backend>(targets.data(), extents<dyn>(rows)),
                  1.0 / static_cast<double>(rows));
    double total = 0;
    for (float const l : loss) total += static_cast<double>(l);
    BOOST_TEST(total / static_cast<double>(rows) == f.scalar("out/loss"), boost::test_tools::tolerance(1e-5));
    BOOST_TEST(close(dx, f.floats("grad/x"), kind::gradient));
    BOOST_TEST(close(dtable, f.floats("grad/embedding"), kind::gradient));

    std::vector<token_id> best(targets.size());
    argmax_token(ctx, vector_view<token_id, dyn, Backend>(best.data(), extents<dyn>(rows)), seen_x, seen_table);
    BOOST_TEST(best == f.integers<token_id>("out/argmax"), boost::test_tools::per_element());  // row 3: a tie of three
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_vocabulary_of_base, *with_fixtures) {
    agrees_with_the_oracle<cpu, 32>("base");
    agrees_with_the_oracle<blocks, 32>("base");
}
BOOST_AUTO_TEST_CASE(the_vocabulary_of_two, *with_fixtures) {
    agrees_with_the_oracle<cpu, 24>("two");
    agrees_with_the_oracle<blocks, 24>("two");
}
