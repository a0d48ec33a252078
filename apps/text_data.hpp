#pragma once
// Text for the programs: corpora from SPECs, the tokenizer of a model directory, blocks to train and evaluate on.

#include <functional>
#include <optional>
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

// The tokenizer beside a model. Throws errc::tokenizer where it is not the one that the model was trained with.
tokenizer tokenizer_of(stored_model const& model);

// The bytes of a file. Throws errc::storage.
std::string bytes_of_file(std::string const& path);

std::uint64_t data_seed_of(data_options const& data, stored_model const* model = nullptr);

// The documents to train on, and, where some are held out (stories, or a holdout), those to evaluate on, `at_most` tokens
// of generated ones.
corpus training_text(data_options const& data, tokenizer const& words, std::uint64_t data_seed);
std::optional<corpus> heldout_text(data_options const& data, tokenizer const& words, std::uint64_t data_seed, std::size_t at_most);

// The documents that evaluation is asked for: the held-out ones, or all of files without a holdout.
corpus evaluation_text(data_options const& data, tokenizer const& words, std::uint64_t data_seed);

// Packed blocks of it (spec 2, mode padded), at most `at_most` tokens.
std::vector<token_id> blocks_of(corpus const& text, index_t K, index_t block, std::uint64_t data_seed,
                                std::size_t at_most = static_cast<std::size_t>(-1));

// An endless source of blocks of `unit` tokens, epoch after epoch; the corpus outlives it.
std::function<void(std::span<token_id>)> endless_blocks(corpus const& text, index_t K, index_t unit, std::uint64_t seed);

}  // namespace calm::apps
