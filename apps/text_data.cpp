#include "text_data.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "calm/io/replaced_directory.hpp"
#include "calm/text/block_reader.hpp"
#include "calm/text/build_corpus.hpp"

namespace calm::apps {

namespace {

document_selection selected(data_options const& data, split use, std::uint64_t data_seed) {
    document_selection s{.use = use, .data_seed = data_seed};
    if (!data.holdout.empty()) s.held = holdout::parse(data.holdout);
    return s;
}

bool is_generated(std::string const& spec) { return document_source::parse(spec).type() == document_source::kind::stories; }

packing_rule padded(index_t K, std::uint64_t seed) { return {packing::padded, static_cast<std::size_t>(K), seed}; }

}  // namespace

int train_tokenizer(tokenizer_options const& o) {
    auto const seed = data_seed_of(o.data);
    auto const words = calm::train_tokenizer(o.data.sources, static_cast<token_id>(o.vocabulary), selected(o.data, split::train, seed));
    words.save(o.out);
    std::fprintf(stderr, "wrote %s: %d tokens, fingerprint %.16s\n", o.out.c_str(), words.vocabulary_size(), words.fingerprint().c_str());
    return 0;
}

std::string bytes_of_file(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (!file) throw error(errc::storage, path, "", "cannot be read: check the path and its permissions");
    return bytes;
}

tokenizer tokenizer_of(stored_model const& model) {
    auto const& d = model.description;
    bool const described = d.calm && d.calm->tokenizer;
    auto const path = model.path(described ? d.calm->tokenizer->file : tokenizer_description{}.file);
    auto words = tokenizer::load(path);
    if (described && words.fingerprint() != d.calm->tokenizer->fingerprint)
        throw error(errc::tokenizer, path, "",
                    "expected the tokenizer with fingerprint " + d.calm->tokenizer->fingerprint + ", found " + words.fingerprint() +
                        "; put the model's own tokenizer back");
    require(words.vocabulary_size() == d.vocab_size, errc::tokenizer, [&] {
        return path + ": expected a vocabulary of " + std::to_string(d.vocab_size) + " tokens, found " +
               std::to_string(words.vocabulary_size()) + "; the file belongs to another model";
    });
    return words;
}

std::uint64_t data_seed_of(data_options const& data, stored_model const* model) {
    if (data.data_seed) return *data.data_seed;
    if (model != nullptr && model->description.calm && model->description.calm->data) return model->description.calm->data->data_seed;
    return document_selection{}.data_seed;
}

corpus training_text(data_options const& data, tokenizer const& words, std::uint64_t data_seed) {
    return build_corpus(data.sources, words, selected(data, split::train, data_seed));
}

std::optional<corpus> heldout_text(data_options const& data, tokenizer const& words, std::uint64_t data_seed, std::size_t at_most) {
    std::vector<std::string> specs;
    for (auto const& spec : data.sources) {
        if (!is_generated(spec)) {
            if (!data.holdout.empty()) specs.push_back(spec);
        } else if (data.holdout.empty()) {
            specs.push_back("stories:" + std::to_string(at_most));
        } else {
            specs.push_back(spec);
        }
    }
    if (specs.empty()) return std::nullopt;
    return build_corpus(specs, words, selected(data, split::heldout, data_seed));
}

corpus evaluation_text(data_options const& data, tokenizer const& words, std::uint64_t data_seed) {
    return build_corpus(data.sources, words, selected(data, split::heldout, data_seed));
}

std::vector<token_id> blocks_of(corpus const& text, index_t K, index_t block, std::uint64_t data_seed, std::size_t at_most) {
    auto blocks = evaluation_blocks(text, padded(K, data_seed), static_cast<std::size_t>(block));
    auto const size = static_cast<std::size_t>(block);
    blocks.resize(std::min(blocks.size(), std::max(at_most / size, std::size_t{1}) * size));
    return blocks;
}

std::function<void(std::span<token_id>)> endless_blocks(corpus const& text, index_t K, index_t unit, std::uint64_t seed) {
    auto const reader = std::make_shared<block_reader>(text, padded(K, seed), static_cast<std::size_t>(unit));
    return [reader](std::span<token_id> tokens) {
        std::size_t const size = reader->block_tokens();
        for (std::size_t at = 0; at < tokens.size(); at += size) reader->next(tokens.subspan(at, size));
    };
}

}  // namespace calm::apps
