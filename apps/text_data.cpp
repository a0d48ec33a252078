#include "text_data.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "calm/io/replaced_directory.hpp"
#include "calm/text/build_corpus.hpp"
#include "calm/text/packing.hpp"

namespace calm::apps {

namespace {

document_selection selected(data_options const& data, split use, std::uint64_t data_seed) {
    document_selection s{.use = use, .data_seed = data_seed};
    if (!data.holdout.empty()) s.held = holdout::parse(data.holdout);
    return s;
}

bool is_generated(std::string const& spec) {
    return document_source::parse(spec).type() == document_source::kind::stories;
}

}  // namespace

int train_tokenizer(tokenizer_options const& o) {
    auto const seed = data_seed_of(o.data);
    auto const words = calm::train_tokenizer(o.data.sources, static_cast<token_id>(o.vocabulary),
                                             selected(o.data, split::train, seed));
    words.save(o.out);
    std::fprintf(stderr, "wrote %s: %d tokens, fingerprint %.16s\n", o.out.c_str(), words.vocabulary_size(),
                 words.fingerprint().c_str());
    return 0;
}

std::string bytes_of_file(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (!file) throw error(errc::storage, path, "", "cannot be read: check the path and its permissions");
    return bytes;
}

std::string tokenizer_path(stored_model const& model) {
    auto const& ours = model.description.calm;
    return model.path(ours && ours->tokenizer ? ours->tokenizer->file : tokenizer_description{}.file);
}

tokenizer tokenizer_of(stored_model const& model) {
    auto const& d = model.description;
    bool const described = d.calm && d.calm->tokenizer;
    auto const path = tokenizer_path(model);
    auto words = tokenizer::load(path);
    if (described && words.fingerprint() != d.calm->tokenizer->fingerprint)
        throw error(errc::tokenizer, path, "",
                    "expected the tokenizer with fingerprint " + d.calm->tokenizer->fingerprint + ", found " +
                        words.fingerprint() + "; put the model's own tokenizer back");
    require(words.vocabulary_size() == d.vocab_size, errc::tokenizer, [&] {
        return path + ": expected a vocabulary of " + std::to_string(d.vocab_size) + " tokens, found " +
               std::to_string(words.vocabulary_size()) + "; the file belongs to another model";
    });
    return words;
}

std::uint64_t data_seed_of(data_options const& data, stored_model const* model) {
    if (data.data_seed) return *data.data_seed;
    if (model != nullptr && model->description.calm && model->description.calm->data)
        return model->description.calm->data->data_seed;
    return document_selection{}.data_seed;
}

corpus training_text(data_options const& data, tokenizer const& words, std::uint64_t data_seed) {
    return build_corpus(data.sources, words, selected(data, split::train, data_seed));
}

std::span<token_id const> first_blocks(std::span<token_id const> tokens, index_t block, std::size_t at_most) {
    auto const size = static_cast<std::size_t>(block);
    return tokens.first(std::min(tokens.size(), std::max(at_most / size, std::size_t{1}) * size));
}

std::vector<token_id> heldout_blocks(data_options const& data, tokenizer const& words, std::uint64_t data_seed,
                                     index_t K, index_t block, std::size_t at_most) {
    data_options held = data;
    held.sources.clear();
    for (auto const& spec : data.sources) {
        if (!data.holdout.empty())
            held.sources.push_back(spec);
        else if (is_generated(spec))
            held.sources.push_back("stories:" + std::to_string(at_most));
    }
    if (held.sources.empty()) return {};
    auto blocks = evaluation_blocks_of(held, words, data_seed, K, block);
    blocks.resize(first_blocks(blocks, block, at_most).size());
    return blocks;
}

std::vector<token_id> evaluation_blocks_of(data_options const& data, tokenizer const& words, std::uint64_t data_seed,
                                           index_t K, index_t block) {
    auto const text = build_corpus(data.sources, words, selected(data, split::heldout, data_seed));
    packing_rule const rule{packing::padded, static_cast<std::size_t>(K), data_seed};
    return evaluation_blocks(text, rule, static_cast<std::size_t>(block));
}

}  // namespace calm::apps
