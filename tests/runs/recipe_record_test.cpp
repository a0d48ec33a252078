#include <boost/test/unit_test.hpp>

#include "calm/model/heads.hpp"
#include "calm/runs/recipe_record.hpp"

using namespace calm;

BOOST_AUTO_TEST_CASE(everything_that_determines_the_weights_is_recorded) {
    calm_recipe<energy_objective> r;
    r.steps = 100;
    auto const same_as = [&, before = record_of(r, 1)](auto&& change) {
        auto changed = r;
        change(changed);
        return differences(before, record_of(changed, 1));
    };
    BOOST_TEST(same_as([](auto& c) { c.steps = 200; }).empty());
    BOOST_TEST(same_as([](auto& c) { c.seconds = 9; }).empty());
    BOOST_TEST(same_as([](auto& c) { c.save_every = c.evaluate_every = 3; }).empty());
    BOOST_TEST(same_as([](auto& c) { c.machine_peak = 1e9; }).empty());
    BOOST_TEST(same_as([](auto& c) { c.skip_nonfinite = 1; }).empty());
    auto const named = [&](std::string const& option, auto&& change) {
        auto const d = same_as(change);
        BOOST_REQUIRE(d.size() == 1u);
        BOOST_TEST(d[0].option == option);
        BOOST_TEST(d[0].was != d[0].now);
    };
    named("learning-rate", [](auto& c) { c.learning_rate = 1e-4; });
    named("warmup", [](auto& c) { c.warmup = 1; });
    named("accumulation", [](auto& c) { c.accumulation = 2; });
    named("batch", [](auto& c) { c.sequences = 2; });
    named("block", [](auto& c) { c.block_tokens = 64; });
    named("head-samples", [](auto& c) { c.objective.samples = 3; });
    named("head-targets", [](auto& c) { c.objective.targets = 3; });
    named("head-beta", [](auto& c) { c.objective.beta = 1.5; });
    named("weight-decay", [](auto& c) { c.optimizer.weight_decay = 0; });
    named("clip", [](auto& c) { c.optimizer.clip = 2; });
    named("muon", [](auto& c) { c.optimizer.muon = 0; });
    named("rounding", [](auto& c) { c.rounding = weight_rounding::stochastic; });
    auto falling = r;
    falling.schedule = learning_rate_schedule::cosine;
    auto longer = falling;
    longer.steps = 200;
    auto const d = differences(record_of(falling, 1), record_of(longer, 2));
    BOOST_REQUIRE(d.size() == 2u);
    BOOST_TEST(d[0].option == "seed");
    BOOST_TEST(d[1].option == "steps");
    BOOST_TEST(differences(record_of(r, 1), record_of(falling, 1)).size() == 2u);  // schedule, and now steps
    auto timed = falling;
    timed.steps = 0, timed.seconds = 60;
    auto longer_time = timed;
    longer_time.seconds = 90;
    auto const t = differences(record_of(timed, 1), record_of(longer_time, 1));
    BOOST_REQUIRE(t.size() == 1u);
    BOOST_TEST(t[0].option == "seconds");
}

BOOST_AUTO_TEST_CASE(differences_are_a_table) {
    auto const d = differences({{"learning-rate", "0.001"}, {"batch", "16"}, {"beta", "1"}},
                               {{"learning-rate", "0.0005"}, {"batch", "16"}, {"schedule", "cosine"}});
    BOOST_TEST(to_table(d) == "  option         was    now\n"
                              "  learning-rate  0.001  0.0005\n"
                              "  beta           1      -\n"
                              "  schedule       -      cosine");
}

BOOST_AUTO_TEST_CASE(a_text_is_known_by_its_fingerprint_and_not_by_its_name) {
    recipe_record const here{{"data", "a.txt"}, {"text", "1 documents, 5 tokens, abc"}, {"learning-rate", "1"}};
    recipe_record const there{{"data", "/home/a.txt"}, {"text", "1 documents, 5 tokens, abc"}, {"learning-rate", "1"}};
    recipe_record const other{{"data", "a.txt"}, {"text", "1 documents, 5 tokens, abd"}, {"learning-rate", "1"}};
    BOOST_TEST(differences(here, there).empty());
    BOOST_TEST(same_measure(here, there));
    BOOST_REQUIRE(differences(here, other).size() == 1U);
    BOOST_TEST(differences(here, other)[0].option == "text");
    BOOST_TEST(!same_measure(here, other));
    // Without fingerprints only names can be compared.
    BOOST_TEST(differences({{"data", "a.txt"}}, {{"data", "b.txt"}}).size() == 1U);
    BOOST_TEST(differences(here, {{"data", "b.txt"}, {"learning-rate", "1"}}).size() == 2U);
}
