#include "text/text_data.hpp"
#include "calm/text/load_tokenizer.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "calm/io/replaced_directory.hpp"
#include "calm/text/cached_corpus.hpp"
#include "calm/text/packing.hpp"

namespace calm::apps {

namespace {

// The documents of one use of `data`. At its end it says how many malformed ones were left out.
class selected {
public:
    selected(data_options const& data, split use, std::uint64_t data_seed) {
        selection_.use = use;
        selection_.data_seed = data_seed;
        if (!data.holdout.empty()) selection_.held = holdout::parse(data.holdout);
        if (data.skip_bad) selection_.skip = &skipped_;
    }
    selected(selected const&) = delete;
    selected& operator=(selected const&) = delete;
    ~selected() {
        if (skipped_.count > 0)
            std::fprintf(stderr, "%s: %llu malformed left out; the first: %s\n",
                         selection_.use == split::train ? "training" : "evaluation",
                         static_cast<unsigned long long>(skipped_.count), skipped_.first.c_str());
    }
    operator document_selection const&() const { return selection_; }

private:
    skipped_documents skipped_;
    document_selection selection_;
};

corpus corpus_from(data_options const& data, tokenizer const& words, split use, std::uint64_t data_seed) {
    selected const documents(data, use, data_seed);
    if (data.cache == "none") return build_corpus(data.sources, words, documents);
    token_cache cache;
    cache.folder = data.cache;
    cache.tell = [](std::string const& sentence) { std::fprintf(stderr, "%s\n", sentence.c_str()); };
    return build_corpus(data.sources, words, documents, cache);
}

}  // namespace

int train_tokenizer(tokenizer_options const& o) {
    auto const seed = data_seed_of(o.data);
    selected const documents(o.data, split::train, seed);
    auto const words = calm::train_tokenizer(o.data.sources, static_cast<token_id>(o.vocabulary), documents);
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

tokenizer tokenizer_named(std::string const& path) {
    return path == markov_vocabulary ? tokenizer::markov() : load_tokenizer(path);
}

std::string tokenizer_bytes(std::string const& path) {
    return path == markov_vocabulary ? tokenizer::markov().lines() : bytes_of_file(path);
}

std::string tokenizer_path(stored_model const& model) {
    if (auto const& ours = model.description.calm; ours && ours->tokenizer) return model.path(ours->tokenizer->file);
    // A published directory says nothing, and has either form.
    auto const lines = model.path(tokenizer_description{}.file);
    auto const json = model.path("tokenizer.json");
    return !std::filesystem::exists(lines) && std::filesystem::exists(json) ? json : lines;
}

tokenizer tokenizer_of(stored_model const& model) {
    auto const& d = model.description;
    bool const described = d.calm && d.calm->tokenizer;
    auto const path = tokenizer_path(model);
    auto words = load_tokenizer(path);
    if (described && words.fingerprint() != d.calm->tokenizer->fingerprint)
        throw error(errc::tokenizer, path, "",
                    "expected the tokenizer with fingerprint " + d.calm->tokenizer->fingerprint + ", found " +
                        words.fingerprint() + "; put the model's own tokenizer back");
    require(words.vocabulary_size() == d.vocab_size, errc::tokenizer, path, ": expected a vocabulary of ", d.vocab_size,
            " tokens, found ", words.vocabulary_size(), "; the file belongs to another model");
    return words;
}

std::uint64_t data_seed_of(data_options const& data, stored_model const* model) {
    if (data.data_seed) return *data.data_seed;
    if (model != nullptr && model->description.calm && model->description.calm->data)
        return model->description.calm->data->data_seed;
    return document_selection{}.data_seed;
}

packing packing_for(packed_for use, data_options const& data, tokenizer const& words, stored_model const* model) {
    std::string mode = data.mode;
    if (mode.empty() && model != nullptr && model->description.calm && model->description.calm->data)
        mode = model->description.calm->data->mode;
    return packing_of(mode.empty() ? mode_name(packing::padded) : mode, use, words.specials());
}

void add_optimum(evaluation& e, data_options const& data, std::uint64_t data_seed) {
    if (!e.brier || !is_markov(data.sources)) return;
    e.optimal_brier = markov_chain(data_seed).optimal_brier();
    e.optimal_brier_lm = brier_lm(*e.optimal_brier);
}

corpus training_text(data_options const& data, tokenizer const& words, std::uint64_t data_seed) {
    return corpus_from(data, words, split::train, data_seed);
}

std::span<token_id const> first_blocks(std::span<token_id const> tokens, index_t block, std::size_t at_most) {
    auto const size = static_cast<std::size_t>(block);
    return tokens.first(std::min(tokens.size(), std::max(at_most / size, std::size_t{1}) * size));
}

std::vector<token_id> heldout_blocks(data_options const& data, tokenizer const& words, packing_rule const& rule,
                                     index_t block, std::size_t at_most) {
    data_options held = data;
    held.sources.clear();
    for (auto const& spec : data.sources) {
        bool const own_split =
            is_markov(data.sources) || (data.holdout.empty() && document_source::parse(spec).is_generated());
        if (own_split)
            held.sources.push_back(spec.substr(0, spec.find(':') + 1) + std::to_string(at_most));
        else if (!data.holdout.empty())
            held.sources.push_back(spec);
    }
    if (held.sources.empty()) return {};
    auto blocks = evaluation_blocks_of(held, words, rule, block, at_most);
    blocks.resize(first_blocks(blocks, block, at_most).size());
    return blocks;
}

std::vector<token_id> evaluation_blocks_of(data_options const& data, tokenizer const& words, packing_rule const& rule,
                                           index_t block, std::size_t at_most) {
    auto const text = corpus_from(data, words, split::heldout, rule.seed);
    return evaluation_blocks(text, rule, static_cast<std::size_t>(block), at_most);
}

}  // namespace calm::apps
