// The scores of another run by elapsed seconds.

#include <boost/test/unit_test.hpp>

#include "run/baseline_scores.hpp"

#include "calm/base/error.hpp"
#include "support/fixtures.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::apps;
using namespace calm::test;

namespace {

std::string const steps = "{\"step\":10,\"seconds\":100,\"loss\":3}\n{\"step\":20,\"seconds\":300,\"loss\":2}\n";

baseline_scores of(std::string const& lines) {
    temporary_folder const folder;
    return {read_metrics(folder.with("metrics.jsonl", lines)), "metrics.jsonl"};
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_last_scores_by_then_count) {
    auto const baseline = of(steps + "{\"step\":10,\"brier\":[0.1,0.05,0,0],\"brier_lm\":1}\n"
                                     "{\"step\":15,\"brier\":[0.2,0.1,0,0],\"brier_lm\":2}\n"
                                     "{\"step\":17,\"heldout_loss\":7}\n"
                                     "{\"step\":20,\"brier\":[0.3,0.1,0,0],\"brier_lm\":3}\n"
                                     "{\"step\":20,\"brier\":[0.35,0.1,0,0],\"brier_lm\":3.5}\n");
    BOOST_TEST(!baseline.at(99.9).has_value());
    BOOST_TEST(baseline.at(100)->brier_1 == 0.1);
    BOOST_TEST(baseline.at(199)->brier_lm == 1);
    BOOST_TEST(baseline.at(200)->brier_1 == 0.2);  // between logged steps
    BOOST_TEST(baseline.at(299)->seconds == 200);
    BOOST_TEST(baseline.at(300)->brier_lm == 3.5);  // the last entry per step counts
    BOOST_TEST(baseline.at(1e9)->seconds == 300);
}

BOOST_AUTO_TEST_CASE(a_run_that_was_not_measured_is_refused) {
    auto const said = sentence_of<error>([] { of(steps + "{\"step\":17,\"heldout_loss\":7}\n"); });
    BOOST_TEST(has(said, "expected scores on held-out text to compare with, found none"), said);
}

BOOST_AUTO_TEST_CASE(negative_scores_have_no_percentage) {
    BOOST_TEST(baseline_text({120, 0.2, 2}, 0.13, -0.1) ==
               "autoregressive after 2:00: Brier-1 0.200 (this has 65 %), BrierLM 2.00");
    BOOST_TEST(baseline_text({120, 0.2, 2}, 0, 1) ==
               "autoregressive after 2:00: Brier-1 0.200 (this has 0 %), BrierLM 2.00 (50 %)");
    BOOST_TEST(baseline_text({59, -0.001, 0}, 0.13, 0) == "autoregressive after 59 s: Brier-1 -0.001, BrierLM 0.00");
}

BOOST_AUTO_TEST_CASE(only_an_autoregressive_run_is_a_baseline) {
    auto const said =
        sentence_of<error>([] { read_baseline_scores(checkpoint("base", "autoencoder"), calm_description()); });
    BOOST_TEST(has(said, "--baseline: expected the run of train ar"), said);
}
