// A saved model in a program, without calm::language_model: load it, generate a text that the program reads as it grows
// and stops, and measure the model on texts that no training had.
#include <cstdio>

#include "calm/evaluate.hpp"
#include "calm/io/load_model.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/model/presets.hpp"
#include "calm/runs/model_tokenizer.hpp"
#include "calm/sample/generate.hpp"
#include "calm/sample/stop_strings.hpp"
#include "calm/text/packing.hpp"
#include "calm/text/stories.hpp"

// The sizes of the stored model. A model with other sizes is refused with an error that lists the differences.
using calm::presets::tiny;

int main(int count, char** arguments) try {
    std::string const folder = count > 1 ? arguments[1] : "model";  // from: train calm --config tiny --out model
    std::string const prompt = count > 2 ? arguments[2] : "Mia was";

    auto const stored = calm::read_model_description(folder);
    auto const tokenizer = calm::load_tokenizer(stored);
    calm::calm_model<tiny> model(stored.vocabulary());
    // Memory without gradients; the frozen autoencoder is allocated separately. calm::owned_model does both.
    calm::arena<> values("values"), *no_gradients = nullptr;
    allocate(model, values, no_gradients);
    allocate(model.ae_model, values, no_gradients);
    load_model(stored, model);

    calm::context<> ctx;
    calm::stop_strings const stops({"\n", "The end"});
    calm::stopped_text text(stops);  // holds back what may begin a stop string, also across patches
    std::printf("%s", prompt.c_str());
    auto const read = [&](std::span<calm::token_id const> tokens) {  // after every patch
        std::printf("%s", text.push(tokenizer.decode(tokens)).c_str());
        return text.stop() == nullptr;  // false ends the text
    };
    auto const result =
        generate(ctx, model, tokenizer.encode(prompt), tokenizer.specials(), {.max_tokens = 60, .seed = 1}, read);
    std::printf("%s\n(%zu tokens from %d draws)\n", text.flush().c_str(), result.tokens.size(),
                static_cast<int>(result.draws));

    // BrierLM next to that of the tokens and pairs of tokens of the training text.
    auto const counts = calm::bigram_table::load(stored.path("bigram.counts"));
    auto const unseen = calm::corpus_of(calm::stories(100, 1, calm::split::heldout), tokenizer);
    calm::evaluation_settings const settings{.block_tokens = 64, .samples = 4, .positions = 100};
    auto const blocks = calm::evaluation_blocks(unseen, {.K = tiny.autoencoder.patch_size}, 64);
    std::puts(to_table(evaluate_model(ctx, model, blocks, tokenizer.specials(), &counts, settings)).c_str());
} catch (calm::error const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return static_cast<int>(e.code());
}
