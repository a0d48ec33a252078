#include "calm/language_model.hpp"

#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <fstream>

#include "support/sentences.hpp"
#include "support/small.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using calm::test::has;
using calm::test::sentence_of;
using calm::test::temporary_folder;

namespace {

// With a head that reads the autoencoder.
constexpr auto mine = with_head(test::small, drafted{.num_mlp_layers = 1, .noise_size = 8});
using facade = language_model<mine>;

generation_options const few{.temperature = 1, .max_tokens = 24};

facade trained() {
    facade model(stories(40), {.vocabulary = 280, .threads = 1});
    model.train({.autoencoder_steps = 4, .steps = 4});
    return model;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_saved_model_generates_the_same_text) {
    temporary_folder const folder;
    auto const directory = folder.path("mine");
    auto model = trained();
    auto const wanted = model.generate("Mia was", few);
    BOOST_TEST(wanted.tokens.size() > 0U);
    BOOST_TEST(wanted.text == model.tokenizer().decode(wanted.tokens));
    BOOST_TEST(wanted.draws >= wanted.patches);
    BOOST_TEST(trained().generate("Mia was", few).tokens == wanted.tokens, boost::test_tools::per_element());
    model.save(directory);
    auto again = load<mine>(directory);
    BOOST_TEST((again.description().eos_token_id == std::vector<std::int64_t>{again.tokenizer().eos()}));
    BOOST_TEST(again.description().bos_token_id.value() == again.tokenizer().bos());
    BOOST_TEST(again.description().pad_token_id.value() == again.tokenizer().pad());
    BOOST_TEST(again.generate("Mia was", few).tokens == wanted.tokens, boost::test_tools::per_element());

    // A loaded model is trained further on a text, and replaces what was saved.
    again.train(stories(20), {.steps = 2});
    auto const later = test::weights_of(again.model());
    BOOST_TEST((later != test::weights_of(model.model())));
    again.save(directory);
    BOOST_TEST((test::weights_of(load<mine>(directory).model()) == later));

    // The --out of `calm train` has its model in a folder of this name.
    std::filesystem::create_directory(folder.path("run"));
    std::filesystem::rename(directory, folder.path("run/model"));
    BOOST_TEST((test::weights_of(load<mine>(folder.path("run")).model()) == later));
}

// `calm evaluate` compares a model with them.
BOOST_AUTO_TEST_CASE(the_counts_of_the_text_are_saved_with_the_model) {
    temporary_folder const folder;
    auto const directory = folder.path("mine");
    auto const counts = [&] { return folder.content("mine/bigram.counts"); };
    auto model = trained();
    BOOST_REQUIRE(model.counts() != nullptr);
    BOOST_TEST(model.counts()->vocabulary_size() == 280);
    BOOST_TEST(model.counts()->probability(model.tokenizer().bos()) > 0);
    model.save(directory);
    BOOST_TEST(counts() == model.counts()->bytes());
    auto again = load<mine>(directory);
    again.save(directory);
    BOOST_TEST(counts() == model.counts()->bytes());
    again.train(stories(20), {.steps = 1});
    again.save(directory);
    BOOST_TEST(counts() == again.counts()->bytes());
    BOOST_TEST(counts() != model.counts()->bytes());

    // A model without counts does not keep those of the model that it replaces.
    std::filesystem::copy(directory, folder.path("bare"));
    std::filesystem::remove(folder.path("bare/bigram.counts"));
    auto bare = load<mine>(folder.path("bare"));
    BOOST_TEST(bare.counts() == nullptr);
    bare.save(directory);
    BOOST_TEST(load<mine>(directory).counts() == nullptr);
}

BOOST_AUTO_TEST_CASE(callbacks_receive_progress_and_text) {
    facade model(stories(40), {.vocabulary = 280, .threads = 1});
    std::vector<std::string> lines;
    model.train(
        {.autoencoder_steps = 2, .steps = 40, .log = [&](auto const& now) { lines.push_back(to_string(now)); }});
    BOOST_TEST_REQUIRE(lines.size() == 12U);  // both steps, and every fourth of 40
    BOOST_TEST(lines.front().starts_with("autoencoder  step 1  loss "), lines.front());
    BOOST_TEST(lines.back().starts_with("language model  step 40  loss "), lines.back());

    std::string text;
    auto options = few;
    options.on_text = [&](std::string_view more) {
        text += more;
        return true;
    };
    BOOST_TEST(model.generate("", options).text == text);
    options.on_text = [](std::string_view) { return false; };
    BOOST_TEST(model.generate("", options).patches < 12);

    // A text ends before the first stop string, also what it shows while it grows.
    options = few;
    auto const whole = model.generate("", options).text;
    options.stop = {"never", whole.substr(whole.size() / 2, 2)};
    text.clear();
    options.on_text = [&](std::string_view more) {
        text += more;
        return true;
    };
    auto const ended = model.generate("", options);
    BOOST_TEST(ended.stop == options.stop.back());
    BOOST_TEST(ended.text == whole.substr(0, whole.find(ended.stop)));
    BOOST_TEST(text == ended.text);
    BOOST_TEST(!ended.stopped_at_eos);
    options.stop = {""};
    BOOST_TEST(has(sentence_of(errc::usage, [&] { (void)model.generate("", options); }), "a stop string is empty"));

    int left = 3;
    facade stopped(stories(40), {.vocabulary = 280, .threads = 1});
    stopped.train({.autoencoder_steps = 100, .steps = 100, .stop = [&] { return --left == 0; }});
    BOOST_TEST(!stopped.is_trained());
}

BOOST_AUTO_TEST_CASE(what_cannot_be_trained_is_explained) {
    auto const said = [](errc code, auto const& call) { return sentence_of(code, call); };
    BOOST_TEST(has(said(errc::data, [] { facade const none({}); }), "found 0 without"));
    BOOST_TEST(has(said(errc::data, [] { facade const none({"", ""}); }), "found 2 without"));
    BOOST_TEST(has(said(errc::tokenizer, [] { facade const little({"a text"}); }), "a vocabulary of at most"));
    facade short_text({"a text"}, {.vocabulary = tokenizer::byte_vocabulary});
    BOOST_TEST(has(said(errc::data, [&] { short_text.train({.minutes = 1}); }), "give more text"));
    std::vector<language_model_training> const unclear{{}, {.steps = 3}, {.minutes = 1, .steps = 3}, {.minutes = -1}};
    for (auto const& how : unclear)
        BOOST_TEST(has(said(errc::usage, [&] { short_text.train(how); }), "either minutes or the steps"));
    BOOST_TEST(has(said(errc::usage, [&] { (void)short_text.generate(""); }), "call train() first"));
    BOOST_TEST(has(said(errc::usage, [&] { short_text.save("nowhere"); }), "call train() first"));
    BOOST_TEST(has(said(errc::usage, [] { (void)generation_options{.temperature = "1/x"}; }), "1/n"));
}

BOOST_AUTO_TEST_CASE(what_cannot_be_saved_or_loaded_is_explained) {
    auto const said = [](errc code, auto const& call) { return sentence_of(code, call); };
    temporary_folder const folder;
    auto const directory = folder.path("mine");
    auto model = trained();
    model.save(directory);
    BOOST_TEST(has(said(errc::config, [&] { (void)load<test::smallest>(directory); }), "hidden_size"));
    BOOST_TEST(has(said(errc::model_file, [&] { (void)load<mine>(folder.path("none")); }), "no such directory"));
    BOOST_TEST(has(said(errc::model_file, [&] { (void)load<mine>(folder.path(".")); }), "no config.json"));
    auto again = load<mine>(directory);
    BOOST_TEST(has(said(errc::usage, [&] { again.train({.minutes = 1}); }), "give the documents"));
    BOOST_TEST(has(said(errc::usage, [&] { again.train(stories(9), {.autoencoder_steps = 1, .steps = 1}); }),
                   "whose autoencoder is trained"));
    std::filesystem::create_directory(folder.path("other"));
    std::ofstream(folder.path("other/notes.txt")) << "kept";
    BOOST_TEST(has(said(errc::storage, [&] { model.save(folder.path("other")); }), "something else"));
    BOOST_TEST(std::filesystem::exists(folder.path("other/notes.txt")));
    { run_directory const run(folder.path("run")); }
    std::filesystem::copy(directory, folder.path("run"));
    BOOST_TEST(has(said(errc::storage, [&] { model.save(folder.path("run")); }), "a training run"));
}
