#include "calm/sample/text_batch.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>

#include "calm/sample/generate.hpp"
#include "support/memory_of_process.hpp"
#include "support/models.hpp"
#include "support/untrained.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using model_type = untrained::model_type;
using batch_type = text_batch<model_type>;
constexpr index_t K = model_type::K;
constexpr special_tokens special{94, 95, 96};

struct request {
    std::vector<token_id> prompt;
    generation_settings settings;
};

// Requests of which no two are equal: prompts, samplers, lengths and seeds differ.
std::vector<request> many_requests(std::size_t count) {
    std::vector<sampler> const rules{sampler::unchanged(), sampler::adaptive(temperature::of(0.5), 20),
                                     sampler::batch(temperature::of(0.5), 12), sampler::exact(temperature::of(0.7), 40),
                                     sampler::noise(temperature::of(0.3))};
    std::vector<request> all;
    for (std::size_t i = 0; i < count; ++i) {
        std::vector<token_id> prompt;
        for (std::size_t t = 0; t < i * 5 % 13; ++t) prompt.push_back(static_cast<token_id>((i * 31 + t * 7) % 90));
        all.push_back({prompt,
                       {.sampler = rules[i % rules.size()],
                        .max_tokens = static_cast<index_t>(1 + i * 3 % 17),
                        .seed = 100 + i,
                        .prompt_number = static_cast<std::uint32_t>(i % 3)}});
    }
    return all;
}

generation_result alone(model_type const& model, request const& one) {
    context<> ctx(1, 1);
    return generate(ctx, model, std::span<token_id const>(one.prompt), special, one.settings);
}

// A prompt of so many patches with its BOS.
std::vector<token_id> prompt_of(index_t patches) {
    std::vector<token_id> prompt;
    for (index_t i = 0; i < patches * K - 1; ++i) prompt.push_back(static_cast<token_id>((i * 37 + i / 11) % 90));
    return prompt;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_text_does_not_depend_on_other_texts) {
    untrained const u;
    auto const requests = many_requests(60);
    for (index_t const places : {3, 50}) {
        context<> ctx(1, 2);
        batch_type batch(ctx, u.model, special, places, 12);
        std::map<index_t, std::size_t> at;  // request by place
        std::size_t next = 0, compared = 0;
        for (std::size_t steps = 0; next < requests.size() || !batch.empty(); ++steps) {
            // Texts join a few at a time, so that they are at different patches.
            for (std::size_t joined = 0; joined <= steps % 4 && next < requests.size() && batch.free_slots() > 0;
                 ++joined, ++next)
                at[batch.begin(requests[next].prompt, requests[next].settings)] = next;
            std::vector<index_t> ended;
            batch.step([&](index_t place, generated_patch const& patch) {
                if (patch.last) ended.push_back(place);
                return true;
            });
            for (index_t const place : ended) {
                auto const want = alone(u.model, requests[at[place]]);
                auto const& got = batch.result(place);
                BOOST_TEST(got.tokens == want.tokens, boost::test_tools::per_element());
                BOOST_TEST(got.draws == want.draws);
                BOOST_TEST(got.patches == want.patches);
                BOOST_TEST(got.stopped_at_eos == want.stopped_at_eos);
                ++compared;
            }
        }
        BOOST_TEST(compared == requests.size());
        BOOST_TEST(ctx.workspace.used() == 0u);
    }
}

BOOST_AUTO_TEST_CASE(not_even_the_last_bits_of_a_hidden_state_depend_on_other_texts) {
    untrained const u;
    constexpr index_t texts = 70, steps = 3;
    auto const patch_of = [](index_t text, index_t step) {
        std::vector<token_id> patch;
        for (index_t k = 0; k < K; ++k) patch.push_back(static_cast<token_id>((text * 13 + step * 5 + k) % 90));
        return patch;
    };
    context<> ctx(1, 2), own(1, 1);
    generation_session<model_type> together(ctx, u.model, texts, steps + 1);
    std::vector<index_t> places;
    for (index_t i = 0; i < texts; ++i) {
        together.begin(i, patch_of(i, 0));
        places.push_back(i);
    }
    for (index_t step = 1; step <= steps; ++step) {
        std::vector<token_id> patches;
        for (index_t i = 0; i < texts; ++i)
            for (token_id const id : patch_of(i, step)) patches.push_back(id);
        together.append(places, patches);
    }
    for (index_t i = 0; i < texts; i += 9) {
        generation_session<model_type> single(own, u.model, patch_of(i, 0), steps);
        for (index_t step = 1; step <= steps; ++step) single.append(patch_of(i, step));
        auto const* const its = together.hidden().data() + i * model_type::D;
        BOOST_TEST(std::equal(its, its + model_type::D, single.hidden().data()), "text " << i);
    }
}

BOOST_AUTO_TEST_CASE(a_long_prompt_gives_the_same_text_next_to_others_and_in_any_round) {
    untrained const u;
    constexpr index_t part = prompt_part, longest = 2 * part + 9;
    std::vector<request> requests = many_requests(5);
    for (index_t const patches : {longest, part, part + 1}) {
        requests.push_back(requests[static_cast<std::size_t>(patches) % 5]);
        requests.back().prompt = prompt_of(patches);
    }
    std::vector<generation_result> want;
    for (auto const& one : requests) want.push_back(alone(u.model, one));
    for (index_t const patches_per_step : {index_t{1}, part + 1, 10 * part}) {
        context<> ctx(1, 2);
        batch_type batch(ctx, u.model, special, 4, longest + 12, {.prompt_patches = patches_per_step});
        std::map<index_t, std::size_t> at;  // request by place
        std::size_t next = requests.size(), compared = 0;
        while (next > 0 || !batch.empty()) {
            // The long ones first, so that all others are computed between their parts.
            for (; next > 0 && batch.free_slots() > 0; --next)
                at[batch.begin(requests[next - 1].prompt, requests[next - 1].settings)] = next - 1;
            batch.step([&](index_t place, generated_patch const& patch) {
                if (!patch.last) return true;
                auto const& [tokens, expected] = std::pair(batch.result(place).tokens, want[at[place]].tokens);
                BOOST_TEST(tokens == expected, boost::test_tools::per_element());
                ++compared;
                return true;
            });
        }
        BOOST_TEST(compared == requests.size());
    }
}

BOOST_AUTO_TEST_CASE(others_continue_between_the_parts_of_a_long_prompt) {
    untrained const u;
    context<> ctx(1, 1);
    constexpr index_t parts = 4;
    batch_type batch(ctx, u.model, special, 3, 600, {.prompt_patches = 1});  // one part per step
    generation_settings const settings{.max_tokens = 20 * K, .ends = {-1}};
    std::map<index_t, index_t> patches;  // by place
    auto const step = [&] {
        batch.step([&](index_t place, generated_patch const&) {
            ++patches[place];
            return true;
        });
    };
    auto const earlier = batch.begin(prompt_of(2), settings);
    step();
    BOOST_TEST(patches[earlier] == 1);
    auto const is_long = batch.begin(prompt_of(parts * prompt_part), settings);
    auto const later = batch.begin(prompt_of(2), settings);
    BOOST_TEST(batch.free_slots() == 0);
    for (index_t steps = 1; steps <= parts + 1; ++steps) {
        step();
        BOOST_TEST(patches[earlier] == 1 + steps);  // one patch per step
        BOOST_TEST(patches[later] == steps - 1);    // its prompt came after the first part
        BOOST_TEST(patches[is_long] == (steps > parts ? 1 : 0));
    }
    batch.end(earlier);
    batch.end(later);
    auto const another = batch.begin(prompt_of(parts * prompt_part), settings);
    step();
    batch.end(another);  // between its parts
    BOOST_TEST(batch.free_slots() == 2);
    while (!batch.empty()) step();
    BOOST_TEST(patches[is_long] == 20);
}

// An untrained model never draws eight equal patches, so every patch of the `costly` texts takes 40 draws.
BOOST_AUTO_TEST_CASE(texts_of_many_draws_take_turns_so_that_others_do_not_wait) {
    untrained const u;
    context<> ctx(1, 1);
    auto const request_of = [](sampler const& rule, std::uint64_t seed) {
        return request{{1, 2, 3}, {.sampler = rule, .max_tokens = 12 * K, .seed = seed, .ends = {-1}}};
    };
    auto const costly = sampler::exact(temperature::of(0.125), 40);
    std::vector<request> const requests{request_of(sampler::unchanged(), 1), request_of(costly, 2),
                                        request_of(costly, 3)};
    batch_type batch(ctx, u.model, special, 4, 40, {.draws = 20});  // 5 of them for each place
    std::vector<index_t> slots;
    for (auto const& one : requests) slots.push_back(batch.begin(one.prompt, one.settings));
    std::vector<index_t> patches(requests.size()), steps(requests.size());
    for (index_t step = 1; !batch.empty(); ++step) {
        index_t draws = 0;
        batch.step([&](index_t slot, generated_patch const& patch) {
            auto const i = static_cast<std::size_t>(std::find(slots.begin(), slots.end(), slot) - slots.begin());
            ++patches[i];
            steps[i] = step;
            draws += patch.took.draws;
            return true;
        });
        if (step <= 12) {
            BOOST_TEST(patches[0] == step);
            BOOST_TEST(draws == (step % 2 == 1 ? 41 : 1));  // 20 for each step
            BOOST_TEST(patches[1] == (step + 3) / 4);
            BOOST_TEST(patches[2] == (step + 1) / 4);
        }
    }
    BOOST_TEST(steps[0] == 12);
    BOOST_TEST(steps[1] == 29);  // one costly text in every step, once the other has ended
    BOOST_TEST(steps[2] == 30);
    for (std::size_t i = 0; i < requests.size(); ++i) {
        auto const expected = alone(u.model, requests[i]);
        BOOST_TEST(batch.result(slots[i]).tokens == expected.tokens, boost::test_tools::per_element());
        BOOST_TEST(batch.result(slots[i]).draws == expected.draws);
    }
}

BOOST_AUTO_TEST_CASE(a_long_text_takes_memory_for_itself_and_gives_it_back) {
    untrained const u;
    context<> ctx(1, 1);
    constexpr index_t places = 16, patches = 6000;
    constexpr auto bytes_per_patch = static_cast<std::size_t>(2 * base.num_hidden_layers * base.num_key_value_heads *
                                                              (base.hidden_size / base.num_attention_heads)) *
                                     sizeof(float);
    constexpr std::size_t own = patches * bytes_per_patch;
    batch_type batch(ctx, u.model, special, places, 2 * patches);
    auto const begin = [&](index_t length) { return batch.begin(prompt_of(length), {.max_tokens = K, .ends = {-1}}); };
    std::size_t most = 0;
    auto const step = [&] {
        batch.step([&](index_t, generated_patch const&) {
            most = resident_without_files();
            return true;
        });
    };
    auto const one_long_text = [&] {
        for (index_t place = 1; place < places; ++place) begin(1);
        begin(patches);
        step();
        BOOST_TEST(batch.empty());
        return resident_without_files();
    };
    one_long_text();  // for the memory that is kept between texts
    auto const after = one_long_text();
    BOOST_TEST_MESSAGE(own << " bytes of keys and values; with and after the text " << most << ", " << after);
    BOOST_TEST(most > after + own * 9 / 10);
    BOOST_TEST(most < after + 2 * own);
}

BOOST_AUTO_TEST_CASE(a_text_can_be_ended_and_its_place_is_free) {
    untrained const u;
    context<> ctx(1, 1);
    batch_type batch(ctx, u.model, special, 2, 12);
    auto const requests = many_requests(3);
    auto longest = requests;
    for (auto& one : longest) one.settings.max_tokens = 4 * K;
    auto const first = batch.begin(longest[0].prompt, longest[0].settings);
    auto const second = batch.begin(longest[1].prompt, longest[1].settings);
    BOOST_TEST(batch.free_slots() == 0);
    BOOST_CHECK_THROW(batch.begin(longest[2].prompt, longest[2].settings), error);
    // The callback ends one, end() the other.
    batch.step([&](index_t place, generated_patch const&) { return place != first; });
    BOOST_TEST(batch.free_slots() == 1);
    BOOST_TEST(static_cast<index_t>(batch.result(first).tokens.size()) == K);
    batch.end(second);
    BOOST_TEST(batch.empty());
    auto const third = batch.begin(longest[2].prompt, longest[2].settings);
    while (!batch.empty()) batch.step([](index_t, generated_patch const&) { return true; });
    BOOST_TEST(batch.result(third).tokens == alone(u.model, longest[2]).tokens, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused_before_it_begins) {
    untrained const u;
    context<> ctx(1, 1);
    batch_type batch(ctx, u.model, special, 1, 3);
    std::vector<token_id> const prompt(static_cast<std::size_t>(2 * K - 1), 5);  // two patches after BOS
    BOOST_TEST(patches_needed(special, prompt, 1, K) == 2);
    BOOST_TEST(patches_needed(special, prompt, 2 * K, K) == 3);
    BOOST_TEST(patches_needed(special, prompt, 2 * K + 1, K) == 4);
    BOOST_CHECK_THROW(batch.begin(prompt, {.max_tokens = 2 * K + 1}), error);
    BOOST_CHECK_THROW(batch.begin(prompt, {.max_tokens = 0}), error);
    BOOST_CHECK_EXCEPTION(batch.begin(std::vector<token_id>{5, 97}, {.max_tokens = K}), error,
                          [](error const& e) { return e.code() == errc::tokenizer; });
    BOOST_TEST(batch.free_slots() == 1);
    batch.begin(prompt, {.max_tokens = 2 * K});
    while (!batch.empty()) batch.step([](index_t, generated_patch const&) { return true; });
}
