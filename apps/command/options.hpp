#pragma once
// What command lines say, as plain values. What was not said is empty and follows from the configuration.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calm/ranks/setting.hpp"
#include "calm/train/recipe.hpp"
#include "command/device.hpp"
#include "command/text_choices.hpp"

namespace calm::apps {

struct data_options {
    std::vector<std::string> sources;  // SPECs: files, folders, patterns, stories:N, markov:N
    std::optional<std::uint64_t> data_seed;
    std::string holdout;       // "m:r" or empty
    std::string mode;          // padded or published, or empty: as the model
    bool skip_bad = false;     // malformed documents are left out and counted
    std::string cache = "";    // a folder; none: no caches; or empty: beside the files
    bool writes_cache = true;  // or those are used that are there
};

struct tokenizer_options {
    data_options data;
    index_t vocabulary = 0;
    std::string out;
    std::vector<setting> alike = {};  // what all ranks of a job have to be told
};

// How a run came about, for its directory.
struct run_record {
    std::string options;             // options.toml
    std::vector<std::string> words;  // the command line
};

// As what a program that does not train holds the weights of a model.
enum class held_weights { f32, bf16 };

// Where and how a program computes.
struct execution_options {
    std::uint64_t seed = 1;
    int threads = 0;
    index_t timeout = 120;  // seconds that a rank of several waits for another
    device_choice device;
    std::vector<setting> alike = {};  // what all ranks of a job have to be told
};

// Of an autoencoder or of a language model of either kind; each reads what concerns it.
struct train_options : execution_options {
    std::string configuration;
    std::string tokenizer;    // a file, or "markov"
    std::string autoencoder;  // a model directory
    std::string init;         // a model directory whose weights training starts from, or empty
    std::string out;
    data_options data;
    std::optional<index_t> steps;
    std::optional<double> minutes;
    std::optional<index_t> batch;  // tokens, or sequences
    std::optional<index_t> block;  // tokens
    std::optional<index_t> accumulation;
    std::optional<double> rate;
    std::string rate_option = "--rate";  // where it is set, for sentences
    std::optional<double> muon;
    std::optional<index_t> warmup;
    std::optional<rate_schedule> schedule;
    head_numbers head;  // of its objective
    std::optional<double> kl_weight;
    std::optional<double> random_patches;
    std::optional<patch_level> level;
    std::optional<index_t> evaluate_every;
    std::optional<index_t> save_every;
    index_t keep = 2;                                     // checkpoints, besides the best
    index_t skip_nonfinite = 0;                           // steps that may be left out
    bool in_bf16 = false;                                 // products round both of their factors
    weight_rounding rounding = weight_rounding::nearest;  // of those that are weights
    bool fresh = false;                                   // start over where a run is
    bool take_changes = false;                            // go on with other settings than the run was started with
    bool is_stage = false;                                // of train text
    bool dry_run = false;                                 // plan only
    bool plot = false;                                    // the training curve at the end
    std::string sample_prompt;                            // of the texts that a language model writes as it learns
    std::string beside;  // the run of an autoregressive model to compare a language model with, or empty
    run_record record;
};

// Of tokenizer, autoencoder and CALM in one directory. What is chosen stands in `choices`; of the rest what concerns
// any training.
struct text_options : train_options {
    text_choices choices;
};

struct evaluate_options : execution_options {
    std::vector<std::string> models;  // to evaluate, one after another
    std::string model;                // the one at hand
    data_options data;
    index_t block = 0;  // tokens; 0: as in training
    index_t samples = 8;
    index_t positions = 0;  // a random subset of so many; 0: all
    std::string temperature = "1";
    std::string sampler;  // or empty: as suits the model
    index_t pool = 200;   // of adaptive and batch
    head_numbers head;    // of how it samples
    held_weights weights = held_weights::f32;
};

// Equal minutes, equal tokens or equal FLOPs for all: one of each group is given.
struct sweep_options : execution_options {
    std::vector<std::string> configurations;
    std::string tokenizer;
    std::string out;
    data_options data;
    std::optional<double> autoencoder_minutes;
    std::optional<index_t> autoencoder_tokens;
    std::optional<double> minutes;
    std::optional<index_t> tokens;
    std::optional<double> teraflops;
    bool counts_all = true;  // as FLOPs of training, or as the paper does: the products of the language model alone
    std::optional<index_t> block;
    std::optional<double> rate;
    std::optional<double> muon;
    std::optional<double> kl_weight;
    std::optional<double> random_patches;
    index_t samples = 8;
    index_t positions = 0;  // 0: all
    run_record record;
};

struct plot_options {
    std::vector<std::string> runs;  // directories
    std::string format = "png";
};

struct convert_options {
    std::string model;
    std::string out;
    std::string dtype;  // f32, bf16 or f16, or empty: as stored
    std::uint64_t shard_bytes = 5'000'000'000;
};

struct inspect_options {
    std::string model;
};

struct generate_options : execution_options {
    std::string model;
    std::vector<std::string> prompts;
    std::string prompts_file;  // or empty, or - for standard input, as a prompt may be
    std::string jsonl;         // a file of JSON lines to answer, or -, or empty
    std::string out;           // the answers, or empty
    std::string temperature = "1/2";
    std::string sampler;    // or empty: as suits the model
    index_t samples = 200;  // pool of adaptive and batch
    index_t top_k = 0;      // of an autoregressive model; 0: all
    double top_p = 1;       // of an autoregressive model
    head_numbers head;      // of how it samples
    index_t max_tokens = 200;
    index_t at_once = 16;  // texts
    bool pad_left = true;
    held_weights weights = held_weights::f32;
};

}  // namespace calm::apps
