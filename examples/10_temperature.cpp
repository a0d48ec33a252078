// Temperature for a model that only allows sampling: P(x)^(1/T) without knowing any probability.
#include <cmath>
#include <cstdio>

#include "calm/sample/sampler.hpp"

int main() {
    constexpr int kinds = 4, repetitions = 20000;
    double const probability[kinds] = {0.4, 0.3, 0.2, 0.1};  // of patches 0 .. 3, unknown to the sampler
    calm::random_sequence model({.seed = 1}), choice({.seed = 2});
    auto const draw = [&](std::span<calm::token_id> patches) {  // new patches of one token each
        for (auto& token : patches) {
            double point = model.uniform();
            for (token = 0; token < kinds - 1 && point >= probability[token]; ++token) point -= probability[token];
        }
    };
    for (char const* const text : {"1", "1/2", "1/3", "0.7"}) {
        auto const T = calm::parse_temperature(text);
        double counts[kinds] = {}, draws = 0;
        for (int i = 0; i < repetitions; ++i) {
            calm::token_id patch[1];
            draws += static_cast<double>(sample_patch(calm::sampler::exact(T), draw, patch, choice).draws);
            ++counts[patch[0]];
        }
        double total = 0;
        for (double const p : probability) total += std::pow(p, T.inverse);
        std::printf("T = %-4s sampled", text);
        for (double const count : counts) std::printf(" %.3f", count / repetitions);
        std::printf("   wanted");
        for (double const p : probability) std::printf(" %.3f", std::pow(p, T.inverse) / total);
        std::printf("   %4.1f draws each\n", draws / repetitions);
    }
    try {  // the rule with the fewest draws supports only T = 1/n
        (void)calm::sampler::adaptive(calm::parse_temperature("0.7"));
    } catch (calm::error const& e) {
        std::printf("%s\n", e.what());
    }
}
