#pragma once
// What command lines say, as plain values. What was not said is empty and follows from the configuration.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calm/train/loop.hpp"

namespace calm::apps {

struct data_options {
    std::vector<std::string> sources;  // SPECs: files and stories:N
    std::optional<std::uint64_t> data_seed;
    std::string holdout;  // "m:r" or empty
};

struct tokenizer_options {
    data_options data;
    index_t vocabulary = 0;
    std::string out;
};

// Of an autoencoder or of a language model; each reads what concerns it.
struct train_options {
    std::string configuration;
    std::string tokenizer;    // a file
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
    std::uint64_t seed = 1;
    int threads = 0;
};

struct generate_options {
    std::string model;
    std::string prompt;
    std::string temperature = "1/2";
    std::string sampler = "batch";
    index_t samples = 200;
    index_t max_tokens = 200;
    bool pad_left = true;
    std::uint64_t seed = 1;
    int threads = 0;
};

}  // namespace calm::apps
