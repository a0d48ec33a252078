#include "calm/nn/embedding.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {
std::vector<token_id> const tokens{4, 0, 10, 4, 4, 7};
template <class Backend = cpu> vector_view<token_id const, dyn, Backend> ids() {
    return {tokens.data(), extents<dyn>(6)};
}
}  // namespace

BOOST_AUTO_TEST_CASE(gradients_by_the_complex_step) {
    prepared<embedding<3, space<cpu, double>>, double> real(embedding<3, space<cpu, double>>(11));
    prepared<embedding<3, space<cpu, complex>>, complex> twin(embedding<3, space<cpu, complex>>(11));
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

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_of_the_table_and_their_gradients, on, executors) {
    using T = typename on::scalar;
    using backend = typename on::backend;
    using layer = embedding<3, space<backend, T>>;
    auto const dy = draws<T>(18, 1);
    std::vector<std::vector<T>> all;
    for (auto const order : {thread_order::ascending, thread_order::descending, thread_order::permuted}) {
        prepared<layer, T, backend> p(layer(11));
        p.ctx.order = order;
        BOOST_TEST(p.model.vocabulary() == 11);
        auto const s = p.model.forward(p.ctx, ids<backend>());
        for (index_t r = 0; r < 6; ++r)
            for (index_t j = 0; j < 3; ++j) BOOST_TEST(s.y[r * 3 + j] == p.params[0].value[ids()[r] * 3 + j]);
        p.model.backward(p.ctx, s, matrix_view<T const, 3, backend>(dy.data(), extents<dyn, 3>(6)));
        all.push_back(copied(p.params[0].grad, 33));
        for (index_t i = 0; i < 33; ++i) {
            T want{};
            for (index_t r = 0; r < 6; ++r)
                if (ids()[r] == i / 3) want += dy[static_cast<std::size_t>(r * 3 + i % 3)];
            BOOST_TEST(p.params[0].grad[i] == want);  // added in order
        }
        auto const none = p.model.forward(p.ctx, {tokens.data(), extents<dyn>(0)}).y;
        BOOST_TEST(none.size() == 0);
    }
    BOOST_CHECK((all[0] == all[1] && all[0] == all[2]));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(unknown_tokens_are_errors, on, executors) {
    using layer = embedding<3, space<typename on::backend, typename on::scalar>>;
    prepared<layer, typename on::scalar, typename on::backend> p(layer(10));
    BOOST_CHECK_EXCEPTION(p.model.forward(p.ctx, ids<typename on::backend>()), error,
                          says(errc::tokenizer, "token id 10", "vocabulary of 10"));
}
