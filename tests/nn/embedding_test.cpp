#include "calm/nn/embedding.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {
std::vector<token_id> const tokens{4, 0, 10, 4, 4, 7};
vector_view<token_id const> ids() {
    return in_vector<cpu>(tokens);
}
}  // namespace

BOOST_AUTO_TEST_CASE(gradients_by_the_complex_step) {
    prepared<embedding<3, space<cpu, double>>, double> real(embedding<3, space<cpu, double>>(11));
    prepared<embedding<3, space<cpu, complex>>, complex> twin(embedding<3, space<cpu, complex>>(11));
    auto const dy = draws<double>(18, 1);
    auto const s = real.model.forward(real.ctx, ids());
    real.model.backward(real.ctx, s, matrix_view<double const, 3>(dy.data(), extents<dyn, 3>(6)));
    check_by_differences(
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

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_of_the_table_and_their_gradients, on, test_devices) {
    using T = typename on::scalar;
    using backend = typename on::backend;
    using layer = embedding<3, space<backend, T>>;
    auto const dy = draws<T, backend>(18, 1);
    auto const there = placed<backend>(tokens);
    std::vector<std::vector<T>> all;
    for (auto const order : {thread_order::ascending, thread_order::descending, thread_order::permuted}) {
        prepared<layer, T, backend> p(layer(11));
        p.ctx.order = order;
        BOOST_TEST(p.model.vocabulary() == 11);
        auto const s = p.model.forward(p.ctx, in_vector<backend>(there));
        for (index_t r = 0; r < 6; ++r)
            for (index_t j = 0; j < 3; ++j) BOOST_TEST(opened(s.y)[r * 3 + j] == p.params[0].value[ids()[r] * 3 + j]);
        p.model.backward(p.ctx, s, in_rows<backend, 3>(dy));
        all.push_back(copied(p.params[0].grad, 33));
        for (index_t i = 0; i < 33; ++i) {
            T want{};
            for (index_t r = 0; r < 6; ++r)
                if (ids()[r] == i / 3) want += dy[static_cast<std::size_t>(r * 3 + i % 3)];
            BOOST_TEST(all.back()[static_cast<std::size_t>(i)] == want);  // added in order
        }
        auto const none = p.model.forward(p.ctx, {there.data(), extents<dyn>(0)}).y;
        BOOST_TEST(none.size() == 0);
    }
    BOOST_CHECK((all[0] == all[1] && all[0] == all[2]));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(unknown_tokens_are_errors, on, test_devices) {
    using layer = embedding<3, space<typename on::backend, typename on::scalar>>;
    prepared<layer, typename on::scalar, typename on::backend> p(layer(10));
    auto const there = placed<typename on::backend>(tokens);
    BOOST_CHECK_EXCEPTION(p.model.forward(p.ctx, in_vector<typename on::backend>(there)), error,
                          says(errc::tokenizer, "token id 10", "vocabulary of 10"));
}
