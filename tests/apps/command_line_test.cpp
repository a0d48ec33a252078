#include <boost/test/unit_test.hpp>

#include "command_line.hpp"
#include "registry.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::apps;
using calm::test::temporary_folder;

namespace {

std::vector<char const*> pointers(std::vector<std::string> const& words) {
    std::vector<char const*> p{"program"};
    for (auto const& word : words) p.push_back(word.c_str());
    return p;
}

template <class Read> auto read(Read&& reader, std::vector<std::string> const& words) {
    auto const p = pointers(words);
    return reader(static_cast<int>(p.size()), p.data());
}

// The sentence of the one error of a command line that cannot be.
template <class Read> std::string refusal(Read&& reader, std::vector<std::string> const& words) {
    try {
        read(reader, words);
    } catch (error const& e) {
        BOOST_TEST(static_cast<int>(e.code()) == 2);
        return e.what();
    }
    BOOST_ERROR("expected an error");
    return "";
}

bool has(std::string const& text, std::string const& part) {
    return text.find(part) != std::string::npos;
}

std::string known_name() {
    return compiled_configurations().front().name;
}

}  // namespace

BOOST_AUTO_TEST_CASE(options_reach_their_places) {
    temporary_folder const folder;
    auto const tokenizer_file = folder.with("tokenizer.model", "x");
    auto const command = read(read_train, {"autoencoder",      "--config", known_name(),  "--tokenizer",
                                           tokenizer_file,     "--data",   "stories:100", "--out",
                                           folder.path("out"), "--steps",  "7",           "--minutes=0.5",
                                           "--rate",           "1e-3",     "--schedule",  "cosine",
                                           "--warmup",         "2",        "--seed",      "18446744073709551615",
                                           "--random-patches", "0.15"});
    BOOST_REQUIRE(command.has_value());
    auto const& o = std::get<train_autoencoder_command>(*command);
    BOOST_TEST(o.configuration == known_name());
    BOOST_TEST(o.data.sources == std::vector<std::string>{"stories:100"});
    BOOST_TEST(*o.steps == 7);
    BOOST_TEST(*o.minutes == 0.5);
    BOOST_TEST(*o.rate == 1e-3);
    BOOST_CHECK(o.schedule == rate_schedule::cosine);
    BOOST_TEST(o.seed == 18446744073709551615U);
    BOOST_TEST(*o.random_patches == 0.15);
    BOOST_TEST(!o.batch.has_value());
}

BOOST_AUTO_TEST_CASE(lists_of_texts_and_prompts) {
    temporary_folder const folder;
    auto const text = folder.with("a.txt", "some text");
    auto const command = read(read_train, {"tokenizer", "--data", text, "stories:50", "--vocabulary", "300",
                                           "--holdout", "6:5", "--out", folder.path("t")});
    auto const& o = std::get<tokenizer_options>(*command);
    BOOST_TEST(o.data.sources == (std::vector<std::string>{text, "stories:50"}));
    BOOST_TEST(o.data.holdout == "6:5");
    BOOST_TEST(o.vocabulary == 300);

    auto const model = folder.path("");
    auto const g = read(read_generate, {"--model", model, "--prompt=--a prompt--", "--temperature", "0.25"});
    BOOST_TEST(g->prompt == "--a prompt--");
    BOOST_TEST(g->temperature == "0.25");
    BOOST_TEST(g->samples == 200);
    BOOST_TEST(read(read_generate, {"--model", model, "--prompt", ""})->prompt == "");
    BOOST_TEST(read(read_generate, {"--model", model, "--prompt", "-3 degrees"})->prompt == "-3 degrees");
}

BOOST_AUTO_TEST_CASE(every_problem_is_told_at_once) {
    temporary_folder const folder;
    auto const there = folder.with("there", "x");
    auto const all = refusal(read_train, {"calm",
                                          "--autoencoder",
                                          folder.path("absent"),
                                          "--data",
                                          "stories:0",
                                          folder.path("no.txt"),
                                          "--out",
                                          there,
                                          "--steps",
                                          "three",
                                          "--minutes",
                                          "--bacth",
                                          "4",
                                          "--beta",
                                          "2",
                                          "--samples",
                                          "1",
                                          "--rate",
                                          "1",
                                          "--rate",
                                          "2",
                                          "--holdout",
                                          "6",
                                          "--schedule",
                                          "cosin",
                                          "--config",
                                          "tinny"});
    for (auto const* const part :
         {"absent", "stories:0", "no.txt", "is there already", "'three'", "--minutes needs a value",
          "no option --bacth", "mean --batch?", "--beta: expected a number above 0 and below 2,",
          "--samples: expected a whole number of at least 2", "--rate is given 2 times", "holdout \"6\"",
          "mean cosine?", "'tinny' is not compiled", "-DCALM_CONFIGS="})
        BOOST_TEST(has(all, part), part << " is missing in " << all);
    BOOST_TEST(has(refusal(read_train, {"tokenizer"}), "3 problems"));
}

BOOST_AUTO_TEST_CASE(unknown_commands_and_values) {
    BOOST_TEST(has(refusal(read_train, {"autoencodr"}), "did you mean autoencoder?"));
    BOOST_TEST(has(refusal(read_train, {}), "tokenizer, autoencoder and calm"));
    BOOST_TEST(has(refusal(read_evaluate, {"--model", "nowhere", "--data", "stories:9", "stray.txt", "--samples", "1"}),
                   "stray.txt"));
    temporary_folder const folder;
    std::vector<std::string> const start{"--model", folder.path("")};
    auto const refused = [&](std::vector<std::string> words) {
        words.insert(words.begin(), start.begin(), start.end());
        return refusal(read_generate, words);
    };
    BOOST_TEST(has(refused({"--sampler", "exakt"}), "there is: batch"));
    BOOST_TEST(has(refused({"--temperature", "0.4"}), "1/2"));
    BOOST_TEST(has(refused({"--temperature", "warm"}), "warm"));
    BOOST_TEST(has(refused({"--prompt", "a", "b"}), "quotes"));
}

BOOST_AUTO_TEST_CASE(help_leaves_nothing_to_do) {
    BOOST_TEST(!read(read_train, {"--help"}).has_value());
    BOOST_TEST(!read(read_train, {"calm", "--help"}).has_value());
    BOOST_TEST(!read(read_evaluate, {"-h"}).has_value());
    BOOST_TEST(!read(read_generate, {"--model", "x", "--help"}).has_value());
}
