#pragma once
// What command lines say, as plain values. What was not said is empty and follows from the configuration.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calm/train/loop.hpp"

namespace calm::apps {

struct data_options {
    std::vector<std::string> sources;  // SPECs: files, stories:N, markov:N
    std::optional<std::uint64_t> data_seed;
    std::string holdout;  // "m:r" or empty
    std::string mode;     // padded or published, or empty: as the model
};

struct tokenizer_options {
    data_options data;
    index_t vocabulary = 0;
    std::string out;
};

// Of an autoencoder or of a language model; each reads what concerns it.
struct train_options {
    std::string configuration;
    std::string tokenizer;    // a file, or "markov"
    std::string autoencoder;  // a model directory
    std::string out;
    data_options data;
    std::optional<index_t> steps;
    std::optional<double> minutes;
    std::optional<index_t> batch;  // tokens, or sequences
    std::optional<index_t> block;  // tokens
    std::optional<index_t> accumulation;
    std::optional<double> rate;
    std::optional<index_t> warmup;
    std::optional<rate_schedule> schedule;
    std::optional<index_t> samples;
    std::optional<index_t> targets;
    std::optional<double> beta;
    std::optional<double> kl_weight;
    std::optional<double> random_patches;
    std::optional<index_t> evaluate_every;
    std::optional<index_t> save_every;
    std::uint64_t seed = 1;
    int threads = 0;
};

struct evaluate_options {
    std::string model;
    data_options data;
    index_t block = 0;  // tokens; 0: as in training
    index_t samples = 8;
    index_t positions = 0;  // a random subset of so many; 0: all
    std::string temperature = "1";
    std::string sampler = "adaptive";
    index_t pool = 200;  // of adaptive and batch
    std::uint64_t seed = 1;
    int threads = 0;
};

// Equal minutes or equal tokens for all: one of each pair is given.
struct sweep_options {
    std::vector<std::string> configurations;
    std::string tokenizer;
    std::string out;
    data_options data;
    std::optional<double> autoencoder_minutes;
    std::optional<index_t> autoencoder_tokens;
    std::optional<double> minutes;
    std::optional<index_t> tokens;
    std::optional<index_t> block;
    std::optional<double> rate;
    std::optional<double> kl_weight;
    std::optional<double> random_patches;
    index_t samples = 8;
    index_t positions = 0;  // 0: all
    std::uint64_t seed = 1;
    int threads = 0;
};

struct generate_options {
    std::string model;
    std::vector<std::string> prompts;
    std::string prompts_file;  // or empty
    std::string temperature = "1/2";
    std::string sampler = "adaptive";
    index_t samples = 200;  // pool of adaptive and batch
    index_t max_tokens = 200;
    index_t at_once = 16;  // texts
    bool pad_left = true;
    std::uint64_t seed = 1;
    int threads = 0;
};

}  // namespace calm::apps
