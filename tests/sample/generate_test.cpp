#include "calm/sample/generate.hpp"

#include <boost/test/unit_test.hpp>

#include <limits>
#include <set>

#include "support/models.hpp"
#include "support/untrained.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using model_type = untrained::model_type;
constexpr index_t K = model_type::K;
constexpr special_tokens special{94, 95, 96};

std::vector<token_id> const prompt{5, 17, 40, 3, 3, 88};

generation_settings at(index_t n, index_t pool, index_t max_tokens) {
    return {.sampler = sampler::batch(temperature::of(1.0 / static_cast<double>(n)), pool), .max_tokens = max_tokens};
}

generation_result run(model_type const& model, generation_settings const& settings, special_tokens const& s = special,
                      int threads = 2) {
    context<> ctx(3, threads);
    return generate(ctx, model, prompt, s, settings);
}

// The position of some token's first occurrence, within some patch after the first.
std::size_t new_token_of(std::vector<token_id> const& text) {
    std::set<token_id> seen;
    for (std::size_t i = 0; i < text.size(); ++i)
        if (seen.insert(text[i]).second && i > static_cast<std::size_t>(K) && i % static_cast<std::size_t>(K) == 1)
            return i;
    return 0;
}

}  // namespace

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

BOOST_AUTO_TEST_CASE(a_patch_draws_its_noise_at_its_own_place) {
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
        row_rng const place{{12, stream::generation, 4}, p << 20};
        u.model.sample_patches(ctx, {patch.data(), extents<dyn>(K)}, session.hidden(), 1, std::span(&place, 1));
        session.append(patch);
        tokens.insert(tokens.end(), patch.begin(), patch.end());
    }
    BOOST_TEST(r.tokens == tokens, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(tokens_are_streamed_patch_by_patch) {
    untrained const u;
    context<> ctx(1, 2);
    special_tokens const never{94, -1, 96};
    std::vector<token_id> told;
    std::vector<std::size_t> counts;
    auto const r = generate(ctx, u.model, prompt, never, at(1, 1, 2 * K + 1), [&](std::span<token_id const> fresh) {
        told.insert(told.end(), fresh.begin(), fresh.end());
        counts.push_back(fresh.size());
    });
    BOOST_TEST(told == r.tokens, boost::test_tools::per_element());
    BOOST_TEST(counts == (std::vector<std::size_t>{K, K, 1}), boost::test_tools::per_element());
    int calls = 0;
    auto const stopped =
        generate(ctx, u.model, prompt, never, at(1, 1, 100), [&](std::span<token_id const>) { return ++calls < 3; });
    BOOST_TEST(calls == 3);
    BOOST_TEST(stopped.patches == 3);
    BOOST_TEST(static_cast<index_t>(stopped.tokens.size()) == 3 * K);
}

BOOST_AUTO_TEST_CASE(a_long_text_needs_no_more_arena_memory_than_a_short_one) {
    untrained const u;
    special_tokens const never{94, -1, 96};
    auto const peaks = [&](index_t tokens) {
        context<> ctx(1, 2);
        generate(ctx, u.model, prompt, never, at(1, 1, tokens));
        BOOST_TEST(ctx.saved.used() == 0u);
        BOOST_TEST(ctx.workspace.used() == 0u);
        return std::pair(ctx.saved.peak(), ctx.workspace.peak());
    };
    BOOST_TEST((peaks(2 * K) == peaks(60 * K)));
}

namespace {

// Prompts of different lengths, one of them empty.
std::vector<std::vector<token_id>> const many{{5, 17, 40, 3, 3, 88},
                                              {},
                                              {1},
                                              {60, 61, 62, 63, 64, 65, 66, 67, 68},
                                              {2, 2, 2},
                                              {9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 11, 12, 13}};

void check_equal(generation_result const& got, generation_result const& want) {
    BOOST_TEST(got.tokens == want.tokens, boost::test_tools::per_element());
    BOOST_TEST(got.draws == want.draws);
    BOOST_TEST(got.patches == want.patches);
    BOOST_TEST(got.capped == want.capped);
    BOOST_TEST(got.stopped_at_eos == want.stopped_at_eos);
}

// Every rule, with typical settings.
std::vector<sampler> all_rules() {
    auto const half = temperature::of(0.5);
    return {sampler::adaptive(half, 20),
            sampler::adaptive(temperature::of(1.0 / 3), 20),
            sampler::adaptive(temperature::of(0.25), 3),
            sampler::adaptive(temperature::of(1)),
            sampler::batch(half, 20),
            sampler::exact(temperature::of(0.7), 60),
            sampler::noise(temperature::of(0.3))};
}

}  // namespace

BOOST_AUTO_TEST_CASE(prompts_in_a_batch_give_the_same_texts_as_alone) {
    untrained const u;
    // An EOS that ends some texts early and others not.
    special_tokens ends = special;
    ends.eos = run(u.model, at(1, 1, 30), {94, -1, 96}).tokens[9];
    for (auto const& rule : all_rules()) {
        generation_settings settings{.sampler = rule, .max_tokens = 30, .seed = 7, .prompt_number = 3};
        std::vector<generation_result> alone;
        std::set<index_t> lengths;
        for (std::size_t i = 0; i < many.size(); ++i) {
            context<> ctx(1, 2);
            auto own = settings;
            own.prompt_number += static_cast<std::uint32_t>(i);
            alone.push_back(generate(ctx, u.model, many[i], ends, own));
            lengths.insert(alone.back().patches);
        }
        for (auto const& [at_once, round] : {std::pair(1, 0), std::pair(2, 3), std::pair(16, 0)}) {
            context<> ctx(1, 2);
            settings.at_once = at_once;
            settings.round = round;
            auto const together = generate(ctx, u.model, std::span(many), ends, settings);
            BOOST_REQUIRE(together.size() == many.size());
            for (std::size_t i = 0; i < many.size(); ++i) check_equal(together[i], alone[i]);
            BOOST_TEST(ctx.saved.used() == 0u);
            BOOST_TEST(ctx.workspace.used() == 0u);
        }
    }
}

BOOST_AUTO_TEST_CASE(texts_end_at_different_times) {
    untrained const u;
    special_tokens ends = special;
    ends.eos = run(u.model, at(1, 1, 30), {94, -1, 96}).tokens[9];
    context<> ctx(1, 2);
    auto const texts = generate(ctx, u.model, std::span(many), ends, at(1, 1, 60));
    std::set<index_t> lengths;
    for (auto const& text : texts) lengths.insert(text.patches);
    BOOST_TEST(lengths.size() > 1u);
}

BOOST_AUTO_TEST_CASE(rounds_do_not_change_the_text) {
    untrained const u;
    for (auto const& rule : all_rules()) {
        generation_settings settings{.sampler = rule, .max_tokens = 24};
        auto const want = run(u.model, settings);
        for (std::int64_t const round : {1, 3, 8, 64}) {
            settings.round = round;
            check_equal(run(u.model, settings), want);
        }
    }
}

// A text patch by patch. The cache is prepared once for all of them; the tokens are those of `generate`.
BOOST_AUTO_TEST_CASE(a_sampler_cache_serves_every_patch_of_a_text) {
    untrained const random(8192);  // a model with random weights and 8192 token ids
    auto const& model = random.model;
    context<> ctx(1, 2);
    auto const rule = sampler::adaptive(temperature::of(0.5));
    std::uint64_t const seed = 12;
    special_tokens const no_end{.bos = 94, .eos = -1, .pad = 96};
    std::vector<token_id> const begin{94, 5, 17, 40};  // BOS and a prompt: a patch of 4 tokens

    sampler_cache<cpu> prepared(ctx, model);
    generation_session<model_type> session(ctx, model, begin, 5);  // with room for 5 more patches
    std::vector<token_id> text, patch(4);
    for (index_t p = 0; p < 5; ++p) {
        patch_rng const rng{.row = 0, .noise = {{seed, stream::generation, 0}, p}};
        sample_next(ctx, model, std::span(patch), session.hidden(), rule, std::span(&rng, 1), 0, &prepared);
        session.append(patch);
        text.insert(text.end(), patch.begin(), patch.end());
    }
    auto const after_bos = std::span(begin).subspan(1);
    auto const whole = generate(ctx, model, after_bos, no_end, {.sampler = rule, .max_tokens = 20, .seed = seed});
    BOOST_TEST(text == whole.tokens, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_adaptive_rule_answers_as_if_every_draw_were_decoded) {
    untrained const u;
    context<> ctx(1, 2);
    sampler_cache<cpu> sampler_state(ctx, u.model);
    constexpr index_t rows = 6;
    tensor<float, extents<dyn, model_type::D>> hidden{extents<dyn, model_type::D>(rows)};
    fill_normal(ctx, hidden.view(), key{4});
    evaluate(ctx, hidden.view(), hidden.view() * 3.0);
    std::vector<patch_rng> rngs;
    for (index_t r = 0; r < rows; ++r) rngs.push_back({r, {{8, stream::generation, 2}, 11 + r}});
    std::set<bool> at_the_end;
    for (double const T : {1.0 / 2, 1.0 / 3})
        for (std::int64_t const N : {1, 2, 7, 40}) {
            auto const rule = sampler::adaptive(temperature::of(T), N);
            std::vector<token_id> want;
            std::vector<index_t> draws;
            for (auto const& place : rngs) {
                row_rng at{place.noise.draws, place.noise.first << 20};
                auto const source = [&](std::span<token_id> out) {
                    auto const count = static_cast<index_t>(out.size()) / K;
                    u.model.sample_patches(ctx, {out.data(), extents<dyn>(count * K)},
                                           calm::rows(hidden.view(), place.row, 1), count, std::span(&at, 1));
                    at.first += count;
                };
                random_sequence choice({8, stream::choice, 2}, static_cast<std::uint64_t>(place.noise.first << 20));
                std::vector<token_id> patch(static_cast<std::size_t>(K));
                draws.push_back(sample_patch(rule, source, patch, choice, 1).draws);
                at_the_end.insert(draws.back() == N);
                want.insert(want.end(), patch.begin(), patch.end());
            }
            for (auto* const parts : {static_cast<sampler_cache<cpu>*>(nullptr), &sampler_state})
                for (std::int64_t const round : {0, 1, 5}) {
                    std::vector<token_id> got(want.size());
                    auto const took = sample_next(ctx, u.model, std::span(got), std::as_const(hidden).view(), rule,
                                                  std::span<patch_rng const>(rngs), round, parts);
                    BOOST_TEST(got == want, boost::test_tools::per_element());
                    for (std::size_t i = 0; i < took.size(); ++i) BOOST_TEST(took[i].draws == draws[i]);
                }
        }
    BOOST_TEST(at_the_end.size() == 2U);
    BOOST_TEST(ctx.workspace.used() == 0U);
}

namespace {

// The batch rule on fully decoded pools; notes which cases occurred.
struct whole_pools {
    model_type const& model;
    std::set<bool> alike, ties, partly;  // whether patches were equal, the top ones tied, others single

    std::vector<token_id> choose(context<>& ctx, matrix_view<float const, model_type::D> const& hidden,
                                 row_rng const& place, index_t N, std::int64_t n) {
        constexpr auto size = static_cast<std::size_t>(K);
        row_rng const at{place.draws, place.first << 20};
        std::vector<token_id> pool(static_cast<std::size_t>(N) * size);
        model.sample_patches(ctx, {pool.data(), extents<dyn>(N * K)}, hidden, N, std::span(&at, 1));
        auto const counts = count_patches(pool, size).counts;
        auto const most = *std::max_element(counts.begin(), counts.end());
        alike.insert(most > 1);
        ties.insert(most > 1 && std::count(counts.begin(), counts.end(), most) > 1);
        partly.insert(most > 1 && std::count(counts.begin(), counts.end(), 1) > 0);
        random_sequence choice({place.draws.seed, stream::choice, place.draws.step},
                               static_cast<std::uint64_t>(at.first));
        auto const patch = std::span(pool).subspan(batch_choice(pool, size, n, choice) * size, size);
        return {patch.begin(), patch.end()};
    }
};

}  // namespace

// Samples as evaluations draw them.
BOOST_AUTO_TEST_CASE(many_samples_are_the_same_by_a_screen) {
    context<> ctx(1, 2);
    untrained const u(8192);
    auto const screen = screen_if_faster<float>(ctx, u.model.ae_model.embed_tokens.weight.read());
    constexpr index_t rows = 5, samples = 9;
    tensor<float, extents<dyn, model_type::D>> hidden{extents<dyn, model_type::D>(rows)};
    fill_normal(ctx, hidden.view(), key{6});
    std::vector<row_rng> rngs;
    for (index_t r = 0; r < rows; ++r) rngs.push_back({{8, stream::evaluation, 1}, r * samples});
    for (auto const& rule : all_rules()) {
        auto const drawn = [&](token_screen const* by, sampling_totals& total) {
            std::vector<token_id> tokens(static_cast<std::size_t>(rows * samples * K));
            total = sample_many(ctx, u.model, std::span(tokens), std::as_const(hidden).view(), samples, rule,
                                std::span<row_rng const>(rngs), by);
            return tokens;
        };
        sampling_totals plain, screened;
        BOOST_TEST(drawn(screen.get(), screened) == drawn(nullptr, plain), boost::test_tools::per_element());
        BOOST_TEST(screened.draws == plain.draws);
        BOOST_TEST(plain.patches == rows * samples);
    }
}

// With a large vocabulary only samples that still agree are decoded, which changes nothing.
BOOST_AUTO_TEST_CASE(the_batch_rule_counts_as_if_every_draw_were_decoded) {
    context<> ctx(1, 2);
    constexpr index_t rows = 6;
    for (index_t const vocabulary : {97, 8192}) {
        untrained u(vocabulary);
        auto const& table = u.model.ae_model.embed_tokens.weight.value;  // only few tokens are ever the most likely
        constexpr index_t width = model_type::autoencoder_type::D;
        std::fill(table.data() + 97 * width, table.data() + vocabulary * width, 0.0F);
        sampler_cache<cpu> sampler_state(ctx, u.model);
        whole_pools pools{u.model, {}, {}, {}};
        for (std::uint32_t state = 0; state < 6; ++state) {
            tensor<float, extents<dyn, model_type::D>> hidden{extents<dyn, model_type::D>(rows)};
            fill_normal(ctx, hidden.view(), key{state});
            evaluate(ctx, hidden.view(), hidden.view() * 3.0);
            std::vector<patch_rng> rngs;
            for (index_t r = 0; r < rows; ++r) rngs.push_back({r, {{8, stream::generation, state}, 11 + r}});
            for (auto const& [n, N] : {std::pair(2, 1), {2, 2}, {3, 7}, {2, 30}, {3, 100}}) {
                auto const rule = sampler::batch(temperature::of(1.0 / n), N);
                std::vector<token_id> want;
                for (auto const& place : rngs) {
                    auto const one =
                        pools.choose(ctx, calm::rows(std::as_const(hidden).view(), place.row, 1), place.noise, N, n);
                    want.insert(want.end(), one.begin(), one.end());
                }
                for (auto const& [round, parts] : {std::pair(0, &sampler_state),
                                                   {1, &sampler_state},
                                                   {5, static_cast<sampler_cache<cpu>*>(nullptr)}}) {
                    std::vector<token_id> got(want.size());
                    auto const took = sample_next(ctx, u.model, std::span(got), std::as_const(hidden).view(), rule,
                                                  std::span<patch_rng const>(rngs), round, parts);
                    BOOST_TEST(got == want, boost::test_tools::per_element());
                    for (auto const& one : took) BOOST_TEST(one.draws == N);
                }
            }
        }
        for (auto const& found : {pools.alike, pools.ties, pools.partly}) BOOST_TEST(found.size() == 2U);
        BOOST_TEST(ctx.workspace.used() == 0U);
    }
}

BOOST_AUTO_TEST_CASE(block_kernels_generate_as_the_cpu_does) {
    constexpr index_t vocabulary = 8192;  // large enough for the batch rule to decode lazily
    untrained u(vocabulary);
    calm_model<base, space<emulated>> same{vocabulary};
    arena<emulated> values{"values"};
    allocate(same, values, static_cast<arena<emulated>*>(nullptr));
    allocate(same.ae_model, values, static_cast<arena<emulated>*>(nullptr));
    context<emulated> ctx(3, 2);
    copy_parameters(ctx, parameters_of(same), parameters_of(u.model));
    copy_parameters(ctx, frozen_parameters_of(same), frozen_parameters_of(u.model));
    for (auto const& rule : {sampler::adaptive(temperature::of(0.5), 12), sampler::batch(temperature::of(0.5), 12)}) {
        generation_settings const settings{.sampler = rule, .max_tokens = 12};
        check_equal(generate(ctx, same, prompt, special, settings), run(u.model, settings));
    }
}

BOOST_AUTO_TEST_CASE(streamed_tokens_carry_the_number_of_their_prompt) {
    untrained const u;
    context<> ctx(1, 2);
    special_tokens const never{94, -1, 96};
    auto settings = at(1, 1, 3 * K);
    settings.at_once = 2;
    std::vector<std::vector<token_id>> told(many.size());
    auto const texts = generate(ctx, u.model, std::span(many), never, settings,
                                [&](std::size_t number, std::span<token_id const> fresh) {
                                    told[number].insert(told[number].end(), fresh.begin(), fresh.end());
                                    return number != 2;  // one text is not wanted any longer
                                });
    for (std::size_t i = 0; i < many.size(); ++i) {
        BOOST_TEST(told[i] == texts[i].tokens, boost::test_tools::per_element());
        BOOST_TEST(texts[i].patches == (i == 2 ? 1 : 3));
    }
    BOOST_TEST(generate(ctx, u.model, std::span<std::vector<token_id> const>{}, never, settings).empty());
    settings.at_once = 0;
    BOOST_CHECK_THROW(generate(ctx, u.model, std::span(many), never, settings), error);
}

BOOST_AUTO_TEST_CASE(noise_of_scale_nothing_writes_one_text_whatever_the_seed) {
    untrained const u;
    generation_settings settings{.sampler = sampler::noise(temperature::of(0)), .max_tokens = 20};
    auto const one = run(u.model, settings);
    settings.seed = 99;
    BOOST_TEST(run(u.model, settings).tokens == one.tokens, boost::test_tools::per_element());
    settings.sampler = sampler::noise(temperature::of(1));
    auto const scaled = run(u.model, settings);
    settings.sampler = sampler::exact(temperature::of(1));
    BOOST_TEST(run(u.model, settings).tokens == scaled.tokens, boost::test_tools::per_element());
    BOOST_TEST((scaled.tokens != one.tokens));
}

BOOST_AUTO_TEST_CASE(an_unreachable_token_limit_takes_no_memory) {
    untrained const u;
    context<> ctx(3, 1);
    generation_settings long_text = at(1, 1, limits::text_tokens);
    index_t told = 0;
    auto const some = generate(ctx, u.model, prompt, {94, -1, 96}, long_text,
                               [&](std::span<token_id const>) { return ++told < 100; });
    BOOST_TEST(some.tokens.size() == static_cast<std::size_t>(100 * K));
    // Longer than the initial cache, yet the same text.
    BOOST_TEST(some.tokens == run(u.model, at(1, 1, 100 * K), {94, -1, 96}).tokens, boost::test_tools::per_element());
    for (index_t const n : {limits::text_tokens + 1, std::numeric_limits<index_t>::max(), index_t{144115188075855872}})
        BOOST_CHECK_EXCEPTION(run(u.model, at(1, 1, n)), error, [](error const& e) {
            return e.code() == errc::usage && std::string(e.what()).find("max_tokens from 0 to") != std::string::npos;
        });
}

// In each layer that contributes to the text, a weight so large that a later norm overflows.
BOOST_AUTO_TEST_CASE(no_text_comes_from_a_norm_that_overflowed) {
    untrained u;
    auto weights = parameters_of(u.model);
    for (auto& p : frozen_parameters_of(u.model)) weights.push_back(std::move(p));
    int tried = 0;
    for (auto const& p : weights) {
        bool const adds_to_rows = p.name.ends_with("o_proj.weight") || p.name.ends_with("down_proj.weight") ||
                                  p.name.ends_with("latent_to_hidden.bias") || p.name.ends_with("expand_layer.bias") ||
                                  p.name.ends_with("hidden_embd.bias") || p.name.ends_with("noise_embd.bias");
        if (!adds_to_rows || p.name.starts_with("ae_model.encoder")) continue;
        auto const before = p.value[2];
        p.value[2] = 3e38F;
        for (auto const& rule : {sampler::noise(temperature::of(1.0)), sampler::adaptive(temperature::of(0.5))})
            BOOST_CHECK_EXCEPTION(run(u.model, {.sampler = rule, .max_tokens = 4 * K}), error,
                                  [](error const& e) { return e.code() == errc::non_finite; });
        p.value[2] = before;
        ++tried;
    }
    BOOST_TEST(tried >= 10);
    BOOST_CHECK_NO_THROW(run(u.model, {.sampler = sampler::noise(temperature::of(1.0)), .max_tokens = 4 * K}));
}

BOOST_AUTO_TEST_CASE(latents_with_nan_have_no_tokens) {
    untrained u;
    auto const code_of = [&](sampler const& rule) {
        try {
            static_cast<void>(run(u.model, {.sampler = rule, .max_tokens = 2 * K}));
            return 0;
        } catch (error const& e) {
            BOOST_TEST(std::string(e.what()).find("expected finite numbers in the decoder") != std::string::npos,
                       e.what());
            return static_cast<int>(e.code());
        }
    };
    auto hot = sampler::noise(temperature::of(1.0));
    BOOST_TEST(code_of(hot) == 0);
    hot.noise_scale = std::numeric_limits<double>::infinity();
    BOOST_TEST(code_of(hot) == 8);
    u.model.generator.noise_embd.bias.value[3] = std::numeric_limits<float>::quiet_NaN();
    for (auto const& rule : {sampler::noise(temperature::of(1.0)), sampler::adaptive(temperature::of(0.5)),
                             sampler::batch(temperature::of(0.5), 20), sampler::exact(temperature::of(0.4))})
        BOOST_TEST(code_of(rule) == 8);
}
