#pragma once
/// \file
/// Counter-based random numbers: a function of key and position, by Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011).
/// Results do not depend on threads, launch shape or ranks, and noise is never stored. Host and device share this code.
/// \shows{examples/10_temperature.cpp,main}

#include <bit>
#include <cmath>
#include <cstdint>

#include "calm/base/host_device.hpp"

namespace calm {

/// The purpose of a random stream. The numbers affect every result: never renumber them, append new streams.
enum class stream : std::uint32_t {
    initialise = 0,       ///< parameters
    token_mask = 1,       ///< autoencoder: input tokens replaced by id 0
    posterior = 2,        ///< eps of z = mean + exp(log_std) * eps
    latent_dropout = 3,   ///< dropout on z
    head_noise = 4,       ///< noise of the generative head in training
    target = 5,           ///< eps of the target samples y_m
    document_order = 6,   ///< shuffling of documents
    alignment = 7,        ///< offset o of mode `padded`
    evaluation = 8,       ///< head noise in evaluation
    generation = 9,       ///< head noise in generation
    choice = 10,          ///< choosing among sampled patches
    story = 11,           ///< the stories grammar
    random_patches = 12,  ///< uniformly random tokens shown to the autoencoder
    markov_chain = 14,    ///< weights of the markov source
    markov_text = 15,     ///< its symbols
    positions = 16,       ///< which positions an evaluation scores
    head_time = 17,       ///< time (flow, diffusion) at which the head is trained on a sample
    rounding = 18,        ///< stochastic rounding of weights to bf16
};

/// A key (seed, stream, step) names a sequence of 2^64 blocks of four 32-bit words.
struct key {
    std::uint64_t seed = 0;                          ///< of the run
    calm::stream stream = calm::stream::initialise;  ///< purpose of the draws
    std::uint32_t step = 0;                          ///< training step; in generation, the index of the prompt
    /// If not null, device kernels read the step here, so that a captured graph can be replayed for another step.
    std::uint32_t const* live_step = nullptr;
    /// If not 0, the key of a substream: its seed is block `seed_block` of the sequence of the key without it.
    std::uint64_t seed_block = 0;

    /// The key with plain values, read by kernels: the step comes from `live_step` if it is set.
    [[nodiscard]] CALM_HD constexpr key now() const { return of_step(live_step != nullptr ? *live_step : step); }
    /// The key with plain values, for the host, which cannot read `live_step` in device memory.
    [[nodiscard]] CALM_HD constexpr key by_value() const { return of_step(step); }

private:
    [[nodiscard]] CALM_HD constexpr key of_step(std::uint32_t number) const;
};

/// Four 32-bit words: a Philox counter, or the generator's output.
struct philox_block {
    std::uint32_t v[4];  ///< in the published order
    friend constexpr bool operator==(philox_block const&, philox_block const&) = default;
};

/// The raw generator: counter words and key words as in the published known-answer vectors.
CALM_HD constexpr philox_block philox(philox_block counter, std::uint32_t k0, std::uint32_t k1) {
    for (int round = 0; round < 10; ++round) {
        std::uint64_t const a = std::uint64_t{0xD2511F53u} * counter.v[0];
        std::uint64_t const b = std::uint64_t{0xCD9E8D57u} * counter.v[2];
        counter = {{static_cast<std::uint32_t>(b >> 32) ^ counter.v[1] ^ k0, static_cast<std::uint32_t>(b),
                    static_cast<std::uint32_t>(a >> 32) ^ counter.v[3] ^ k1, static_cast<std::uint32_t>(a)}};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return counter;
}

namespace detail {
// The block at `position` in the stream of a key with plain values.
CALM_HD constexpr philox_block philox_of_numbers(key const& k, std::uint64_t position) {
    return philox({{static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), k.step,
                    static_cast<std::uint32_t>(k.stream)}},
                  static_cast<std::uint32_t>(k.seed), static_cast<std::uint32_t>(k.seed >> 32));
}
}  // namespace detail

CALM_HD constexpr key key::of_step(std::uint32_t number) const {
    key plain{seed, stream, number};
    if (seed_block != 0) {
        philox_block const words = detail::philox_of_numbers(plain, seed_block);
        plain.seed = words.v[0] | std::uint64_t{words.v[1]} << 32U;
    }
    return plain;
}

/// The block of four words at `position` in a keyed stream.
CALM_HD constexpr philox_block philox(key k, std::uint64_t position) {
    return detail::philox_of_numbers(k.now(), position);
}

/// Uniform in [0, 1), 24 bits.
CALM_HD constexpr float uniform_from(std::uint32_t word) {
    return static_cast<float>(word >> 8) * 0x1p-24F;
}

/// Element i of the keyed sequence of uniforms in [0, 1): word i % 4 of block i / 4.
CALM_HD constexpr float uniform(key k, std::uint64_t i) {
    return uniform_from(philox(k, i / 4).v[i % 4]);
}

/// An integer in [0, n), n > 0, from 32 random bits: multiply-shift, biased by less than n / 2^32.
CALM_HD constexpr std::uint32_t below(std::uint32_t word, std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{word} * n) >> 32);
}

/// Two standard normals from two words, by Box-Muller: radius times the cosine and the sine of the angle.
/// u1 = (w0 + 1) 2^-32, u2 = w1 2^-32.
struct box_muller {
    double radius;  ///< sqrt(-2 log u1)
    double angle;   ///< 2 pi u2
    /// From two uniform words.
    CALM_HD box_muller(std::uint32_t w0, std::uint32_t w1) :
        radius(std::sqrt(-2.0 * std::log((static_cast<double>(w0) + 1.0) * 0x1p-32))),
        angle(6.283185307179586 * (static_cast<double>(w1) * 0x1p-32)) {}
};

/// Element i of the keyed sequence of standard normals: Box-Muller on the words of block i / 4, pairs (0, 1) and (2,
/// 3), cosine then sine.
template <class T = float> CALM_HD T normal(key k, std::uint64_t i) {
    philox_block const b = philox(k, i / 4);
    auto const pair = static_cast<std::size_t>(i % 4) / 2;
    box_muller const two(b.v[2 * pair], b.v[2 * pair + 1]);
    return static_cast<T>(two.radius * (i % 2 == 0 ? std::cos(two.angle) : std::sin(two.angle)));
}

/// A sequential reader of one keyed stream, for code that draws as it proceeds (text generators, shuffles, choices).
class random_sequence {
public:
    /// Starts at the first word of block `block` of the key.
    constexpr explicit random_sequence(key k, std::uint64_t block = 0) : key_(k), block_(block) {}

    /// The next word.
    constexpr std::uint32_t next() {
        if (lane_ == 4) {
            words_ = philox(key_, block_++);
            lane_ = 0;
        }
        return words_.v[lane_++];
    }
    constexpr float uniform() { return uniform_from(next()); }  ///< in [0, 1), from the next word
    /// In [0, 1) with 53 bits, from the next two words: for large pools 24 bits are too few.
    constexpr double uniform_double() {
        std::uint64_t const high = next() >> 5;
        std::uint64_t const low = next() >> 6;
        return static_cast<double>((high << 26) | low) * 0x1p-53;
    }
    /// In [0, n), n > 0, from the next word.
    constexpr std::uint32_t below(std::uint32_t n) { return calm::below(next(), n); }

private:
    key key_;
    std::uint64_t block_;
    philox_block words_{};
    unsigned lane_ = 4;
};

}  // namespace calm
