#pragma once
/// \file
/// The contents of a model directory, before the model is built, to choose a compiled configuration.
/// \shows{examples/13_saved_model.cpp,main}

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "calm/base/detail/number_text.hpp"
#include "calm/base/error.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "calm/io/model_description.hpp"
#include "calm/io/stored_weights.hpp"
#include "calm/model/autoencoder_losses.hpp"
#include "calm/model/backbone.hpp"
#include "calm/model/config.hpp"

namespace calm {

/// The files of a directory besides configuration and weights: names and bytes, e.g. "tokenizer.model".
using model_files = std::map<std::string, std::string>;

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

/// The loss configuration of the autoencoder as described, for training or evaluation; the published one by default.
inline autoencoder_objective autoencoder_objective_of(model_description const& d) {
    auto const ae = described_autoencoder(d);
    return {ae.ae_dropout, ae.kl_clamp, ae.kl_weight};
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
    static std::string text(double x) {
        bool const whole = x == std::floor(x) && std::abs(x) < 1e15;
        return whole ? std::to_string(static_cast<std::int64_t>(x)) : shortest(x);
    }
    static std::string text(rotary_scaling const& scaling) {
        if (scaling.type == rope_type::unscaled) return "none";
        std::string all(name_of(scaling.type));
        rotary_scaling::visit_fields(scaling, [&](std::string_view key, auto value) {
            all += ", " + std::string(key) + " " + text(static_cast<double>(value));
        });
        return all;
    }
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

/// Throws errc::config with every differing size unless a model of this configuration and vocabulary can load `stored`.
template <class Configuration>
void require_match(Configuration const& compiled, index_t vocabulary, stored_model const& stored) {
    auto lines = differences(compiled, stored);
    if (vocabulary != stored.vocabulary())
        lines.push_back("vocabulary: expected " + std::to_string(vocabulary) + ", found " +
                        std::to_string(stored.vocabulary()));
    if (lines.empty()) return;
    std::string all;
    for (auto const& line : lines) all += (all.empty() ? "" : "; ") + line;
    throw error(errc::config, stored.directory, "",
                "the model does not match the configuration: " + all + ". Use a configuration with the sizes found");
}

}  // namespace calm
