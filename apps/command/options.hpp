#pragma once
// Parsed command lines as plain values. Options that were not given are empty; the configuration supplies their
// defaults.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/ranks/detail/setting.hpp"
#include "calm/train/recipe.hpp"
#include "command/device.hpp"
#include "command/text_choices.hpp"

namespace calm::apps {

struct data_options {
    std::vector<std::string> sources;  // SPECs: files, folders, patterns, stories:N, markov:N
    std::optional<std::uint64_t> data_seed;
    std::string holdout;    // "m:r" or empty
    std::string mode;       // padded or published, or empty: as in the model
    bool skip_bad = false;  // drop and count malformed documents
};

struct tokenizer_options {
    data_options data;
    index_t vocabulary = 0;
    std::string out;
    std::vector<setting> rank_settings = {};  // must be equal on all ranks
};

// Of an autoencoder's loss and its text.
struct autoencoder_numbers {
    static constexpr std::array<std::string_view, 4> names{"kl-weight", "kl-clamp", "dropout", "random-patches"};
    std::optional<double> kl_weight;
    std::optional<double> kl_clamp;
    std::optional<double> dropout;
    std::optional<double> random_patches;
};

// How a run was started, recorded in its directory.
struct run_record {
    std::string options;             // options.toml
    std::vector<std::string> words;  // the command line
};

// Precision in which programs other than train hold weights. int8 is chosen at run time, bf16 is compiled.
enum class held_weights { f32, bf16, int8 };

// Where and how a program computes.
struct execution_options {
    std::uint64_t seed = 1;
    int threads = 0;
    index_t timeout = 120;  // seconds that a rank waits for another
    device_choice device;
    std::vector<setting> rank_settings = {};  // must be equal on all ranks
};

// Options of any training; each kind of model uses those that apply to it.
struct train_options : execution_options {
    std::string configuration;
    std::string sizes;        // KEY=VALUE,...; already part of the configuration's name
    std::string tokenizer;    // a file, or "markov"
    std::string pattern;      // of tiktoken's lines in that file or next to the autoencoder, or empty
    std::string autoencoder;  // a model directory
    std::string init;         // a model directory with the initial weights, or empty
    std::string out;
    std::string tokens;  // the token file that several runs share; empty: in out
    data_options data;
    std::optional<index_t> steps;
    std::optional<double> minutes;
    std::optional<index_t> batch;  // tokens, or sequences
    std::optional<index_t> block;  // tokens
    std::optional<index_t> accumulation;
    std::optional<double> learning_rate;
    std::string learning_rate_option = "--learning-rate";  // the option's name in messages
    std::optional<double> muon;
    std::optional<index_t> warmup;
    std::optional<learning_rate_schedule> schedule;
    head_numbers head;  // for the objective
    autoencoder_numbers of_autoencoder;
    std::optional<patch_level> level;
    std::optional<index_t> evaluate_every;
    index_t heldout_positions = 5000;  // scored at the end of the run, and at most two fifths before
    std::optional<index_t> save_every;
    index_t keep = 2;                                     // checkpoints kept in addition to the best
    index_t skip_nonfinite = 0;                           // non-finite steps that may be skipped
    bool in_bf16 = false;                                 // matrix products round both factors to bf16
    weight_rounding rounding = weight_rounding::nearest;  // of weights in bf16 products
    bool fresh = false;                                   // start over if a run exists
    bool take_changes = false;                            // resume with other settings
    bool is_stage = false;                                // a stage of train text
    bool dry_run = false;                                 // print the plan only
    bool plot = false;                                    // draw the training curve at the end
    std::string sample_prompt;                            // of the texts in samples.jsonl
    std::string baseline;  // directory of an autoregressive run to compare with, or empty
    run_record record;
    // If set, called on rank 0 once all checks have passed, before the run changes.
    std::function<void()> on_begin;
};

// Options of `train text`, which trains tokenizer, autoencoder and CALM into one directory. Its plan uses `choices`; of
// the other members only those common to all training apply.
struct text_options : train_options {
    text_choices choices;
};

struct evaluate_options : execution_options {
    std::vector<std::string> models;  // evaluated one after another
    std::string model;                // the current one
    std::string pattern;              // of the models' tiktoken lines, or empty
    data_options data;
    index_t block = 0;  // tokens; 0: as in training
    index_t samples = 8;
    index_t positions = 0;  // size of a random subset; 0: all
    std::string temperature = "1";
    std::string sampler;  // empty: the default of the model
    index_t pool = 200;   // for adaptive and batch
    head_numbers head;    // for sampling
    held_weights weights = held_weights::f32;
    bool json = false;  // also on a terminal
};

// Options of sweep, which trains all configurations for equal minutes, tokens or FLOPs. One limit of each group is
// given.
struct sweep_options : execution_options {
    std::vector<std::string> configurations;
    std::string sizes;  // KEY=VALUE,...; already part of the configurations' names
    std::string tokenizer;
    std::string pattern;  // of a tokenizer file of tiktoken's lines, or empty
    std::string out;
    data_options data;
    std::optional<double> autoencoder_minutes;
    std::optional<index_t> autoencoder_tokens;
    std::optional<double> minutes;
    std::optional<index_t> tokens;
    std::optional<double> teraflops;
    bool counts_all = true;  // count all training FLOPs; false: as the paper does, only the language model's products
    std::optional<index_t> block;
    std::optional<double> learning_rate;
    std::optional<double> muon;
    autoencoder_numbers of_autoencoder;
    head_numbers head;              // for the objective
    std::vector<std::string> vary;  // NAME=VALUE,...: see combinations_of_sweep
    std::string seeds;              // S,...
    // The values of --vary and --seeds that these options have, except sizes, which are part of the configurations'
    // names: {"head-samples", "2"}.
    std::vector<std::pair<std::string, std::string>> varied;
    index_t samples = 8;
    index_t positions = 0;  // 0: all
    run_record record;
};

struct plot_options {
    std::vector<std::string> runs;  // directories
    std::string format = "svg";     // or png or tensorboard
};

struct convert_options {
    std::string model;
    std::string autoencoder;  // directory of a CALM's autoencoder, or empty: as the model says
    std::string out;
    std::string dtype;  // f32, bf16, f16 or int8, or empty: as stored
    std::uint64_t shard_bytes = 5'000'000'000;
};

struct inspect_options {
    std::string model;
    std::string pattern;  // of the model's tiktoken lines, or empty
};

struct tokenize_options {
    std::string tokenizer;  // a file, or a model's directory
    std::string pattern;    // of tiktoken's lines there, or empty
    std::vector<std::string> texts;
    std::string format = "table";  // or ids, json, latents
    data_options data;             // the text whose ids are written to `out`; no sources: none is
    std::string out;
};

struct generate_options : execution_options {
    std::string model;
    std::string pattern;  // of the model's tiktoken lines, or empty
    std::vector<std::string> prompts;
    std::string prompts_file;       // or empty, or - for standard input; a prompt may be - as well
    std::string jsonl;              // a file of JSON lines to answer, or -, or empty
    std::string out;                // file for the answers, or empty
    std::vector<std::string> stop;  // strings that end a text
    std::string temperature = "1/2";
    std::string sampler;  // empty: the default of the model
    index_t pool = 200;   // for adaptive and batch
    index_t top_k = 0;    // autoregressive models only; 0: all
    double top_p = 1;     // autoregressive models only
    head_numbers head;    // for sampling
    index_t max_tokens = 200;
    index_t at_once = 16;  // texts
    bool pad_left = true;
    held_weights weights = held_weights::f32;
};

// Options of serve, which has a model, a run to show, or both.
struct serve_options : execution_options {
    std::string model;    // or empty
    std::string pattern;  // of the model's tiktoken lines, or empty
    std::string name;     // of the model for clients; empty: that of its directory
    std::string run;      // directory of a run to show, or empty
    std::string host = "127.0.0.1";
    index_t port = 8080;    // 0: a free one
    std::string api_key;    // that clients must give, or empty
    bool insecure = false;  // another address than loopback without a key
    index_t at_once = 64;   // texts
    index_t queue = 1024;   // texts that wait
    index_t rate = 0;       // completions per second from one address; 0: any number
    index_t context = 0;    // tokens of prompt and completion; 0: the model's, at most 8192
    index_t pool = 200;     // for adaptive and batch
    index_t drain = 30;     // seconds that running texts have to end after a signal
    held_weights weights = held_weights::f32;
};

}  // namespace calm::apps
