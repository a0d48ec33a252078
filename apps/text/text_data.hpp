#pragma once
// Text for the programs: corpora from SPECs, a model's tokenizer, blocks for training and evaluation.

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "calm/evaluate/evaluation.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/text/bigram.hpp"
#include "calm/text/corpus.hpp"
#include "calm/text/detail/block_source.hpp"
#include "calm/text/packed_blocks.hpp"
#include "calm/text/packing.hpp"
#include "calm/text/tokenizer.hpp"
#include "command/options.hpp"

namespace calm::apps {

// Trains a tokenizer on the training text.
tokenizer trained_tokenizer(data_options const& data, index_t vocabulary);
// Writes and reports it. Throws errc::storage.
void write_tokenizer(tokenizer const& tokenizer, std::string const& path);
// Trains a tokenizer and writes it, creating the file's folder. Throws errc::storage; checks that the file can be
// written before it reads text.
int train_tokenizer(tokenizer_options const& o);

// Stands for the vocabulary of the Markov benchmark wherever a tokenizer file is expected.
inline constexpr char const* markov_vocabulary = "markov";
// The tokenizer of a file, or the vocabulary of the Markov benchmark. `pattern` is that of tiktoken's lines, or empty.
tokenizer tokenizer_named(std::string const& path, std::string const& pattern = "");
// The content of the tokenizer file to store in a model directory.
std::string tokenizer_bytes(std::string const& path);

// The content of a file. Throws errc::storage.
std::string bytes_of_file(std::string const& path);

// The seed of generated text: the option, else the model's, else 1.
std::uint64_t data_seed_of(data_options const& data, stored_model const* model = nullptr);

// The packing of documents: the option, else the model's, else padded. Markov symbols are always unbroken, and so is by
// default the text of a published autoregressive model whose prompts do not begin with BOS.
packing packing_for(packed_for use, data_options const& data, tokenizer const& tokenizer,
                    stored_model const* model = nullptr);

// Adds the optimal scores if the source's distribution is known.
void add_optimum(evaluation& e, data_options const& data, std::uint64_t data_seed);

// Size of the training text before tokenization; without a holdout, of all text. `tenth` counts the bytes that 10:9
// would then hold out. `sum` is a checksum of all bytes, not cryptographic.
struct text_extent {
    std::uint64_t bytes = 0;
    std::uint64_t documents = 0;
    std::uint64_t tenth = 0;
    std::uint64_t sum = 0;
};
text_extent extent_of(data_options const& data);

// The name of a run's token file.
inline constexpr char const* tokens_file = "text.tokens";

// The documents to train on. Generated text is held in memory, and any text if the path is empty. Otherwise the ids are
// in a token file at the path, which rank 0 writes unless it holds those of this text and tokenizer. Ranks that do not
// see it hold the ids in memory. If `aside` is given, rank 0 writes the file there, and the file at the path stays
// until the caller replaces it. Afterwards `aside` exists only if it is in use.
corpus training_text(data_options const& data, tokenizer const& tokenizer, std::uint64_t data_seed,
                     std::string const& path = "", std::string const& aside = "");

// The size of the training text, counted without storing it. Throws errc::data if it is shorter than one block.
text_size size_of_training_text(data_options const& data, tokenizer const& tokenizer, std::uint64_t data_seed,
                                packing_rule const& rule, index_t block);

// Throws errc::data if the training text, or the part that a holdout keeps, is shorter than one block. Reads no more
// than that takes.
void require_blocks(data_options const& data, tokenizer const& tokenizer, std::uint64_t data_seed,
                    packing_rule const& rule, index_t block);

// Held-out blocks: generated text from its own split, or the documents of a holdout. At most `at_most` tokens, spread
// over the whole text, packed by a rule whose seed is the data seed. Empty if nothing is held out. Throws errc::data if
// they are shorter than one block.
std::vector<token_id> heldout_blocks(data_options const& data, tokenizer const& tokenizer, packing_rule const& rule,
                                     index_t block, std::size_t at_most);

// Blocks for evaluation, from the held-out text or from whole files if there is no holdout. They are read on demand;
// the tokenizer must outlive them. Unbroken text has no special tokens, whatever the tokenizer. When read, throws
// errc::data if there is less than one block; of unbroken text there may be none.
block_source evaluation_blocks_of(data_options const& data, tokenizer const& tokenizer, packing_rule const& rule,
                                  index_t block);

// As many blocks as fit into `at_most` tokens, at least one, at equal distances.
std::vector<token_id> spread_blocks(block_source const& blocks, index_t block, std::size_t at_most);
std::vector<token_id> spread_blocks(std::span<token_id const> blocks, index_t block, std::size_t at_most);

}  // namespace calm::apps
