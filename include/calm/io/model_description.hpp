#pragma once
/// \file
/// The contents of a config.json as run-time values: the published keys of every kind of model, and our own.
///
/// `visit(self, key)` of a description calls, for every key,
/// - key(name, member, required), or key(field, member) for a size;
/// - key.only(name, value) for a key with one allowed value;
/// - key.only_if_there(name, value, derived) for a key with one allowed value or null, written only if it was read;
/// - key.either(name, other, member) for a key with two names;
/// - key.rotary_angles(base, scaling) for the rotary angles, which files state in several ways;
/// - key.head_dim(member, usual) for the elements per head, written only if it is not `usual`, where the member is 0;
/// - key.number(value) for a number of the head;
/// - key.object(name, member, make) for an object that starts as make().
///
/// `describes_numbers`: keys of this object may affect computations, so every key must be known.
/// \shows{tests/io/model_description_test.cpp,kinds_have_their_published_names}

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/model/config.hpp"
#include "calm/model/heads.hpp"

namespace calm {

/// The unknown keys of an object, as JSON text, and the known keys that it omitted. All are kept, so a round trip
/// changes no value.
struct json_extras {
    std::map<std::string, std::string> others;     ///< JSON text by its key
    std::set<std::string> omitted;                 ///< known keys that were missing
    std::map<std::string, std::string> stated_by;  ///< known keys, and the key that the file used instead
};

/// The autoencoder's sizes and loss. In an autoencoder's config.json they are top-level keys. A CALM has them in our
/// object "calm", because the published file lacks them.
struct autoencoder_description {
    autoencoder_configuration sizes;  ///< the file has the published ones, this object the others; vocab_size is unused
    double ae_dropout = 0.15;         ///< for input tokens and the latent, in [0, 1)
    double kl_clamp = 0.5;            ///< nats per dimension
    double kl_weight = 1e-3;          ///< of the KL divergence in the loss
    json_extras extras;               ///< of this object
    /// Every key must be known.
    static constexpr bool describes_numbers = true;

    /// Visits every key.
    template <class Self, class Key> static void visit(Self& self, Key&& key) {
        visit_sizes(self, key, false);
        key("ae_dropout", self.ae_dropout);
        key("kl_clamp", self.kl_clamp);
        key("kl_weight", self.kl_weight);
    }
    /// Visits the published sizes, or the others.
    template <class Self, class Key> static void visit_sizes(Self& self, Key&& key, bool published) {
        autoencoder_configuration::visit_fields(self.sizes, [&](number_field const& field, auto& size) {
            if (field.published == published) key(field, size);
        });
    }
};

/// The data that a model was trained on (docs/programs.md).
struct data_description {
    std::string mode = "padded";       ///< padded or published: how documents are packed into patches
    std::int64_t block_tokens = 2048;  ///< length of a block
    std::uint64_t data_seed = 0;       ///< of generated sources
    std::string holdout;               ///< "m:r", or empty
    std::vector<std::string> sources;  ///< as given on the command line
    json_extras extras;                ///< of this object
    /// Unknown keys are allowed.
    static constexpr bool describes_numbers = false;

    /// Visits every key.
    template <class Self, class Key> static void visit(Self& self, Key&& key) {
        key("mode", self.mode, true);
        key("block_tokens", self.block_tokens, true);
        key("data_seed", self.data_seed);
        key("holdout", self.holdout);
        key("sources", self.sources);
    }
};

/// The tokenizer that a model's ids belong to.
struct tokenizer_description {
    std::string file = "tokenizer.model";  ///< name of the file next to config.json
    std::string pattern;                   ///< of a piece (pretokenizer.hpp); empty for symbols
    std::string fingerprint;               ///< tokenizer::fingerprint, hexadecimal
    json_extras extras;                    ///< of this object
    /// Only for a vocabulary that tokenizer::published fits to its model: whether prompts begin with BOS.
    std::optional<bool> bos_first = std::nullopt;
    /// Unknown keys are allowed.
    static constexpr bool describes_numbers = false;

    /// Visits every key.
    template <class Self, class Key> static void visit(Self& self, Key&& key) {
        key("file", self.file, true);
        key("pattern", self.pattern);
        key("fingerprint", self.fingerprint, true);
        key("bos_first", self.bos_first);
    }
};

/// Our object "calm" inside a published config.json.
struct calm_description {
    std::string configuration;                           ///< its name, for messages; only the sizes matter
    std::optional<autoencoder_description> autoencoder;  ///< of a CALM, whose published file lacks it
    double posterior_std = 0;              ///< of the autoencoder on its training text, mean over elements; 0: unknown
    field_values of_head;                  ///< numbers of the head that the published file lacks
    std::string input = "tokens";          ///< of the backbone: tokens, latents or both
    std::optional<data_description> data;  ///< nullopt if unknown
    std::optional<tokenizer_description> tokenizer;  ///< nullopt if the model has no text
    json_extras extras;                              ///< of this object
    /// Every key must be known.
    static constexpr bool describes_numbers = true;

    /// For a model with that head, to be filled in.
    static calm_description of(any_head const& head) {
        calm_description one;
        if (head.facts == nullptr) return one;
        for (auto const& number : head.facts->objective)
            if (!number.field.published) one.of_head.push_back(number);
        return one;
    }

    /// Visits every key.
    template <class Self, class Key> static void visit(Self& self, Key&& key) {
        key.only("format", 1, true);
        key("configuration", self.configuration);
        key("autoencoder", self.autoencoder);
        key("posterior_std", self.posterior_std);
        for (auto& one : self.of_head) key.number(one);
        key("input", self.input);
        key("data", self.data);
        key("tokenizer", self.tokenizer);
    }
};

/// The kind of model in a directory.
enum class model_kind { autoencoder, calm, autoregressive };

/// A config.json. The kind decides which members are used: visit() names them, with their keys in the file.
struct model_description {
    model_kind kind = model_kind::calm;  ///< decides which members are used
    any_head head;                       ///< of a CALM, with its sizes
    field_values objective;              ///< of the head: the part that a published file has

    std::vector<std::string> architectures;       ///< the first decides the kind
    std::string model_type;                       ///< the head's name, or llama
    std::int64_t vocab_size = 0;                  ///< V, the number of token ids
    autoencoder_description autoencoder;          ///< in a CALM only the published sizes; the others may be in `calm`
    llama_sizes llama;                            ///< of a language model, except rope_theta and rms_norm_eps
    double rope_theta = 10000.0;                  ///< base of the rotary angles
    bool use_cache = true;                        ///< for other programs; kept
    std::string ae_path;                          ///< directory of the autoencoder, relative to this one
    double rms_norm_eps = 1e-6;                   ///< added under the root of every norm
    double initializer_range = 0.02;              ///< for other programs; kept
    std::int64_t max_position_embeddings = 2048;  ///< positions per sequence, as published
    std::optional<std::int64_t> bos_token_id;     ///< for other programs
    std::vector<std::int64_t> eos_token_id;       ///< each ends a text of an autoregressive model; may be empty
    std::optional<std::int64_t> pad_token_id;     ///< for other programs
    bool tie_word_embeddings = false;             ///< of an autoregressive model; otherwise only kept
    std::string torch_dtype = "float32";          ///< type of the stored weights
    std::optional<calm_description> calm;         ///< our object; nullopt in a published file
    json_extras extras;                           ///< of the file
    /// Every key must be known.
    static constexpr bool describes_numbers = true;

    /// A description to be filled in and written. Throws errc::config for an unknown head.
    static model_description of(model_kind kind, std::string_view head = default_head::name);

    /// Visits every key of the kind.
    template <class Self, class Key> static void visit(Self& self, Key&& key) {
        key("architectures", self.architectures);
        if (self.kind != model_kind::autoencoder) key("model_type", self.model_type);
        key("vocab_size", self.vocab_size, true);
        if (self.kind != model_kind::autoregressive) autoencoder_description::visit_sizes(self.autoencoder, key, true);
        if (self.kind == model_kind::autoencoder) {
            autoencoder_description::visit(self.autoencoder, key);
        } else {
            llama_sizes::visit_fields(self.llama, key);
            key.rotary_angles(self.rope_theta, self.llama.rope_scaling);
            key.only_if_there("rope_interleaved", false);
            key.only_if_there("partial_rotary_factor", 1.0);
            key.only("attention_bias", false);
            key.only("attention_dropout", 0.0);
            key("use_cache", self.use_cache);
            auto const usual = self.llama.hidden_size / std::max<index_t>(1, self.llama.num_attention_heads);
            if (self.kind == model_kind::autoregressive)
                key.head_dim(self.llama.head_dim, usual);
            else
                key.only_if_there("head_dim", usual, true);
        }
        key.only_if_there("quantization_config", nullptr);
        if (self.kind == model_kind::calm) {
            key("ae_path", self.ae_path);
            for (auto& one : self.head.sizes) key.number(one);
            for (auto& one : self.objective) key.number(one);
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
        key("tie_word_embeddings", self.tie_word_embeddings);
        key.either("torch_dtype", "dtype", self.torch_dtype);
        key.object("calm", self.calm, [&self] { return calm_description::of(self.head); });
    }
};

inline model_description model_description::of(model_kind kind, std::string_view head) {
    model_description one;
    one.kind = kind;
    if (kind == model_kind::autoencoder) {
        one.architectures = {"Autoencoder"};
    } else if (kind == model_kind::autoregressive) {
        one.architectures = {"LlamaForCausalLM"};
        one.model_type = "llama";
    } else {
        one.head = any_head(head_named(head));
        one.architectures = {std::string(one.head.facts->architecture)};
        one.model_type = one.head.name();
        for (auto const& number : one.head.facts->objective)
            if (number.field.published) one.objective.push_back(number);
    }
    return one;
}

/// The loss configuration of a CALM's head as described, for training or evaluation; unstated values are the head's
/// defaults.
inline any_objective head_objective_of(model_description const& d) {
    auto all = d.objective;
    if (d.calm) all.insert(all.end(), d.calm->of_head.begin(), d.calm->of_head.end());
    return any_objective(std::move(all));
}

}  // namespace calm
