#include "text/text_data.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "calm/base/detail/file.hpp"
#include "calm/io/detail/replaced_directory.hpp"
#include "calm/model/detail/limits.hpp"
#include "calm/text/build_corpus.hpp"
#include "calm/text/detail/document_ids.hpp"
#include "calm/text/detail/token_file.hpp"
#include "calm/text/load_tokenizer.hpp"
#include "calm/text/markov.hpp"
#include "calm/text/packed_blocks.hpp"
#include "program.hpp"
#include "run/ranks.hpp"

namespace calm::apps {

namespace {

// Selects the documents for one split of `data`. Its destructor reports how many malformed ones were dropped, unless
// quiet.
class selected {
public:
    selected(data_options const& data, split use, std::uint64_t data_seed, bool quiet = false) : is_quiet_(quiet) {
        selection_.use = use;
        selection_.data_seed = data_seed;
        if (!data.holdout.empty()) selection_.held = holdout::parse(data.holdout);
        if (data.skip_bad) selection_.skip = &skipped_;
    }
    selected(selected const&) = delete;
    selected& operator=(selected const&) = delete;
    ~selected() {
        if (skipped_.count == 0 || is_quiet_) return;
        log_line(sentence(selection_.use == split::train ? "training" : "evaluation", ": ", skipped_.count,
                          " malformed documents skipped, by cause:"));
        for (auto const& cause : skipped_.causes) log_line(sentence("  ", cause.count, ", the first: ", cause.first));
    }
    operator document_selection const&() const { return selection_; }

private:
    bool is_quiet_;
    skipped_documents skipped_;
    document_selection selection_;
};

// Runs `read`. If --skip-bad would avoid its error, the message says so.
template <class Read> auto made_by(Read const& read) {
    try {
        return read();
    } catch (malformed_document const& bad) {
        throw error(bad.code(), bad.path(), bad.place(),
                    std::string(bad.reason()) + " (--skip-bad skips and counts such text)");
    }
}

// Creates the file's folder and checks that the file can be written. Throws errc::storage.
void require_writable(std::string const& path) {
    auto const folder = std::filesystem::path(path).parent_path();
    make_directories(folder);
    static_cast<void>(replaced_file(path));
}

// Calls work() for the text that is held out for evaluation, which its errors name.
template <class Work> void of_holdout(data_options const& data, Work const& work) {
    try {
        made_by(work);
    } catch (error const& wrong) {
        if (wrong.code() != errc::data) throw;
        auto const reason =
            sentence("--holdout ", data.holdout, ": in the text held out for evaluation: ", wrong.reason());
        if (wrong.path().empty()) throw error(errc::data, reason);
        throw error(errc::data, wrong.path(), wrong.place(), reason);
    }
}

// The documents of one split of `data`, read on each visit.
class read_text {
public:
    static std::shared_ptr<document_ids> of(data_options const& data, tokenizer const& tokenizer, split use,
                                            std::uint64_t data_seed, bool quiet = false) {
        auto const all = std::make_shared<read_text>(data, tokenizer, use, data_seed, quiet);
        return {all, &*all->ids_};
    }
    read_text(data_options const& data, tokenizer const& tokenizer, split use, std::uint64_t data_seed, bool quiet) :
        documents_(data, use, data_seed, quiet) {
        made_by([&] { ids_.emplace(data.sources, tokenizer, documents_); });
    }

private:
    selected documents_;
    std::optional<document_ids> ids_;
};

block_source blocks_from(data_options const& data, tokenizer const& tokenizer, split use, packing_rule const& rule,
                         index_t block) {
    auto const all = blocks_of(read_text::of(data, tokenizer, use, rule.seed), rule, static_cast<std::size_t>(block));
    return [all](block_visitor const& visitor) { made_by([&] { all(visitor); }); };
}

// Blocks of the tokens of a source of single tokens, without BOS, to which no text is encoded.
block_source without_bos(block_source const& tokens, token_id bos, std::size_t block) {
    return [tokens, bos, block](block_visitor const& visitor) {
        std::vector<token_id> next;
        next.reserve(block);
        tokens([&](std::span<token_id const> token) {
            if (token.front() == bos) return;
            next.push_back(token.front());
            if (next.size() < block) return;
            visitor(next);
            next.clear();
        });
    };
}

}  // namespace

tokenizer trained_tokenizer(data_options const& data, index_t vocabulary) {
    selected const documents(data, split::train, data_seed_of(data));
    auto const pieces = made_by([&] { return counted_pieces(data.sources, documents); });
    if (pieces.forgotten() > 0)
        log_line(sentence("the text has too many different pieces, so the rarest were not counted, ",
                          pieces.forgotten(), " occurrences"));
    return tokenizer::train(pieces, static_cast<token_id>(vocabulary));
}

void write_tokenizer(tokenizer const& tokenizer, std::string const& path) {
    tokenizer.save(path);
    log_line(sentence("wrote ", path, ": ", tokenizer.vocabulary_size(), " tokens, fingerprint ",
                      tokenizer.fingerprint().substr(0, 16)));
}

int train_tokenizer(tokenizer_options const& o) {
    require_writable(o.out);  // fails early
    write_tokenizer(trained_tokenizer(o.data, o.vocabulary), o.out);
    return 0;
}

std::string bytes_of_file(std::string const& path) {
    return std::string(mapped_file::open(path).text());
}

tokenizer tokenizer_named(std::string const& path, std::string const& pattern) {
    return path == markov_vocabulary ? tokenizer::of_symbols(markov_alphabet) : load_tokenizer(path, pattern);
}

std::string tokenizer_bytes(std::string const& path) {
    return path == markov_vocabulary ? tokenizer::of_symbols(markov_alphabet).lines() : bytes_of_file(path);
}

std::uint64_t data_seed_of(data_options const& data, stored_model const* model) {
    if (data.data_seed) return *data.data_seed;
    if (model != nullptr && model->description.calm && model->description.calm->data)
        return model->description.calm->data->data_seed;
    return document_selection{}.data_seed;
}

packing packing_for(packed_for use, data_options const& data, tokenizer const& tokenizer, stored_model const* model) {
    std::string mode = data.mode;
    if (mode.empty() && model != nullptr && model->description.calm && model->description.calm->data)
        mode = model->description.calm->data->mode;
    bool const autoregressive = model != nullptr && model->description.kind == model_kind::autoregressive;
    if (autoregressive && mode.empty() && !tokenizer.specials().bos_first) mode = mode_name(packing::unbroken);
    if (autoregressive && mode == mode_name(packing::unbroken)) return packing::unbroken;
    return packing_of(mode.empty() ? mode_name(packing::padded) : mode, use, tokenizer.specials());
}

void add_optimum(evaluation& e, data_options const& data, std::uint64_t data_seed) {
    if (!e.brier || !has_own_symbols(data.sources)) return;
    e.optimal_brier = markov_chain(data_seed).optimal_brier();
    e.optimal_brier_lm = brier_lm(*e.optimal_brier);
}

text_extent extent_of(data_options const& data) {
    text_extent all;
    auto const tenth = holdout::parse("10:9");
    std::uint64_t bytes = 0;  // of the document so far
    checksum sum;
    // The holdout split is used because training splits long documents, and holdouts count whole ones.
    selected const documents(data, data.holdout.empty() ? split::heldout : split::train, data_seed_of(data));
    made_by([&] {
        visit_documents(data.sources, documents, [&](std::string_view part, bool ends) {
            bytes += part.size();
            sum.add(std::as_bytes(std::span(part)));
            if (!ends) return std::size_t{0};
            sum.add(std::as_bytes(std::span(&bytes, 1)));
            if (data.holdout.empty() && tenth.contains(all.documents)) all.tenth += bytes;
            all.bytes += bytes;
            ++all.documents;
            return static_cast<std::size_t>(std::exchange(bytes, 0)) / 4 + 1;  // estimated tokens, for stories
        });
    });
    all.sum = sum.value();
    if (!data.holdout.empty() && !is_generated(data.sources)) {
        selected const held(data, split::heldout, data_seed_of(data), true);
        of_holdout(data,
                   [&] { visit_documents(data.sources, held, [](std::string_view, bool) { return std::size_t{0}; }); });
    }
    return all;
}

corpus training_text(data_options const& data, tokenizer const& tokenizer, std::uint64_t data_seed,
                     std::string const& path, std::string const& aside) {
    selected const documents(data, split::train, data_seed);
    auto const made = [&] {
        if (path.empty() || is_generated(data.sources)) return build_corpus(data.sources, tokenizer, documents);
        auto const digest = digest_of(data.sources, tokenizer, documents);
        token_file::reason why;
        token_file::reason why_aside;
        auto stored = stored_corpus(path, digest, tokenizer, why);
        if (stored && !aside.empty() && is_first_rank()) std::filesystem::remove(aside);  // left by a killed process
        if (!stored && !aside.empty()) stored = stored_corpus(aside, digest, tokenizer, why_aside);
        if (stored && stored->skipped() > 0)
            log_line(sentence("training: ", stored->skipped(), " malformed documents were skipped when the text was ",
                              "tokenised into ", path));
        if (stored) return *std::move(stored);
        if (!is_first_rank()) return build_corpus(data.sources, tokenizer, documents);  // no folder in common
        log_line("tokenises the text into " + path +
                 (calm::is_there(path) ? ": the file there is not used: " + why : ""));
        return store_corpus(aside.empty() ? path : aside, digest, data.sources, tokenizer, documents);
    };
    return in_turn([&] { return made_by(made); });
}

text_size size_of_training_text(data_options const& data, tokenizer const& tokenizer, std::uint64_t data_seed,
                                packing_rule const& rule, index_t block) {
    auto const text = read_text::of(data, tokenizer, split::train, data_seed);
    return made_by([&] { return size_of(*text, rule, static_cast<std::size_t>(block)); });
}

void require_blocks(data_options const& data, tokenizer const& tokenizer, std::uint64_t data_seed,
                    packing_rule const& rule, index_t block) {
    auto const size = static_cast<std::size_t>(block);
    made_by([&] { require_block(*read_text::of(data, tokenizer, split::train, data_seed, true), rule, size); });
    if (data.holdout.empty() || has_own_symbols(data.sources)) return;
    of_holdout(data,
               [&] { require_block(*read_text::of(data, tokenizer, split::heldout, data_seed, true), rule, size); });
}

std::vector<token_id> spread_blocks(block_source const& blocks, index_t block, std::size_t at_most) {
    std::size_t all = 0;
    blocks([&](std::span<token_id const>) { ++all; });
    auto const size = static_cast<std::size_t>(block);
    std::size_t const count = std::min(all, std::max(at_most / size, std::size_t{1}));
    std::vector<token_id> chosen;
    chosen.reserve(count * size);
    std::size_t number = 0;
    std::size_t taken = 0;
    blocks([&](std::span<token_id const> one) {
        if (taken == count || number++ != taken * all / count) return;
        chosen.insert(chosen.end(), one.begin(), one.end());
        ++taken;
    });
    return chosen;
}

std::vector<token_id> spread_blocks(std::span<token_id const> blocks, index_t block, std::size_t at_most) {
    return spread_blocks(blocks_in(blocks, static_cast<std::size_t>(block)), block, at_most);
}

std::vector<token_id> heldout_blocks(data_options const& data, tokenizer const& tokenizer, packing_rule const& rule,
                                     index_t block, std::size_t at_most) {
    data_options held = data;
    held.sources.clear();
    // At least two blocks, so that generated stories fill one whatever their tokens.
    auto const generated = std::max(at_most, 2 * static_cast<std::size_t>(block));
    for (auto const& spec : data.sources) {
        bool const own_split =
            has_own_symbols(data.sources) || (data.holdout.empty() && document_source::parse(spec).is_generated());
        if (own_split)
            held.sources.push_back(spec.substr(0, spec.find(':') + 1) + std::to_string(generated));
        else if (!data.holdout.empty())
            held.sources.push_back(spec);
    }
    if (held.sources.empty()) return {};
    return in_turn(
        [&] { return spread_blocks(blocks_from(held, tokenizer, split::heldout, rule, block), block, at_most); });
}

block_source evaluation_blocks_of(data_options const& data, tokenizer const& tokenizer, packing_rule const& rule,
                                  index_t block) {
    if (rule.mode != packing::unbroken || !tokenizer.specials().exist())
        return in_turn([&] { return blocks_from(data, tokenizer, split::heldout, rule, block); });
    auto const with_bos = packing_rule{packing::published_language_model, rule.K, rule.seed};
    auto const tokens = in_turn([&] { return blocks_from(data, tokenizer, split::heldout, with_bos, 1); });
    return without_bos(tokens, tokenizer.bos(), static_cast<std::size_t>(block));
}

}  // namespace calm::apps
