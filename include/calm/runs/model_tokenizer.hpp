#pragma once
/// \file
/// The tokenizer in a model directory, and its special tokens in config.json.
/// \shows{tests/apps/stored_tokenizer_test.cpp,a_published_directory_has_either_form}

#include <optional>
#include <string>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/text/load_tokenizer.hpp"
#include "calm/text/tokenizer.hpp"

namespace calm {

/// The path of a model's tokenizer: the file that config.json names, or tokenizer.model. If there is none, as in a
/// directory that transformers saved, tokenizer.json.
inline std::string tokenizer_file_of(stored_model const& model) {
    auto const& ours = model.description.calm;
    auto const named = model.path(ours && ours->tokenizer ? ours->tokenizer->file : tokenizer_description{}.file);
    auto const json = model.path("tokenizer.json");
    return !is_there(named) && is_there(json) ? json : named;
}

/// Whether its config.json describes the tokenizer of a model, as those of models that were trained here do.
inline bool describes_tokenizer(stored_model const& model) {
    return model.description.calm && model.description.calm->tokenizer;
}

/// Whether a model follows the rules of a published autoregressive model, which fit the vocabulary to its table
/// (tokenizer::published): a published directory, or a model that was trained from one.
inline bool has_published_tokenizer(stored_model const& model) {
    if (model.description.kind != model_kind::autoregressive) return false;
    return !describes_tokenizer(model) || model.description.calm->tokenizer->bos_first.has_value();
}

namespace detail {

// The vocabulary fitted to the table of a published model; errors name its file.
inline tokenizer fitted_tokenizer(tokenizer const& file, index_t rows, std::optional<bool> bos_first,
                                  std::string const& path) {
    try {
        return file.published(static_cast<token_id>(rows), bos_first);
    } catch (error const& wrong) {
        throw error(wrong.code(), path, "", wrong.reason());
    }
}

// The tokenizer that config.json describes, if the file is its own: lines of a published vocabulary do not tell their
// pattern, so the fingerprint decides.
inline tokenizer described_tokenizer(std::string const& path, tokenizer_description const& d, index_t rows) {
    auto const fitted = [&](tokenizer const& of_file) {
        return d.bos_first ? fitted_tokenizer(of_file, rows, d.bos_first, path) : of_file;
    };
    auto const file = mapped_file::open(path);
    if (is_json_object(file.text())) return fitted(parse_tokenizer(file.text(), path));
    auto plain = tokenizer::parse_lines(file.text(), path);
    if (plain.fingerprint() == d.fingerprint) return fitted(plain);
    for (auto const& family : rank_families) {
        if (family.pattern != d.pattern) continue;
        auto const named = tokenizer::parse_lines(file.text(), path, family.name);
        if (d.bos_first && !named.fits(static_cast<token_id>(rows))) continue;
        if (auto one = fitted(named); one.fingerprint() == d.fingerprint) return one;
    }
    return plain;
}

}  // namespace detail

/// The tokenizer of a model. Tiktoken's lines that config.json does not describe need model.pattern, unless they are
/// Llama 3's. Throws errc::tokenizer if there is none, or if it is not the one that the model was trained with.
inline tokenizer load_tokenizer(stored_model const& model) {
    auto const& d = model.description;
    bool const described = describes_tokenizer(model);
    auto const path = tokenizer_file_of(model);
    if (!is_there(path))
        throw error(errc::tokenizer, path, "",
                    "expected the model's tokenizer, found none: put " +
                        (described ? "that file back"
                                   : "tokenizer.json, or tiktoken's file as tokenizer.model, into " + model.directory));
    auto tokenizer = described && model.pattern.empty()
                         ? detail::described_tokenizer(path, *d.calm->tokenizer, d.vocab_size)
                         : load_tokenizer(path, model.pattern);
    if (described && tokenizer.fingerprint() != d.calm->tokenizer->fingerprint)
        throw error(errc::tokenizer, path, "",
                    "expected the tokenizer with fingerprint " + d.calm->tokenizer->fingerprint + ", found " +
                        tokenizer.fingerprint() +
                        (model.pattern.empty()
                             ? "; put the model's own tokenizer back"
                             : " by the pattern " + model.pattern + "; leave it out: config.json has the pattern"));
    if (!described && d.kind == model_kind::autoregressive) {
        auto const settings = model.path("tokenizer_config.json");
        auto const bos_first = is_there(settings) ? read_add_bos_token(settings) : std::nullopt;
        return detail::fitted_tokenizer(tokenizer, d.vocab_size, bos_first, path);
    }
    require(tokenizer.vocabulary_size() == d.vocab_size, errc::tokenizer, path, ": expected a vocabulary of ",
            d.vocab_size, " tokens, found ", tokenizer.vocabulary_size(), "; the file belongs to another model");
    return tokenizer;
}

/// Bytes of text per token (V), 0 for special tokens, for bits per byte; empty for symbols, which have none.
inline std::vector<index_t> bytes_of_tokens(tokenizer const& tokenizer) {
    std::vector<index_t> bytes;
    for (token_id id = 0; id < tokenizer.vocabulary_size() && tokenizer.specials().exist(); ++id)
        bytes.push_back(static_cast<index_t>(tokenizer.bytes(id).size()));
    return bytes;
}

/// States BOS, EOS and PAD in config.json, where other programs look for them. Symbols have none.
inline void set_special_ids(model_description& d, special_tokens const& special) {
    if (!special.exist()) return;
    d.bos_token_id = special.bos;
    d.eos_token_id = {special.eos};
    if (special.pad >= 0) d.pad_token_id = special.pad;
}

}  // namespace calm
