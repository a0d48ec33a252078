#pragma once
// Text for the programs: corpora from SPECs, the tokenizer of a model directory, blocks to train and evaluate on.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "calm/io/stored_model.hpp"
#include "calm/text/corpus.hpp"
#include "calm/text/tokenizer.hpp"
#include "options.hpp"

namespace calm::apps {

// Learns a vocabulary and writes it.
int train_tokenizer(tokenizer_options const& o);

// Where the tokenizer of a model lies.
std::string tokenizer_path(stored_model const& model);
// The tokenizer beside a model. Throws errc::tokenizer where it is not the one that the model was trained with.
tokenizer tokenizer_of(stored_model const& model);

// The bytes of a file. Throws errc::storage.
std::string bytes_of_file(std::string const& path);

// The seed of generated text: as asked for, else the model's, else 1.
std::uint64_t data_seed_of(data_options const& data, stored_model const* model = nullptr);

// The documents to train on.
corpus training_text(data_options const& data, tokenizer const& words, std::uint64_t data_seed);

// Packed blocks (spec 2, mode padded), at most `at_most` tokens, of what is held out of training: stories of their own
// split, or the documents of a holdout. Empty where nothing is held out. Throws errc::data for less than one block.
std::vector<token_id> heldout_blocks(data_options const& data, tokenizer const& words, std::uint64_t data_seed,
                                     index_t K, index_t block, std::size_t at_most);

// The blocks that evaluation is asked for: of what is held out, or of whole files without a holdout.
std::vector<token_id> evaluation_blocks_of(data_options const& data, tokenizer const& words, std::uint64_t data_seed,
                                           index_t K, index_t block);

// The first whole blocks of `tokens`, as many as `at_most` tokens hold, at least one.
std::span<token_id const> first_blocks(std::span<token_id const> tokens, index_t block, std::size_t at_most);

}  // namespace calm::apps
