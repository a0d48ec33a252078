#pragma once
/// \file
/// Reads and checks a model directory, before its model is built.
/// \shows{examples/13_saved_model.cpp,main}

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "calm/base/quoted.hpp"
#include "calm/io/detail/config_json.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "calm/io/load_weights.hpp"
#include "calm/io/open_weights.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/io/tensor_alias.hpp"

namespace calm {

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
    m.weights = std::make_shared<stored_weights const>(open_weights(m.directory));
    if (m.weights->holds_file(tokenizer)) detail::refuse_tokenizer(m, tokenizer);
    if (m.description.kind == model_kind::calm) detail::find_autoencoder(m, autoencoder);
    if (auto const lines = impossible_sizes(m); !lines.empty())
        throw error(errc::model_file, m.path(config_file), "", lines.front());
    check_tensors(*m.weights, detail::tied_names_of(m.description), detail::expected_tensors(m));
    return m;
}

}  // namespace calm
