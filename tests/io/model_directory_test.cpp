#include "calm/io/describe_model.hpp"
#include "calm/io/load_model.hpp"
#include "calm/io/load_weights.hpp"
#include "calm/io/open_weights.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/io/save_model.hpp"
#include "calm/io/save_weights.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/io/stored_weights.hpp"
#include "calm/io/tensor_alias.hpp"

#include <boost/mpl/list.hpp>

#include <array>
#include <bit>
#include <cstdint>
#include <fstream>
#include <limits>

#include "support/config_file.hpp"
#include "support/models.hpp"
#include "support/sentences.hpp"
#include "support/small.hpp"
#include "support/temporary_folder.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;
using variants = boost::mpl::list<base_variant, two_variant>;

namespace {

std::string sentence_of(auto&& call) {
    return calm::test::sentence_of<error>(call);
}

void check_same_weights(tensor_table const& x, tensor_table const& y) {
    BOOST_TEST(x.tensors().size() == y.tensors().size());
    for (auto const& tensor : x.tensors()) {
        auto const& other = y.at(tensor.name);
        BOOST_TEST((tensor.type == other.type));
        BOOST_TEST(tensor.shape == other.shape);
        BOOST_TEST(std::ranges::equal(tensor.bytes, other.bytes), tensor.name);
    }
}
void check_same_weights(std::string const& a, std::string const& b) {
    auto const x = safetensors_file::open(a);
    auto const y = safetensors_file::open(b);
    BOOST_TEST((x.metadata() == y.metadata()));
    check_same_weights(x, y);
}
void check_same_configuration(std::string const& a, std::string const& b) {
    auto const read = [](std::string const& path) { return nlohmann::json::parse(std::ifstream(path)); };
    BOOST_TEST(read(a) == read(b));
}

// The reference rounds its model to bf16 in place. If a fixture's `out/...` were computed after that, the fp32 weights
// are rounded here before the comparison.
void round_if_expected(fixture const& f, std::vector<any_parameter<>> const& parameters) {
    if (f.floats("out/mean") != f.floats("out/bf16_mean")) return;
    for (auto const& p : parameters)
        for (float& value : p.value) {
            auto const bits = std::bit_cast<std::uint32_t>(value);
            value =
                std::bit_cast<float>((bits + 0x7FFFU + (bits >> 16 & 1U)) & 0xFFFF0000U);  // to nearest, ties to even
        }
}

template <model_configuration auto C>
void check_computes(calm_model<C> const& model, fixture const& f, std::string const& prefix) {
    context<> ctx(1, 2);
    auto const tokens = f.integers<token_id>("in/tokens");
    index_t const patches = f.shape("in/tokens")[1] / C.autoencoder.patch_size;
    auto const e = model.ae_model.posterior(ctx, as_vector(tokens));
    BOOST_TEST(close(span_of(e.mean), f.floats("out/" + prefix + "mean"), kind::output));
    BOOST_TEST(close(span_of(e.log_std), f.floats("out/" + prefix + "log_std"), kind::output));
    auto const t = shift_tokens(ctx, as_vector(tokens), patches, C.autoencoder.patch_size);
    auto const s = model.transformer.forward(ctx, t.inputs, patches - 1);
    BOOST_TEST(close(span_of(s.y), f.floats("out/" + prefix + "hidden"), kind::output));
}

calm_description ours() {
    calm_description d;
    d.configuration = "tiny";
    d.data = data_description{"padded", 256, 3, "6:5", {"stories:1000"}, {}};
    d.tokenizer = tokenizer_description{"tokenizer.model", "pattern", "fingerprint", {}};
    return d;
}
model_description describe_tiny() {
    return describe_model<smallest>(7, {6, 50, 1.5}, {0.1, 0.25, 2e-3}, ours());
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(a_published_autoencoder_is_read_and_written_bit_for_bit, variant, variants) {
    constexpr configuration<> C = variant::value;
    auto const from = read_model_description(checkpoint(variant_name<C>(), "autoencoder"));
    BOOST_TEST((from.sizes.autoencoder == C.autoencoder));
    BOOST_TEST(matches(C.autoencoder, from));
    BOOST_TEST(!matches(C, from));
    BOOST_TEST(!matches(smallest.autoencoder, from));
    memory m;
    autoencoder<C.autoencoder> model(from.vocabulary());
    allocate(model, m.values, static_cast<arena<>*>(nullptr));
    load_model(from, model);

    temporary_folder const folder;
    auto const again = folder.path("again");
    save_model(again, model, from.description);
    check_same_weights(from.path(weights_file), again + "/model.safetensors");
    check_same_configuration(from.path(config_file), again + "/config.json");

    context<> ctx(1, 2);
    fixture const f(variant_name<C>(), "checkpoints/expected");
    round_if_expected(f, parameters_of(model));
    auto const tokens = f.integers<token_id>("in/tokens");
    auto const e = model.posterior(ctx, as_vector(tokens));
    BOOST_TEST(close(span_of(e.mean), f.floats("out/mean"), kind::output));
    BOOST_TEST(close(span_of(e.log_std), f.floats("out/log_std"), kind::output));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_published_calm_is_read_and_written_bit_for_bit, variant, variants) {
    constexpr configuration<> C = variant::value;
    auto const from = read_model_description(checkpoint(variant_name<C>(), "calm"));
    BOOST_TEST((from.sizes == with_any_head(C)));
    BOOST_TEST(matches(C, from));
    BOOST_TEST(!matches(C.autoencoder, from));
    owned_model<calm_model<C>> w(from.vocabulary(), model_mode::inference);
    load_model(from, w.model);

    temporary_folder const folder;
    auto const again = folder.path("again");
    save_model(again, w.model, from.description);
    check_same_weights(from.path(weights_file), again + "/model.safetensors");
    check_same_configuration(from.path(config_file), again + "/config.json");

    fixture const f(variant_name<C>(), "checkpoints/expected");
    round_if_expected(f, parameters_of(w.model));
    round_if_expected(f, frozen_parameters_of(w.model));
    check_computes(w.model, f, "");

    // These weights were already rounded in the file.
    auto const rounded = read_model_description(checkpoint(variant_name<C>(), "calm_bf16"));
    load_model(rounded, w.model);
    check_computes(w.model, f, "bf16_");
}

// All layouts of a model hold the tensors of the single file, except for second names.
BOOST_AUTO_TEST_CASE_TEMPLATE(every_layout_of_a_published_calm_is_the_same_model, variant, variants) {
    constexpr configuration<> C = variant::value;
    fixture const f(variant_name<C>(), "checkpoints/expected");
    auto const plain = open_weights(checkpoint(variant_name<C>(), "calm"));
    BOOST_TEST((plain.layout() == weights_layout::safetensors));
    struct expected {
        char const* name;
        weights_layout layout;
        std::size_t files;
        std::size_t second_names;
    };
    std::size_t const head = static_cast<std::size_t>(std::ranges::count_if(
        plain.tensors(), [](auto const& tensor) { return tensor.name.starts_with("mlp_generator."); }));
    for (auto const& [name, layout, files, second_names] :
         {expected{"calm_sharded", weights_layout::sharded_safetensors, 3, 0},
          expected{"calm_bin", weights_layout::pytorch, 1, head + 1}}) {
        auto const from = read_model_description(checkpoint(variant_name<C>(), name));
        BOOST_TEST((from.sizes == with_any_head(C)));
        auto const source = open_weights(from.directory);
        BOOST_TEST((source.layout() == layout));
        BOOST_TEST(source.files() == files);
        BOOST_TEST(source.tensors().size() == plain.tensors().size() + second_names);
        owned_model<calm_model<C>> w(from.vocabulary(), model_mode::inference);
        load_model(from, w.model);
        temporary_folder const folder;
        save_model(folder.path("again"), w.model, from.description);
        check_same_weights(plain, open_weights(folder.path("again")));
        for (auto const& tensor : plain.tensors())
            BOOST_TEST(std::ranges::equal(tensor.bytes, source.at(tensor.name).bytes), tensor.name);
        check_same_configuration(from.path(config_file), folder.path("again/config.json"));
        round_if_expected(f, parameters_of(w.model));
        round_if_expected(f, frozen_parameters_of(w.model));
        check_computes(w.model, f, "");
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_model_in_bf16_is_written_bit_for_bit_in_bf16, variant, variants) {
    constexpr configuration<> C = variant::value;
    auto const from = read_model_description(checkpoint(variant_name<C>(), "calm_bf16"));
    owned_model<calm_model<C>> w(from.vocabulary(), model_mode::inference);
    load_model(from, w.model);
    temporary_folder const folder;
    save_weights(folder.path("again"), whole_parameters(w.model), stored_type::bf16);
    check_same_weights(from.path(weights_file), folder.path("again"));
    // Also when saving rounds fp32 weights.
    load_model(read_model_description(checkpoint(variant_name<C>(), "calm")), w.model);
    save_weights(folder.path("again"), whole_parameters(w.model), stored_type::bf16);
    check_same_weights(from.path(weights_file), folder.path("again"));
}

BOOST_AUTO_TEST_CASE(a_mismatching_configuration_lists_every_size) {
    auto const from = read_model_description(checkpoint("base", "calm"));
    owned_model<calm_model<two>> w(101, model_mode::inference);
    auto const sentence = sentence_of([&] { load_model(from, w.model); });
    for (char const* const part :
         {"patch_size: expected 2, found 4", "latent_size: expected 8, found 16",
          "autoencoder hidden_size: expected 24, found 32", "num_encoder_layers: expected 4, found 2",
          "; hidden_size: expected 36, found 48", "num_key_value_heads: expected 3, found 2",
          "noise_size: expected 12, found 16", "vocabulary: expected 101, found 97"})
        BOOST_TEST(sentence.find(part) != std::string::npos, part << " in " << sentence);
    auto const kinds = sentence_of([&] {
        memory m;
        autoencoder<base.autoencoder> model(97);
        load_model(from, model);
    });
    BOOST_TEST(kinds.find("kind: expected 'an autoencoder', found 'a CALM'") != std::string::npos, kinds);
}

BOOST_AUTO_TEST_CASE(our_model_is_read_back_with_its_description) {
    owned_model<calm_model<smallest>> w(7, model_mode::inference);
    context<> const ctx(3, 1);
    initialise(ctx, w.model);
    initialise(ctx, w.model.ae_model);
    temporary_folder const folder;
    auto const path = folder.path("model/");  // the trailing slash is ignored
    save_model(path, w.model, describe_tiny(), {{"tokenizer.model", "AA== 0\n"}, {"bigram", "counts"}});
    BOOST_TEST(folder.content("model/tokenizer.model") == "AA== 0\n");
    BOOST_TEST(folder.content("model/bigram") == "counts");
    BOOST_TEST(!std::filesystem::exists(folder.path("model.partial")));

    auto const from = read_model_description(path);
    BOOST_TEST((from.sizes == with_any_head(smallest)));
    BOOST_TEST(from.vocabulary() == 7);
    BOOST_TEST(from.description.calm->configuration == "tiny");
    BOOST_TEST(from.description.calm->data->holdout == "6:5");
    BOOST_TEST(from.description.calm->tokenizer->fingerprint == "fingerprint");
    auto const energy = static_cast<energy_objective>(head_objective_of(from.description));
    BOOST_TEST(energy.samples == 6);
    BOOST_TEST(energy.targets == 50);
    BOOST_TEST(energy.beta == 1.5);
    auto const ae = autoencoder_objective_of(from.description);
    BOOST_TEST(ae.dropout == 0.1);
    BOOST_TEST(ae.kl_clamp == 0.25);
    BOOST_TEST(ae.kl_weight == 2e-3);

    auto const file = safetensors_file::open(path + "/model.safetensors");
    BOOST_TEST(file.find("mlp_generator.noise_embd.weight") != nullptr);
    BOOST_TEST(file.find("ae_model.decoder.lm_head_weight") == nullptr);
    for (auto const& tensor : file.tensors()) BOOST_TEST(!tensor.name.starts_with("generative_head."));

    owned_model<calm_model<smallest>> other(7, model_mode::inference);
    load_model(from, other.model);
    save_model(folder.path("copy"), other.model, from.description);
    check_same_weights(path + "/model.safetensors", folder.path("copy/model.safetensors"));
    check_same_configuration(path + "/config.json", folder.path("copy/config.json"));
}

BOOST_AUTO_TEST_CASE(an_existing_directory_is_refused_or_replaced_as_a_whole) {
    owned_model<calm_model<smallest>> w(7, model_mode::inference);
    temporary_folder const folder;
    auto const path = folder.path("model");
    save_model(path, w.model, describe_tiny(), {{"tokenizer.model", "old"}, {"counts", "kept"}});
    std::ofstream log(path + "/metrics.jsonl", std::ios::app);
    log << "first\n" << std::flush;
    auto const refused = sentence_of([&] { save_model(path, w.model, describe_tiny()); });
    BOOST_TEST(refused.find("expected a path that does not exist yet") != std::string::npos, refused);
    BOOST_TEST(folder.content("model/tokenizer.model") == "old");

    w.model.transformer.llama.child<"norm">().weight.value[0] = 42;
    save_model(path, w.model, describe_tiny(), {{"tokenizer.model", "new"}}, if_exists::replace);
    log << "second\n" << std::flush;
    BOOST_TEST(folder.content("model/tokenizer.model") == "new");
    BOOST_TEST(folder.content("model/counts") == "kept");
    BOOST_TEST(folder.content("model/metrics.jsonl") == "first\nsecond\n");
    BOOST_TEST(!std::filesystem::exists(folder.path("model.partial")));
    BOOST_TEST(!std::filesystem::exists(folder.path("model.previous")));
    owned_model<calm_model<smallest>> other(7, model_mode::inference);
    load_model(read_model_description(path), other.model);
    BOOST_TEST(other.model.transformer.llama.child<"norm">().weight.value[0] == 42);

    // A failed save leaves the old directory unchanged and no other files.
    BOOST_TEST(!sentence_of([&] {
                    save_model(path, w.model, describe_tiny(), {{"../escaped", "x"}}, if_exists::replace);
                }).empty());
    BOOST_TEST(folder.content("model/tokenizer.model") == "new");
    BOOST_TEST(!std::filesystem::exists(folder.path("model.partial")));
    auto const file = folder.with("file", "text");
    BOOST_TEST(!sentence_of([&] { save_model(file, w.model, describe_tiny(), {}, if_exists::replace); }).empty());
    BOOST_TEST(!sentence_of([&] { save_model(folder.path("no/such/model"), w.model, describe_tiny()); }).empty());
}

BOOST_AUTO_TEST_CASE(a_description_of_another_model_is_not_written) {
    owned_model<calm_model<smallest>> w(7, model_mode::inference);
    temporary_folder const folder;
    auto d = describe_tiny();
    d.llama.hidden_size = 9;
    auto const sentence = sentence_of([&] { save_model(folder.path("model"), w.model, d); });
    BOOST_TEST(sentence.find("hidden_size: expected 8, found 9") != std::string::npos, sentence);
    BOOST_TEST(!std::filesystem::exists(folder.path("model")));
}

BOOST_AUTO_TEST_CASE(weights_that_are_missing_unknown_or_of_another_shape_are_named) {
    memory m;
    autoencoder<smallest.autoencoder> model(7);
    allocate(model, m.values, static_cast<arena<>*>(nullptr));
    temporary_folder const folder;
    auto const path = folder.path("w");
    save_weights(path, parameters_of(model));
    auto const original = safetensors_file::open(path);
    // The error message after changing the tensors of the original.
    auto const sentence_with = [&](auto const& change) {
        std::vector<stored_tensor> tensors(original.tensors().begin(), original.tensors().end());
        change(tensors);
        auto const changed = folder.path("changed");
        write_safetensors(changed, tensors);
        model.decoder_norm.weight.value[0] = 5;
        auto sentence = sentence_of(
            [&] { load_weights(safetensors_file::open(changed), tied_names_of_autoencoder, parameters_of(model)); });
        BOOST_TEST(model.decoder_norm.weight.value[0] == (sentence.empty() ? 0 : 5));  // all or nothing
        return sentence;
    };
    auto const has = [](std::string const& sentence, char const* part) {
        BOOST_TEST(sentence.find(part) != std::string::npos, sentence);
    };
    BOOST_TEST(sentence_with([](auto&) {}).empty());
    has(sentence_with([](auto& t) { t.erase(t.begin(), t.begin() + 5); }),
        "5 missing: 'encoder.embed_tokens.weight', ");
    std::array<float, 7 * 4> const values{1};
    std::vector<index_t> const shape{7, 4};
    auto const extra = [&](char const* name) { return to_store(name, shape, std::span<float const>(values)); };
    has(sentence_with([&](auto& t) {
            for (char const* const name : {"a", "b", "c", "d", "e"}) t.push_back(extra(name));
        }),
        "found also 'a', 'b', 'c' and 2 more");
    has(sentence_with([&](auto& t) { std::swap(t[0].shape[0], t[0].shape[1]); }),
        "expected shape [7, 4], found [4, 7]");
    has(sentence_with([&](auto& t) { t[0].type = stored_type::i32; }),
        "expected type F16, BF16, F32 or F64, found I32");
    has(sentence_with([&](auto& t) { t.push_back(extra("decoder.lm_head_weight")); }), "expected the same values as");
    BOOST_TEST(sentence_with([&](auto& t) {
                   t.push_back(t[0]);
                   t.back().name = "decoder.lm_head_weight";
               }).empty());
}

BOOST_AUTO_TEST_CASE(files_that_contradict_each_other_are_refused) {
    owned_model<calm_model<smallest>> w(7, model_mode::inference);
    temporary_folder const folder;
    auto const path = folder.path("model");
    save_model(path, w.model, describe_tiny());
    auto d = describe_tiny();
    d.vocab_size = 8;
    write_config_json(path + "/config.json", d);
    auto sentence = sentence_of([&] { read_model_description(path); });
    BOOST_TEST(sentence.find("expected shape [8, 4], found [7, 4]") != std::string::npos, sentence);
    d = describe_tiny();
    d.calm->autoencoder->sizes.hidden_size = 5;
    write_config_json(path + "/config.json", d);
    sentence = sentence_of([&] { read_model_description(path); });
    BOOST_TEST(sentence.find("expected shape [7, 5], found [7, 4]") != std::string::npos, sentence);
    std::filesystem::remove(path + "/model.safetensors");
    sentence = sentence_of([&] { read_model_description(path); });
    BOOST_TEST(sentence.find("model.safetensors") != std::string::npos, sentence);
}

BOOST_AUTO_TEST_CASE(an_autoencoder_may_be_at_ae_path) {
    owned_model<calm_model<smallest>> w(7, model_mode::inference);
    context<> const ctx(3, 1);
    initialise(ctx, w.model);
    initialise(ctx, w.model.ae_model);
    temporary_folder const folder;
    save_model(folder.path("autoencoder"), w.model.ae_model, describe_model<smallest.autoencoder>(7, {}, ours()));
    auto d = describe_tiny();
    d.ae_path = "../autoencoder";
    save_model(folder.path("model"), w.model, d);
    save_weights(folder.path("model/model.safetensors"), parameters_of(w.model));
    auto const from = read_model_description(folder.path("model"));
    BOOST_TEST((from.sizes == with_any_head(smallest)));
    owned_model<calm_model<smallest>> other(7, model_mode::inference);
    load_model(from, other.model);
    BOOST_TEST(
        std::ranges::equal(other.model.ae_model.embed_tokens.weight.value, w.model.ae_model.embed_tokens.weight.value));

    // Only inside the model's directory or next to it.
    std::filesystem::create_directories(folder.path("far/away"));
    std::filesystem::rename(folder.path("autoencoder"), folder.path("far/away/autoencoder"));
    std::filesystem::create_directories(folder.path("near"));
    std::filesystem::rename(folder.path("model"), folder.path("near/model"));
    std::filesystem::create_directory_symlink("../far/away/autoencoder", folder.path("near/link"));
    for (auto const& path : {folder.path("far/away/autoencoder"), std::string("../../far/away/autoencoder"),
                             std::string("../link"), std::string("/")}) {
        d.ae_path = path;
        write_config_json(folder.path("near/model/config.json"), d);
        auto const refusal = sentence_of([&] { read_model_description(folder.path("near/model")); });
        BOOST_TEST(refusal.find("key 'ae_path': expected a directory inside the model's directory or next to it") !=
                       std::string::npos,
                   refusal);
    }
    std::filesystem::rename(folder.path("near/model"), folder.path("model"));

    d.ae_path.clear();
    write_config_json(folder.path("model/config.json"), d);
    auto const sentence = sentence_of([&] { read_model_description(folder.path("model")); });
    BOOST_TEST(sentence.find("expected tensors 'ae_model.*', or 'ae_path'") != std::string::npos, sentence);
}

BOOST_AUTO_TEST_CASE(a_model_that_names_itself_as_its_autoencoder_is_refused) {
    owned_model<calm_model<smallest>> w(7, model_mode::inference);
    temporary_folder const folder;
    auto d = describe_tiny();
    save_model(folder.path("model"), w.model, d);
    save_weights(folder.path("model/model.safetensors"), parameters_of(w.model));  // without the autoencoder
    for (auto const* const path : {".", "../model", "./../model/."}) {
        d.ae_path = path;
        write_config_json(folder.path("model/config.json"), d);
        auto const sentence = sentence_of([&] { read_model_description(folder.path("model")); });
        BOOST_TEST(
            sentence.find("key 'ae_path': expected the directory of an autoencoder, found the directory of a CALM") !=
                std::string::npos,
            sentence);
    }
}

BOOST_AUTO_TEST_CASE(a_tokenizer_is_a_file_of_its_own_in_the_directory) {
    owned_model<calm_model<smallest>> w(7, model_mode::inference);
    temporary_folder const folder;
    auto d = describe_tiny();
    save_model(folder.path("model"), w.model, d);
    for (auto const* const name : {"", ".", "..", "/dev/stdin", "../../secret", "tok/t.model", "config.json",
                                   "model.safetensors", "model-00001-of-00002.safetensors", "pytorch_model.bin",
                                   "model.safetensors.index.json", "pytorch_model.bin.index.json"}) {
        d.calm->tokenizer = tokenizer_description{name, "pattern", "fingerprint", {}};
        write_config_json(folder.path("model/config.json"), d);
        auto const sentence = sentence_of([&] { read_model_description(folder.path("model")); });
        BOOST_TEST(sentence.find("key 'calm/tokenizer/file': expected the name of a file next to it") !=
                       std::string::npos,
                   name);
    }
    d.calm->tokenizer->file = "mine.model";
    write_config_json(folder.path("model/config.json"), d);
    BOOST_TEST(read_model_description(folder.path("model")).description.calm->tokenizer->file == "mine.model");
}

namespace {

constexpr configuration<> reading(input_kind input) {
    auto c = smallest;
    c.input = input;
    return c;
}
struct of_tokens {
    static constexpr configuration<> value = reading(input_kind::tokens);
};
struct of_latents {
    static constexpr configuration<> value = reading(input_kind::latents);
};
struct of_both {
    static constexpr configuration<> value = reading(input_kind::both);
};
using inputs = boost::mpl::list<of_tokens, of_latents, of_both>;

template <model_configuration auto C> void check_input_is_kept() {
    temporary_folder const folder;
    owned_model<calm_model<C>> own(7, model_mode::inference);
    context<> ctx(3, 1);
    initialise(ctx, own.model);
    save_model(folder.path("model"), own.model, describe_model<C>(7, {}, {}, ours()));
    auto const from = read_model_description(folder.path("model"));
    BOOST_TEST((from.sizes.input == C.input));
    for (auto const kind : {input_kind::tokens, input_kind::latents, input_kind::both})
        BOOST_TEST(matches(reading(kind), from) == (kind == C.input));
    owned_model<calm_model<C>> again(7, model_mode::inference);
    load_model(from, again.model);
    save_model(folder.path("again"), again.model, from.description);
    check_same_weights(folder.path("model/model.safetensors"), folder.path("again/model.safetensors"));
    check_same_configuration(folder.path("model/config.json"), folder.path("again/config.json"));
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(the_input_of_a_backbone_is_saved, Input, inputs) {
    check_input_is_kept<Input::value>();
}

// While the files of a model are replaced one by one, readers use the complete new model.
BOOST_AUTO_TEST_CASE(a_model_that_is_being_replaced_is_the_new_one) {
    owned_model<calm_model<smallest>> w(7, model_mode::inference);
    temporary_folder const folder;
    save_model(folder.path("model"), w.model, describe_tiny());
    save_model(folder.path("model/new"), w.model, describe_tiny());
    std::filesystem::remove(folder.path("model/model.safetensors"));  // half of the old files are gone
    auto const mark = [&](std::string const& text) { static_cast<void>(folder.with("model/replaced-by", text)); };
    mark("new");
    BOOST_TEST(read_model_description(folder.path("model")).directory == folder.path("model/new"));
    auto const refused = [&] { return sentence_of([&] { read_model_description(folder.path("model")); }); };
    for (std::string const& name :
         {std::string(), std::string(".."), std::string("../model"), std::string("/etc"), std::string("new/../.."),
          std::string("./new"), std::string("absent"), std::string(101, 'n')}) {
        mark(name);
        BOOST_TEST(has(refused(), "replaced-by: expected the name of a directory inside"), name);
    }
    // Links are not followed, and the message does not quote their target.
    std::filesystem::remove(folder.path("model/replaced-by"));
    std::filesystem::create_symlink(folder.with("secret", "SECRET"), folder.path("model/replaced-by"));
    BOOST_TEST(has(refused(), "replaced-by: is a link, which is not followed"));
    BOOST_TEST(!has(refused(), "SECRET"));
}

BOOST_AUTO_TEST_CASE(weights_with_nan_are_neither_read_nor_written) {
    temporary_folder const folder;
    owned_model<calm_model<smallest>> own(7);
    initialise(context<>(1, 1), own.model);
    auto const path = folder.path("model");
    save_model(path, own.model, describe_tiny());
    auto const before = folder.content("model/model.safetensors");
    auto& weight = own.model.generator.hidden_embd.weight.value;  // (8, 8)
    std::string const place = "tensor 'mlp_generator.hidden_embd.weight', element [2, 3]";
    for (float const bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
        weight[2 * 8 + 3] = bad;
        BOOST_CHECK_EXCEPTION(save_model(path, own.model, describe_tiny(), {}, if_exists::replace), error,
                              says(errc::non_finite, place + ": expected a finite number to write"));
        BOOST_TEST(folder.content("model/model.safetensors") == before);
        BOOST_TEST(!std::filesystem::exists(path + ".partial"));
        // For every precision that a file may have.
        for (auto const type : {stored_type::f32, stored_type::f64, stored_type::bf16, stored_type::f16}) {
            auto const broken = folder.path("broken");
            std::filesystem::remove_all(broken);
            std::filesystem::copy(path, broken);
            std::vector<stored_tensor> tensors;
            for (auto const& p : whole_parameters(own.model))
                tensors.push_back(to_store(p.name, p.shape, std::span<float const>(p.value.begin(), p.value.end())));
            write_safetensors(broken + "/model.safetensors", tensors, {{"format", "pt"}}, type);
            owned_model<calm_model<smallest>> other(7);
            auto const stored = read_model_description(broken);
            BOOST_CHECK_EXCEPTION(
                load_model(stored, other.model), error,
                says(errc::non_finite, "broken/model.safetensors, " + place + ": expected a finite number"));
            for (auto const& p : whole_parameters(other.model))  // nothing changed
                BOOST_REQUIRE(std::all_of(p.value.begin(), p.value.end(), [](float x) { return x == 0; }));
        }
    }
    weight[2 * 8 + 3] = std::numeric_limits<float>::max();
    save_model(path, own.model, describe_tiny(), {}, if_exists::replace);
    load_model(read_model_description(path), own.model);
}
