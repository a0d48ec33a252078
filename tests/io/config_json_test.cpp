#include "calm/io/detail/config_json.hpp"

#include <boost/test/unit_test.hpp>

#include <string>

#include "support/config_file.hpp"
#include "support/fixtures.hpp"
#include "support/temporary_folder.hpp"

using calm::model_kind;

namespace {

std::string const autoencoder =
    R"({"architectures":["Autoencoder"],"vocab_size":97,"patch_size":4,"latent_size":16,"hidden_size":32,)"
    R"("intermediate_size":80,"num_encoder_layers":2,"num_decoder_layers":2})";

std::string const energy =
    R"({"architectures":["EnergyTransformer"],"vocab_size":97,"patch_size":4,"latent_size":16,"hidden_size":48,)"
    R"("intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,"num_mlp_layers":3)";

// As written by transformers 4.43, except for the order of keys.
std::string const llama =
    R"({"architectures":["LlamaForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"bos_token_id":1,)"
    R"("eos_token_id":2,"hidden_act":"silu","hidden_size":48,"initializer_range":0.02,"intermediate_size":96,)"
    R"("max_position_embeddings":4096,"mlp_bias":false,"model_type":"llama","num_attention_heads":4,)"
    R"("num_hidden_layers":3,"num_key_value_heads":2,"pretraining_tp":1,"rms_norm_eps":1e-06,"rope_scaling":null,)"
    R"("rope_theta":50000.0,"tie_word_embeddings":false,"torch_dtype":"bfloat16","transformers_version":"4.43.4",)"
    R"("use_cache":true,"vocab_size":211})";

nlohmann::json value_of(std::string const& text) {
    return nlohmann::json::parse(text);
}

std::string again(std::string const& text) {
    return calm::config_json_text(calm::parse_config_json(text, "config.json"));
}

// The complete error message for a refused text; empty if it is accepted.
std::string refusal(std::string const& text) {
    try {
        (void)calm::parse_config_json(text, "dir/config.json");
        return "";
    } catch (calm::error const& thrown) {
        BOOST_TEST((thrown.code() == calm::errc::model_file));
        return thrown.what();
    }
}

// One of the texts above with one key set, or removed.
std::string with(std::string const& text, std::string const& key, std::string const& value) {
    auto json = value_of(text);
    if (value.empty())
        json.erase(key);
    else
        json[key] = nlohmann::json::parse(value);
    return json.dump();
}

// Walks a description: every number in it has a range and lies within it.
struct range_checker {
    std::size_t& numbers;

    void operator()(std::string_view key, double value, bool = false) const { check(key, value); }
    void operator()(calm::number_field const& field, calm::index_t size) const {
        number({field, static_cast<double>(size)});
    }
    void operator()(std::string_view key, std::int64_t value, bool = false) const {
        if (value != 0) check(key, value);  // 0: not set
    }
    void operator()(std::string_view key, std::optional<std::int64_t> const&, bool = false) const {
        check(key, std::int64_t{0});
    }
    template <class T> void operator()(std::string_view, std::optional<T> const&, bool = false) const {
        T const usual;
        T::visit(usual, *this);
    }
    void operator()(std::string_view, std::uint64_t, bool = false) const {}  // seeds
    void operator()(std::string_view, bool, bool = false) const {}
    void operator()(std::string_view, std::optional<bool> const&, bool = false) const {}
    void operator()(std::string_view, std::string const&, bool = false) const {}
    void operator()(std::string_view, std::vector<std::string> const&, bool = false) const {}
    template <class T> void only(std::string_view, T, bool = false) const {}
    template <class T> void only_if_there(std::string_view, T, bool = false) const {}
    void either(std::string_view, std::string_view, std::string const&) const {}
    void operator()(std::string_view key, std::vector<std::int64_t> const&, bool = false) const {
        check(key, std::int64_t{0});
    }
    void rotary_angles(double base, calm::rotary_scaling const&) const {
        check("rope_theta", base);
        calm::rotary_scaling const llama3{.type = calm::rope_type::llama3, .factor = 8};
        calm::rotary_scaling::visit_fields(
            llama3, [&](std::string_view key, auto value) { check(key, static_cast<double>(value)); });
    }
    void head_dim(calm::index_t, calm::index_t usual) const { check("head_dim", std::int64_t{usual}); }
    void number(calm::field_value const& one) const {
        BOOST_TEST(one.is_allowed(), one.field.key);
        BOOST_TEST(one.field.least < one.field.most);
        ++numbers;
    }
    template <class T, class Make> void object(std::string_view, std::optional<T> const&, Make const& make) const {
        T const usual = make();
        T::visit(usual, *this);
    }

private:
    template <class T> void check(std::string_view key, T value) const {
        number({calm::detail::range_of(key), static_cast<double>(value)});
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE(published_files_are_read) {
    auto const folder = calm::test::fixtures_folder() / "base" / "checkpoints";
    auto const coder = calm::read_config_json((folder / "autoencoder" / "config.json").string());
    BOOST_TEST((coder.kind == model_kind::autoencoder));
    calm::test::fixture const reference("base", "calm");
    BOOST_TEST(coder.vocab_size == reference.size("ae/vocab_size"));
    BOOST_TEST(coder.autoencoder.sizes.patch_size == reference.size("ae/patch_size"));
    BOOST_TEST(coder.autoencoder.sizes.latent_size == reference.size("ae/latent_size"));
    BOOST_TEST(coder.autoencoder.sizes.hidden_size == reference.size("ae/hidden_size"));
    BOOST_TEST(coder.autoencoder.sizes.intermediate_size == reference.size("ae/intermediate_size"));
    BOOST_TEST(coder.autoencoder.sizes.num_encoder_layers == reference.size("ae/num_encoder_layers"));
    BOOST_TEST(coder.autoencoder.kl_weight == reference.real("ae/kl_weight"));
    auto const whole = calm::read_config_json((folder / "calm" / "config.json").string());
    BOOST_TEST((whole.kind == model_kind::calm));
    BOOST_TEST(whole.head.name() == reference.text("head"));
    BOOST_TEST(whole.llama.hidden_size == reference.size("hidden_size"));
    BOOST_TEST(whole.llama.num_attention_heads == reference.size("num_attention_heads"));
    BOOST_TEST(whole.llama.num_key_value_heads == reference.size("num_key_value_heads"));
    BOOST_TEST(whole.head.sizes.find("num_mlp_layers")->value == reference.size("num_mlp_layers"));
    BOOST_TEST(whole.head.sizes.find("noise_size")->value == reference.size("noise_size"));
    BOOST_TEST(whole.objective.find("num_samples")->value == reference.size("num_samples"));
    BOOST_TEST(whole.rms_norm_eps == reference.real("rms_norm_eps"));
    BOOST_TEST(whole.pad_token_id.value() == whole.vocab_size - 1);
    BOOST_TEST(whole.ae_path == "../autoencoder");
    BOOST_TEST(!whole.calm.has_value());
}

BOOST_AUTO_TEST_CASE(published_files_are_written_as_they_were) {
    calm::test::temporary_folder const folder;
    int files = 0;
    for (auto const& found : std::filesystem::recursive_directory_iterator(calm::test::fixtures_folder())) {
        if (found.path().filename() != "config.json") continue;
        auto const path = found.path().string();
        calm::test::write_config_json(folder.path("config.json"), calm::read_config_json(path));
        auto const before = value_of(std::string(calm::mapped_file::open(path).text()));
        BOOST_TEST((value_of(folder.content("config.json")) == before), path);
        ++files;
    }
    BOOST_TEST(files >= 10);
}

BOOST_AUTO_TEST_CASE(unknown_keys_are_kept) {
    auto const text =
        energy + R"(,"transformers_version":"4.4\u00e9","_list":[1,2.5e-7,null,{"a":{}}],"_big":18446744073709551615,)"
                 R"("unheard_of":null,)"
                 R"("calm":{"format":1,"data":{"mode":"padded","block_tokens":512,"new":[true]},"_x":-3}})";
    BOOST_TEST((value_of(again(text)) == value_of(text)));
    BOOST_TEST(again(again(text)) == again(text));
}

BOOST_AUTO_TEST_CASE(keys_that_were_absent_stay_absent_until_they_change) {
    auto const text = energy + "}";
    BOOST_TEST((value_of(again(text)) == value_of(text)));
    auto description = calm::parse_config_json(text, "config.json");
    BOOST_TEST(description.llama.num_key_value_heads == 4);
    BOOST_TEST(description.objective.find("beta")->value == 1.0);
    description.objective.find("beta")->value = 1.5;
    description.llama.num_key_value_heads = 2;
    auto const changed = value_of(calm::config_json_text(description));
    BOOST_TEST(changed["beta"] == 1.5);
    BOOST_TEST(changed["num_key_value_heads"] == 2);
    BOOST_TEST(!changed.contains("rope_theta"));
}

BOOST_AUTO_TEST_CASE(our_object_is_written_and_read) {
    auto description = calm::model_description::of(model_kind::calm, "diffusion");
    description.vocab_size = 97;
    description.llama.hidden_size = 48;
    description.llama.intermediate_size = 96;
    description.llama.num_hidden_layers = 2;
    description.llama.num_attention_heads = description.llama.num_key_value_heads = 4;
    description.eos_token_id = {95};
    auto& ours = description.calm.emplace();
    ours.configuration = "tiny";
    ours.autoencoder.emplace().sizes.hidden_size = 32;
    auto& data = ours.data.emplace();
    data.data_seed = 18446744073709551615U;
    data.holdout = "10:3";
    data.sources = {"a.jsonl", "b \"quoted\".txt"};
    ours.tokenizer.emplace().fingerprint = "abc";
    auto const text = calm::config_json_text(description);
    auto const json = value_of(text);
    BOOST_TEST(json["architectures"][0] == "DiffusionTransformer");
    BOOST_TEST(json["calm"]["format"] == 1);
    BOOST_TEST(json["calm"]["autoencoder"]["hidden_size"] == 32);
    BOOST_TEST(json["calm"]["autoencoder"].size() == 7U);
    BOOST_TEST(json["calm"]["data"].size() == 5U);
    BOOST_TEST(json["calm"]["tokenizer"]["file"] == "tokenizer.model");
    auto const read = calm::parse_config_json(text, "config.json");
    BOOST_TEST(read.head.name() == "diffusion");
    BOOST_TEST(read.eos_token_id == std::vector<std::int64_t>{95});
    BOOST_TEST(!read.pad_token_id.has_value());
    BOOST_TEST(read.calm.value().data.value().data_seed == 18446744073709551615U);
    BOOST_TEST(read.calm.value().data.value().sources[1] == "b \"quoted\".txt");
    BOOST_TEST(calm::config_json_text(read) == text);
}

BOOST_AUTO_TEST_CASE(numbers_of_a_head_are_stored_at_their_published_keys_or_in_our_object) {
    auto description = calm::model_description::of(model_kind::calm, "energy");
    description.vocab_size = 97;
    description.llama.hidden_size = description.llama.intermediate_size = 48;
    description.llama.num_hidden_layers = description.llama.num_attention_heads =
        description.llama.num_key_value_heads = 2;
    description.head.sizes.find("noise_size")->value = 5;
    description.objective.find("beta")->value = 1.25;
    auto& ours = description.calm.emplace(calm::calm_description::of(description.head));
    ours.of_head.find("num_target_samples")->value = 32;
    auto const text = calm::config_json_text(description);
    auto const json = value_of(text);
    BOOST_TEST(json["noise_size"] == 5);
    BOOST_TEST(json["num_samples"] == 8);
    BOOST_TEST(json["calm"]["num_target_samples"] == 32);
    BOOST_TEST(!json.contains("num_target_samples"));
    auto const read = calm::parse_config_json(text, "config.json");
    BOOST_TEST((read.head == description.head));
    auto const objective = static_cast<calm::energy_objective>(calm::head_objective_of(read));
    BOOST_TEST(objective.samples == 8);
    BOOST_TEST(objective.targets == 32);
    BOOST_TEST(objective.beta == 1.25);
    BOOST_TEST(calm::config_json_text(read) == text);
}

BOOST_AUTO_TEST_CASE(text_that_json_cannot_hold_is_refused) {
    auto description = calm::model_description::of(model_kind::calm);
    description.ae_path = "\xff";
    BOOST_CHECK_EXCEPTION((void)calm::config_json_text(description), calm::error,
                          [](calm::error const& thrown) { return thrown.code() == calm::errc::usage; });
}

BOOST_AUTO_TEST_CASE(the_kind_follows_from_architecture_or_type) {
    auto const kind = [](std::string const& text) { return calm::parse_config_json(text, "c").kind; };
    BOOST_TEST((kind(autoencoder) == model_kind::autoencoder));
    auto const untyped = with(energy + "}", "architectures", "");
    BOOST_TEST((kind(with(untyped, "model_type", "\"energy\"")) == model_kind::calm));
    BOOST_TEST((calm::parse_config_json(with(untyped, "model_type", "\"flow\""), "c").head.name() == "flow"));
    BOOST_TEST((kind(with(llama, "architectures", "")) == model_kind::autoregressive));
    BOOST_TEST((kind(with(llama, "model_type", "")) == model_kind::autoregressive));
}

BOOST_AUTO_TEST_CASE(errors_name_path_and_key) {
    auto const says = [](std::string const& text, std::string const& sentence) {
        try {
            (void)calm::parse_config_json(text, "dir/config.json");
            BOOST_ERROR("nothing was thrown instead of: " << sentence);
        } catch (calm::error const& thrown) {
            BOOST_TEST((thrown.code() == calm::errc::model_file));
            std::string const said = thrown.what();
            BOOST_TEST(said.starts_with("dir/config.json" + sentence), said);
            BOOST_TEST(said.find("expected ") != std::string::npos, said);
            BOOST_TEST(said.find("found ") != std::string::npos, said);
        }
    };
    auto const bad = [&](std::string const& key, std::string const& value, std::string const& sentence) {
        says(with(energy + "}", key, value), ", key '" + key + "': " + sentence);
    };
    auto const up_to = [](char const* most) {
        return "expected an integer from 1 to " + std::string(most) + ", found ";
    };
    std::string const size = up_to("262144"), layers = up_to("1024"), vocabulary = up_to("1048576");
    bad("hidden_size", "", size + "no such key");
    bad("vocab_size", "\"97\"", vocabulary + "\"97\"");
    bad("vocab_size", "0", vocabulary + "0");
    bad("vocab_size", "-5", vocabulary + "-5");
    bad("vocab_size", "16777217", vocabulary + "16777217");
    bad("patch_size", "4.0", up_to("1024") + "4");
    bad("num_mlp_layers", "null", layers + "null");
    bad("num_mlp_layers", "1025", layers + "1025");
    std::string const samples = "expected an integer from 2 to 4096, found ";
    bad("num_samples", "1000000", samples + "1000000");
    bad("num_samples", "9223372036854775808", samples + "9223372036854775808");
    bad("max_position_embeddings", "2147483648", up_to("1073741824") + "2147483648");
    bad("beta", "\"one\"", "expected a number above 0.0 and below 2.0, found \"one\"");
    bad("beta", "2", "expected a number above 0.0 and below 2.0, found 2");
    bad("beta", "1e308", "expected a number above 0.0 and below 2.0, found 1e+308");
    bad("use_cache", "1", "expected true or false, found 1");
    bad("ae_path", "{}", "expected a string, found {}");
    bad("pad_token_id", "-1", "expected a token id from 0 to 1048575, or null, found -1");
    bad("bos_token_id", "[1,2]", "expected a token id from 0 to 1048575, or null, found [1,2]");
    for (auto const* const value : {"[1,-2]", "[1,1048576]", "[[1]]", "\"2\"", "[null]"})
        bad("eos_token_id", value,
            "expected a token id from 0 to 1048575, a list of them, or null, found " + std::string(value));
    bad("architectures", "[\"EnergyTransformer\",3]", "expected a list of strings, found");
    bad("architectures", "[\"BertModel\"]",
        "expected a list whose first is one of Autoencoder, LlamaForCausalLM, EnergyTransformer");
    bad("architectures", "", "expected a list whose first is one of Autoencoder");
    bad("hidden_act", "\"gelu\"", "expected \"silu\", the one value that this library computes, found \"gelu\"");
    bad("rope_scaling", "[]", "expected an object, found []");
    bad("attention_bias", "true", "expected false, the one value that this library computes, found true");
    bad("mlp_bias", "true", "expected false, the one value that this library computes, found true");
    bad("calm", "[]", "expected an object, found []");
    auto const inside = [&](std::string const& object, std::string const& sentence) {
        says(energy + ",\"calm\":" + object + "}", sentence);
    };
    inside("{}", ", key 'calm/format': expected 1, found no such key");
    inside("{\"format\":2}", ", key 'calm/format': expected 1, the one value that this library computes, found 2");
    inside(R"({"format":1,"data":{"mode":"padded"}})",
           ", key 'calm/data/block_tokens': " + up_to("1048576") + "no such key");
    inside(R"({"format":1,"num_target_samples":2147483647})",
           ", key 'calm/num_target_samples': " + up_to("10000") + "2147483647");
    inside(R"({"format":1,"posterior_std":-1})", ", key 'calm/posterior_std': expected a number from 0.0 to 1e+39");
    inside(R"({"format":1,"data":{"mode":"padded","block_tokens":8,"data_seed":-1}})",
           ", key 'calm/data/data_seed': expected an integer of at least 0, found -1");
    inside(R"({"format":1,"tokenizer":{"file":1,"fingerprint":"f"}})",
           ", key 'calm/tokenizer/file': expected a string, found 1");
    inside(R"({"format":1,"format":1})", ", key 'calm/format': expected the key once, found it twice");
    says(energy + ",\"vocab_size\":98}", ", key 'vocab_size': expected the key once, found it twice");
    bad("num_hidden_layers", "[2]", layers + "[2]");
    bad("num_attention_heads", "0", size + "0");
    bad("num_key_value_heads", "-1", size + "-1");
    bad("latent_size", "1e3", size + "1000");
    bad("intermediate_size", "true", size + "true");
    bad("noise_size", "\"\"", size + "\"\"");
    bad("rope_theta", "null", "expected a number from 1.0 to 1000000000000.0, found null");
    bad("rms_norm_eps", "\"1e-6\"", "expected a number from 0.0 to 1.0, found \"1e-6\"");
    bad("torch_dtype", "32", "expected a string, found 32");
    bad("pretraining_tp", "2", "expected 1, the one value that this library computes, found 2");
    bad("mlp_bias", "null", "expected false, the one value that this library computes, found null");
    bad("attention_dropout", "0.1", "expected 0.0, the one value that this library computes, found 0.1");
    bad("bos_token_id", "1048576", "expected a token id from 0 to 1048575, or null, found 1048576");
    inside(R"({"format":1,"autoencoder":{"hidden_size":8,"num_encoder_layers":2,"num_decoder_layers":2}})",
           ", key 'calm/autoencoder/intermediate_size': " + size);
    inside(R"({"format":1,"data":{"mode":"padded","block_tokens":8,"sources":"x"}})",
           ", key 'calm/data/sources': expected a list of strings, found \"x\"");
    says(std::string(5000, '['), ": expected a JSON object, found none: ");
    says(energy, ": expected a JSON object, found none: ");
    says("{\"\xff\":1}", ": expected a JSON object, found none: ");
    says(autoencoder + "x", ": expected a JSON object, found none: ");
    says("[1]", ": expected a JSON object, found none: ");
    says("", ": expected a JSON object, found none: ");
}

BOOST_AUTO_TEST_CASE(an_autoregressive_model_keeps_every_value) {
    auto const d = calm::parse_config_json(llama, "c");
    BOOST_TEST((d.kind == model_kind::autoregressive));
    BOOST_TEST(d.vocab_size == 211);
    BOOST_TEST(d.llama.num_key_value_heads == 2);
    BOOST_TEST(d.rope_theta == 50000);
    BOOST_TEST(d.max_position_embeddings == 4096);
    BOOST_TEST(!d.tie_word_embeddings);
    BOOST_TEST(d.torch_dtype == "bfloat16");
    BOOST_TEST(d.bos_token_id.value() == 1);
    BOOST_TEST((value_of(again(llama)) == value_of(llama)));
    // Removed keys stay absent, except the sizes, which are required.
    auto const all = value_of(llama);
    for (auto const& [key, value] : all.items()) {
        auto const less = with(llama, key, "");
        if (key.ends_with("_size") || key == "num_hidden_layers" || key == "num_attention_heads")
            BOOST_CHECK_THROW((void)again(less), calm::error);
        else
            BOOST_TEST((value_of(again(less)) == value_of(less)), key);
    }
    for (auto const* const tied : {"true", "false"}) {
        auto const text = with(llama, "tie_word_embeddings", tied);
        BOOST_TEST((value_of(again(text)) == value_of(text)));
    }
    BOOST_TEST(calm::parse_config_json(with(llama, "tie_word_embeddings", "true"), "c").tie_word_embeddings);
    BOOST_TEST(calm::parse_config_json(with(llama, "num_key_value_heads", ""), "c").llama.num_key_value_heads == 4);
}

BOOST_AUTO_TEST_CASE(options_of_a_calm_are_refused_for_an_autoregressive_model) {
    auto const bad = [](std::string const& key, std::string const& value, std::string const& wanted) {
        auto const begin = "dir/config.json, key '" + key + "': expected " + wanted + ", found ";
        try {
            (void)calm::parse_config_json(with(llama, key, value), "dir/config.json");
            BOOST_ERROR("nothing was thrown for " << key << " " << value);
        } catch (calm::error const& thrown) {
            BOOST_TEST((thrown.code() == calm::errc::model_file));
            BOOST_TEST(std::string(thrown.what()).starts_with(begin), thrown.what());
        }
    };
    std::string const one = ", the one value that this library computes";
    bad("quantization_config", R"({"quant_method":"gptq"})", "null" + one);
    bad("attention_bias", "true", "false" + one);
    bad("mlp_bias", "true", "false" + one);
    bad("pretraining_tp", "2", "1" + one);
    bad("hidden_act", "\"gelu\"", "\"silu\"" + one);
    bad("head_dim", "\"12\"", "an integer from 2 to 262144");
    bad("head_dim", "0", "an integer from 2 to 262144");
    bad("tie_word_embeddings", "null", "true or false");
    bad("rope_theta", "0", "a number from 1.0 to 1000000000000.0");
}

// Redundant keys are kept if they are present, and not added otherwise.
BOOST_AUTO_TEST_CASE(redundant_keys_are_kept_in_place) {
    for (auto const& [key, value] : {std::pair{"head_dim", "12"}, std::pair{"head_dim", "null"},
                                     std::pair{"rope_parameters", "null"}, std::pair{"quantization_config", "null"}}) {
        auto const text = with(llama, key, value);
        BOOST_TEST((value_of(again(text)) == value_of(text)), key);
    }
    auto const fresh = value_of(calm::config_json_text(calm::model_description::of(model_kind::autoregressive)));
    for (auto const* const key : {"head_dim", "rope_parameters", "quantization_config"})
        BOOST_TEST(!fresh.contains(key), key);
}

// All kinds of models share one reader: it refuses unsupported settings and unknown keys.
BOOST_AUTO_TEST_CASE(no_kind_of_model_is_read_less_strictly) {
    std::string const unknown = "unknown key, which may change what the model computes, with value ";
    for (auto const& text : {autoencoder, energy + "}", llama}) {
        auto const is_refused = [&](std::string const& key, std::string const& value, std::string const& sentence) {
            auto const said = refusal(with(text, key, value));
            BOOST_TEST(said.starts_with("dir/config.json, key '" + key + "': " + sentence), said << " of " << text);
        };
        is_refused("quantization_config", R"({"quant_method":"gptq"})", "expected null, ");
        is_refused("mlp_bias", "true", "expected false, ");
        is_refused("attn_logit_softcapping", "50.0", unknown + "50");
        auto const said = refusal(with(text, "calm", R"({"format":1,"input_scale":2})"));
        BOOST_TEST(said.starts_with("dir/config.json, key 'calm/input_scale': " + unknown + "2"), said);
        BOOST_TEST(refusal(with(text, "attn_logit_softcapping", "null")) == "");
        BOOST_TEST(refusal(with(text, "_attn_implementation", "\"eager\"")) == "");
        BOOST_TEST(refusal(with(text, "transformers_version", "\"5.2\"")) == "");
        BOOST_TEST(refusal(with(text, "use_sliding_window", "true")) == "");  // has no effect on a Llama
        if (text == autoencoder) continue;
        if (text != llama) is_refused("head_dim", "16", "expected 12, ");
        is_refused("rope_interleaved", "true", "expected false, ");
        is_refused("partial_rotary_factor", "0.5", "expected 1.0, ");
    }
}

BOOST_AUTO_TEST_CASE(the_base_of_the_rotary_angles_is_read_from_either_place) {
    std::string const plain = R"({"rope_theta":500000.0,"rope_type":"default"})";
    for (auto const& text : {with(energy + "}", "rope_theta", ""), with(llama, "rope_theta", "")}) {
        auto const with_object = [&](std::string const& value) { return with(text, "rope_parameters", value); };
        BOOST_TEST(calm::parse_config_json(with_object(plain), "c").rope_theta == 500000);
        BOOST_TEST((value_of(again(with_object(plain))) == value_of(with_object(plain))));
        BOOST_TEST(calm::parse_config_json(with_object("null"), "c").rope_theta == 10000);
        BOOST_TEST(calm::parse_config_json(with_object("{}"), "c").rope_theta == 10000);
        auto const both = with(with_object(plain), "rope_theta", "500000");
        BOOST_TEST(calm::parse_config_json(both, "c").rope_theta == 500000);
        BOOST_TEST((value_of(again(both)) == value_of(both)));
        auto const is_refused = [](std::string const& whole, std::string const& sentence) {
            auto const said = refusal(whole);
            BOOST_TEST(said.starts_with("dir/config.json, key 'rope_parameters" + sentence), said);
        };
        is_refused(with(both, "rope_theta", "10000.0"),
                   "/rope_theta': expected 10000.0, the value of 'rope_theta', found");
        is_refused(with_object(R"({"rope_theta":5e5,"factor":8.0})"), "/factor': unknown key");
        is_refused(with_object(R"({"full_attention":{"rope_theta":5e5}})"), "/full_attention': unknown key");
        is_refused(with_object(R"({"rope_theta":"5e5"})"), "/rope_theta': expected a number from 1.0");
        is_refused(with_object(R"({"rope_theta":5e5,"partial_rotary_factor":0.5})"),
                   "/partial_rotary_factor': expected 1.0");
        is_refused(with_object("[1]"), "': expected an object, found [1]");
    }
}

BOOST_AUTO_TEST_CASE(scaled_rotary_angles_are_read_from_either_place) {
    std::string const llama3 = R"("factor":8.0,"low_freq_factor":1.5,"high_freq_factor":4.0,)"
                               R"("original_max_position_embeddings":512)";
    calm::rotary_scaling const of_llama3{calm::rope_type::llama3, 8, 1.5, 4, 512};
    calm::rotary_scaling const of_linear{.type = calm::rope_type::linear, .factor = 2.5};
    auto const none = with(with(llama, "rope_theta", ""), "rope_scaling", "");
    auto const is_read = [](std::string const& text, calm::rotary_scaling const& want, double base) {
        auto const d = calm::parse_config_json(text, "c");
        BOOST_TEST((d.llama.rope_scaling == want), text);
        BOOST_TEST(d.rope_theta == base, text);
        BOOST_TEST((value_of(again(text)) == value_of(text)), again(text));
    };
    // As transformers 4 writes them, also by the older name of rope_type.
    is_read(with(llama, "rope_scaling", R"({"rope_type":"llama3",)" + llama3 + "}"), of_llama3, 50000);
    is_read(with(llama, "rope_scaling", R"({"type":"linear","factor":2.5})"), of_linear, 50000);
    is_read(with(llama, "rope_scaling", R"({"type":"linear","rope_type":"linear","factor":2.5})"), of_linear, 50000);
    is_read(with(llama, "rope_scaling", R"({"rope_type":"default"})"), {}, 50000);
    // As transformers 5 writes them, with or without the older keys.
    auto const of_5 = R"({"rope_theta":500.0,"rope_type":"llama3",)" + llama3 + "}";
    is_read(with(none, "rope_parameters", of_5), of_llama3, 500);
    is_read(with(with(none, "rope_parameters", of_5), "rope_scaling", "null"), of_llama3, 500);
    is_read(with(with(none, "rope_parameters", of_5), "rope_scaling", of_5), of_llama3, 500);
    is_read(with(with(none, "rope_parameters", of_5), "rope_theta", "500.0"), of_llama3, 500);
    // As this library writes them.
    auto description = calm::model_description::of(model_kind::autoregressive);
    description.llama.rope_scaling = of_llama3;
    auto const written = calm::config_json_text(description);
    BOOST_TEST((value_of(written)["rope_scaling"] == value_of(R"({"rope_type":"llama3",)" + llama3 + "}")), written);
    description.vocab_size = 97;
    is_read(calm::config_json_text(description), of_llama3, 10000);

    auto const is_refused = [&](std::string const& scaling, std::string const& sentence) {
        auto const said = refusal(with(llama, "rope_scaling", scaling));
        BOOST_TEST(said.starts_with("dir/config.json, key 'rope_scaling/" + sentence), said);
    };
    is_refused(R"({"rope_type":"yarn","factor":4.0,"beta_fast":32})",
               R"(rope_type': expected "default", "linear" or "llama3", found "yarn")");
    is_refused(R"({"type":"dynamic","factor":4.0})", R"(rope_type': expected "default", "linear" or)");
    is_refused(R"({"rope_type":3})", "rope_type': expected a string, found 3");
    is_refused(R"({"rope_type":"linear"})", "factor': expected a number from 1.0 to 1000000.0, found no such key");
    is_refused(R"({"rope_type":"linear","factor":0.5})", "factor': expected a number from 1.0");
    is_refused(R"({"rope_type":"linear","factor":2.0,"low_freq_factor":1.0})", "low_freq_factor': unknown key");
    is_refused(R"({"rope_type":"default","factor":2.0})", "factor': unknown key");
    is_refused(R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":4.0,"high_freq_factor":4.0,)"
               R"("original_max_position_embeddings":512})",
               "high_freq_factor': expected more than low_freq_factor, 4.0, found 4.0");
    auto const both = with(with(llama, "rope_scaling", R"({"type":"linear","factor":2.5})"), "rope_parameters",
                           R"({"rope_type":"linear","factor":2.0})");
    BOOST_TEST(refusal(both).starts_with("dir/config.json, key 'rope_parameters': expected the scaling of "
                                         "'rope_scaling', found"),
               refusal(both));
}

BOOST_AUTO_TEST_CASE(a_llama_may_have_any_eps_head_size_and_number_of_ends) {
    auto const read = [](std::string const& key, std::string const& value) {
        auto const text = with(llama, key, value);
        BOOST_TEST((value_of(again(text)) == value_of(text)), again(text));
        return calm::parse_config_json(text, "c");
    };
    using ids = std::vector<std::int64_t>;
    BOOST_TEST(read("rms_norm_eps", "1e-05").rms_norm_eps == 1e-5);
    BOOST_TEST(read("head_dim", "16").llama.head_dim == 16);
    BOOST_TEST(read("head_dim", "12").llama.head_dim == 0);  // hidden_size / num_attention_heads
    BOOST_TEST((read("eos_token_id", "2").eos_token_id == ids{2}));
    BOOST_TEST((read("eos_token_id", "[128001,128008,128009]").eos_token_id == ids{128001, 128008, 128009}));
    BOOST_TEST((read("eos_token_id", "null").eos_token_id == ids{}));
    BOOST_TEST((read("eos_token_id", "").eos_token_id == ids{}));
    auto description = calm::model_description::of(model_kind::autoregressive);
    description.llama.head_dim = 16;
    BOOST_TEST(value_of(calm::config_json_text(description))["head_dim"] == 16);
}

// The precision is written once, under the key that it was read from.
BOOST_AUTO_TEST_CASE(one_statement_of_the_precision_is_left) {
    auto const rounded = [](std::string const& text) {
        auto description = calm::parse_config_json(text, "c");
        description.torch_dtype = "float16";
        return value_of(calm::config_json_text(description));
    };
    auto const none = with(llama, "torch_dtype", ""), other = with(none, "dtype", "\"bfloat16\"");
    BOOST_TEST(calm::parse_config_json(other, "c").torch_dtype == "bfloat16");
    BOOST_TEST((value_of(again(other)) == value_of(other)));
    BOOST_TEST((rounded(other) == value_of(with(none, "dtype", "\"float16\""))));
    BOOST_TEST((rounded(llama) == value_of(with(llama, "torch_dtype", "\"float16\""))));
    BOOST_TEST((rounded(none) == value_of(with(llama, "torch_dtype", "\"float16\""))));
    BOOST_TEST((rounded(with(none, "dtype", "null")) == value_of(with(llama, "torch_dtype", "\"float16\""))));
    auto const both = with(llama, "dtype", "\"bfloat16\"");
    BOOST_TEST((value_of(again(both)) == value_of(other)));
    BOOST_TEST(
        refusal(with(llama, "dtype", "\"float32\""))
            .starts_with("dir/config.json, key 'dtype': expected \"bfloat16\", the value of 'torch_dtype', found"));
}

BOOST_AUTO_TEST_CASE(all_problems_are_reported_together) {
    auto text = with(with(llama, "hidden_act", "\"gelu\""), "hidden_size", "\"48\"");
    text = with(with(text, "head_dim", "12"), "rope_scaling", "[]");
    auto const said = refusal(text);
    BOOST_TEST(said.starts_with("dir/config.json: 3 problems\n"), said);
    for (auto const* const key : {"key 'hidden_size': ", "key 'hidden_act': ", "key 'rope_scaling': "})
        BOOST_TEST(said.find(key) != std::string::npos, said);
}

BOOST_AUTO_TEST_CASE(a_byte_order_mark_is_dropped) {
    BOOST_TEST((value_of(again("\xef\xbb\xbf" + llama)) == value_of(llama)));
}

BOOST_AUTO_TEST_CASE(every_number_has_a_range_with_the_usual_values) {
    std::size_t numbers = 0;
    range_checker const check{numbers};
    for (auto const kind : {calm::model_kind::autoencoder, calm::model_kind::calm, calm::model_kind::autoregressive}) {
        auto const usual = calm::model_description::of(kind);
        calm::model_description::visit(usual, check);
    }
    BOOST_TEST(numbers > 40U);
    for (auto const& range : calm::detail::number_ranges) BOOST_TEST(range.least < range.most, range.key);
}
