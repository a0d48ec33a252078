// A model of any sizes: opened, asked for a text and scored. Its code is compiled the first time, in some 20 seconds.
#include <cstdio>

#include "calm/open.hpp"

int main(int count, char** arguments) try {
    std::string const folder = count > 1 ? arguments[1] : "model";  // any CALM or Llama, or the --out of calm train
    std::string const device = count > 2 ? arguments[2] : "cpu";    // or cuda, an NVIDIA GPU
    auto model = calm::open(folder, {.device = device});
    std::printf("%lld tokens per patch, vocabulary %d\n", static_cast<long long>(model.patch_size()),
                model.tokenizer().vocabulary_size());

    auto const made = model.generate("Mia was a", {.temperature = 0.5, .max_tokens = 40});
    std::printf("Mia was a%s\n", made.text.c_str());

    auto const found = model.evaluate(calm::stories(300), {.samples = 2, .positions = 200});
    std::printf("BrierLM %.1f at %d positions\n", found.brier_lm.value_or(0), static_cast<int>(found.positions));
} catch (calm::error const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return static_cast<int>(e.code());
}
