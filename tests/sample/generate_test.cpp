#include "calm/sample/generate.hpp"

#include <boost/test/unit_test.hpp>

#include <map>
#include <set>

#include "support/models.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using model_type = calm_model<base>;
constexpr index_t K = model_type::K;
constexpr special_tokens special{94, 95, 96};

// A model with random weights, wide enough that hidden states and noise decide the tokens.
struct untrained {
    arena<> values{"values"};
    model_type model{97};
    untrained() {
        allocate(model, values, static_cast<arena<>*>(nullptr));
        allocate(model.ae_model, values, static_cast<arena<>*>(nullptr));
        std::uint64_t first = 0;
        auto const draw = [&](std::string const&, auto& p) {
            std::span const all(p.value.data(), static_cast<std::size_t>(p.value.size()));
            normals(all.data(), p.value.size(), key{7, stream::initialise, 0}, first);
            first += all.size();
            for (auto& x : all) x = p.decays ? x * 0.4F : p.starts == role::gain ? 1 + x * 0.1F : x * 0.1F;
        };
        model.visit(draw);
        model.visit_autoencoder(draw);
    }
};

std::vector<token_id> const prompt{5, 17, 40, 3, 3, 88};

generation_settings at(index_t n, index_t pool, index_t max_tokens) {
    return {.sampler = {.n = n, .pool = pool}, .max_tokens = max_tokens};
}

generation_result run(model_type const& model, generation_settings const& settings, special_tokens const& s = special,
                      int threads = 2) {
    context<> ctx(3, threads);
    return generate(ctx, model, prompt, s, settings);
}

// A token that is at place i of the text for the first time, past the first patch and within one.
std::size_t new_token_of(std::vector<token_id> const& text) {
    std::set<token_id> seen;
    for (std::size_t i = 0; i < text.size(); ++i)
        if (seen.insert(text[i]).second && i > static_cast<std::size_t>(K) && i % static_cast<std::size_t>(K) == 1)
            return i;
    return 0;
}

}  // namespace

BOOST_AUTO_TEST_CASE(prompts_are_filled_to_whole_patches) {
    std::vector<token_id> const five{1, 2, 3, 4, 5};
    BOOST_TEST(padded_prompt(five, 4, 9, true) == (std::vector<token_id>{9, 9, 9, 1, 2, 3, 4, 5}));
    BOOST_TEST(padded_prompt(five, 4, 9, false) == (std::vector<token_id>{1, 2, 3, 4, 5, 9, 9, 9}));
    BOOST_TEST(padded_prompt(five, 5, 9, true) == five);
    BOOST_TEST(padded_prompt({}, 4, 9, true).empty());
}

BOOST_AUTO_TEST_CASE(the_same_seed_writes_the_same_text_at_any_number_of_threads) {
    untrained const u;
    for (auto const& settings : {at(1, 1, 30), at(2, 20, 30)}) {
        auto const one = run(u.model, settings, special, 1);
        auto const both = run(u.model, settings, special, 2);
        BOOST_TEST(one.tokens == both.tokens, boost::test_tools::per_element());
        BOOST_TEST(one.draws == both.draws);
        BOOST_TEST((std::set<token_id>(one.tokens.begin(), one.tokens.end()).size() > 1));
        auto other = settings;
        other.seed = 2;
        BOOST_TEST((run(u.model, other).tokens != one.tokens));
        other = settings;
        other.prompt_number = 1;
        BOOST_TEST((run(u.model, other).tokens != one.tokens));
        other = settings;
        other.pad_left = false;
        BOOST_TEST((run(u.model, other).tokens != one.tokens));
    }
}

BOOST_AUTO_TEST_CASE(a_text_has_exactly_the_requested_number_of_tokens) {
    untrained const u;
    special_tokens const never{94, -1, 96};
    auto const longest = run(u.model, at(1, 1, 2 * K + 1), never);
    for (index_t n = 0; n <= 2 * K + 1; ++n) {
        auto const r = run(u.model, at(1, 1, n), never);
        BOOST_TEST(static_cast<index_t>(r.tokens.size()) == n);
        BOOST_TEST(r.patches == (n + K - 1) / K);
        BOOST_TEST(r.draws == r.patches);
        BOOST_TEST(!r.stopped_at_eos);
        BOOST_TEST(std::equal(r.tokens.begin(), r.tokens.end(), longest.tokens.begin()));
    }
    BOOST_TEST(run(u.model, at(3, 20, 2 * K), never).draws == 40);
    BOOST_CHECK_THROW(run(u.model, at(1, 1, -1)), error);
}

BOOST_AUTO_TEST_CASE(a_text_ends_at_eos_and_drops_the_rest_of_its_patch) {
    untrained const u;
    auto const text = run(u.model, at(1, 1, 60), {94, -1, 96}).tokens;
    auto const place = new_token_of(text);
    BOOST_TEST_REQUIRE(place > 0u);
    special_tokens const ends{94, text[place], 96};
    auto const r = run(u.model, at(1, 1, 60), ends);
    BOOST_TEST(r.stopped_at_eos);
    BOOST_TEST(r.tokens == std::vector<token_id>(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(place)),
               boost::test_tools::per_element());
    BOOST_TEST(r.patches == static_cast<index_t>(place) / K + 1);
    // EOS beyond the last requested token of the same patch is never reached.
    auto const shorter = run(u.model, at(1, 1, static_cast<index_t>(place)), ends);
    BOOST_TEST(!shorter.stopped_at_eos);
    BOOST_TEST(shorter.tokens == r.tokens, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_patch_draws_its_noise_at_its_own_number) {
    untrained const u;
    context<> ctx(1, 2);
    special_tokens const never{94, -1, 96};
    auto settings = at(1, 1, 5 * K);
    settings.seed = 12;
    settings.prompt_number = 4;
    auto const r = generate(ctx, u.model, prompt, never, settings);
    std::vector<token_id> begun{never.bos};
    begun.insert(begun.end(), prompt.begin(), prompt.end());
    generation_session<model_type> session(ctx, u.model, padded_prompt(begun, K, never.pad, true), 5);
    std::vector<token_id> tokens;
    for (index_t p = 0; p < 5; ++p) {
        std::vector<token_id> patch(static_cast<std::size_t>(K));
        session.draw(patch, {12, stream::generation, 4}, p);
        session.append(patch);
        tokens.insert(tokens.end(), patch.begin(), patch.end());
    }
    BOOST_TEST(r.tokens == tokens, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(tokens_are_told_patch_by_patch) {
    untrained const u;
    context<> ctx(1, 2);
    special_tokens const never{94, -1, 96};
    std::vector<token_id> told;
    std::vector<std::size_t> sizes;
    auto const r = generate(ctx, u.model, prompt, never, at(1, 1, 2 * K + 1), [&](std::span<token_id const> fresh) {
        told.insert(told.end(), fresh.begin(), fresh.end());
        sizes.push_back(fresh.size());
    });
    BOOST_TEST(told == r.tokens, boost::test_tools::per_element());
    BOOST_TEST(sizes == (std::vector<std::size_t>{K, K, 1}), boost::test_tools::per_element());
    int calls = 0;
    auto const stopped =
        generate(ctx, u.model, prompt, never, at(1, 1, 100), [&](std::span<token_id const>) { return ++calls < 3; });
    BOOST_TEST(calls == 3);
    BOOST_TEST(stopped.patches == 3);
    BOOST_TEST(static_cast<index_t>(stopped.tokens.size()) == 3 * K);
}

BOOST_AUTO_TEST_CASE(the_first_token_at_a_low_temperature_is_a_common_one) {
    // At T = 1/n the pool's most frequent patch wins as n grows.
    untrained const u;
    context<> ctx(1, 2);
    generation_session<model_type> session(ctx, u.model, padded_prompt(prompt, K, special.pad, true), 0);
    std::vector<token_id> pool(64 * static_cast<std::size_t>(K));
    session.draw(pool, {1, stream::generation, 0}, 0);
    std::map<std::vector<token_id>, int> counts;
    int most = 0;
    for (auto at_patch = pool.begin(); at_patch != pool.end(); at_patch += K) {
        std::vector<token_id> const patch(at_patch, at_patch + K);
        most = std::max(most, ++counts[patch]);
    }
    random_sequence choice({1, stream::choice, 0});
    std::vector<token_id> patch(static_cast<std::size_t>(K));
    batch_sampler{.n = 64, .pool = 64}(
        [&](std::span<token_id> out) {
            session.draw(out, {1, stream::generation, 0}, 0);
        },
        patch, choice);
    BOOST_TEST(counts.at(patch) == most);
}

BOOST_AUTO_TEST_CASE(a_long_text_needs_no_more_arena_memory_than_a_short_one) {
    untrained const u;
    special_tokens const never{94, -1, 96};
    auto const peaks = [&](index_t tokens) {
        context<> ctx(1, 2);
        generate(ctx, u.model, prompt, never, at(1, 1, tokens));
        BOOST_TEST(ctx.saved.used() == 0u);
        BOOST_TEST(ctx.scratch.used() == 0u);
        return std::pair(ctx.saved.peak(), ctx.scratch.peak());
    };
    BOOST_TEST((peaks(2 * K) == peaks(60 * K)));
}

BOOST_AUTO_TEST_CASE(a_session_says_what_it_cannot_read) {
    untrained const u;
    context<> ctx(1, 1);
    using session = generation_session<model_type>;
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
    BOOST_TEST(code([&] { session(ctx, u.model, {}, 1); }) == static_cast<int>(errc::usage));
    BOOST_TEST(code([&] { session(ctx, u.model, three, 1); }) == static_cast<int>(errc::usage));
    BOOST_TEST(code([&] {
                   session(ctx, u.model, std::vector<token_id>{1, 2, 3, 97}, 1);
               }) == static_cast<int>(errc::tokenizer));
    session s(ctx, u.model, four, 1);
    s.append(four);
    BOOST_TEST(code([&] { s.append(four); }) == static_cast<int>(errc::usage));
}

BOOST_AUTO_TEST_CASE(streamed_text_never_splits_a_character) {
    struct vocabulary {
        [[nodiscard]] std::string_view bytes(token_id id) const {
            static constexpr std::string_view pieces[] = {"a", "\xC3", "\xA9", "b\xE2", "\x82\xAC", ""};
            return pieces[id];
        }
    } const words;
    streamed_text text(words);
    std::vector<token_id> const ids{0, 1, 2, 5, 3, 4, 1};
    std::vector<std::string> got;
    for (token_id const id : ids) got.push_back(text.push(std::span(&id, 1)));
    BOOST_TEST(got == (std::vector<std::string>{"a", "", "\xC3\xA9", "", "b", "\xE2\x82\xAC", ""}),
               boost::test_tools::per_element());
    BOOST_TEST(text.flush() == "\xC3");
    BOOST_TEST(streamed_text(words).push(ids) == "a\xC3\xA9"
                                                 "b\xE2\x82\xAC");
}
