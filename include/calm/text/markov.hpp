#pragma once
/// \file
/// A source with a known exact distribution, to measure models against the optimum: a Markov chain of few symbols.
/// \shows{tests/text/markov_test.cpp,a_seed_names_a_chain_and_the_splits_share_it}

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "calm/base/random.hpp"
#include "calm/base/token.hpp"
#include "calm/text/holdout.hpp"

namespace calm {

/// The characters of the symbols 0..63, in order.
inline constexpr std::string_view markov_alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";

/// A Markov chain of 64 symbols, each with 4 distinct successors. Their weights are u^2 + 0.05, u uniform in [0, 1),
/// normalised. The data seed determines the chain: the first attempt (stream::markov_chain at the attempt's step) in
/// which every symbol reaches every other.
class markov_chain {
public:
    static constexpr std::size_t symbols = markov_alphabet.size();  ///< 64
    static constexpr std::size_t successors = 4;                    ///< per symbol

    /// A possible successor of a symbol.
    struct successor {
        token_id symbol = 0;     ///< in 0 .. 63
        double probability = 0;  ///< above 0; a row sums to 1
    };
    using row = std::array<successor, successors>;  ///< all successors of one symbol

    /// The chain of a data seed, with its stationary distribution.
    explicit markov_chain(std::uint64_t data_seed) : seed_(data_seed) {
        for (std::uint32_t attempt = 0; attempt == 0 || !is_connected(); ++attempt) draw_rows(attempt);
        find_stationary();
    }

    /// The successors of a symbol, ordered by symbol, each with positive probability.
    [[nodiscard]] row const& after(token_id symbol) const { return rows_[index(symbol)]; }
    /// P(next | symbol).
    [[nodiscard]] double probability(token_id next, token_id symbol) const {
        for (auto const& one : after(symbol))
            if (one.symbol == next) return one.probability;
        return 0.0;
    }
    /// The stationary probability of a symbol.
    [[nodiscard]] double stationary(token_id symbol) const { return stationary_[index(symbol)]; }

    /// The first `length` symbols, as characters, of an unbroken stream that starts from the stationary distribution.
    /// The splits have separate random numbers (stream::markov_text at step `of`).
    [[nodiscard]] std::string text(split of, std::size_t length) const {
        random_sequence random({seed_, stream::markov_text, static_cast<std::uint32_t>(of)});
        std::string symbols_drawn;
        symbols_drawn.reserve(length);
        std::size_t at = 0;
        for (std::size_t i = 0; i < length; ++i) {
            double left = static_cast<double>(random.next()) * 0x1p-32;
            if (i == 0) {
                while (at + 1 < symbols && left >= stationary_[at]) left -= stationary_[at++];
            } else {
                row const& next = rows_[at];
                std::size_t s = 0;
                while (s + 1 < successors && left >= next[s].probability) left -= next[s++].probability;
                at = index(next[s].symbol);
            }
            symbols_drawn += markov_alphabet[at];
        }
        return symbols_drawn;
    }

    /// Brier-1..4 of the source itself, the highest expected score of any model. The expected score of the true
    /// distribution is its sum of squares: for n symbols after symbol a it is (Q^n 1)(a), where Q holds the squared
    /// transition probabilities. The mean is over the stationary distribution.
    [[nodiscard]] std::array<double, 4> optimal_brier() const {
        std::array<double, 4> scores{};
        std::array<double, symbols> power{};
        power.fill(1.0);
        for (double& score : scores) {
            std::array<double, symbols> next{};
            for (std::size_t a = 0; a < symbols; ++a) {
                for (auto const& [b, p] : rows_[a]) next[a] += p * p * power[index(b)];
                score += stationary_[a] * next[a];
            }
            power = next;
        }
        return scores;
    }

private:
    static std::size_t index(token_id symbol) { return static_cast<std::size_t>(symbol); }

    void draw_rows(std::uint32_t attempt) {
        random_sequence random({seed_, stream::markov_chain, attempt});
        for (row& drawn : rows_) {
            std::array<bool, symbols> taken{};
            for (std::size_t found = 0; found < successors;) {
                bool& is_taken = taken[random.below(symbols)];
                found += !is_taken;
                is_taken = true;
            }
            double sum = 0;
            std::size_t s = 0;
            for (std::size_t b = 0; b < symbols; ++b) {
                if (!taken[b]) continue;
                double const u = static_cast<double>(random.uniform());
                drawn[s++] = {static_cast<token_id>(b), u * u + 0.05};
                sum += u * u + 0.05;
            }
            for (auto& one : drawn) one.probability /= sum;
        }
    }

    // Whether symbol 0 reaches every symbol, and every symbol reaches symbol 0.
    [[nodiscard]] bool is_connected() const {
        auto const reaches_all = [&](bool backwards) {
            std::array<bool, symbols> reached{};
            reached[0] = true;
            for (std::size_t round = 1; round < symbols; ++round)
                for (std::size_t a = 0; a < symbols; ++a)
                    for (auto const& one : rows_[a]) {
                        std::size_t const b = index(one.symbol);
                        if (backwards ? reached[b] : reached[a]) reached[a] = reached[b] = true;
                    }
            for (bool const one : reached)
                if (!one) return false;
            return true;
        };
        return reaches_all(false) && reaches_all(true);
    }

    // Grassmann, Taksar and Heyman 1985: removes symbols one by one from the end and redirects their flow to the rest.
    // Nothing is subtracted, so it is exact up to rounding.
    void find_stationary() {
        std::vector<std::array<double, symbols>> flow(symbols);
        for (std::size_t a = 0; a < symbols; ++a)
            for (auto const& [b, p] : rows_[a]) flow[a][index(b)] = p;
        for (std::size_t n = symbols - 1; n > 0; --n) {
            double out = 0;
            for (std::size_t b = 0; b < n; ++b) out += flow[n][b];
            for (std::size_t a = 0; a < n; ++a) {
                flow[a][n] /= out;
                for (std::size_t b = 0; b < n; ++b) flow[a][b] += flow[a][n] * flow[n][b];
            }
        }
        double sum = stationary_[0] = 1.0;
        for (std::size_t n = 1; n < symbols; ++n) {
            stationary_[n] = 0.0;
            for (std::size_t a = 0; a < n; ++a) stationary_[n] += stationary_[a] * flow[a][n];
            sum += stationary_[n];
        }
        for (double& share : stationary_) share /= sum;
    }

    std::uint64_t seed_;
    std::array<row, symbols> rows_{};
    std::array<double, symbols> stationary_{};
};

}  // namespace calm
