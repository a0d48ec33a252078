#pragma once
// Text for the programs: corpora from SPECs, the tokenizer of a model directory, blocks to train and evaluate on.

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "calm/io/stored_model.hpp"
#include "calm/text/bigram.hpp"
#include "calm/text/block_source.hpp"
#include "calm/text/corpus.hpp"
#include "calm/text/packed_blocks.hpp"
#include "calm/text/packing.hpp"
#include "calm/text/tokenizer.hpp"
#include "calm/train/evaluation.hpp"
#include "command/options.hpp"

namespace calm::apps {

// Learns a vocabulary and writes it; the folder of the file is made. Throws errc::storage, before the text is read
// where the file cannot be written.
int train_tokenizer(tokenizer_options const& o);

// The word that names the vocabulary of the markov source where a tokenizer file is expected.
inline constexpr char const* markov_vocabulary = "markov";
// The tokenizer of a file, or the vocabulary of the markov source.
tokenizer tokenizer_named(std::string const& path);
// The bytes that stand for it in a model directory: the file's own.
std::string tokenizer_bytes(std::string const& path);

// Where the tokenizer of a model lies.
std::string tokenizer_path(stored_model const& model);
// The tokenizer beside a model. Throws errc::tokenizer where it is not the one that the model was trained with.
tokenizer tokenizer_of(stored_model const& model);

// The bytes of a file. Throws errc::storage.
std::string bytes_of_file(std::string const& path);

// The seed of generated text: as asked for, else the model's, else 1.
std::uint64_t data_seed_of(data_options const& data, stored_model const* model = nullptr);

// How documents are packed: as asked for, else as the model was trained, else padded; symbols always unbroken.
packing packing_for(packed_for use, data_options const& data, tokenizer const& words,
                    stored_model const* model = nullptr);

// The scores of the source itself, where it is one of a known distribution.
void add_optimum(evaluation& e, data_options const& data, std::uint64_t data_seed);

// How much text there is before it has tokens: bytes and documents to train on; where no holdout is given, all of them,
// and the bytes of those that 10:9 would hold out. The sum of all bytes tells accidents, not attacks.
struct text_extent {
    std::uint64_t bytes = 0;
    std::uint64_t documents = 0;
    std::uint64_t tenth = 0;
    std::uint64_t sum = 0;
};
text_extent extent_of(data_options const& data);

// The documents to train on.
corpus training_text(data_options const& data, tokenizer const& words, std::uint64_t data_seed);

// How much text that is, where it fills a block. It is counted as it is read, and not kept. Throws errc::data for less
// than one block.
text_size size_of_training_text(data_options const& data, tokenizer const& words, std::uint64_t data_seed,
                                packing_rule const& rule, index_t block);

// Throws errc::data where the text to train on, or what a holdout keeps of it, is less than one block. No more of it is
// read than that takes.
void require_blocks(data_options const& data, tokenizer const& words, std::uint64_t data_seed, packing_rule const& rule,
                    index_t block);

// How many bytes of text every token is, (V), specials none; empty for symbols, which are no bytes.
std::vector<index_t> bytes_of_tokens(tokenizer const& words);

// What pairs of neighbours all of a packed corpus has.
bigram_table bigrams_of(corpus const& text, tokenizer const& words, packing_rule const& rule);

// Blocks, packed by a rule whose seed is the data seed, at most `at_most` tokens, of what is held out of training:
// generated text of its own split, or the documents of a holdout, from the first to the last. Empty where nothing is
// held out. Throws errc::data for less than one block.
std::vector<token_id> heldout_blocks(data_options const& data, tokenizer const& words, packing_rule const& rule,
                                     index_t block, std::size_t at_most);

// The blocks that evaluation is asked for: of what is held out, or of whole files without a holdout. They are read as
// they are asked for; the tokenizer outlives them. Throws errc::data for less than one block, when they are read.
block_source evaluation_blocks_of(data_options const& data, tokenizer const& words, packing_rule const& rule,
                                  index_t block);

// Of whole blocks as many as `at_most` tokens hold, at least one, at equal distances.
std::vector<token_id> spread_blocks(block_source const& blocks, index_t block, std::size_t at_most);
std::vector<token_id> spread_blocks(std::span<token_id const> blocks, index_t block, std::size_t at_most);

}  // namespace calm::apps
