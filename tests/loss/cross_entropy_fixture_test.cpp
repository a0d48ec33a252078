#include "calm/loss/cross_entropy.hpp"
#include "support/models.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

template <class Backend, index_t D> void agrees_with_the_reference(char const* variant) {
    fixture const f(variant, "vocabulary");
    BOOST_TEST_REQUIRE(f.size("D") == D);
    context<Backend> ctx(1, 2);
    auto const x = placed<Backend>(f.floats("in/x"));
    auto const table = placed<Backend>(f.floats("in/embedding"));
    auto const targets = placed<Backend>(f.integers<token_id>("in/targets"));
    auto const rows = static_cast<double>(targets.size());
    numbers<float, Backend> loss(targets.size()), dx(x.size()), dtable(table.size());
    auto const seen_x = in_rows<Backend, D>(x);
    auto const seen_table = in_rows<Backend, D>(table);
    cross_entropy(ctx, out_vector<Backend>(loss), out_rows<Backend, D>(dx), out_rows<Backend, D>(dtable), seen_x,
                  seen_table, in_vector<Backend>(targets), 1.0 / rows);
    double total = 0;
    for (float const l : loss) total += static_cast<double>(l);
    BOOST_TEST(total / rows == f.scalar("out/loss"), boost::test_tools::tolerance(1e-5));
    BOOST_TEST(close(copied(dx), f.floats("grad/x"), kind::gradient));
    BOOST_TEST(close(copied(dtable), f.floats("grad/embedding"), kind::gradient));

    numbers<token_id, Backend> best(targets.size());
    argmax_token(ctx, out_vector<Backend>(best), seen_x, seen_table);
    BOOST_TEST(copied(best) == f.integers<token_id>("out/argmax"),
               boost::test_tools::per_element());  // row 3: a tie of three
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_vocabulary_of_base) {
    agrees_with_the_reference<cpu, 32>("base");
    agrees_with_the_reference<emulated, 32>("base");
}
BOOST_AUTO_TEST_CASE(the_vocabulary_of_two) {
    agrees_with_the_reference<cpu, 24>("two");
    agrees_with_the_reference<emulated, 24>("two");
}
