#pragma once
/// \file
/// Text: tokenizers, documents, corpora, reference models. Links libpcre2-8, simdjson, zlib and zstd.
/// \shows{examples/09_tokenizer.cpp}

#include "calm/text/bigram.hpp"
#include "calm/text/block_reader.hpp"
#include "calm/text/bpe_trainer.hpp"
#include "calm/text/build_corpus.hpp"
#include "calm/text/corpus.hpp"
#include "calm/text/documents.hpp"
#include "calm/text/holdout.hpp"
#include "calm/text/load_tokenizer.hpp"
#include "calm/text/markov.hpp"
#include "calm/text/packed_blocks.hpp"
#include "calm/text/packing.hpp"
#include "calm/text/read_text.hpp"
#include "calm/text/special_tokens.hpp"
#include "calm/text/stories.hpp"
#include "calm/text/tokenizer.hpp"
