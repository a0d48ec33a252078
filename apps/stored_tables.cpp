#include "stored_tables.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/detail/number_text.hpp"
#include "calm/base/quoted.hpp"
#include "calm/io/convert_model.hpp"
#include "calm/model/flops.hpp"
#include "calm/runs/model_tokenizer.hpp"
#include "command/suggest.hpp"
#include "registry.hpp"
#include "run/report.hpp"

namespace calm::apps {

namespace {

struct sums {
    std::size_t tensors = 0;
    std::size_t parameters = 0;
    std::size_t bytes = 0;

    void add(stored_tensor const& tensor) {
        ++tensors;
        parameters += tensor.count();
        bytes += tensor.bytes.size();
    }
};

using table_row = std::vector<std::string>;

// Makes cells printable, whatever the files contain, and limits their width.
std::vector<table_row> printable(std::vector<table_row> rows) {
    constexpr std::size_t widest = 400;
    for (auto& one : rows)
        for (auto& cell : one) cell = printable_line(cell, widest);
    return rows;
}

// Columns as wide as their longest entry; the first is left-aligned, the others right-aligned.
std::string aligned(std::vector<table_row> const& cells) {
    auto const rows = printable(cells);
    std::vector<std::size_t> widths;
    for (auto const& one : rows)
        for (std::size_t i = 0; i < one.size(); ++i) {
            if (i == widths.size()) widths.push_back(0);
            widths[i] = std::max(widths[i], one[i].size());
        }
    std::string text;
    for (auto const& one : rows) {
        for (std::size_t i = 0; i < one.size(); ++i) {
            std::string const space(widths[i] - one[i].size(), ' ');
            text += i == 0 ? one[i] + (one.size() > 1 ? space : "") : "  " + space + one[i];
        }
        text += '\n';
    }
    return text;
}

// "F32", or all types that occur.
std::string types_of(std::span<stored_tensor const> tensors) {
    std::vector<std::string> names;
    for (auto const& tensor : tensors)
        if (std::string name(name_of(tensor.type)); std::find(names.begin(), names.end(), name) == names.end())
            names.push_back(std::move(name));
    std::string text;
    for (auto const& name : names) text += (text.empty() ? "" : " and ") + name;
    return text;
}

std::string files_text(stored_weights const& weights) {
    return std::string(name_of(weights.layout())) +
           (weights.files() > 1 ? " (" + std::to_string(weights.files()) + ")" : "") + ", " +
           std::to_string(weights.tensors().size()) + " tensors of " + types_of(weights.tensors());
}

// The part of the model that a tensor belongs to: transformer, ae_model.encoder, model.layers.
std::string module_of(std::string const& name) {
    std::size_t inside = 0;
    for (std::string_view const whole : {"ae_model.", "model."})
        if (name.starts_with(whole)) inside = whole.size();
    return name.substr(0, name.find('.', inside));
}

std::string parameters_text(std::span<stored_tensor const> tensors) {
    std::vector<std::string> order;
    std::map<std::string, sums> modules;
    sums all;
    for (auto const& tensor : tensors) {
        auto const module = module_of(tensor.name);
        if (!modules.contains(module)) order.push_back(module);
        modules[module].add(tensor);
        all.add(tensor);
    }
    std::vector<table_row> rows{{"module", "tensors", "parameters", "bytes", "share"}};
    auto const add = [&](std::string const& name, sums const& s) {
        double const share =
            all.parameters == 0 ? 0 : 100.0 * static_cast<double>(s.parameters) / static_cast<double>(all.parameters);
        rows.push_back({name, std::to_string(s.tensors), grouped(static_cast<index_t>(s.parameters)),
                        bytes_text(s.bytes), formatted("%.1f %%", share)});
    };
    for (auto const& name : order) add(name, modules[name]);
    add("all", all);
    return aligned(rows);
}

table_row row_of_field(std::string const& part, field_value const& one) {
    return {part + std::string(one.field.what), text_of(one)};
}
void add_rows(std::vector<table_row>& rows, std::string const& part, field_values const& numbers) {
    for (auto const& one : numbers) rows.push_back(row_of_field(part, one));
}

// K and L also apply to the backbone and the head, so they have no prefix.
std::vector<table_row> autoencoder_rows(stored_model const& model) {
    std::vector<table_row> rows;
    for (auto const& one : field_values::of(model.sizes.autoencoder))
        rows.push_back(row_of_field(one.field.published ? "" : "autoencoder: ", one));
    return rows;
}

// "llama3, factor 8, low_freq_factor 1, ..."
std::string scaling_text(rotary_scaling const& scaling) {
    std::string text(name_of(scaling.type));
    rotary_scaling::visit_fields(scaling, [&](std::string_view name, auto value) {
        text += ", " + std::string(name) + " " + shortest(static_cast<double>(value));
    });
    return text;
}

std::vector<table_row> autoregressive_rows(model_description const& d) {
    std::vector<table_row> rows;
    add_rows(rows, "", field_values::of(d.llama));
    rows.push_back({"output projection", d.tie_word_embeddings ? "tied: the table of embeddings" : "its own"});
    if (d.llama.head_dim > 0) rows.push_back({"elements per head", grouped(d.llama.head_dim)});
    if (d.rope_theta != rope_theta) rows.push_back({"base of the rotary angles", formatted("%.15g", d.rope_theta)});
    if (d.llama.rope_scaling != rotary_scaling{})
        rows.push_back({"scaling of the rotary angles", scaling_text(d.llama.rope_scaling)});
    if (d.rms_norm_eps != llama_sizes{}.rms_norm_eps) rows.push_back({"rms_norm_eps", shortest(d.rms_norm_eps)});
    return rows;
}

std::vector<table_row> size_rows(stored_model const& model) {
    auto const& d = model.description;
    std::vector<table_row> rows{{"V, vocabulary", grouped(d.vocab_size)}};
    for (auto& one : d.kind == model_kind::autoregressive ? autoregressive_rows(d) : autoencoder_rows(model))
        rows.push_back(std::move(one));
    if (d.kind != model_kind::calm) return rows;
    add_rows(rows, "backbone: ", field_values::of(d.llama));
    rows.push_back({"backbone: reads", d.calm ? d.calm->input : "tokens"});
    add_rows(rows, "head: ", d.head.sizes);
    add_rows(rows, "head: ", head_objective_of(d).fields);
    return rows;
}

// The posterior's regularisation from config.json, with its measured width if the model stores one.
std::string noise_text(stored_model const& model) {
    auto const& d = model.description;
    if (d.kind == model_kind::autoregressive) return "";
    if (d.kind == model_kind::calm && !(d.calm && d.calm->autoencoder)) return "its own config.json is not available";
    auto const ae = described_autoencoder(d);
    double const posterior_std = d.calm ? d.calm->posterior_std : 0;
    return (posterior_std > 0 ? formatted("std %.3f on its training text; ", posterior_std) : "") +
           formatted("KL weight %g, at least %g per dimension, dropout %g", ae.kl_weight, ae.kl_clamp, ae.ae_dropout);
}

// "1.23e6"
std::string flops_text(double n) {
    return formatted("%.2e", n);
}

std::vector<table_row> flops_of(stored_model const& model) {
    auto const& d = model.description;
    auto const& c = model.sizes;
    auto const K = static_cast<double>(c.autoencoder.patch_size);
    index_t const V = model.vocabulary();
    if (d.kind == model_kind::autoencoder) {
        index_t const tokens = 524'288;  // per step, as published
        return {{"FLOPs per token, training (524,288 tokens per step)",
                 flops_text(flops::train_autoencoder(c.autoencoder, V, tokens / c.autoencoder.patch_size) / K)},
                {"FLOPs per token, encoding", flops_text(flops::encoder(c.autoencoder) / K)},
                {"FLOPs per token, decoding", flops_text(flops::decoder(c.autoencoder, V) / K)}};
    }
    index_t const least = d.kind == model_kind::calm ? 2 * c.autoencoder.patch_size : 2;
    index_t const block = d.calm && d.calm->data ? std::max(least, d.calm->data->block_tokens) : 2048;
    if (d.kind == model_kind::autoregressive) {
        auto const sizes = model.autoregressive().llama;
        return {{"FLOPs per token, training (blocks of " + grouped(block) + " tokens)",
                 flops_text(flops::train_autoregressive(sizes, V, block)) + ", without Muon"},
                {"FLOPs per token, generation (after " + grouped(block / 2) + " tokens)",
                 flops_text(flops::generate_autoregressive(sizes, V, static_cast<double>(block / 2)))}};
    }
    index_t const positions = block / c.autoencoder.patch_size;
    return {{"FLOPs per token, training (blocks of " + grouped(block) + " tokens)",
             flops_text(flops::train_calm_per_token(c, V, 1, block, head_objective_of(d).samples())) +
                 ", without Muon and the training of the autoencoder"},
            {"FLOPs per token, generation (one draw, after " + grouped(positions / 2) + " patches)",
             flops_text(flops::generate(c, V, static_cast<double>(positions / 2), 1) / K)}};
}

// The tokenizer that config.json describes, or that the caller's pattern makes readable.
std::vector<table_row> tokenizer_of(stored_model const& model) {
    auto const row = [](std::string const& file, std::string const& fingerprint) {
        return std::vector<table_row>{{"tokenizer", file + ", fingerprint " + fingerprint.substr(0, 16)}};
    };
    if (!model.pattern.empty()) {
        auto const words = load_tokenizer(model);
        return row(words.file_name() + ", pattern " + model.pattern, words.fingerprint());
    }
    auto const& calm = model.description.calm;
    if (!calm || !calm->tokenizer) return {};
    return row(calm->tokenizer->file, calm->tokenizer->fingerprint);
}

std::vector<table_row> data_of(stored_model const& model) {
    auto const& calm = model.description.calm;
    if (!calm || !calm->data) return {{"trained on", "not stated"}};
    auto const& data = *calm->data;
    std::string sources;
    for (auto const& source : data.sources) sources += (sources.empty() ? "" : ", ") + source;
    std::vector<table_row> rows{{"trained on", sources.empty() ? "not stated" : sources},
                                {"packing", data.mode + ", blocks of " + grouped(data.block_tokens) + " tokens"},
                                {"seed of the data", std::to_string(data.data_seed)}};
    if (!data.holdout.empty()) rows.push_back({"held out", data.holdout});
    return rows;
}

std::string configuration_text(stored_model const& model) {
    try {
        auto const& one = configuration_of(model);
        return one.name + (one.on_demand ? ", compiled when it is first used" : ", compiled into this program");
    } catch (error const&) {
        return "none that is compiled into this program; generate or evaluate say which to compile";
    }
}

}  // namespace

std::string tensor_table_text(stored_weights const& weights) {
    std::vector<table_row> rows{{"tensor", "shape", "type", "bytes"}};
    sums all;
    for (auto const& tensor : weights.tensors()) {
        all.add(tensor);
        rows.push_back({tensor.name, text_of(tensor.shape), std::string(name_of(tensor.type)),
                        grouped(static_cast<index_t>(tensor.bytes.size()))});
    }
    return aligned(rows) + files_text(weights) + ", " + grouped(static_cast<index_t>(all.parameters)) +
           " parameters, " + bytes_text(all.bytes) + "\n";
}

std::string model_text(stored_model const& model) {
    auto const& d = model.description;
    std::string const kind(name_of(d.kind));  // with an article
    std::vector<table_row> rows{
        {"kind", kind.substr(kind.find(' ') + 1) +
                     (d.kind == model_kind::calm ? " with the head " + std::string(d.head.name()) : "")},
        {"files", files_text(*model.weights) + "; config.json says " + d.torch_dtype},
        {"configuration", configuration_text(model)}};
    auto const add = [&](std::vector<table_row> const& more) { rows.insert(rows.end(), more.begin(), more.end()); };
    add(size_rows(model));
    if (auto const noise = noise_text(model); !noise.empty()) rows.push_back({"posterior of the autoencoder", noise});
    if (model.autoencoder != nullptr) rows.push_back({"autoencoder is in", model.autoencoder->directory});
    add(flops_of(model));
    add(data_of(model));
    add(tokenizer_of(model));
    rows = printable(std::move(rows));
    std::size_t width = 0;
    for (auto const& one : rows) width = std::max(width, one[0].size());
    std::string text;
    for (auto const& one : rows) text += one[0] + std::string(width - one[0].size() + 2, ' ') + one[1] + "\n";
    return text + "\n" + parameters_text(tensors_of(model));
}

}  // namespace calm::apps
