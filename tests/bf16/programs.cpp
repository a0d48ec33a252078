// The programs for `tiny` with bf16 and int8 weights: the work of --dtype, compared with fp32.
#include <boost/test/unit_test.hpp>

#include <string>
#include <utility>

#include "calm/evaluate/evaluation.hpp"
#include "calm/io/convert_model.hpp"
#include "registry.hpp"
#include "stored_work.hpp"
#include "support/temporary_folder.hpp"
#include "text/text_data.hpp"
#include "training_jobs.hpp"

using namespace calm;
using namespace calm::apps;
using namespace calm::test;

namespace {

// A CALM trained for a few steps: "calm" holds the fp32 files, "rounded" holds them converted to bf16, "bytes" to int8.
struct shop {
    temporary_folder folder;
    entry const& tiny = calm_named("tiny");

    shop() {
        std::string lines;
        for (int i = 0; i < 400; ++i) lines += std::to_string(i) + "\n";
        static_cast<void>(folder.with("text.txt", lines));
        train_tokenizer({text(), 270, path("tokenizer.model")});
        auto o = training("ae");
        o.tokenizer = path("tokenizer.model");
        o.batch = 256;
        BOOST_REQUIRE(train_autoencoder({tiny, tiny.on(o.device)}, o) == 0);
        o = training("calm");
        o.autoencoder = path("ae");
        o.batch = 2;
        o.block = 64;
        BOOST_REQUIRE(train_calm({tiny, tiny.on(o.device)}, o) == 0);
        convert_model(path("calm"), path("rounded"), {.as = stored_type::bf16});
        convert_model(path("calm"), path("bytes"), {.as = stored_type::i8});
    }

    [[nodiscard]] std::string path(std::string const& name) const { return folder.path(name); }

    [[nodiscard]] std::string scores(std::string const& model, held_weights weights) const {
        evaluate_options o;
        o.weights = weights;
        o.model = path(model);
        o.data = text();
        o.positions = 50;
        return to_json(evaluate_stored(tiny.on(o.device, weights), o, read_model_description(o.model)));
    }
    // The answers to the prompts, as generate --jsonl writes them.
    [[nodiscard]] std::string written(std::string const& model, held_weights weights,
                                      std::string const& temperature = "1") const {
        std::string const name =
            model + std::to_string(static_cast<int>(weights)) + (temperature == "1" ? "" : "-drawn") + ".jsonl";
        generate_options o;
        o.weights = weights;
        o.model = path(model);
        o.jsonl = folder.with("prompts.jsonl", "{\"id\": 1, \"prompt\": \"12\"}\n{\"id\": 2, \"prompt\": \"\"}\n");
        o.out = path(name);
        o.temperature = temperature;
        o.threads = 2;
        o.max_tokens = 60;
        BOOST_REQUIRE(generate_stored(tiny.on(o.device, weights), o, read_model_description(o.model)) == 0);
        return folder.content(name);
    }

private:
    [[nodiscard]] data_options text() const {
        data_options data;
        data.sources = {path("text.txt")};
        return data;
    }
    [[nodiscard]] train_options training(std::string const& out) const {
        train_options o;
        o.threads = 2;
        o.configuration = tiny.name;
        o.data = text();
        o.out = path(out);
        o.steps = 40;
        o.warmup = 2;
        return o;
    }
};

auto says(errc code, std::string const& part) {
    return [=](error const& e) { return e.code() == code && std::string(e.what()).find(part) != std::string::npos; };
}

}  // namespace

BOOST_AUTO_TEST_CASE(files_of_bf16_have_the_texts_and_scores_that_they_have_in_fp32) {
    shop const here;
    BOOST_TEST(here.written("rounded", held_weights::bf16) == here.written("rounded", held_weights::f32));
    BOOST_TEST(here.scores("rounded", held_weights::bf16) == here.scores("rounded", held_weights::f32));
    // Weights rounded on load differ from the fp32 weights, so the scores differ too.
    BOOST_TEST(here.scores("calm", held_weights::bf16) != here.scores("calm", held_weights::f32));
}

BOOST_AUTO_TEST_CASE(files_of_int8_have_the_texts_and_scores_that_they_have_in_fp32) {
    shop const here;
    auto const text = here.written("bytes", held_weights::f32), scores = here.scores("bytes", held_weights::f32);
    auto const drawn = here.written("bytes", held_weights::f32, "1/2");  // many draws, shared by the threads
    for (auto const* const model : {"bytes", "calm"}) {                  // fp32 files are rounded on load
        BOOST_TEST(here.written(model, held_weights::int8) == text, model);
        BOOST_TEST(here.written(model, held_weights::int8, "1/2") == drawn, model);
        BOOST_TEST(here.scores(model, held_weights::int8) == scores, model);
    }
    BOOST_TEST(here.scores("calm", held_weights::f32) != scores);
}

BOOST_AUTO_TEST_CASE(int8_is_for_the_cpu) {
    auto const& tiny = calm_named("tiny");
    BOOST_CHECK(&tiny.on(device_choice::parse("auto"), held_weights::int8) == &tiny.on(device_choice()));
    for (auto const* const device : {"cuda", "emulated"})
        BOOST_CHECK_EXCEPTION(
            static_cast<void>(tiny.on(device_choice::parse(device), held_weights::int8)), error,
            says(errc::config, std::string("--device ") + device + " --dtype int8: expected --device cpu"));
}

BOOST_AUTO_TEST_CASE(weights_in_bf16_are_compiled_work_without_training) {
    auto const& tiny = calm_named("tiny");
    auto const bf16 = held_weights::bf16;
    BOOST_CHECK(&tiny.on(device_choice::parse("auto"), bf16) == &tiny.on(device_choice(), bf16));
    BOOST_CHECK(&tiny.on(device_choice(), bf16) != &tiny.on(device_choice()));
    BOOST_CHECK(tiny.on(device_choice(), bf16).make_calm == nullptr);
}
