#pragma once
/// \file
/// The contents of a model directory, before the model is built, to choose a compiled configuration.
/// \shows{examples/13_saved_model.cpp,main}

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/quoted.hpp"
#include "calm/io/detail/config_json.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "calm/io/stored_weights.hpp"
#include "calm/io/weights.hpp"
#include "calm/model/backbone.hpp"
#include "calm/model/config.hpp"

namespace calm {

/// A model directory before its model is built: enough to choose a compiled configuration. Copies share the open files.
struct stored_model {
    std::string directory;                                 ///< as given
    model_description description;                         ///< its config.json
    configuration<any_head> sizes = {};                    ///< for an autoencoder, only sizes.autoencoder is used
    std::shared_ptr<stored_weights const> weights = {};    ///< never null in a model that was read
    std::shared_ptr<stored_model const> autoencoder = {};  ///< of a CALM that does not contain its own; otherwise null
    /// Each of these ids ends a text of an autoregressive model: eos_token_id of generation_config.json, else of
    /// config.json. Empty for other models: a CALM's texts end at its tokenizer's EOS.
    std::vector<token_id> ends = {};
    /// Set by the caller, for tiktoken's lines that config.json does not describe: the pattern of parse_tokenizer.
    std::string pattern = {};

    [[nodiscard]] index_t vocabulary() const { return description.vocab_size; }  ///< V: ids are 0 .. V - 1
    /// The configuration of an autoregressive model according to its config.json.
    [[nodiscard]] autoregressive_configuration autoregressive() const;
    /// The path of one of its files.
    [[nodiscard]] std::string path(std::string_view file) const { return in_directory(directory, file); }
};

namespace detail {

constexpr std::string_view name_of(input_kind input) {
    constexpr std::array<std::string_view, 3> names{"tokens", "latents", "both"};
    return names[static_cast<std::size_t>(input)];
}

// (rows, columns) of a matrix in a file.
inline std::array<index_t, 2> stored_matrix(tensor_table const& file, std::string const& name) {
    auto const& tensor = file.at(name);
    if (tensor.shape.size() != 2 || tensor.shape[0] < 1 || tensor.shape[1] < 1)
        fail_at(tensor, file.path(), "expected a matrix, found shape " + text_of(tensor.shape));
    return {tensor.shape[0], tensor.shape[1]};
}
// The number of tensors of a file that are named "<prefix>0<suffix>", "<prefix>1<suffix>" and so on.
inline index_t count_of(tensor_table const& file, std::string const& prefix, std::string const& suffix) {
    index_t n = 0;
    while (file.find(prefix + std::to_string(n) + suffix) != nullptr) ++n;
    return n;
}

// The autoencoder's sizes, from the shapes of its tensors, whose names begin with `prefix`.
inline autoencoder_configuration autoencoder_sizes(tensor_table const& file, std::string const& prefix) {
    auto const matrix = [&](std::string const& name) { return stored_matrix(file, prefix + name); };
    auto const layers = [&](std::string const& stem) {
        return count_of(file, prefix + stem + ".", ".layernorm.weight");
    };
    auto const table = matrix("encoder.embed_tokens.weight");
    autoencoder_configuration c;
    c.vocab_size = table[0];
    c.hidden_size = table[1];
    c.patch_size = matrix("encoder.squeeze_layer.weight")[1] / c.hidden_size;
    c.intermediate_size = matrix("encoder.encoder_layers.0.mlp.gate_proj.weight")[0];
    c.latent_size = matrix("decoder.latent_to_hidden.weight")[1];
    c.num_encoder_layers = layers("encoder.encoder_layers");
    c.num_decoder_layers = layers("decoder.decoder_layers");
    return c;
}

// `sizes` with the published ones, K and L, replaced.
inline autoencoder_configuration with_published(autoencoder_configuration sizes,
                                                autoencoder_configuration const& published) {
    sizes.patch_size = published.patch_size;
    sizes.latent_size = published.latent_size;
    return sizes;
}

}  // namespace detail

/// The autoencoder's part of a config.json. For a CALM: from our object if it has one, otherwise the published values.
inline autoencoder_description described_autoencoder(model_description const& d) {
    auto one = d.kind == model_kind::calm && d.calm && d.calm->autoencoder ? *d.calm->autoencoder : d.autoencoder;
    one.sizes = detail::with_published(one.sizes, d.autoencoder.sizes);
    one.sizes.vocab_size = d.vocab_size;
    return one;
}

namespace detail {

// The sizes in a config.json.
inline configuration<any_head> described_sizes(model_description const& d) {
    auto c = configuration_from(described_autoencoder(d).sizes, d.llama, d.head, input_kind::tokens);
    if (d.calm)
        for (auto const kind : {input_kind::latents, input_kind::both})
            if (name_of(kind) == d.calm->input) c.input = kind;
    return c;
}

// The aliases that the files of a model may contain.
inline std::span<tensor_alias const> tied_names_of(model_description const& d) {
    if (d.kind == model_kind::autoencoder) return tied_names_of_autoencoder;
    if (d.kind == model_kind::calm) return tied_names_of_calm;
    if (d.tie_word_embeddings) return tied_names_of_tied_autoregressive;
    return {};
}

// Collects "hidden_size: expected 48, found 64" for every difference.
class difference_list {
public:
    void compare(std::string_view key, auto const& expected, auto const& found) {
        if (expected != found) add(key, text(expected), text(found));
    }
    void compare(std::string_view key, std::string const& expected, std::string const& found) {
        if (expected != found) add(key, expected, found);
    }
    // Sizes of one kind; `word` precedes the names of sizes that a published file lacks.
    void compare(field_values const& expected, field_values const& found, std::string const& word = "") {
        for (auto const& size : expected)
            if (auto const* const other = found.find(size.field.key))
                compare((size.field.published ? "" : word) + std::string(size.field.key), text_of(size),
                        text_of(*other));
    }
    void compare(autoencoder_configuration const& a, autoencoder_configuration const& b) {
        compare(field_values::of(a), field_values::of(b), "autoencoder ");
    }
    void compare(llama_sizes const& a, llama_sizes const& b) {
        compare(field_values::of(a), field_values::of(b));
        if (a.head_dim != b.head_dim) compare("head_dim", a.head_size(), b.head_size());
        compare("rms_norm_eps", a.rms_norm_eps, b.rms_norm_eps);
        compare("rope_theta", a.rope_theta, b.rope_theta);
        compare("rope_scaling", a.rope_scaling, b.rope_scaling);
    }
    void compare(configuration<any_head> const& a, configuration<any_head> const& b) {
        compare("head", a.head.name(), b.head.name());
        compare(a.autoencoder, b.autoencoder);
        compare(llama_sizes_of(a), llama_sizes_of(b));
        if (a.head.facts == b.head.facts) compare(a.head.sizes, b.head.sizes);
        compare("input", name_of(a.input), name_of(b.input));
    }
    void compare(autoregressive_configuration const& a, autoregressive_configuration const& b) {
        compare(a.llama, b.llama);
        compare("tie_word_embeddings", a.tie_word_embeddings, b.tie_word_embeddings);
    }
    std::vector<std::string> lines;

private:
    void add(std::string_view key, std::string const& expected, std::string const& found) {
        lines.push_back(std::string(key) + ": expected " + expected + ", found " + found);
    }
    static std::string text(std::string_view s) { return "'" + std::string(s) + "'"; }
    static std::string text(bool b) { return b ? "true" : "false"; }
    static std::string text(index_t n) { return std::to_string(n); }
    static std::string text(double x) { return nlohmann::ordered_json(x).dump(); }
    static std::string text(rotary_scaling const& scaling) { return json_of(scaling).dump(); }
};

}  // namespace detail

/// The name of a kind with its article: "a CALM".
inline std::string_view name_of(model_kind kind) {
    constexpr std::array<std::string_view, 3> names{"an autoencoder", "a CALM", "an autoregressive model"};
    return names[static_cast<std::size_t>(kind)];
}

inline autoregressive_configuration stored_model::autoregressive() const {
    autoregressive_configuration c;
    c.llama = description.llama;
    c.llama.rope_theta = description.rope_theta;
    c.llama.rms_norm_eps = description.rms_norm_eps;
    c.tie_word_embeddings = description.tie_word_embeddings;
    c.vocab_size = description.vocab_size;
    return c;
}

/// Every size in which a stored model differs from the configuration: "hidden_size: expected 48, found 64". The
/// vocabulary and the precision are chosen at run time and are not compared.
inline std::vector<std::string> differences(autoencoder_configuration const& expected, stored_model const& found) {
    detail::difference_list list;
    list.compare("kind", name_of(model_kind::autoencoder), name_of(found.description.kind));
    if (!list.lines.empty()) return list.lines;
    list.compare(expected, found.sizes.autoencoder);
    list.compare("rms_norm_eps", 1e-6, found.description.rms_norm_eps);
    return list.lines;
}
/// The differences of a CALM.
inline std::vector<std::string> differences(configuration<any_head> const& expected, stored_model const& found) {
    detail::difference_list list;
    list.compare("kind", name_of(model_kind::calm), name_of(found.description.kind));
    if (!list.lines.empty()) return list.lines;
    list.compare(expected, found.sizes);
    list.compare("rms_norm_eps", 1e-6, found.description.rms_norm_eps);
    list.compare("rope_theta", calm::rope_theta, found.description.rope_theta);
    list.compare("rope_scaling", rotary_scaling{}, found.description.llama.rope_scaling);
    return list.lines;
}

/// The differences of an autoregressive model.
inline std::vector<std::string> differences(autoregressive_configuration const& expected, stored_model const& found) {
    detail::difference_list list;
    list.compare("kind", name_of(model_kind::autoregressive), name_of(found.description.kind));
    if (!list.lines.empty()) return list.lines;
    list.compare(expected, found.autoregressive());
    return list.lines;
}

/// The differences of a CALM with a compiled head.
template <generative_head Head>
std::vector<std::string> differences(configuration<Head> const& expected, stored_model const& found) {
    return differences(with_any_head(expected), found);
}

/// Whether a compiled configuration can hold the stored model.
template <class Configuration> bool matches(Configuration const& compiled, stored_model const& stored) {
    return differences(compiled, stored).empty();
}

/// Reads config.json and the names, shapes and types of the weights in any layout. All programs check model directories
/// with this function. A CALM's autoencoder has the sizes stated in config.json, by default the sizes of its tensors.
/// `ae_path`, an autoencoder in the directory or next to it, is read only if these tensors are missing. The caller may
/// name another directory, anywhere, as `autoencoder`: then `ae_path`, perhaps of another machine, is not read.
///
/// Throws errc::model_file if a file is missing or is a link out of the directory, or if the tokenizer is not a
/// separate file in the directory. Throws it also if the sizes are impossible or the tensors do not fit them. An
/// `autoencoder` that is none, does not match, or is given for a model that needs none has the same error.
inline stored_model read_model_description(std::string const& named, std::string const& autoencoder = "");

namespace detail {

// The directory named by ae_path: in the model's directory or next to it, as in published models.
inline std::filesystem::path directory_of_autoencoder(stored_model const& m) {
    namespace fs = std::filesystem;
    fs::path const named = m.description.ae_path;
    auto there = (fs::path(m.directory) / named).lexically_normal();
    std::error_code absent;
    auto const above = fs::canonical(m.directory, absent).parent_path().string();
    if (named.is_absolute() || leads_outside(above, there.string()))
        throw error(
            errc::model_file, m.path(config_file), "key 'ae_path'",
            "expected a directory inside the model's directory or next to it, as in \"../autoencoder\", found " +
                in_quotes(named.string()));
    if (fs::exists(there, absent)) refuse_links_to_outside(there.string());
    return there;
}

[[noreturn]] inline void refuse_as_autoencoder(std::string const& path, std::string const& place, model_kind kind) {
    throw error(errc::model_file, path, place,
                "expected the directory of an autoencoder, found the directory of " + std::string(name_of(kind)));
}

[[noreturn]] inline void refuse_tokenizer(stored_model const& m, std::string const& file) {
    throw error(errc::model_file, m.path(config_file), "key 'calm/tokenizer/file'",
                "expected the name of a file next to it that holds nothing else, found " + in_quotes(file));
}

// The ids that end a text, by the files of an autoregressive model.
inline std::vector<token_id> ends_of(stored_model const& m) {
    auto const path = m.path("generation_config.json");
    std::error_code absent;
    auto ids = std::filesystem::exists(path, absent) ? read_generation_config(path) : std::vector<std::int64_t>();
    if (ids.empty()) ids = m.description.eos_token_id;
    return {ids.begin(), ids.end()};
}

// Reads config.json of a complete directory and the sizes in it. Returns the name of the tokenizer file, or "".
inline std::string read_description(stored_model& m) {
    std::error_code unknown;
    if (!std::filesystem::exists(m.path(config_file), unknown))
        throw error(errc::model_file, m.directory, "",
                    "holds no config.json: expected the directory of a model, with config.json, weights and tokenizer; "
                    "a run's directory gets them with its first checkpoint");
    refuse_links_to_outside(m.directory);
    m.description = read_config_json(m.path(config_file));
    auto const& d = m.description;
    m.sizes = described_sizes(d);
    if (d.kind == model_kind::autoregressive) m.ends = ends_of(m);
    std::string tokenizer = d.calm && d.calm->tokenizer ? d.calm->tokenizer->file : "";
    if (d.calm && d.calm->tokenizer &&
        (!is_plain_file_name(tokenizer) || tokenizer == config_file || names_weights(tokenizer)))
        refuse_tokenizer(m, tokenizer);
    if (d.calm && d.calm->input != name_of(m.sizes.input))
        throw error(errc::model_file, m.path(config_file), "key 'calm/input'",
                    "expected tokens, latents or both, found " + in_quotes(d.calm->input));
    return tokenizer;
}

// The autoencoder named by a CALM's ae_path. Only an autoencoder is accepted: a CALM could name itself.
inline std::string autoencoder_beside(stored_model const& m) {
    if (m.description.ae_path.empty())
        throw error(errc::model_file, m.weights->path(), "",
                    "expected tensors 'ae_model.*', or 'ae_path' in config.json; found neither");
    try {
        auto const there = directory_of_autoencoder(m);
        if (auto const kind = read_config_json((there / config_file).string()).kind; kind != model_kind::autoencoder)
            refuse_as_autoencoder(m.path(config_file), "key 'ae_path'", kind);
        return there.string();
    } catch (error const& wrong) {
        throw error(wrong.code(), wrong.path(), wrong.place(), wrong.reason(),
                    std::vector{"if the autoencoder is elsewhere, join the two: calm convert " + m.directory +
                                " --autoencoder DIR --out NEW"});
    }
}

// Finds the autoencoder of a CALM. It is among the CALM's tensors, with the sizes in config.json or else of their
// shapes. Otherwise it is read from the directory `elsewhere`, by default the one that `ae_path` names.
inline void find_autoencoder(stored_model& m, std::string const& elsewhere) {
    auto& d = m.description;
    bool const states_all = d.calm && d.calm->autoencoder;
    auto const described = m.sizes.autoencoder;
    if (std::ranges::any_of(m.weights->tensors(), [](auto& tensor) { return tensor.name.starts_with("ae_model."); })) {
        if (!elsewhere.empty())
            throw error(errc::model_file, m.weights->path(), "",
                        "expected no tensors 'ae_model.*', found them: the CALM contains its autoencoder; leave " +
                            in_quotes(elsewhere) + " out");
        if (!states_all) m.sizes.autoencoder = with_published(autoencoder_sizes(*m.weights, "ae_model."), described);
        return;
    }
    auto const there = elsewhere.empty() ? autoencoder_beside(m) : elsewhere;
    m.autoencoder = std::make_shared<stored_model const>(read_model_description(there));
    if (auto const kind = m.autoencoder->description.kind; kind != model_kind::autoencoder)
        refuse_as_autoencoder(there, "", kind);
    if (!elsewhere.empty()) d.ae_path.clear();
    m.sizes.autoencoder = m.autoencoder->sizes.autoencoder;
    difference_list list;
    list.compare("vocab_size", d.vocab_size, m.autoencoder->vocabulary());
    list.compare(states_all ? described : with_published(m.sizes.autoencoder, described), m.sizes.autoencoder);
    if (!list.lines.empty())
        throw error(errc::model_file, m.path(config_file), "",
                    "the autoencoder in " + there + " does not match it: " + list.lines.front() +
                        "; the files belong to different models");
}

// The tensors that the files of a model must hold, without aliases.
inline tensor_shapes expected_tensors(stored_model const& m) {
    auto sizes = m.sizes;
    sizes.autoencoder.vocab_size = m.vocabulary();
    tensor_shapes all;
    if (m.description.kind == model_kind::autoregressive) {
        add_tensors(all, m.autoregressive());
    } else if (m.description.kind == model_kind::autoencoder) {
        add_tensors(all, sizes.autoencoder);
    } else {
        add_tensors(all, sizes);
        if (m.autoencoder == nullptr) all.inside("ae_model", [&] { add_tensors(all, sizes.autoencoder); });
    }
    return all;
}

}  // namespace detail

/// Why no model can have the sizes in config.json, one message each; empty if one can.
inline std::vector<std::string> impossible_sizes(stored_model const& m) {
    std::vector<std::string> lines;
    bool const autoregressive = m.description.kind == model_kind::autoregressive;
    if (!autoregressive && !check::layers_are_even(m.sizes.autoencoder))
        lines.emplace_back("expected even numbers of encoder and decoder layers, half of them for tokens");
    if (m.description.kind == model_kind::autoencoder) return lines;
    auto const llama = autoregressive ? m.autoregressive().llama : llama_sizes_of(m.sizes);
    if (!check::heads_divide_width(llama)) lines.emplace_back("expected num_attention_heads to divide hidden_size");
    if (!check::key_value_heads_divide_heads(llama))
        lines.emplace_back("expected num_key_value_heads to divide num_attention_heads");
    if (lines.empty() && !check::head_size_is_even(llama))
        lines.emplace_back("expected an even head_dim, by default hidden_size / num_attention_heads");
    return lines;
}

inline stored_model read_model_description(std::string const& named, std::string const& autoencoder) {
    std::error_code unknown;
    if (!std::filesystem::exists(named, unknown))
        throw error(errc::model_file, named, "", "no such directory; expected the directory of a model");
    stored_model m{whole_directory(named), {}};
    auto const tokenizer = detail::read_description(m);
    if (auto const kind = m.description.kind; !autoencoder.empty() && kind != model_kind::calm)
        throw error(errc::model_file, named, "",
                    "expected the directory of a CALM, found the directory of " + std::string(name_of(kind)) +
                        "; leave the autoencoder out");
    m.weights = std::make_shared<stored_weights const>(stored_weights::open(m.directory));
    if (m.weights->holds_file(tokenizer)) detail::refuse_tokenizer(m, tokenizer);
    if (m.description.kind == model_kind::calm) detail::find_autoencoder(m, autoencoder);
    if (auto const lines = impossible_sizes(m); !lines.empty())
        throw error(errc::model_file, m.path(config_file), "", lines.front());
    check_tensors(*m.weights, detail::tied_names_of(m.description), detail::expected_tensors(m));
    return m;
}

}  // namespace calm
