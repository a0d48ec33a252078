#pragma once
// What a config.json says, as run-time values: the published keys of every kind of model, and ours (spec 12).

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "calm/tensor/error.hpp"

namespace calm {

// What an object of the file held besides the keys known here, as JSON text, and which known keys it did not have.
// Both are kept, so that reading and writing changes no value.
struct json_extras {
    std::map<std::string, std::string> others;
    std::set<std::string> omitted;
};

// The autoencoder's sizes and loss. In its own config.json these are keys of the file; in a CALM's they stand in our
// object "calm", because the published file does not have them.
struct autoencoder_description {
    std::int64_t hidden_size = 512;
    std::int64_t intermediate_size = 1280;
    std::int64_t num_encoder_layers = 2;
    std::int64_t num_decoder_layers = 2;
    double ae_dropout = 0.15;
    double kl_clamp = 0.5;
    double kl_weight = 1e-3;
    json_extras extras;

    template <class Self, class Key> static void visit(Self& self, Key&& key) {
        key("hidden_size", self.hidden_size, true);
        key("intermediate_size", self.intermediate_size, true);
        key("num_encoder_layers", self.num_encoder_layers, true);
        key("num_decoder_layers", self.num_decoder_layers, true);
        key("ae_dropout", self.ae_dropout);
        key("kl_clamp", self.kl_clamp);
        key("kl_weight", self.kl_weight);
    }
};

// What a model was trained on (spec 2).
struct data_description {
    std::string mode = "padded";
    std::int64_t block_tokens = 2048;
    std::uint64_t data_seed = 0;
    std::string holdout;  // "m:r", or empty
    std::vector<std::string> sources;
    json_extras extras;

    template <class Self, class Key> static void visit(Self& self, Key&& key) {
        key("mode", self.mode, true);
        key("block_tokens", self.block_tokens, true);
        key("data_seed", self.data_seed);
        key("holdout", self.holdout);
        key("sources", self.sources);
    }
};

struct tokenizer_description {
    std::string file = "tokenizer.model";
    std::string pattern;
    std::string fingerprint;
    json_extras extras;

    template <class Self, class Key> static void visit(Self& self, Key&& key) {
        key("file", self.file, true);
        key("pattern", self.pattern);
        key("fingerprint", self.fingerprint, true);
    }
};

// Our object "calm" inside a published config.json.
struct calm_description {
    std::string configuration;
    std::optional<autoencoder_description> autoencoder;
    double posterior_std = 0;               // of the autoencoder's training text, mean over elements; 0: not known
    std::int64_t num_target_samples = 100;  // M
    std::string input = "tokens";           // of the backbone: tokens, latents or both
    std::optional<data_description> data;
    std::optional<tokenizer_description> tokenizer;
    json_extras extras;

    template <class Self, class Key> static void visit(Self& self, Key&& key) {
        key.only("format", 1, true);
        key("configuration", self.configuration);
        key("autoencoder", self.autoencoder);
        key("posterior_std", self.posterior_std);
        key("num_target_samples", self.num_target_samples);
        key("input", self.input);
        key("data", self.data);
        key("tokenizer", self.tokenizer);
    }
};

enum class model_kind { autoencoder, calm, autoregressive };

// A config.json. Which members count follows from the kind: visit() names them, under their keys in the file.
struct model_description {
    model_kind kind = model_kind::calm;
    std::string head = "energy";  // of a CALM: energy, flow, diffusion or margin

    std::vector<std::string> architectures{"EnergyTransformer"};
    std::string model_type = "energy";
    std::int64_t vocab_size = 0;          // V
    std::int64_t patch_size = 4;          // K
    std::int64_t latent_size = 128;       // L
    autoencoder_description autoencoder;  // of the kind autoencoder; a CALM may have one in `calm`
    std::int64_t hidden_size = 0;         // D of the backbone
    std::int64_t intermediate_size = 0;
    std::int64_t num_hidden_layers = 0;
    std::int64_t num_attention_heads = 0;
    std::int64_t num_key_value_heads = 0;
    double rope_theta = 10000.0;
    bool use_cache = true;
    std::string ae_path;
    std::int64_t num_mlp_layers = 4;  // head blocks
    std::int64_t noise_size = 64;
    std::int64_t num_samples = 8;  // N
    double beta = 1.0;
    double rms_norm_eps = 1e-6;
    double initializer_range = 0.02;
    std::int64_t max_position_embeddings = 2048;
    std::optional<std::int64_t> bos_token_id;
    std::optional<std::int64_t> eos_token_id;
    std::optional<std::int64_t> pad_token_id;
    bool tie_word_embeddings = false;
    std::string torch_dtype = "float32";
    std::optional<calm_description> calm;
    json_extras extras;

    // A description to be filled in and written. Throws errc::config for an unknown head.
    static model_description of(model_kind kind, std::string const& head = "energy");

    template <class Self, class Key> static void visit(Self& self, Key&& key) {
        key("architectures", self.architectures);
        if (self.kind != model_kind::autoencoder) key("model_type", self.model_type);
        key("vocab_size", self.vocab_size, true);
        if (self.kind != model_kind::autoregressive) {
            key("patch_size", self.patch_size, true);
            key("latent_size", self.latent_size, true);
        }
        if (self.kind == model_kind::autoencoder) {
            autoencoder_description::visit(self.autoencoder, key);
        } else {
            key("hidden_size", self.hidden_size, true);
            key("intermediate_size", self.intermediate_size, true);
            key("num_hidden_layers", self.num_hidden_layers, true);
            key("num_attention_heads", self.num_attention_heads, true);
            key("num_key_value_heads", self.num_key_value_heads);
            key("rope_theta", self.rope_theta);
            key.only("rope_scaling", nullptr);
            key.only("attention_bias", false);
            key.only("attention_dropout", 0.0);
            key("use_cache", self.use_cache);
        }
        if (self.kind == model_kind::calm) {
            key("ae_path", self.ae_path);
            key("num_mlp_layers", self.num_mlp_layers, true);
            key("noise_size", self.noise_size);
            key("num_samples", self.num_samples);
            key("beta", self.beta);
        }
        key.only("hidden_act", "silu");
        key.only("mlp_bias", false);
        key.only("pretraining_tp", 1);
        key("rms_norm_eps", self.rms_norm_eps);
        key("initializer_range", self.initializer_range);
        key("max_position_embeddings", self.max_position_embeddings);
        key("bos_token_id", self.bos_token_id);
        key("eos_token_id", self.eos_token_id);
        key("pad_token_id", self.pad_token_id);
        if (self.kind == model_kind::autoregressive)
            key.only("tie_word_embeddings", false);
        else
            key("tie_word_embeddings", self.tie_word_embeddings);
        key("torch_dtype", self.torch_dtype);
        key("calm", self.calm);
    }
};

// The names that heads and their models have in files.
struct head_names {
    std::string_view head;  // also the model_type
    std::string_view architecture;
};
inline constexpr std::array<head_names, 4> known_heads{{{"energy", "EnergyTransformer"},
                                                        {"flow", "FlowTransformer"},
                                                        {"diffusion", "DiffusionTransformer"},
                                                        {"margin", "MarginTransformer"}}};

inline model_description model_description::of(model_kind kind, std::string const& head) {
    model_description one;
    one.kind = kind;
    if (kind == model_kind::autoencoder) {
        one.architectures = {"Autoencoder"};
    } else if (kind == model_kind::autoregressive) {
        one.architectures = {"LlamaForCausalLM"};
        one.model_type = "llama";
    } else {
        one.architectures.clear();
        for (auto const& names : known_heads)
            if (names.head == head) one.architectures = {std::string(names.architecture)};
        require(!one.architectures.empty(), errc::config,
                "expected a head among energy, flow, diffusion and margin, found '", head, "'");
        one.head = one.model_type = head;
    }
    return one;
}

}  // namespace calm
