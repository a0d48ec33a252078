// The programs for `tiny` on a device: the work of --device, compared with the cpu, whose runs it resumes. The device
// is CALM_TEST_DEVICE: the emulated one in emulated/programs, a GPU in cuda/programs.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "calm/emulated.hpp"
#include "calm/io/convert_model.hpp"
#include "calm/io/safetensors.hpp"
#include "registry.hpp"
#include "stored_work.hpp"
#include "support/close.hpp"
#include "support/skipped.hpp"
#include "support/temporary_folder.hpp"
#include "text/text_data.hpp"
#include "training_jobs.hpp"

using namespace calm;
using namespace calm::apps;
using namespace calm::test;

namespace {

std::string const tested = CALM_TEST_DEVICE;  // the device

// A text without held-out documents, so that training runs without evaluations.
struct shop {
    temporary_folder folder;
    entry const& tiny = calm_named("tiny");

    shop() {
        std::string lines;
        for (int i = 0; i < 400; ++i) lines += std::to_string(i) + "\n";
        static_cast<void>(folder.with("text.txt", lines));
        train_tokenizer({text(), 270, path("tokenizer.model")});
    }

    [[nodiscard]] std::string path(std::string const& name) const { return folder.path(name); }

    // Trains with batches of 64 tokens until `steps` steps are done.
    void train_autoencoder(std::string const& device, std::string const& out, index_t steps,
                           bool in_bf16 = false) const {
        auto o = training(device, out, steps);
        o.in_bf16 = in_bf16;
        o.tokenizer = path("tokenizer.model");
        o.batch = 64;
        BOOST_REQUIRE(calm::apps::train_autoencoder({tiny, tiny.on(o.device)}, o) == 0);
    }
    void train_calm(std::string const& device, std::string const& autoencoder, std::string const& out,
                    index_t steps) const {
        auto o = training(device, out, steps);
        o.autoencoder = path(autoencoder);
        o.batch = 2;
        o.block = 32;
        BOOST_REQUIRE(calm::apps::train_calm({tiny, tiny.on(o.device)}, o) == 0);
    }
    [[nodiscard]] evaluation evaluated(std::string const& device, std::string const& model,
                                       held_weights weights = held_weights::f32) const {
        evaluate_options o;
        o.weights = weights;
        o.device = device_choice::parse(device);
        o.model = path(model);
        o.data = text();
        o.positions = 20;
        return evaluate_stored(tiny.on(o.device, weights), o, read_model_description(o.model));
    }
    // The answer to a prompt, as generate --jsonl writes it.
    [[nodiscard]] std::string written(std::string const& device, std::string const& model,
                                      held_weights weights = held_weights::f32) const {
        generate_options o;
        o.weights = weights;
        o.device = device_choice::parse(device);
        o.model = path(model);
        o.jsonl = folder.with("prompts.jsonl", "{\"id\": 1, \"prompt\": \"12\"}\n");
        auto const name = device + "-" + model + (weights == held_weights::bf16 ? "-bf16.jsonl" : ".jsonl");
        o.out = path(name);
        o.max_tokens = 16;
        BOOST_REQUIRE(generate_stored(tiny.on(o.device, weights), o, read_model_description(o.model)) == 0);
        return folder.content(name);
    }
    // The losses in a run's log.
    [[nodiscard]] std::vector<double> losses(std::string const& run) const {
        std::vector<double> all;
        std::istringstream lines(folder.content(run + "/metrics.jsonl"));
        for (std::string line; std::getline(lines, line);)
            if (auto const one = nlohmann::json::parse(line); one.contains("loss")) all.push_back(one["loss"]);
        return all;
    }
    [[nodiscard]] std::vector<float> weights(std::string const& run) const {
        auto const file = safetensors_file::open(path(run + "/model.safetensors"));
        std::vector<float> all;
        for (auto const& tensor : file.tensors()) {
            std::vector<float> one(tensor.count());
            file.read_into(tensor, std::span(one));
            all.insert(all.end(), one.begin(), one.end());
        }
        return all;
    }

private:
    [[nodiscard]] data_options text() const {
        data_options data;
        data.sources = {path("text.txt")};
        return data;
    }
    [[nodiscard]] train_options training(std::string const& device, std::string const& out, index_t steps) const {
        train_options o;
        o.device = device_choice::parse(device);
        o.threads = 2;
        o.configuration = tiny.name;
        o.data = text();
        o.out = path(out);
        o.steps = steps;
        o.warmup = 2;
        return o;
    }
};

}  // namespace

// Cases that compute on the device; the others do not need one.
BOOST_AUTO_TEST_SUITE(work)

BOOST_AUTO_TEST_CASE(a_run_resumes_and_its_model_loads_on_any_device) {
    if (auto const why = calm_named("tiny").work.at(tested).unavailable_reason(0); !why.empty()) {
        skip(why);
        return;
    }
    shop const here;
    auto const is_as = [&](std::string const& exchanged, std::string const& of_cpu) {
        BOOST_TEST(close(here.losses(exchanged), here.losses(of_cpu), kind::loss_of_run));
        BOOST_TEST(close(here.weights(exchanged), here.weights(of_cpu), kind::weight_of_run));
        BOOST_CHECK(here.weights(exchanged) != here.weights(of_cpu));  // a different device trained it
    };
    here.train_autoencoder("cpu", "ae", 10);
    here.train_autoencoder(tested, "exchanged-ae", 4);
    BOOST_TEST(here.losses("exchanged-ae").size() == 4U);
    here.train_autoencoder("cpu", "exchanged-ae", 10);
    BOOST_TEST(here.losses("exchanged-ae").size() == 10U);
    is_as("exchanged-ae", "ae");

    here.train_calm("cpu", "ae", "calm", 10);
    here.train_calm("cpu", "ae", "exchanged", 4);
    here.train_calm(tested, "ae", "exchanged", 10);
    is_as("exchanged", "calm");

    auto const want = here.evaluated("cpu", "exchanged");
    auto const got = here.evaluated(tested, "exchanged");
    BOOST_REQUIRE((want.brier && got.brier));
    BOOST_TEST(close(std::span(*got.brier), std::span(*want.brier), kind::output));
    BOOST_TEST(here.written(tested, "exchanged") == here.written("cpu", "exchanged"));
}

// --dtype bf16 rounds factors, and the losses hardly differ. The library computes all products as requested.
BOOST_AUTO_TEST_CASE(a_device_trains_in_bf16) {
    if (auto const why = calm_named("tiny").work.at(tested).unavailable_reason(0); !why.empty()) {
        skip(why);
        return;
    }
    shop const here;
    here.train_autoencoder(tested, "whole", 3);
    here.train_autoencoder(tested, "half", 3, true);
    auto const whole = here.losses("whole"), half = here.losses("half");
    BOOST_REQUIRE((whole.size() == 3U && half.size() == 3U));
    for (std::size_t i = 0; i < whole.size(); ++i) BOOST_TEST(std::abs(half[i] / whole[i] - 1) < 0.01);
    BOOST_CHECK(here.weights("half") != here.weights("whole"));
}

// bf16 files held in bf16 give the texts and scores of fp32.
BOOST_AUTO_TEST_CASE(a_device_holds_weights_in_bf16) {
    if (auto const why = calm_named("tiny").work.at(tested).unavailable_reason(0); !why.empty()) {
        skip(why);
        return;
    }
    shop const here;
    here.train_autoencoder(tested, "ae", 4);
    here.train_calm(tested, "ae", "calm", 4);
    convert_model(here.path("calm"), here.path("rounded"), {.as = stored_type::bf16});
    BOOST_TEST(here.written(tested, "rounded", held_weights::bf16) == here.written(tested, "rounded"));
    // A product of many rows by weights in bf16 is the sum of three: equal to the one in fp32 but for rounding.
    auto const numbers = [&](std::string const& model, held_weights weights) {
        auto const e = here.evaluated(tested, model, weights);
        BOOST_REQUIRE((e.brier && e.head_loss && e.token_accuracy && e.posterior_std));
        std::vector<double> all(e.brier->begin(), e.brier->end());
        all.insert(all.end(), {*e.head_loss, *e.token_accuracy, *e.token_accuracy_posterior, *e.posterior_std});
        return all;
    };
    BOOST_TEST(close(numbers("rounded", held_weights::bf16), numbers("rounded", held_weights::f32), kind::output));
    // Weights that are rounded when loaded give other numbers than the ones in the file.
    BOOST_TEST(!close(numbers("calm", held_weights::bf16), numbers("calm", held_weights::f32), kind::output));
}

BOOST_AUTO_TEST_SUITE_END()

// A GPU reports how many; the emulated device and the cpu lack none.
BOOST_AUTO_TEST_CASE(missing_products_of_a_device_library_are_an_error) {
    struct of_gpu {
        index_t lacking;
        index_t attentions = 0;
        [[nodiscard]] index_t unsupported_products() const { return lacking; }
        [[nodiscard]] index_t unsupported_attentions() const { return attentions; }
    };
    BOOST_TEST(remark_on(unsupported_by(of_gpu{12})) ==
               "cuBLASLt could not compute 12 of the products: slower kernels of this library did");
    BOOST_TEST(remark_on(unsupported_by(of_gpu{0})).empty());
    BOOST_TEST(remark_on(unsupported_by(of_gpu{0, 3})) ==
               "cuDNN could not compute attention 3 times: slower kernels of this library did");
    BOOST_TEST(context<emulated>::unsupported_products() == 0);
    BOOST_TEST(remark_on(unsupported_by(context<emulated>(1, 1))).empty());
    BOOST_TEST(remark_on(unsupported_by(context<>(1, 1))).empty());
}

BOOST_AUTO_TEST_CASE(a_device_that_is_missing_is_an_error) {
    auto tiny = calm_named("tiny");
    std::erase_if(tiny.work, [](auto const& one) { return one.first != "cpu" && one.first != tested; });
    if (tested != "cuda")  // the GPU is asked for before anything is compiled for it
        BOOST_CHECK_EXCEPTION(static_cast<void>(tiny.on(device_choice::parse("cuda:1023"))), error, [](error const& e) {
            return std::string(e.what()).starts_with("--device cuda:1023: no GPU") ||
                   std::string(e.what()).find("this program was built without CUDA") != std::string::npos;
        });
    auto without_gpu = tiny;
    without_gpu.work.erase("cuda");
    BOOST_CHECK(&without_gpu.on(device_choice::parse("auto")) == &without_gpu.on(device_choice()));
    auto with_gpu = tiny;
    with_gpu.work["cuda"] = with_gpu.work["cpu"];  // complete, or the rest would be compiled on demand
    with_gpu.work["cuda"].unavailable_reason = [](int) { return std::string("no GPU: it fell out"); };
    BOOST_CHECK(&with_gpu.on(device_choice::parse("auto")) == &with_gpu.on(device_choice()));
    BOOST_CHECK_EXCEPTION(static_cast<void>(with_gpu.on(device_choice::parse("cuda"))), error, [](error const& e) {
        return e.code() == errc::device && std::string(e.what()).find("it fell out") != std::string::npos;
    });
    with_gpu.work["cuda"].unavailable_reason = [](int number) {
        return std::string(number == 0 ? "" : "no GPU of that number");
    };
    BOOST_CHECK(&with_gpu.on(device_choice::parse("auto")) == &with_gpu.work["cuda"]);
    BOOST_CHECK(&with_gpu.on(device_choice::parse("cuda")) == &with_gpu.work["cuda"]);
    BOOST_CHECK_EXCEPTION(static_cast<void>(with_gpu.on(device_choice::parse("cuda:1"))), error, [](error const& e) {
        return std::string(e.what()) == "--device cuda:1: no GPU of that number; leave --device out to use the cpu";
    });
}
