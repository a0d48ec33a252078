#pragma once
/// \file
/// Baselines for every model: the scores of token frequencies (unigram) and of token-pair frequencies (bigram); see the
/// bigram reference in docs/mathematics/scores.md.
/// \shows{tests/text/bigram_test.cpp,closed_forms}

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/base/error.hpp"
#include "calm/base/token.hpp"

namespace calm {

/// Counts tokens and adjacent pairs of a token stream that is added in chunks. Memory grows with the number of distinct
/// pairs, not with the text.
class bigram_counts {
public:
    /// Two adjacent tokens and how often they occur.
    struct pair {
        token_id first;       ///< comes before
        token_id second;      ///< comes right after
        std::uint64_t count;  ///< at least 1
    };

    /// For tokens 0..V-1. With a large vocabulary, up to `waiting_at_most` pairs are buffered before sorting; this
    /// affects speed, not results.
    explicit bigram_counts(token_id vocabulary, std::size_t waiting_at_most = 4'000'000) :
        unigram_(static_cast<std::size_t>(std::max(vocabulary, 0))), waiting_at_most_(waiting_at_most) {
        if (unigram_.size() <= largest_square) square_.resize(unigram_.size() * unigram_.size());
    }

    /// Adds the tokens that follow those added before. Throws errc::data for an id outside the vocabulary.
    void add(std::span<token_id const> tokens) {
        for (token_id const id : tokens) {
            require(id >= 0 && static_cast<std::size_t>(id) < unigram_.size(), errc::data, "token id ", id,
                    " is outside the vocabulary of ", unigram_.size(), ": the tokens come from another tokenizer");
            auto const second = static_cast<std::uint64_t>(id);
            ++unigram_[second];
            if (last_ >= 0) count(static_cast<std::uint64_t>(last_), second);
            last_ = id;
        }
    }

    /// (V): how often each token occurs.
    [[nodiscard]] std::vector<std::uint64_t> const& unigram() const { return unigram_; }
    /// All pairs, ordered by first, then second; the counts end with it.
    [[nodiscard]] std::vector<pair> pairs() && {
        merge();
        auto all = std::move(pairs_);
        std::size_t const V = unigram_.size();
        for (std::size_t i = 0; i < square_.size(); ++i)
            if (square_[i] > 0) all.push_back({static_cast<token_id>(i / V), static_cast<token_id>(i % V), square_[i]});
        return all;
    }

private:
    static constexpr std::size_t largest_square = 2048;  // largest vocabulary with a dense table of pairs: 32 MiB

    void count(std::uint64_t first, std::uint64_t second) {
        if (!square_.empty()) {
            ++square_[first * unigram_.size() + second];
            return;
        }
        waiting_.push_back(first << 32 | second);
        if (waiting_.size() >= waiting_at_most_) merge();
    }

    // Merges the buffered pairs into the counted ones.
    void merge() {
        std::sort(waiting_.begin(), waiting_.end());
        auto const number = [](pair const& p) {
            return static_cast<std::uint64_t>(p.first) << 32 | static_cast<std::uint64_t>(p.second);
        };
        std::vector<pair> all;
        auto counted = pairs_.begin();
        for (std::size_t i = 0, j = 0; i < waiting_.size(); i = j) {
            while (j < waiting_.size() && waiting_[j] == waiting_[i]) ++j;
            for (; counted != pairs_.end() && number(*counted) < waiting_[i]; ++counted) all.push_back(*counted);
            std::uint64_t count = j - i;
            if (counted != pairs_.end() && number(*counted) == waiting_[i]) count += (counted++)->count;
            all.push_back(
                {static_cast<token_id>(waiting_[i] >> 32), static_cast<token_id>(waiting_[i] & 0xffffffffu), count});
        }
        all.insert(all.end(), counted, pairs_.end());
        pairs_ = std::move(all);
        waiting_.clear();
    }

    std::vector<std::uint64_t> unigram_;  // (V)
    std::size_t waiting_at_most_;
    std::vector<std::uint64_t> square_;   // (V, V); larger vocabularies use the next two
    std::vector<std::uint64_t> waiting_;  // pairs as first 2^32 + second
    std::vector<pair> pairs_;             // ordered
    token_id last_ = -1;
};

/// Sparse counts of tokens and adjacent pairs. As a model: Q(b | a) = count(a, b) / count(a, .). For a token a that
/// never has a successor, Q(b | a) = Q(b) = count(b) / count.
class bigram_table {
public:
    /// Brier-1..4 of one position.
    using brier_scores = std::array<double, 4>;

    /// Takes the counts, e.g. of the packed training corpus. Throws errc::data if there are none.
    explicit bigram_table(bigram_counts counts) : unigram_(counts.unigram()), pairs_(std::move(counts).pairs()) {
        require(std::any_of(unigram_.begin(), unigram_.end(), [](std::uint64_t count) { return count > 0; }),
                errc::data, "a bigram table needs at least one token");
        prepare();
    }
    /// Counts tokens of 0..V-1. Throws errc::data if there are none or an id is out of range.
    bigram_table(token_id vocabulary, std::span<token_id const> tokens) : bigram_table(counted(vocabulary, tokens)) {}

    /// V.
    [[nodiscard]] token_id vocabulary_size() const { return static_cast<token_id>(unigram_.size()); }
    /// Q(b).
    [[nodiscard]] double probability(token_id b) const { return static_cast<double>(unigram_[index(b)]) / total_; }

    /// Q(b | a).
    [[nodiscard]] double probability(token_id b, token_id a) const {
        auto const row = row_of(a);
        if (row.empty()) return probability(b);
        auto const found =
            std::lower_bound(row.begin(), row.end(), b, [](pair const& p, token_id id) { return p.second < id; });
        return found == row.end() || found->second != b ? 0.0
                                                        : static_cast<double>(found->count) / row_totals_[index(a)];
    }

    /// Brier-n of the next tokens y, n = 1..4: 2 Q(y_1)..Q(y_n) - (sum Q^2)^n.
    [[nodiscard]] brier_scores unigram_brier(std::span<token_id const, 4> y) const {
        brier_scores scores{};
        double joint = 1.0;
        double collision = 1.0;
        for (std::size_t n = 0; n < 4; ++n) {
            joint *= probability(y[n]);
            collision *= unigram_collision_;
            scores[n] = 2 * joint - collision;
        }
        return scores;
    }

    /// Brier-n of the next tokens y after `previous`, n = 1..4: 2 Q(y_1..y_n | previous) - sum over all x_1..x_n of
    /// Q(x_1..x_n | previous)^2.
    [[nodiscard]] brier_scores bigram_brier(token_id previous, std::span<token_id const, 4> y) const {
        brier_scores scores{};
        double joint = 1.0;
        token_id last = previous;
        for (std::size_t n = 0; n < 4; ++n) {
            joint *= probability(y[n], last);
            last = y[n];
            scores[n] = 2 * joint - collisions_[n][index(previous)];
        }
        return scores;
    }

    /// The counts, as in a file that load() reads.
    [[nodiscard]] std::string bytes() const {
        std::string bytes(magic);
        auto const put = [&](std::uint64_t value) {
            for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(value >> shift & 0xffu);
        };
        put(unigram_.size());
        put(pairs_.size());
        for (std::uint64_t const count : unigram_) put(count);
        for (auto const& [first, second, count] : pairs_) put(index(first) << 32 | index(second)), put(count);
        return bytes;
    }
    /// Writes bytes() to a file, atomically. Throws errc::storage on failure.
    void save(std::string const& path) const { replace_file(path, bytes()); }

    /// Reads a file written by save(). Throws errc::storage if it cannot be opened, errc::data if it is damaged.
    [[nodiscard]] static bigram_table load(std::string const& path);

private:
    using pair = bigram_counts::pair;

    static bigram_counts counted(token_id vocabulary, std::span<token_id const> tokens) {
        bigram_counts counts(vocabulary);
        counts.add(tokens);
        return counts;
    }

    static constexpr char magic[] = "calm bigram 1\n\n";

    bigram_table() = default;

    static std::size_t index(token_id id) { return static_cast<std::size_t>(id); }

    [[nodiscard]] std::span<pair const> row_of(token_id a) const {
        return std::span(pairs_).subspan(rows_[index(a)], rows_[index(a) + 1] - rows_[index(a)]);
    }

    // Computes totals, and s_n = (Q squared element-wise)^n 1 for every previous token; a token without successors uses
    // the unigram distribution.
    void prepare() {
        std::size_t const V = unigram_.size();
        rows_.assign(V + 1, 0);
        row_totals_.assign(V, 0.0);
        total_ = 0.0;
        for (std::uint64_t const count : unigram_) total_ += static_cast<double>(count);
        for (auto const& [first, second, count] : pairs_) {
            ++rows_[index(first) + 1];
            row_totals_[index(first)] += static_cast<double>(count);
        }
        for (std::size_t a = 0; a < V; ++a) rows_[a + 1] += rows_[a];
        std::vector<double> shorter(V, 1.0);
        for (auto& longer : collisions_) {
            double fallback = 0.0;
            for (std::size_t b = 0; b < V; ++b) {
                double const q = static_cast<double>(unigram_[b]) / total_;
                fallback += q * q * shorter[b];
            }
            longer.assign(V, fallback);
            for (std::size_t a = 0; a < V; ++a) {
                if (rows_[a] == rows_[a + 1]) continue;
                double sum = 0.0;
                for (std::size_t i = rows_[a]; i < rows_[a + 1]; ++i) {
                    double const q = static_cast<double>(pairs_[i].count) / row_totals_[a];
                    sum += q * q * shorter[index(pairs_[i].second)];
                }
                longer[a] = sum;
            }
            shorter = longer;
        }
        unigram_collision_ = 0.0;
        for (std::uint64_t const count : unigram_) {
            double const q = static_cast<double>(count) / total_;
            unigram_collision_ += q * q;
        }
    }

    std::vector<std::uint64_t> unigram_;             // (V)
    std::vector<pair> pairs_;                        // ordered by first, then second
    std::vector<std::size_t> rows_;                  // (V + 1): start of the pairs of each first token
    std::vector<double> row_totals_;                 // (V)
    std::array<std::vector<double>, 4> collisions_;  // s_1..s_4, (V)
    double total_ = 0.0;
    double unigram_collision_ = 0.0;
};

inline bigram_table bigram_table::load(std::string const& path) {
    auto const file = mapped_file::open(path);
    std::string_view const bytes = file.text();
    std::size_t at = std::size(magic) - 1;
    auto const fail = [&](std::string const& found) {
        throw error(errc::data, path, "byte " + std::to_string(at),
                    found + ": the bigram table is damaged, write it again");
    };
    auto const get = [&] {
        if (bytes.size() - at < 8) fail("the file ends early");
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < 8; ++i)
            value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
        at += 8;
        return value;
    };
    if (!bytes.starts_with(magic)) at = 0, fail("the file does not begin like a bigram table");
    std::uint64_t const V = get();
    std::uint64_t const pairs = get();
    std::uint64_t const words = (bytes.size() - at) / 8;
    if (V == 0 || V > words || V > 0x7fffffffu || pairs > words || (bytes.size() - at) % 8 != 0 ||
        V + 2 * pairs != words)
        fail("the sizes " + std::to_string(V) + " and " + std::to_string(pairs) + " do not fit a file of " +
             std::to_string(bytes.size()) + " bytes");
    bigram_table table;
    std::uint64_t total = 0;
    auto const get_count = [&](std::uint64_t least) {
        std::uint64_t const count = get();
        if (count < least || count > (std::uint64_t{1} << 62) - total)
            fail("the count " + std::to_string(count) + " is impossible");
        total += count;
        return count;
    };
    for (std::uint64_t i = 0; i < V; ++i) table.unigram_.push_back(get_count(0));
    if (total == 0) fail("no token was counted");
    total = 0;
    std::uint64_t before = 0;
    for (std::uint64_t i = 0; i < pairs; ++i) {
        std::uint64_t const both = get();
        if ((i > 0 && both <= before) || both >> 32 >= V || (both & 0xffffffffu) >= V)
            fail("a pair is out of order or range");
        before = both;
        table.pairs_.push_back(
            {static_cast<token_id>(both >> 32), static_cast<token_id>(both & 0xffffffffu), get_count(1)});
    }
    // Every token but the last one begins a pair, and every token but the first one ends one.
    auto begin = table.unigram_, end = table.unigram_;
    for (auto const& [first, second, count] : table.pairs_) {
        if (begin[index(first)] < count || end[index(second)] < count)
            fail("pairs hold a token more often than it was counted");
        begin[index(first)] -= count;
        end[index(second)] -= count;
    }
    auto const left = [](std::vector<std::uint64_t> const& counts) {
        return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    };
    if (left(begin) != 1 || left(end) != 1) fail("a token was counted more often than pairs hold it");
    table.prepare();
    return table;
}

}  // namespace calm
