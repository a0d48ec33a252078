// Generation inside a program: a stored model continues a prompt, and the program reads each patch and decides when to
// stop.
#include <cstdio>

#include "calm/io/model_directory.hpp"
#include "calm/model/presets.hpp"
#include "calm/sample/generate.hpp"
#include "calm/sample/streamed_text.hpp"
#include "calm/text/load_tokenizer.hpp"

// The sizes of the stored model. A model with other sizes is refused with an error that lists the differences.
using calm::presets::tiny;

int main(int count, char** arguments) try {
    std::string const folder = count > 1 ? arguments[1] : "model";  // from: train calm --config tiny --out model
    std::string const prompt = count > 2 ? arguments[2] : "Mia was";

    auto const stored = calm::read_model_description(folder);
    auto const words = calm::load_tokenizer(stored.path("tokenizer.model"));
    calm::calm_model<tiny> model(stored.vocabulary());
    calm::arena<> values("values"), *no_gradients = nullptr;
    allocate(model, values, no_gradients);
    allocate(model.ae_model, values, no_gradients);
    load_calm(stored, model);

    calm::context<> ctx;
    calm::streamed_text text(words);  // returns whole characters only
    std::printf("%s", prompt.c_str());
    auto const read = [&](std::span<calm::token_id const> tokens) {  // after every patch
        std::string const more = text.push(tokens);
        std::printf("%s", more.c_str());
        return more.find('.') == std::string::npos;  // stop after the first sentence
    };
    auto const result =
        generate(ctx, model, words.encode(prompt), words.specials(), {.max_tokens = 60, .seed = 1}, read);
    std::printf("\n(%zu tokens from %d draws)\n", result.tokens.size(), static_cast<int>(result.draws));
} catch (calm::error const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return static_cast<int>(e.code());
}
