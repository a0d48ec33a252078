// The advice for a model that learns no context.

#include <boost/test/unit_test.hpp>

#include "run/advice.hpp"

#include <vector>

#include "configs/sizes.hpp"
#include "support/sentences.hpp"
#include "support/small.hpp"

using namespace calm;
using namespace calm::apps;
using calm::test::has;

namespace {

// emulated/launches counts the launches of calm_m.
static_assert(sizes::calm_m == calm::test::published_m);

entry of(std::string const& name, auto const& sizes) {
    return {.name = name, .sizes = with_any_head(sizes)};
}

entry const tiny = of("tiny", sizes::tiny), tiny_drafted = of("tiny-drafted", sizes::tiny_drafted),
            tiny_k2 = of("tiny-k2", sizes::tiny_k2), text = of("text", sizes::text);
entry const tiny_ar{.name = "tiny-ar", .sizes = sizes::tiny_ar};
std::vector<entry> const all{text, tiny, tiny_ar, tiny_drafted, tiny_k2};

}  // namespace

BOOST_AUTO_TEST_CASE(the_head_that_learns_soonest_is_named) {
    BOOST_TEST(what_helps(tiny, 512, all) ==
               "the drafted head on the same autoencoder (--config tiny-drafted), an autoencoder trained on this text, "
               "patches of 2 tokens (--config tiny-k2), a vocabulary of bytes (train tokenizer --vocabulary 259) and "
               "more time; with a BPE of 512 tokens, learning rate, batch and samples changed little");
    // The drafted head needs no advice to use it; with another autoencoder it has to be compiled first.
    BOOST_TEST(!has(what_helps(tiny_drafted, 512, all), "drafted"));
    BOOST_TEST(has(what_helps(text, 512, all), "the drafted head on the same autoencoder (docs/configurations.md)"));
    BOOST_TEST(has(what_helps(tiny_drafted, 512, all), "patches of 2 tokens (docs/configurations.md)"));
}

BOOST_AUTO_TEST_CASE(advice_depends_on_vocabulary_and_patch_size) {
    BOOST_TEST(what_helps(tiny_k2, 259, all) ==
               "the drafted head on the same autoencoder (docs/configurations.md), an autoencoder trained on this text "
               "and more time; on bytes a learning rate of 1e-3 worked where 1.5e-3 did not");
    BOOST_TEST(
        what_helps(tiny_k2, 64, all) ==
        "the drafted head on the same autoencoder (docs/configurations.md), an autoencoder trained on this text and "
        "more time");
    BOOST_TEST(what_helps(tiny_ar, 512, all) ==
               "a vocabulary of bytes (train tokenizer --vocabulary 259) and more time");
    BOOST_TEST(what_helps(tiny_ar, 512, all, "train text") ==
               "a vocabulary of bytes (train text --vocabulary 259) and more time");
    BOOST_TEST(what_helps(tiny_ar, 259, all) == "more time");
}

BOOST_AUTO_TEST_CASE(the_message_contains_the_scores) {
    auto const said = no_context_sentence(0.0123, 0.0456, std::string(1000, 'x'));
    BOOST_TEST(has(said, "Brier-1 on held-out text is 0.0123, not above the unigram's 0.0456"));
    BOOST_TEST(has(said, "Watch the next evaluations"));
    BOOST_TEST(!has(said, "--learning-rate"));  // whether it would help is not known
    BOOST_TEST(said.ends_with("these have helped before: " + std::string(1000, 'x')));
}
