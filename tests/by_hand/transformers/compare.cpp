// compare FOLDER: computes the logits of the models that write.py wrote in FOLDER and compares them. It then saves and
// converts each model, and writes two new ones for read.py. Commands and results: docs/benchmarks/transformers.md.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "calm/io/convert_model.hpp"
#include "calm/io/describe_model.hpp"
#include "calm/io/load_model.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/io/save_model.hpp"
#include "calm/model/owned_model.hpp"

namespace {

constexpr calm::index_t length = 33;  // tokens per sequence
constexpr calm::llama_sizes usual{.hidden_size = 48,
                                  .intermediate_size = 96,
                                  .num_hidden_layers = 3,
                                  .num_attention_heads = 4,
                                  .num_key_value_heads = 2};
constexpr calm::autoregressive_configuration tied{.llama = usual, .tie_word_embeddings = true};
constexpr calm::autoregressive_configuration untied{.llama = usual};
constexpr calm::autoregressive_configuration far = [] {
    auto c = untied;
    c.llama.rope_theta = 50'000;
    return c;
}();

template <class T> std::vector<T> numbers(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    std::string const bytes{std::istreambuf_iterator<char>(file), {}};
    std::vector<T> all(bytes.size() / sizeof(T));
    std::memcpy(all.data(), bytes.data(), all.size() * sizeof(T));
    return all;
}

template <class Model> std::vector<float> logits(Model const& model, std::string const& folder) {
    auto const ids = numbers<std::int32_t>(folder + "/tokens");
    std::vector<calm::token_id> const tokens(ids.begin(), ids.end());
    auto const count = static_cast<calm::index_t>(tokens.size());
    calm::context<> ctx(1, 1);
    auto const hidden = model.forward(ctx, {tokens.data(), calm::extents<calm::dyn>(count)}, length).y;
    std::vector<float> all(tokens.size() * static_cast<std::size_t>(model.vocabulary()));
    model.logits(ctx, {all.data(), calm::extents<calm::dyn, calm::dyn>(count, model.vocabulary())}, hidden);
    return all;
}

void write(std::string const& path, std::vector<float> const& all) {
    std::string bytes(all.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), all.data(), bytes.size());
    calm::replace_file(path + ".ours", bytes);
}

template <calm::autoregressive_configuration C> void compare(std::string const& folder, std::string const& name) {
    auto const from = calm::read_model_description(folder + "/" + name);
    calm::owned_model<calm::autoregressive_model<C>> own(from.vocabulary(), calm::model_mode::inference);
    load_model(from, own.model);
    auto const ours = logits(own.model, folder), theirs = numbers<float>(folder + "/" + name + ".logits");
    float most = 0, largest = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
        most = std::max(most, std::abs(ours[i] - theirs.at(i)));
        largest = std::max(largest, std::abs(theirs[i]));
    }
    std::printf("%s: largest difference %.2e of %zu logits up to %.2f\n", name.c_str(), most, ours.size(), largest);
    auto const saved = folder + "/saved_" + name, converted = folder + "/converted_" + name;
    save_model(saved, own.model, from.description, {}, calm::if_exists::replace);
    std::filesystem::remove_all(converted);
    calm::convert_model(from.directory, converted);
    write(saved, ours);
    write(converted, ours);
}

template <calm::autoregressive_configuration C> void make(std::string const& folder, std::string const& name) {
    constexpr calm::index_t vocabulary = 211;
    calm::owned_model<calm::autoregressive_model<C>> own(vocabulary, calm::model_mode::inference);
    initialise(calm::context<>(3, 1), own.model);
    for (auto const& p : parameters_of(own.model))
        if (p.starts == calm::role::weight)
            for (float& x : p.value) x *= 10;  // so that logits are as large as those from write.py
    calm::calm_description ours;
    ours.configuration = name;
    ours.data.emplace();
    save_model(folder + "/" + name, own.model, calm::describe_model<C>(vocabulary, std::move(ours)), {},
               calm::if_exists::replace);
    write(folder + "/" + name, logits(own.model, folder));
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 2) return 2;
    std::string const folder = arguments[1];
    for (auto const* const name : {"untied", "sharded", "sharded_bin", "bf16", "f16"}) compare<far>(folder, name);
    for (auto const* const name : {"tied", "tied_bin"}) compare<tied>(folder, name);
    compare<untied>(folder, "control");
    make<far>(folder, "new_untied");
    make<tied>(folder, "new_tied");
}
