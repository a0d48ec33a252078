#include "calm/sample/generation_session.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <span>
#include <vector>

#include "calm/base/error.hpp"
#include "support/untrained.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using model_type = untrained::model_type;
using session_type = generation_session<model_type>;
constexpr index_t K = model_type::K;

std::vector<token_id> patches(index_t count, token_id first) {
    std::vector<token_id> tokens;
    for (index_t i = 0; i < count * K; ++i) tokens.push_back(static_cast<token_id>((first + 7 * i) % 90));
    return tokens;
}

// The largest |a - b| / max(1, |b|) between row r of a and the first row of b.
double difference(session_type const& a, index_t r, session_type const& b) {
    double worst = 0;
    for (index_t i = 0; i < session_type::D; ++i) {
        auto const want = static_cast<double>(b.hidden()[i]);
        auto const got = static_cast<double>(a.hidden()[r * session_type::D + i]);
        worst = std::max(worst, std::abs(got - want) / std::max(1.0, std::abs(want)));
    }
    return worst;
}

}  // namespace

BOOST_AUTO_TEST_CASE(prompts_are_filled_to_whole_patches) {
    std::vector<token_id> const five{1, 2, 3, 4, 5};
    BOOST_TEST(padded_prompt(five, 4, 9, true) == (std::vector<token_id>{9, 9, 9, 1, 2, 3, 4, 5}));
    BOOST_TEST(padded_prompt(five, 4, 9, false) == (std::vector<token_id>{1, 2, 3, 4, 5, 9, 9, 9}));
    BOOST_TEST(padded_prompt(five, 5, 9, true) == five);
    BOOST_TEST(padded_prompt({}, 4, 9, true).empty());
}

BOOST_AUTO_TEST_CASE(a_row_of_a_batch_equals_the_single_row) {
    untrained const u;
    context<> ctx(1, 2);
    constexpr index_t B = 5;
    session_type together(ctx, u.model, B, 40);
    std::vector<session_type> alone;
    for (index_t b = 0; b < B; ++b) {
        auto const begun = patches(1 + 3 * b, static_cast<token_id>(b));
        together.begin(b, begun);
        alone.emplace_back(ctx, u.model, begun, 40 - 1 - 3 * b);
    }
    std::vector<index_t> active{0, 1, 2, 3, 4};
    for (index_t step = 0; step < 12; ++step) {
        if (step == 4) active = {4, 1, 3};  // in any order; the others have ended
        if (step == 6) {                    // a new text takes a place
            auto const begun = patches(2, 77);
            together.begin(0, begun);
            alone[0].begin(0, begun);
        }
        if (step == 8) active = {0, 4};
        std::vector<token_id> fresh;
        for (index_t const b : active) {
            auto const patch = patches(1, static_cast<token_id>(11 * step + b));
            alone[static_cast<std::size_t>(b)].append(patch);
            fresh.insert(fresh.end(), patch.begin(), patch.end());
        }
        together.append(active, fresh);
        for (index_t b = 0; b < B; ++b) {
            BOOST_TEST(difference(together, b, alone[static_cast<std::size_t>(b)]) < 1e-5);
            BOOST_TEST(together.length(b) == alone[static_cast<std::size_t>(b)].length(0));
        }
    }
    BOOST_TEST(ctx.saved.used() == 0u);
    BOOST_TEST(ctx.workspace.used() == 0u);
}

BOOST_AUTO_TEST_CASE(a_session_reports_unreadable_files) {
    untrained const u;
    context<> ctx(1, 1);
    using session = session_type;
    auto const code = [](auto&& call) {
        try {
            call();
        } catch (error const& e) {
            return static_cast<int>(e.code());
        }
        return 0;
    };
    std::vector<token_id> const three{1, 2, 3};
    std::vector<token_id> const four{1, 2, 3, 4};
    BOOST_TEST(code([&] { session(ctx, u.model, std::vector<token_id>{}, 1); }) == static_cast<int>(errc::usage));
    BOOST_TEST(code([&] { session(ctx, u.model, three, 1); }) == static_cast<int>(errc::usage));
    BOOST_TEST(code([&] {
                   session(ctx, u.model, std::vector<token_id>{1, 2, 3, 97}, 1);
               }) == static_cast<int>(errc::tokenizer));
    session s(ctx, u.model, four, 1);
    s.append(four);
    BOOST_TEST(code([&] { s.append(four); }) == static_cast<int>(errc::usage));
}
