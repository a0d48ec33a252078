#include "calm/loss/detail/draw_tokens.hpp"
#include "support/gradient_check.hpp"
#include "support/statistics.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr index_t D = 4, K = 3;

// Token 1 of patches of K, with N patches for each of R rows.
template <class T, class Backend> struct problem {
    numbers<T, Backend> x, table, uniforms;
    index_t R, V, N;
    problem(index_t rows, index_t vocabulary, index_t each) :
        x(draws<T, Backend>(rows * D, 1)), table(draws<T, Backend>(vocabulary * D, 2)),
        uniforms(static_cast<std::size_t>(rows * each * K)), R(rows), V(vocabulary), N(each) {
        std::uint64_t i = 0;
        for (T& u : uniforms) u = static_cast<T>(uniform({5, stream::evaluation, 0}, i++));
    }
    std::vector<token_id> run(context<Backend>& ctx) const {
        numbers<token_id, Backend> tokens(uniforms.size(), -1);
        draw_tokens(ctx, out_vector<Backend>(tokens), 1, in_rows<Backend, D>(x), in_rows<Backend, D>(table),
                    in_rows<Backend, K>(uniforms));
        BOOST_TEST(ctx.workspace.used() == 0U);
        return copied(tokens);
    }
    // The probabilities of row r, in double.
    [[nodiscard]] std::vector<double> distribution(index_t r) const {
        std::vector<double> p;
        double all = 0;
        for (index_t v = 0; v < V; ++v) {
            double logit = 0;
            for (index_t d = 0; d < D; ++d)
                logit += static_cast<double>(x[static_cast<std::size_t>(r * D + d)]) *
                         static_cast<double>(table[static_cast<std::size_t>(v * D + d)]);
            p.push_back(std::exp(logit));
            all += p.back();
        }
        for (double& q : p) q /= all;
        return p;
    }
};

}  // namespace

// The uniform number falls into the drawn token's part of [0, 1), up to the rounding of the part's ends.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_draw_is_where_its_number_falls, E, devices_and_blocks) {
    using T = typename E::scalar;
    double const slack = std::is_same_v<T, float> ? 2e-5 : 1e-12;
    for (auto const& [R, V, N] : {std::tuple<index_t, index_t, index_t>{0, 3, 2},
                                  {1, 1, 3},
                                  {5, 97, 8},
                                  {300, 40, 2},
                                  {2, 4096, 50},
                                  {2, 9000, 200}}) {
        context<typename E::backend> ctx(1, 2);
        problem<T, typename E::backend> const p(R, V, N);
        auto const tokens = p.run(ctx);
        for (index_t r = 0; r < R; ++r) {
            auto const distribution = p.distribution(r);
            for (index_t n = 0; n < N; ++n) {
                auto const at = static_cast<std::size_t>((r * N + n) * K);
                BOOST_TEST((tokens[at] == -1 && tokens[at + 2] == -1), "another token was drawn");
                BOOST_REQUIRE((tokens[at + 1] >= 0 && tokens[at + 1] < V));
                auto const u = static_cast<double>(p.uniforms[at + 1]);
                double below = 0;
                for (token_id v = 0; v < tokens[at + 1]; ++v) below += distribution[static_cast<std::size_t>(v)];
                BOOST_TEST(u >= below - slack);
                BOOST_TEST(u < below + distribution[static_cast<std::size_t>(tokens[at + 1])] + slack);
            }
        }
    }
}

// A correct sampler fails for one in a million seeds; the seed is fixed.
BOOST_AUTO_TEST_CASE_TEMPLATE(draws_have_the_law_of_the_softmax, E, devices_and_blocks) {
    context<typename E::backend> ctx(1, 2);
    problem<typename E::scalar, typename E::backend> const p(3, 17, 20000);
    auto const tokens = p.run(ctx);
    for (index_t r = 0; r < 3; ++r) {
        std::vector<std::int64_t> seen(17);
        for (index_t n = 0; n < p.N; ++n)
            ++seen[static_cast<std::size_t>(tokens[static_cast<std::size_t>((r * p.N + n) * K + 1)])];
        BOOST_TEST(p_value(p.distribution(r), seen) > 1e-6);
    }
}

// Also at the ends of [0, 1), and where the probabilities of most tokens round to 0.
BOOST_AUTO_TEST_CASE_TEMPLATE(no_draw_is_a_token_without_probability, E, devices_and_blocks) {
    using T = typename E::scalar;
    for (index_t const V : {300, 9000}) {
        context<typename E::backend> ctx(1, 2);
        problem<T, typename E::backend> p(1, V, 3);
        std::fill(p.x.begin(), p.x.end(), T(1));
        std::fill(p.table.begin(), p.table.end(), T(-2000));
        for (index_t const v : {index_t{7}, V / 2, V - 9})
            for (index_t d = 0; d < D; ++d) p.table[static_cast<std::size_t>(v * D + d)] = T(1);
        p.uniforms[1] = 0;
        p.uniforms[1 + K] = T(0.5);
        p.uniforms[1 + 2 * K] = T(1) - T(0x1p-24);
        auto const tokens = p.run(ctx);
        BOOST_TEST(tokens[1] == 7);
        BOOST_TEST(tokens[1 + K] == V / 2);
        BOOST_TEST(tokens[1 + 2 * K] == V - 9);
    }
}

BOOST_AUTO_TEST_CASE(sizes_that_do_not_fit_are_refused) {
    context<> ctx;
    problem<float, cpu> p(4, 5, 2);
    p.uniforms.resize(7 * K);
    BOOST_CHECK_EXCEPTION(p.run(ctx), error, says(errc::usage, "expected token 0 to 2", "found token 1, 4 rows"));
    p.uniforms.resize(8 * K);
    p.table.clear();
    BOOST_CHECK_EXCEPTION(p.run(ctx), error, says(errc::usage, "the vocabulary is empty"));
}
