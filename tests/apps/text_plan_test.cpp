// The plans of `train text` for many sizes and minutes.

#include "run/text_plan.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <vector>

#include "configs/sizes.hpp"
#include "support/sentences.hpp"

using namespace calm;
using namespace calm::apps;
using calm::test::has;
using calm::test::sentence_of;
using calm::test::unaligned;

namespace {

template <class Configuration> entry compiled(std::string const& name, Configuration const& sizes) {
    entry one{.name = name, .sizes = with_any_head(sizes)};
    one.defaults.autoencoder.learning_rate = 7e-4;
    one.defaults.calm.learning_rate = 5e-4;
    one.defaults.calm.optimizer.muon = 3;
    return one;
}

entry softmax() {
    entry one{.name = "tiny-ar", .sizes = sizes::tiny_ar};
    one.defaults.autoregressive.learning_rate = 3e-3;
    one.defaults.autoregressive.optimizer.muon = 4;
    return one;
}

std::vector<entry> usual() {
    return {compiled("text", sizes::text), compiled("tiny", sizes::tiny), softmax(),
            compiled("tiny-flow", sizes::tiny_flow)};
}

text_choices in_minutes(double minutes) {
    text_choices c;
    c.minutes = minutes;
    return c;
}

text_choices planned(text_facts const& text, text_choices const& given) {
    return plan_of_text(text, given, usual()).choices;
}

std::uint64_t const byte_counts[] = {0,         1,          1000,        200'000,       1'999'999,
                                     2'000'000, 30'000'000, 500'000'000, 90'000'000'000};
double const minute_counts[] = {1e-3, 0.5, 1, 3, 5, 16, 19.9, 20, 60, 120, 600, 5'000'000};

}  // namespace

BOOST_AUTO_TEST_CASE(every_plan_is_whole_and_possible) {
    for (bool const generated : {false, true})
        for (bool const symbols : {false, true})
            for (auto const bytes : byte_counts)
                for (auto const minutes : minute_counts) {
                    if (symbols && !generated) continue;
                    text_facts const text{.bytes = bytes,
                                          .documents = bytes / 100,
                                          .tenth = bytes / 10,
                                          .is_generated = generated,
                                          .has_own_symbols = symbols};
                    auto const plan = plan_of_text(text, in_minutes(minutes), usual());
                    auto const& c = plan.choices;
                    BOOST_TEST(*c.autoencoder_minutes > 0);
                    BOOST_TEST(*plan.minutes_of_model() > 0);
                    BOOST_TEST(*c.autoencoder_minutes + *plan.minutes_of_model() == minutes,
                               boost::test_tools::tolerance(1e-12));
                    BOOST_TEST(*c.autoencoder_minutes <= 4);
                    BOOST_TEST(*c.block % 4 == 0);
                    BOOST_TEST(*c.autoencoder_batch % 4 == 0);
                    BOOST_TEST(*c.batch * *c.block <= 2048);
                    BOOST_CHECK_NO_THROW(require_possible(c, usual()));
                    // Every choice is valid for its option and has exactly one reason.
                    auto const record = record_of(c);
                    BOOST_TEST(record_of(choices_of(record, "plan")) == record);
                    BOOST_TEST_REQUIRE(plan.why.size() == record.size());
                    for (auto const& row : record)
                        BOOST_TEST(std::count_if(plan.why.begin(), plan.why.end(),
                                                 [&](auto const& why) {
                                                     return why.option == row.option && !why.value.empty();
                                                 }) == 1,
                                   row.option);
                }
}

// Planned like a CALM, except that there is no autoencoder, whose minutes the model gets.
BOOST_AUTO_TEST_CASE(an_autoregressive_model_is_planned_as_a_calm_is) {
    auto all = usual();
    all.push_back(compiled("tiny-drafted", sizes::tiny));
    for (bool const generated : {false, true})
        for (bool const symbols : {false, true})
            for (auto const bytes : byte_counts)
                for (auto const minutes : minute_counts) {
                    if (symbols && !generated) continue;
                    text_facts const text{.bytes = bytes,
                                          .documents = bytes / 100,
                                          .tenth = bytes / 10,
                                          .is_generated = generated,
                                          .has_own_symbols = symbols};
                    auto given = in_minutes(minutes);
                    auto const calm = plan_of_text(text, given, all).choices;
                    given.configuration = "tiny-ar";
                    auto const plan = plan_of_text(text, given, all);
                    auto const& c = plan.choices;
                    BOOST_TEST(*plan.minutes_of_model() == minutes);
                    BOOST_TEST(c.holdout == calm.holdout);
                    BOOST_CHECK(c.vocabulary == calm.vocabulary);
                    BOOST_TEST(*c.batch == *calm.batch);
                    BOOST_TEST(*c.block == *calm.block);
                    BOOST_TEST(*c.warmup >= *calm.warmup);
                    BOOST_CHECK(c.schedule == calm.schedule);
                    BOOST_TEST(*c.learning_rate == 3e-3);  // its own default
                    BOOST_TEST(*c.muon == 4);
                    auto const record = record_of(c);
                    BOOST_TEST(record_of(choices_of(record, "plan")) == record);
                    BOOST_TEST_REQUIRE(plan.why.size() == record.size());
                    for (auto const& row : record) {
                        BOOST_TEST(!row.option.starts_with("autoencoder"), row.option);
                        BOOST_TEST(calm::value_of(plan.why, row.option) != nullptr, row.option);
                    }
                }
    text_choices given;
    given.configuration = "tiny-ar";
    auto const refused = [&](auto change) {
        auto changed = given;
        change(changed);
        return sentence_of<error>([&] { planned({.bytes = 1000}, changed); });
    };
    BOOST_TEST(*planned({.bytes = 1000}, given).minutes == 20);
    BOOST_TEST(refused([](auto& c) { c.steps = 3; }) == "");
    BOOST_TEST(has(refused([](auto& c) { c.steps = 3, c.kl_weight = 0.1; }),
                   "--kl-weight: tiny-ar, an autoregressive model, has no autoencoder"));
    BOOST_TEST(has(refused([](auto& c) { c.minutes = 3, c.autoencoder_steps = 1; }), "--autoencoder-steps: tiny-ar"));
    BOOST_TEST(has(refused([](auto& c) { c.steps = 3, c.head["samples"] = 4; }),
                   "--head-samples: tiny-ar, an autoregressive model, has no such head"));
    BOOST_TEST(has(refused([](auto& c) { c.steps = 7, c.warmup = 7; }), "--warmup: expected fewer steps than the 7"));
}

BOOST_AUTO_TEST_CASE(more_text_and_more_minutes_never_choose_less) {
    for (std::size_t b = 0; b < std::size(byte_counts); ++b)
        for (std::size_t m = 0; m < std::size(minute_counts); ++m) {
            auto const at = [](std::size_t i, std::size_t j) {
                return planned({.bytes = byte_counts[i]}, in_minutes(minute_counts[j]));
            };
            auto const here = at(b, m);
            if (b > 0) BOOST_TEST(*here.vocabulary >= *at(b - 1, m).vocabulary);
            if (m == 0) continue;
            auto const shorter = at(b, m - 1);
            BOOST_TEST(*here.vocabulary >= *shorter.vocabulary);
            BOOST_TEST(*here.autoencoder_minutes >= *shorter.autoencoder_minutes);
            BOOST_TEST(*here.block >= *shorter.block);
            BOOST_TEST(*here.warmup >= *shorter.warmup);
        }
}

BOOST_AUTO_TEST_CASE(the_plan_follows_the_measured_rules) {
    auto const wiki = planned({.bytes = 1'100'000, .documents = 62, .tenth = 150'000}, in_minutes(20));
    BOOST_TEST(*wiki.vocabulary == 259);
    BOOST_TEST(wiki.configuration == "tiny-flow");
    BOOST_TEST(wiki.holdout == "10:9");
    BOOST_TEST(*wiki.autoencoder_minutes == 4);
    BOOST_TEST(*wiki.random_patches == 0.15);
    BOOST_TEST(*wiki.kl_weight == 0.02);
    BOOST_TEST(*wiki.autoencoder_learning_rate == 3e-3);
    BOOST_TEST(*wiki.learning_rate == 2e-3);
    BOOST_TEST(*wiki.muon == 3);  // from the configuration
    BOOST_TEST(*wiki.block == 128);
    BOOST_TEST(*wiki.batch == 16);
    BOOST_TEST(*wiki.warmup == 200);
    BOOST_CHECK(*wiki.schedule == learning_rate_schedule::cosine);

    auto const stories = planned({.bytes = 1'600'000, .is_generated = true}, in_minutes(4));
    BOOST_TEST(*stories.vocabulary == 512);
    BOOST_TEST(*stories.random_patches == 0);
    BOOST_TEST(stories.holdout == "");
    BOOST_TEST(*stories.autoencoder_minutes == 1);

    auto const chain = planned({.bytes = 400'000, .is_generated = true, .has_own_symbols = true}, in_minutes(4));
    BOOST_TEST(!chain.vocabulary.has_value());
    BOOST_TEST(*chain.block == 64);
}

BOOST_AUTO_TEST_CASE(a_plan_for_a_device_takes_what_is_compiled_for_it) {
    auto all = usual();
    for (auto& one : all) one.work.emplace("cpu", compiled_functions());
    auto const chosen = [&](char const* device) {
        auto const some = configurations_for(device_choice::parse(device), all);
        return plan_of_text({.bytes = 90'000'000}, in_minutes(600), some).choices.configuration;
    };
    auto const usual_choice = chosen("cpu");
    BOOST_TEST(chosen("cuda") == usual_choice);  // none is compiled for it, which the device reports
    auto const other = std::find_if(
        all.begin(), all.end(), [&](entry const& one) { return one.name != usual_choice && !one.is_autoregressive(); });
    other->work.emplace("cuda", compiled_functions());
    BOOST_TEST(chosen("cuda") == other->name);
    BOOST_TEST(chosen("cuda:1") == other->name);
    BOOST_TEST(chosen("cpu") == usual_choice);
    BOOST_TEST(chosen("auto") == usual_choice);
}

BOOST_AUTO_TEST_CASE(the_first_configuration_that_is_compiled_is_taken) {
    auto const chosen = [](std::vector<entry> const& all, text_choices const& given = in_minutes(5)) {
        return plan_of_text({.bytes = 1000}, given, all).choices;
    };
    auto all = usual();
    all.push_back(compiled("tiny-drafted", sizes::tiny));
    BOOST_TEST(chosen(all).configuration == "tiny-drafted");
    // The drafted head uses a BPE vocabulary where the others use bytes.
    auto const vocabulary = [&](std::uint64_t bytes, double minutes) {
        return *plan_of_text({.bytes = bytes}, in_minutes(minutes), all).choices.vocabulary;
    };
    BOOST_TEST(vocabulary(500'000, 5) == 512);
    BOOST_TEST(vocabulary(499'999, 5) == 259);
    BOOST_TEST(vocabulary(500'000, 4.9) == 259);
    auto const tiny = chosen({compiled("text", sizes::text), compiled("tiny", sizes::tiny)});
    BOOST_TEST(tiny.configuration == "tiny");
    BOOST_TEST(*tiny.learning_rate == 2e-3);
    auto const other = chosen({compiled("text", sizes::text)});
    BOOST_TEST(other.configuration == "text");
    BOOST_TEST(*other.learning_rate == 5e-4);  // its own default
    BOOST_TEST(*other.autoencoder_learning_rate == 7e-4);
    std::vector<entry> const none{entry{.name = "tiny-ar", .sizes = sizes::tiny_ar}};
    BOOST_TEST(has(sentence_of<error>([&] { chosen(none); }), "no configuration of a CALM is compiled"));
    auto three = sizes::tiny;
    three.autoencoder.patch_size = 3;
    auto const threes = chosen({compiled("three", three)});
    BOOST_TEST(*threes.block == 126);
    BOOST_TEST(*threes.autoencoder_batch == 2046);
}

BOOST_AUTO_TEST_CASE(given_choices_are_used) {
    text_choices given;
    given.configuration = "tiny";
    given.holdout = "6:5";
    given.vocabulary = 300;
    given.autoencoder_steps = 30;
    given.steps = 5;
    given.kl_weight = 0;
    given.batch = 2;
    given.block = 64;
    given.schedule = learning_rate_schedule::constant;
    given.head["targets"] = 3;
    given.head["beta"];
    auto const plan = plan_of_text({.bytes = 1'000'000, .tenth = 100'000}, given, usual());
    auto const record = record_of(plan.choices);
    for (auto const& row : record_of(given)) {
        BOOST_TEST((std::find(record.begin(), record.end(), row) != record.end()), row.option);
        auto const* const why = calm::value_of(plan.why, row.option);
        BOOST_TEST_REQUIRE(why != nullptr);
        BOOST_TEST(why->starts_with("as given"), row.option);
    }
    BOOST_TEST(!plan.choices.autoencoder_minutes);  // the number of steps ends it
    BOOST_TEST(!plan.minutes_of_model());
    BOOST_TEST(*plan.choices.autoencoder_warmup == 3);
    BOOST_TEST(*plan.choices.warmup == 0);
    auto const table = to_table(plan);
    BOOST_TEST(has(unaligned(table), "\n vocabulary 300 as given\n"), table);
    BOOST_TEST(has(unaligned(table), "\n head-targets 3 as given\n"), table);
    BOOST_TEST(!has(table, "head-beta"), table);
    auto foreign = plan;
    foreign.choices.configuration = "\x1b[2J";
    for (auto& row : foreign.why) row.value = "x\nforged: all is well";
    auto const shown = to_table(foreign);
    BOOST_TEST(has(shown, "\\x1b[2J"), shown);
    BOOST_TEST(has(shown, "x\\nforged"), shown);
    BOOST_TEST(!has(shown, "\nforged"), shown);
}

BOOST_AUTO_TEST_CASE(text_is_held_out_if_there_is_enough) {
    auto const held = [](std::uint64_t tenth, bool generated = false) {
        return planned({.bytes = 1'000'000, .tenth = tenth, .is_generated = generated}, in_minutes(5)).holdout;
    };
    BOOST_TEST(held(16'383) == "");
    BOOST_TEST(held(16'384) == "10:9");
    BOOST_TEST(held(100'000, true) == "");  // it already has a held-out split
    // Held-out text is not trained on.
    auto const vocabulary = [](std::uint64_t bytes) {
        return *planned({.bytes = bytes, .tenth = 200'000}, in_minutes(30)).vocabulary;
    };
    BOOST_TEST(vocabulary(2'199'999) == 259);
    BOOST_TEST(vocabulary(2'200'000) == 512);
}

BOOST_AUTO_TEST_CASE(choices_that_exclude_each_other_are_refused) {
    auto const refused = [](auto change) {
        auto given = in_minutes(5);
        change(given);
        return sentence_of<error>([&] { planned({.bytes = 1000}, given); });
    };
    BOOST_TEST(*planned({.bytes = 1000}, {}).minutes == 20);  // the default
    BOOST_TEST(has(refused([](auto& c) { c.minutes.reset(), c.steps = 3; }), "--minutes is needed"));
    BOOST_TEST(refused([](auto& c) { c.minutes.reset(), c.steps = 3, c.autoencoder_minutes = 1; }) == "");
    BOOST_TEST(has(refused([](auto& c) { c.autoencoder_minutes = 5; }),
                   "--autoencoder-minutes: expected fewer than the 5 minutes of both models, found 5"));
    BOOST_TEST(has(refused([](auto& c) { c.steps = 7, c.warmup = 7; }),
                   "--warmup: expected fewer steps than the 7 of --steps, found 7"));
    BOOST_TEST(has(refused([](auto& c) { c.autoencoder_steps = 7, c.autoencoder_warmup = 9; }),
                   "--autoencoder-warmup: expected fewer steps than the 7 of --autoencoder-steps, found 9"));
    BOOST_TEST(refused([](auto& c) { c.steps = 7, c.warmup = 7, c.schedule = learning_rate_schedule::constant; }) ==
               "");
    BOOST_TEST(has(refused([](auto& c) { c.head["beta"] = 1.5; }),
                   "--head-beta: the head of tiny-flow, flow, has no such option"));
    BOOST_TEST(has(refused([](auto& c) { c.configuration = "huge"; }), "'huge' is not compiled"));
}

BOOST_AUTO_TEST_CASE(a_record_of_choices_is_checked_as_options_are) {
    auto const refused = [](recipe_record const& record) {
        return sentence_of<error>([&] { static_cast<void>(choices_of(record, "plan.json")); });
    };
    for (auto const& [option, value] :
         {std::pair{"vocabulary", "258"}, std::pair{"learning-rate", "11"}, std::pair{"learning-rate", "x"},
          std::pair{"steps", "0"}, std::pair{"block", "1e9"}, std::pair{"minutes", "0"}, std::pair{"head-beta", ""},
          std::pair{"head-beta", "2"}, std::pair{"head-samples", "1e300"}, std::pair{"head-samples", "3.7"},
          std::pair{"head-samples", "0"}, std::pair{"random-patches", "nan"}}) {
        auto const said = refused({{option, value}});
        BOOST_TEST(has(said, "plan.json"), said);
        BOOST_TEST(has(said, "found '" + std::string(value) + "'"), said);
    }
    BOOST_TEST(choices_of({{"head-samples", "4"}, {"head-beta", "1.5"}}, "plan.json").head.at("samples").value() == 4);
    BOOST_TEST(has(refused({{"schedule", "linear"}}), "expected constant or cosine, found 'linear'"));
    BOOST_TEST(has(refused({{"holdout", "1:0"}}), "holdout"));
    BOOST_TEST(has(refused({{"colour", "red"}}), "a choice that this program knows"));
    BOOST_TEST(has(refused({{"head-colour", "1"}}), "a choice that this program knows"));
}

// The reason names the rule that made the number.
BOOST_AUTO_TEST_CASE(a_plan_states_the_warmup) {
    text_facts const text{.bytes = 1'000'000, .tenth = 100'000};
    auto const reason = [&](text_choices const& given, std::string const& option) {
        auto const plan = plan_of_text(text, given, usual());
        auto const* const why = calm::value_of(plan.why, option);
        return why == nullptr ? "none" : *why;
    };
    auto const minutes = in_minutes(2);
    BOOST_TEST(*planned(text, minutes).warmup == 75);  // of 1.5 minutes
    BOOST_TEST(reason(minutes, "warmup").starts_with("50 steps per minute, at most 200: a tenth of a fast core's"));
    BOOST_TEST(*planned(text, minutes).autoencoder_warmup == 25);
    BOOST_TEST(reason(minutes, "autoencoder-warmup").starts_with("50 steps per minute, at most 50: "));
    text_choices steps;
    steps.steps = 70;
    steps.autoencoder_steps = 90;
    BOOST_TEST(*planned(text, steps).warmup == 7);
    BOOST_TEST(reason(steps, "warmup") == "a tenth of the steps, at most 200");
    BOOST_TEST(*planned(text, steps).autoencoder_warmup == 9);
    BOOST_TEST(reason(steps, "autoencoder-warmup") == "a tenth of the steps, at most 50");
}
