// Directories of autoregressive models, in the layout of LlamaForCausalLM.
#include <boost/mpl/list.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "calm/io/convert_model.hpp"
#include "calm/io/describe_model.hpp"
#include "calm/io/load_model.hpp"
#include "calm/io/open_weights.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/io/save_model.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/io/stored_weights.hpp"
#include "support/models.hpp"
#include "support/sentences.hpp"
#include "support/small.hpp"
#include "support/stored.hpp"
#include "support/temporary_folder.hpp"
#include "support/torch_file.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr autoregressive_configuration with_ties(autoregressive_configuration c, bool tied) {
    c.tie_word_embeddings = tied;
    return c;
}
// A type for each case, because Boost names a typed case by its type.
template <class Variant, bool tied> struct reference {
    static constexpr autoregressive_configuration value = with_ties({llama_sizes_of(Variant::value)}, tied);
    static char const* folder() { return variant_name<Variant::value>(); }
};
using references = boost::mpl::list<reference<base_variant, false>, reference<base_variant, true>,
                                    reference<two_variant, false>, reference<two_variant, true>>;

// A model small enough to be saved often.
constexpr autoregressive_configuration tiny{.llama = {.hidden_size = 8,
                                                      .intermediate_size = 10,
                                                      .num_hidden_layers = 2,
                                                      .num_attention_heads = 4,
                                                      .num_key_value_heads = 2,
                                                      .rope_theta = 50'000}};
struct untied_tiny {
    static constexpr autoregressive_configuration value = tiny;
};
struct tied_tiny {
    static constexpr autoregressive_configuration value = with_ties(tiny, true);
};
using tinies = boost::mpl::list<untied_tiny, tied_tiny>;
template <autoregressive_configuration C> using held = owned_model<autoregressive_model<C>>;

constexpr char const* table = "model.embed_tokens.weight";
constexpr char const* output = "lm_head.weight";

calm_description ours() {
    calm_description d;
    d.configuration = "tiny";
    d.data = data_description{"padded", 256, 3, "6:5", {"stories:1000"}, {}};
    d.tokenizer = tokenizer_description{"tokenizer.model", "pattern", "fingerprint", {}};
    return d;
}
template <autoregressive_configuration C> held<C> made(std::uint64_t seed = 3) {
    held<C> own(7, model_mode::inference);
    initialise(context<>(seed, 1), own.model);
    return own;
}
template <autoregressive_configuration C> std::string written(temporary_folder const& folder, char const* name) {
    auto own = made<C>();
    auto path = folder.path(name);
    save_model(path, own.model, describe_model<C>(7, ours()), {{"tokenizer.model", "AA== 0\n"}});
    return path;
}

template <class Model> std::vector<std::vector<float>> weights_in(Model& model) {
    std::vector<std::vector<float>> all;
    for (auto const& p : parameters_of(model)) all.emplace_back(p.value.begin(), p.value.end());
    return all;
}
template <autoregressive_configuration C> std::vector<std::vector<float>> loaded_from(std::string const& directory) {
    auto const from = read_model_description(directory);
    held<C> own(from.vocabulary(), model_mode::inference);
    load_model(from, own.model);
    return weights_in(own.model);
}
template <autoregressive_configuration C> std::string refusal(std::string const& directory) {
    return sentence_of<error>([&] { static_cast<void>(loaded_from<C>(directory)); });
}
std::string refusal_to_read(std::string const& directory) {
    return sentence_of<error>([&] { static_cast<void>(read_model_description(directory)); });
}

// Sets one key of config.json; null removes the key.
void set(std::string const& directory, std::string const& key, nlohmann::json const& value) {
    auto json = configuration_in(directory);
    if (value.is_null())
        json.erase(key);
    else
        json[key] = value;
    std::ofstream(directory + "/config.json") << json.dump();
}

// Rewrites the weights of a directory with changed tensors.
void change_weights(std::string const& directory, std::function<void(std::vector<stored_tensor>&)> const& change) {
    auto const path = directory + "/model.safetensors";
    {
        auto const file = safetensors_file::open(path);
        std::vector<stored_tensor> tensors(file.tensors().begin(), file.tensors().end());
        change(tensors);
        write_safetensors(path + ".new", tensors, {{"format", "pt"}});
    }
    std::filesystem::rename(path + ".new", path);
}
stored_tensor renamed(std::vector<stored_tensor> const& tensors, std::string_view name, char const* to) {
    auto copy = *std::ranges::find(tensors, name, &stored_tensor::name);
    copy.name = to;
    return copy;
}
// Adds the table under its second name too, as in pytorch_model.bin files of other programs.
void repeat_table(std::string const& directory) {
    change_weights(directory, [](auto& tensors) { tensors.push_back(renamed(tensors, table, output)); });
}

// The model `single` in further layouts: in several files, and as PyTorch's archive, with second names if it is tied.
struct layouts {
    std::string single, sharded, torch;

    layouts(temporary_folder const& folder, std::string from) :
        single(std::move(from)), sharded(folder.path("sharded")), torch(folder.path("torch")) {
        convert_model(single, sharded, {.as = {}, .shard_bytes = 500});
        std::filesystem::create_directory(torch);
        std::filesystem::copy(single + "/config.json", torch + "/config.json");
        auto const copy = folder.path("copy");
        std::filesystem::copy(single, copy);
        if (read_model_description(single).autoregressive().tie_word_embeddings) repeat_table(copy);
        std::ofstream(torch + "/pytorch_model.bin", std::ios::binary) << as_torch_file(copy + "/model.safetensors");
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(the_reference_s_model_is_read_back_bit_for_bit, variant, references) {
    constexpr autoregressive_configuration C = variant::value;
    fixture const f(variant::folder(), "autoregressive");
    held<C> own(f.size("vocab_size"), model_mode::inference);
    load_parameters(parameters_of(own.model), f);
    temporary_folder const folder;
    auto const path = folder.path("model");
    save_model(path, own.model, describe_model<C>(own.model.vocabulary(), {}));

    // Names and bytes equal the reference's.
    auto const file = safetensors_file::open(path + "/model.safetensors");
    std::size_t of_reference = 0;
    for (auto const& name : f.names()) of_reference += name.starts_with("param/") ? 1U : 0U;
    BOOST_TEST(file.tensors().size() == of_reference - (C.tie_word_embeddings ? 1U : 0U));
    BOOST_TEST((file.find(output) == nullptr) == C.tie_word_embeddings);
    for (auto const& tensor : file.tensors()) {
        auto const& expected = f.file().at("param/" + tensor.name);
        BOOST_TEST(tensor.shape == expected.shape);
        BOOST_TEST(std::ranges::equal(tensor.bytes, expected.bytes), tensor.name);
    }

    auto const from = read_model_description(path);
    BOOST_TEST(matches(C, from));
    BOOST_TEST(from.autoregressive().tie_word_embeddings == C.tie_word_embeddings);
    held<C> other(from.vocabulary(), model_mode::inference);
    load_model(from, other.model);
    BOOST_TEST((weights_in(other.model) == weights_in(own.model)));
    save_model(folder.path("again"), other.model, from.description);
    check_same(file, safetensors_file::open(folder.path("again/model.safetensors")));
    BOOST_TEST(folder.content("again/config.json") == folder.content("model/config.json"));

    if (C.tie_word_embeddings) return;  // the reference is untied
    context<> ctx(1, 1);
    auto const tokens = f.integers<token_id>("in/tokens");
    auto const hidden = other.model.forward(ctx, as_vector(tokens), f.shape("in/tokens")[1]).y;
    std::vector<float> logits(tokens.size() * static_cast<std::size_t>(other.model.vocabulary()));
    extents<dyn, dyn> const shape(static_cast<index_t>(tokens.size()), other.model.vocabulary());
    other.model.logits(ctx, {logits.data(), shape}, hidden);
    BOOST_TEST(close(std::span<float const>(logits), f.floats("out/logits"), kind::output));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_model_is_read_back_with_its_description, variant, tinies) {
    constexpr autoregressive_configuration C = variant::value;
    temporary_folder const folder;
    auto const path = written<C>(folder, "model");
    auto const from = read_model_description(path);
    BOOST_TEST((from.description.kind == model_kind::autoregressive));
    BOOST_TEST((from.autoregressive() == autoregressive_configuration{C.llama, C.tie_word_embeddings, 7}));
    BOOST_TEST(from.vocabulary() == 7);
    BOOST_TEST(from.description.calm->configuration == "tiny");
    BOOST_TEST(from.description.calm->data->holdout == "6:5");
    BOOST_TEST(from.description.calm->tokenizer->fingerprint == "fingerprint");
    BOOST_TEST(folder.content("model/tokenizer.model") == "AA== 0\n");
    auto const json = configuration_in(path);
    BOOST_TEST(json["architectures"][0] == "LlamaForCausalLM");
    BOOST_TEST(json["model_type"] == "llama");
    BOOST_TEST(json["torch_dtype"] == "float32");
    BOOST_TEST(json["rope_theta"] == 50'000);
    BOOST_TEST(json["tie_word_embeddings"] == C.tie_word_embeddings);
    for (auto const* const key : {"head_dim", "rope_parameters", "quantization_config", "patch_size", "ae_path"})
        BOOST_TEST(!json.contains(key), key);
    for (auto const* const key : {"posterior_std", "input", "autoencoder"})
        BOOST_TEST(!json["calm"].contains(key), key);

    // An existing directory is refused, or replaced as a whole.
    auto own = made<C>(4);
    auto const d = describe_model<C>(7, ours());
    BOOST_TEST(
        has(sentence_of<error>([&] { save_model(path, own.model, d); }), "expected a path that does not exist yet"));
    save_model(path, own.model, d, {{"more", "text"}}, if_exists::replace);
    BOOST_TEST(folder.content("model/more") == "text");
    BOOST_TEST(folder.content("model/tokenizer.model") == "AA== 0\n");
    BOOST_TEST((loaded_from<C>(path) == weights_in(own.model)));
    auto other = d;
    other.tie_word_embeddings = !C.tie_word_embeddings;
    BOOST_TEST(has(sentence_of<error>([&] { save_model(folder.path("no"), own.model, other); }),
                   "tie_word_embeddings: expected "));
    BOOST_TEST(!std::filesystem::exists(folder.path("no")));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(every_layout_is_the_same_model, variant, tinies) {
    constexpr autoregressive_configuration C = variant::value;
    temporary_folder const folder;
    layouts const of(folder, written<C>(folder, "single"));
    auto const weights = loaded_from<C>(of.single);
    BOOST_TEST(open_weights(of.sharded).files() > 3U);
    BOOST_TEST((open_weights(of.torch).layout() == weights_layout::pytorch));
    BOOST_TEST((open_weights(of.torch).find(output) != nullptr));
    auto const plain = open_weights(of.single);
    for (auto const& directory : {of.sharded, of.torch}) {
        BOOST_TEST((loaded_from<C>(directory) == weights), directory);
        auto const to = directory + "-converted";
        convert_model(directory, to);
        check_same(plain, open_weights(to));
        BOOST_TEST(configuration_in(to) == configuration_in(of.single));
    }
    BOOST_TEST(folder.content("sharded/tokenizer.model") == "AA== 0\n");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_model_in_bf16_has_the_rounded_weights, variant, tinies) {
    constexpr autoregressive_configuration C = variant::value;
    temporary_folder const folder;
    auto const path = written<C>(folder, "single");
    convert_model(path, folder.path("bf16"), {.as = stored_type::bf16});
    BOOST_TEST(configuration_in(folder.path("bf16"))["torch_dtype"] == "bfloat16");
    auto const full = loaded_from<C>(path), rounded = loaded_from<C>(folder.path("bf16"));
    BOOST_TEST((rounded != full));
    for (std::size_t i = 0; i < full.size(); ++i)
        for (std::size_t j = 0; j < full[i].size(); ++j)
            BOOST_REQUIRE(std::abs(rounded[i][j] - full[i][j]) <= std::abs(full[i][j]) / 256);
    // Widening and rounding again gives equal bytes.
    convert_model(folder.path("bf16"), folder.path("f32"), {.as = stored_type::f32});
    BOOST_TEST((loaded_from<C>(folder.path("f32")) == rounded));
    convert_model(folder.path("f32"), folder.path("again"), {.as = stored_type::bf16});
    BOOST_TEST(folder.content("again/model.safetensors") == folder.content("bf16/model.safetensors"));
}

BOOST_AUTO_TEST_CASE(a_tied_table_may_be_stored_twice_if_equal) {
    constexpr autoregressive_configuration C = tied_tiny::value;
    temporary_folder const folder;
    auto const path = written<C>(folder, "model");
    auto const once = folder.content("model/model.safetensors");
    auto const weights = loaded_from<C>(path);
    repeat_table(path);
    BOOST_TEST((loaded_from<C>(path) == weights));
    convert_model(path, folder.path("to"));
    auto const to = safetensors_file::open(folder.path("to/model.safetensors"));
    BOOST_TEST((to.find(output) == nullptr));
    BOOST_TEST(folder.content("to/model.safetensors").size() == once.size());

    // Untied, the file holds two separate tables, and both are kept.
    set(path, "tie_word_embeddings", false);
    BOOST_TEST(loaded_from<tiny>(path).size() == weights.size() + 1);
    convert_model(path, folder.path("two"));
    check_same(safetensors_file::open(path + "/model.safetensors"),
               safetensors_file::open(folder.path("two/model.safetensors")));

    std::vector<float> const zeros(7 * 8);
    set(path, "tie_word_embeddings", true);
    change_weights(path, [&](auto& tensors) {
        auto& twice = *std::ranges::find(tensors, output, &stored_tensor::name);
        twice = to_store(output, {7, 8}, std::span<float const>(zeros));
    });
    std::string const differs = "'lm_head.weight': expected the same values as 'model.embed_tokens.weight'";
    auto const said = refusal<C>(path);
    BOOST_TEST(has(said, differs), said);
    BOOST_TEST(has(sentence_of<error>([&] { convert_model(path, folder.path("no")); }), differs));
    BOOST_TEST(!std::filesystem::exists(folder.path("no")));
}

BOOST_AUTO_TEST_CASE(weights_that_are_missing_or_unknown_are_named) {
    temporary_folder const folder;
    auto const path = written<tiny>(folder, "model");
    change_weights(path, [](auto& tensors) { std::erase_if(tensors, [](auto& t) { return t.name == output; }); });
    auto said = refusal<tiny>(path);
    BOOST_TEST(has(said, "expected 21 tensors; 1 missing: 'lm_head.weight'"), said);
    change_weights(path, [](auto& tensors) {
        tensors.push_back(renamed(tensors, table, output));
        tensors.push_back(renamed(tensors, "model.norm.weight", "model.layers.0.self_attn.q_norm.weight"));
    });
    said = refusal<tiny>(path);
    BOOST_TEST(has(said, "found also 'model.layers.0.self_attn.q_norm.weight'"), said);
    change_weights(path, [](auto& tensors) { std::erase_if(tensors, [](auto& t) { return t.name == table; }); });
    said = refusal<tiny>(path);
    BOOST_TEST(has(said, "1 missing: 'model.embed_tokens.weight'"), said);
}

BOOST_AUTO_TEST_CASE(a_mismatching_configuration_lists_every_difference) {
    constexpr autoregressive_configuration other{.llama = {.hidden_size = 12,
                                                           .intermediate_size = 11,
                                                           .num_hidden_layers = 1,
                                                           .num_attention_heads = 3,
                                                           .num_key_value_heads = 3},
                                                 .tie_word_embeddings = true};
    temporary_folder const folder;
    auto const path = written<tiny>(folder, "model");
    set(path, "rms_norm_eps", 1e-5);
    set(path, "rope_theta", 10000.5);
    auto const from = read_model_description(path);
    held<other> own(9, model_mode::inference);
    auto const said = sentence_of<error>([&] { load_model(from, own.model); });
    for (auto const* const part :
         {"the model does not match the configuration: hidden_size: expected 12, found 8",
          "intermediate_size: expected 11, found 10", "num_hidden_layers: expected 1, found 2",
          "num_attention_heads: expected 3, found 4", "num_key_value_heads: expected 3, found 2",
          "tie_word_embeddings: expected true, found false", "rms_norm_eps: expected 1e-06, found 1e-05",
          "rope_theta: expected 10000, found 10000.5", "vocabulary: expected 9, found 7"})
        BOOST_TEST(has(said, part), part << " in " << said);
    set(path, "rms_norm_eps", nullptr);  // 1e-6 if the key is missing
    set(path, "rope_theta", 50000);
    BOOST_TEST(differences(tiny, read_model_description(path)).empty());
    set(path, "rope_theta", nullptr);
    BOOST_TEST(has(refusal<tiny>(path), "configuration: rope_theta: expected 50000, found 10000. Use"));
}

// Settings of published Llamas: any eps, head size, base and scaling of the rotary angles, and several EOS.
BOOST_AUTO_TEST_CASE(a_model_with_other_settings_comes_back) {
    constexpr autoregressive_configuration C{.llama = {.hidden_size = 8,
                                                       .intermediate_size = 10,
                                                       .num_hidden_layers = 1,
                                                       .num_attention_heads = 2,
                                                       .num_key_value_heads = 1,
                                                       .head_dim = 6,
                                                       .rope_theta = 10'000.5,
                                                       .rope_scaling = {.type = rope_type::llama3, .factor = 8},
                                                       .rms_norm_eps = 1e-5}};
    temporary_folder const folder;
    auto const path = written<C>(folder, "model");
    auto const file = safetensors_file::open(path + "/model.safetensors");
    BOOST_TEST((file.at("model.layers.0.self_attn.q_proj.weight").shape == std::vector<index_t>{12, 8}));
    BOOST_TEST((file.at("model.layers.0.self_attn.o_proj.weight").shape == std::vector<index_t>{8, 12}));
    auto const from = read_model_description(path);
    BOOST_TEST((from.autoregressive() == autoregressive_configuration{C.llama, false, 7}));
    auto own = made<C>();
    BOOST_TEST((loaded_from<C>(path) == weights_in(own.model)));
    // As transformers 5 states them.
    auto angles = configuration_in(path)["rope_scaling"];
    angles["rope_theta"] = 10'000.5;
    set(path, "rope_parameters", angles);
    for (auto const* const key : {"rope_theta", "rope_scaling"}) set(path, key, nullptr);
    BOOST_TEST((loaded_from<C>(path) == weights_in(own.model)));
    convert_model(path, folder.path("to"));
    BOOST_TEST(configuration_in(folder.path("to")) == configuration_in(path));

    constexpr autoregressive_configuration plain{.llama = {.hidden_size = 8,
                                                           .intermediate_size = 10,
                                                           .num_hidden_layers = 1,
                                                           .num_attention_heads = 2,
                                                           .num_key_value_heads = 1}};
    auto const said = refusal<plain>(path);
    for (auto const* const part :
         {"head_dim: expected 4, found 6", "rms_norm_eps: expected 1e-06, found 1e-05",
          "rope_theta: expected 10000, found 10000.5", "rope_scaling: expected none, found llama3, factor 8,"})
        BOOST_TEST(has(said, part), part << " in " << said);
    set(path, "head_dim", 7);
    BOOST_TEST(has(refusal_to_read(path), "expected an even head_dim"));
}

BOOST_AUTO_TEST_CASE(texts_end_where_the_files_say) {
    temporary_folder const folder;
    auto const path = written<tiny>(folder, "model");
    using ids = std::vector<token_id>;
    auto const ends = [&] { return read_model_description(path).ends; };
    BOOST_TEST((ends() == ids{}));
    set(path, "eos_token_id", {2, 5});
    BOOST_TEST((ends() == ids{2, 5}));
    // transformers prefers generation_config.json.
    auto const prefer = [&](char const* text) { std::ofstream(path + "/generation_config.json") << text; };
    prefer(R"({"eos_token_id":[3,1],"do_sample":true})");
    BOOST_TEST((ends() == ids{3, 1}));
    prefer(R"({"eos_token_id":4})");
    BOOST_TEST((ends() == ids{4}));
    for (auto const* const none : {"{}", R"({"eos_token_id":null})"}) {
        prefer(none);
        BOOST_TEST((ends() == ids{2, 5}));
    }
    prefer(R"({"eos_token_id":"</s>"})");
    auto const said = refusal_to_read(path);
    BOOST_TEST(has(said, "generation_config.json, key 'eos_token_id': expected a token id from 0 to 1048575, a list"),
               said);
}

BOOST_AUTO_TEST_CASE(missing_kv_heads_default_to_heads) {
    constexpr autoregressive_configuration C{.llama = {.hidden_size = 8,
                                                       .intermediate_size = 10,
                                                       .num_hidden_layers = 1,
                                                       .num_attention_heads = 2,
                                                       .num_key_value_heads = 2}};
    temporary_folder const folder;
    auto const path = written<C>(folder, "model");
    auto const weights = loaded_from<C>(path);
    for (auto const* const key : {"num_key_value_heads", "rope_theta", "tie_word_embeddings", "rms_norm_eps",
                                  "max_position_embeddings", "torch_dtype", "calm", "rope_scaling"})
        set(path, key, nullptr);
    BOOST_TEST((loaded_from<C>(path) == weights));
    // Keys missing from the input are not written.
    convert_model(path, folder.path("to"));
    BOOST_TEST(configuration_in(folder.path("to")) == configuration_in(path));
    auto own = made<C>();
    save_model(folder.path("saved"), own.model, read_model_description(path).description);
    BOOST_TEST(configuration_in(folder.path("saved")) == configuration_in(path));
}

BOOST_AUTO_TEST_CASE(files_that_contradict_each_other_are_refused) {
    struct contradiction {
        char const* key;
        int value;
        char const* said;
    };
    temporary_folder const folder;
    auto const path = written<tiny>(folder, "model");
    auto const text = folder.content("model/config.json");
    for (auto const& [key, value, said] :
         {contradiction{"vocab_size", 8, "'model.embed_tokens.weight': expected shape [8, 8], found [7, 8]"},
          contradiction{"hidden_size", 16, "'model.embed_tokens.weight': expected shape [7, 16], found [7, 8]"},
          contradiction{"intermediate_size", 9,
                        "'model.layers.0.mlp.gate_proj.weight': expected shape [9, 8], found [10, 8]"},
          contradiction{"num_hidden_layers", 1, "found also 'model.layers.1."},
          contradiction{"num_hidden_layers", 3, "9 missing: 'model.layers.2.input_layernorm.weight'"},
          contradiction{"num_key_value_heads", 4,
                        "'model.layers.0.self_attn.k_proj.weight': expected shape [8, 8], found [4, 8]"}}) {
        set(path, key, value);
        auto const sentence = refusal_to_read(path);
        BOOST_TEST(has(sentence, "model.safetensors: expected "), sentence);
        BOOST_TEST(has(sentence, said), sentence);
        std::ofstream(path + "/config.json") << text;
    }
    BOOST_TEST(refusal_to_read(path).empty());
    change_weights(path, [](auto& tensors) { std::ranges::find(tensors, table, &stored_tensor::name)->shape = {56}; });
    BOOST_TEST(has(refusal_to_read(path), "'model.embed_tokens.weight': expected shape [7, 8], found [56]"));
}

BOOST_AUTO_TEST_CASE(a_tokenizer_is_a_file_of_its_own_in_the_directory) {
    temporary_folder const folder;
    auto const path = written<tiny>(folder, "model");
    auto json = configuration_in(path);
    for (auto const* const name : {"", "..", "/dev/stdin", "../secret", "config.json", "model.safetensors"}) {
        json["calm"]["tokenizer"]["file"] = name;
        set(path, "calm", json["calm"]);
        BOOST_TEST(has(refusal_to_read(path), "key 'calm/tokenizer/file': expected the name of a file next to it"),
                   name);
    }
    // Nor a shard, whatever its name.
    std::filesystem::rename(path + "/model.safetensors", path + "/weights.st");
    auto const file = safetensors_file::open(path + "/weights.st");
    std::string map;
    for (auto const& tensor : file.tensors()) map += (map.empty() ? "\"" : ",\"") + tensor.name + "\":\"weights.st\"";
    std::ofstream(path + "/model.safetensors.index.json") << "{\"weight_map\":{" + map + "}}";
    json["calm"]["tokenizer"]["file"] = "weights.st";
    set(path, "calm", json["calm"]);
    BOOST_TEST(has(refusal_to_read(path), "key 'calm/tokenizer/file': expected the name of a file next to it"));
    set(path, "calm", nullptr);  // published files lack this object
    BOOST_TEST(refusal<tiny>(path) == "");
}

BOOST_AUTO_TEST_CASE(kinds_of_models_are_distinguished) {
    temporary_folder const folder;
    auto const path = written<tiny>(folder, "model");
    auto const from = read_model_description(path);
    owned_model<calm_model<smallest>> own(7, model_mode::inference);
    initialise(context<>(3, 1), own.model);
    std::string const kind = "kind: expected ";
    auto said = sentence_of<error>([&] { load_model(from, own.model); });
    BOOST_TEST(has(said, kind + "'a CALM', found 'an autoregressive model'"), said);
    said = sentence_of<error>([&] { load_model(from, own.model.ae_model); });
    BOOST_TEST(has(said, kind + "'an autoencoder', found 'an autoregressive model'"), said);
    BOOST_TEST(!matches(smallest, from));
    BOOST_TEST(!matches(smallest.autoencoder, from));

    save_model(folder.path("calm"), own.model, describe_model<smallest>(7, {}, {}, ours()));
    said = refusal<tiny>(folder.path("calm"));
    BOOST_TEST(has(said, kind + "'an autoregressive model', found 'a CALM'"), said);
    save_model(folder.path("coder"), own.model.ae_model, describe_model<smallest.autoencoder>(7, {}, ours()));
    said = refusal<tiny>(folder.path("coder"));
    BOOST_TEST(has(said, kind + "'an autoregressive model', found 'an autoencoder'"), said);
}
