#include <boost/test/unit_test.hpp>

#include <cstring>

#include "calm/train/session.hpp"

#include "support/small.hpp"

using namespace calm;
using calm::test::small;
using calm::test::weights_of;

namespace {

// Ten documents of seven ids below 8; BOS 8, EOS 9, PAD 10.
corpus small_corpus() {
    corpus text({8, 9, 10});
    for (token_id i = 0; i < 10; ++i) {
        std::vector<token_id> ids;
        for (token_id k = 0; k < 7; ++k) ids.push_back((i + k) % 8);
        text.add(std::span<token_id const>(ids));
    }
    return text;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_language_model_uses_a_copy_of_its_autoencoder) {
    context<> const ctx(3, 1);
    auto ae = make_autoencoder<small>(ctx, 13);
    auto lm = make_calm<small>(ctx, ae.model);
    auto const copied = weights_of(lm.model.ae_model);
    BOOST_TEST(copied == weights_of(ae.model));
    ae.model.embed_tokens.weight.value[0] += 1;
    BOOST_TEST(copied == weights_of(lm.model.ae_model));

    auto again = make_calm<small>(ctx, lm.model.ae_model);
    BOOST_TEST(weights_of(again.model) == weights_of(lm.model));  // equal seeds
}

BOOST_AUTO_TEST_CASE(copies_need_one_vocabulary) {
    context<> const ctx(3, 1);
    auto thirteen = make_autoencoder<small>(ctx, 13);
    auto eleven = make_autoencoder<small>(ctx, 11);
    auto const before = weights_of(eleven.model);
    BOOST_CHECK_EXCEPTION(copy_parameters(context<>(), eleven.model, thirteen.model), error, [](error const& e) {
        return e.code() == errc::usage &&
               std::string(e.what()).find("a vocabulary of 11, found 13") != std::string::npos;
    });
    BOOST_TEST(weights_of(eleven.model) == before);
}

BOOST_AUTO_TEST_CASE(text_blocks_match_the_reader_for_any_count) {
    auto const text = small_corpus();
    text_blocks blocks(text, 2, 4, 5);
    std::vector<token_id> six(24);
    blocks(six);
    block_reader reader(text, {packing::padded, 2, 5}, 4);
    std::vector<token_id> expected(24);
    for (std::size_t at = 0; at < 24; at += 4) reader.next(std::span(expected).subspan(at, 4));
    BOOST_TEST(six == expected);
    text_blocks published(text, 2, 4, 5, packing::published_language_model);
    published(six);
    block_reader as_published(text, {packing::published_language_model, 2, 5}, 4);
    for (std::size_t at = 0; at < 24; at += 4) as_published.next(std::span(expected).subspan(at, 4));
    BOOST_TEST(six == expected);
    std::vector<token_id> broken(6);
    BOOST_CHECK_THROW(blocks(broken), error);
    static_assert(!std::is_constructible_v<text_blocks, corpus, index_t, index_t>,
                  "a temporary corpus is gone too soon");
}

BOOST_AUTO_TEST_CASE(text_blocks_resume_where_others_stopped) {
    auto const text = small_corpus();
    text_blocks blocks(text, 2, 4, 5);
    std::vector<token_id> expected(4 * 100);  // several epochs
    std::vector<block_position> places;
    for (std::size_t at = 0; at < expected.size(); at += 4) {
        places.push_back(blocks.position());
        blocks(std::span(expected).subspan(at, 4));
    }
    BOOST_TEST(places.back().epoch > 2U);
    for (std::size_t i = 0; i < places.size(); i += 7) {
        text_blocks others(text, 2, 4, 5);
        others.seek(places[i]);
        BOOST_CHECK(others.position() == places[i]);
        std::vector<token_id> rest(expected.size() - 4 * i);
        others(rest);
        BOOST_TEST((std::equal(rest.begin(), rest.end(), expected.end() - static_cast<std::ptrdiff_t>(rest.size()))));
    }
    BOOST_CHECK_THROW(blocks.seek({0, 1000}), error);
}

BOOST_AUTO_TEST_CASE(short_recipes_and_short_callbacks) {
    autoencoder_recipe const ae = for_seconds{2, 3e-3, 512};
    BOOST_TEST((ae.seconds == 2 && ae.learning_rate == 3e-3 && ae.batch_tokens == 512 && ae.steps == 0));
    BOOST_TEST(ae.optimizer.muon == 0);
    autoencoder_recipe const long_ae = for_seconds{2};
    BOOST_TEST((long_ae.learning_rate == autoencoder_recipe().learning_rate &&
                long_ae.batch_tokens == autoencoder_recipe().batch_tokens));
    calm_recipe<energy_objective> const lm = for_seconds{3};
    calm_recipe<energy_objective> const defaults;
    BOOST_TEST((lm.seconds == 3 && lm.sequences == defaults.sequences && lm.learning_rate == defaults.learning_rate));
    BOOST_TEST((lm.optimizer.muon == defaults.optimizer.muon && defaults.optimizer.muon == 2 &&
                defaults.learning_rate == 2e-3));
    autoregressive_recipe const ar = for_seconds{3, 1e-4};
    BOOST_TEST((ar.optimizer.muon == defaults.optimizer.muon && ar.learning_rate == 1e-4));
    calm_recipe<energy_objective> const blocks = for_seconds{.seconds = 3, .tokens = 4 * defaults.block_tokens + 1};
    BOOST_TEST(blocks.sequences == 4);

    std::vector<index_t> told;
    auto const callbacks = every_steps(3, [&](progress const& now) { told.push_back(now.step); });
    for (index_t step = 0; step < 8; ++step) {
        progress now;
        now.step = step;
        callbacks.step(now);
    }
    BOOST_TEST(told == (std::vector<index_t>{2, 5}), boost::test_tools::per_element());
    BOOST_CHECK_THROW(every_steps(0, [](progress const&) {}), error);
}

BOOST_AUTO_TEST_CASE(a_few_steps_from_text_to_a_model) {
    auto const text = small_corpus();
    context<> ctx(3, 1);
    auto ae = make_autoencoder<small>(ctx, 11);
    autoencoder_recipe first;
    first.steps = 3;
    first.batch_tokens = 16;
    train_autoencoder(ctx, ae.model, text_blocks(text, 2, 2), first);
    auto lm = make_calm<small>(ctx, ae.model);
    auto const before = weights_of(lm.model);
    calm_recipe<energy_objective> second;
    second.steps = 3;
    second.sequences = 2;
    second.block_tokens = 8;
    second.objective = {.samples = 2, .targets = 2};
    train_calm(ctx, lm.model, text_blocks(text, 2, 8), second);
    BOOST_TEST(weights_of(lm.model) != before);
    BOOST_TEST(weights_of(lm.model.ae_model) == weights_of(ae.model));  // frozen
}
