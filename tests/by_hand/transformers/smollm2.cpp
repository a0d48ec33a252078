// smollm2 MODEL FOLDER: compares the logits of SmolLM2-135M in MODEL with those in double that smollm2.py wrote to
// FOLDER. Commands and results: docs/benchmarks.md.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "calm/io/load_model.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/model/owned_model.hpp"

namespace {

constexpr calm::autoregressive_configuration smollm2{.llama = {.hidden_size = 576,
                                                               .intermediate_size = 1536,
                                                               .num_hidden_layers = 30,
                                                               .num_attention_heads = 9,
                                                               .num_key_value_heads = 3,
                                                               .rope_theta = 100'000,
                                                               .rms_norm_eps = 1e-5},
                                                     .tie_word_embeddings = true};

template <class T> std::vector<T> numbers(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    std::string const bytes{std::istreambuf_iterator<char>(file), {}};
    std::vector<T> all(bytes.size() / sizeof(T));
    std::memcpy(all.data(), bytes.data(), all.size() * sizeof(T));
    return all;
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 3) return 2;
    std::string const folder = arguments[2];
    auto const from = calm::read_model_description(arguments[1]);
    calm::owned_model<calm::autoregressive_model<smollm2>> own(from.vocabulary(), calm::model_mode::inference);
    load_model(from, own.model);

    auto const ids = numbers<std::int32_t>(folder + "/tokens");
    std::vector<calm::token_id> const tokens(ids.begin(), ids.end());
    auto const length = static_cast<calm::index_t>(tokens.size());
    calm::context<> ctx(1, 1);
    auto const hidden = own.model.forward(ctx, {tokens.data(), calm::extents<calm::dyn>(length)}, length).y;
    auto const theirs = numbers<double>(folder + "/logits");
    std::vector<float> ours(theirs.size());
    own.model.logits(ctx, {ours.data(), calm::extents<calm::dyn, calm::dyn>(length, own.model.vocabulary())}, hidden);
    double most = 0, largest = 0;
    for (std::size_t i = 0; i < theirs.size(); ++i) {
        most = std::max(most, std::abs(ours[i] - theirs[i]));
        largest = std::max(largest, std::abs(theirs[i]));
    }
    std::printf("largest difference %.2e of %zu logits up to %.2f\n", most, theirs.size(), largest);
}
