// Answers as a server gives them, without its network: texts join a batch when they are asked for and leave it when
// they end. A step makes one patch of every text. So a new text waits for one patch, not until other texts end.
#include <cstdio>
#include <map>
#include <vector>

#include "calm/open.hpp"
#include "calm/sample/streamed_text.hpp"

// A prompt and the step at which it arrives.
struct request {
    int step;
    std::string prompt;
};

// A text under way.
struct answer {
    std::string prompt;
    calm::streamed_text<calm::tokenizer> arriving;  // returns whole characters only
    std::string text = {};
};

int main(int count, char** arguments) try {
    // Compiled when it is first opened, as in 14. In int8, its matrices need a quarter of the memory.
    auto model = calm::open(count > 1 ? arguments[1] : "model", {.int8 = true});
    auto const texts = model.text_batch(2, 32);  // two at a time, each of 32 patches with its prompt
    auto settings = model.settings_of({.temperature = 0.5, .max_tokens = 40});

    std::vector<request> const asked{{0, "Mia was a"}, {2, "One day"}, {3, "The cat"}};
    std::map<calm::index_t, answer> under_way;  // by their places in the batch
    std::size_t next = 0;
    for (int step = 0; next < asked.size() || !texts->empty(); ++step) {
        for (; next < asked.size() && asked[next].step <= step && texts->free_slots() > 0; ++next) {
            settings.seed = next + 1;
            auto const place = texts->begin(model.tokenizer().encode(asked[next].prompt), settings);
            under_way.emplace(place, answer{asked[next].prompt, calm::streamed_text(model.tokenizer())});
            std::printf("joins: %s\n", asked[next].prompt.c_str());
        }
        texts->step([&](calm::index_t place, calm::generated_patch const& patch) {
            auto& one = under_way.at(place);
            one.text += one.arriving.push(patch.fresh);
            bool const goes_on = !patch.last && one.text.find('.') == std::string::npos;  // at most a sentence
            if (!goes_on) {
                std::printf("leaves: %s%s\n", one.prompt.c_str(), (one.text + one.arriving.flush()).c_str());
                under_way.erase(place);
            }
            return goes_on;
        });
    }
} catch (calm::error const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return static_cast<int>(e.code());
}
