#include "calm/nn/embedding.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {
std::vector<token_id> const tokens{4, 0, 10, 4, 4, 7};
vector_view<token_id const> ids() {
    return {tokens.data(), extents<dyn>(6)};
}
}  // namespace

BOOST_AUTO_TEST_CASE(gradients_by_the_complex_step) {
    prepared<embedding<3, double>, double> real(embedding<3, double>(11));
    prepared<embedding<3, complex>, complex> twin(embedding<3, complex>(11));
    auto const dy = draws<double>(18, 1);
    auto const s = real.model.forward(real.ctx, ids());
    real.model.backward(real.ctx, s, matrix_view<double const, 3>(dy.data(), extents<dyn, 3>(6)));
    check_slopes(
        "weight", real.params[0].grad, 33,
        [&](index_t i) {
            return complex_slope(twin.params[0].value[i], [&] {
                auto const t = twin.model.forward(twin.ctx, ids());
                complex total{};
                for (index_t j = 0; j < 18; ++j) total += t.y[j] * dy[static_cast<std::size_t>(j)];
                return total;
            });
        },
        33);
}

BOOST_AUTO_TEST_CASE(rows_of_the_table) {
    prepared<embedding<3>, float> p(embedding<3>(11));
    BOOST_TEST(p.model.vocabulary() == 11);
    auto const y = p.model.forward(p.ctx, ids()).y;
    for (index_t r = 0; r < 6; ++r)
        for (index_t j = 0; j < 3; ++j) BOOST_TEST(y[r * 3 + j] == p.params[0].value[ids()[r] * 3 + j]);
    auto const none = p.model.forward(p.ctx, {tokens.data(), extents<dyn>(0)}).y;
    BOOST_TEST(none.size() == 0);
}

BOOST_AUTO_TEST_CASE(unknown_tokens_are_errors) {
    prepared<embedding<3>, float> p(embedding<3>(10));
    BOOST_CHECK_EXCEPTION(p.model.forward(p.ctx, ids()), error,
                          says(errc::tokenizer, "token id 10", "vocabulary of 10"));
}
