#pragma once
// Learning byte-pair merges from text.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "calm/text/pretokenizer.hpp"
#include "calm/text/token_table.hpp"

namespace calm {

// Counts the pieces of documents and merges the most frequent pair again and again. The result depends on the counts of
// pieces alone: neither on the order of the documents nor on how they were added.
class bpe_trainer {
public:
    // Adds a document. Memory grows with the number of distinct pieces.
    void add(std::string_view document) {
        pattern_->cut(document, [&](std::string_view piece) {
            if (piece.size() < 2) return;
            if (auto const found = pieces_.find(piece); found != pieces_.end()) {
                ++found->second;
            } else {
                pieces_.emplace(piece, 1);
            }
        });
    }

    // The 256 bytes in numeric order, then up to `merges` tokens: each joins the pair of neighbours that is most
    // frequent inside the pieces, of equals the lower pair of ids. Fewer when no pair is left that has at most 1 MiB.
    [[nodiscard]] token_table train(token_id merges) const {
        state s(pieces_);
        token_table table;
        for (int byte = 0; byte < 256; ++byte) table.add(std::string(1, static_cast<char>(byte)));
        while (table.size() < 256 + merges && s.merge_best(table)) {
        }
        return table;
    }

private:
    static constexpr std::size_t longest = std::size_t{1} << 20;  // as long as a token in a file may be

    using pair_key = std::uint64_t;  // left id, right id: its order is the order of pairs

    struct candidate {
        std::int64_t count;
        pair_key pair;
        bool operator<(candidate const& other) const {
            return count != other.count ? count < other.count : pair > other.pair;
        }
    };

    struct pair_entry {
        std::int64_t count = 0;
        std::vector<std::uint32_t> words;  // where the pair may be found, with repetitions
    };

    // The words as they are merged so far. A word's contribution is taken out, the word rewritten, and put back; only
    // pairs with the new token can grow, so only those are offered to the heap, and stale counts are met when popped.
    class state {
    public:
        explicit state(std::map<std::string, std::int64_t, std::less<>> const& pieces) {
            for (auto const& [piece, count] : pieces) {
                std::vector<token_id> ids;
                for (char const c : piece) ids.push_back(static_cast<unsigned char>(c));
                words_.push_back(std::move(ids));
                counts_.push_back(count);
                count_pairs(words_.size() - 1, 1, [](pair_key) { return true; });
            }
            for (auto const& [pair, entry] : pairs_) heap_.push({entry.count, pair});
        }

        // Merges the most frequent pair into a new token of the table; false if there is none.
        bool merge_best(token_table& table) {
            while (!heap_.empty()) {
                candidate const best = heap_.top();
                heap_.pop();
                auto const found = pairs_.find(best.pair);
                if (found == pairs_.end()) continue;
                if (found->second.count != best.count) {
                    if (found->second.count > 0) heap_.push({found->second.count, best.pair});
                    continue;
                }
                auto const left = static_cast<token_id>(best.pair >> 32);
                auto const right = static_cast<token_id>(best.pair & 0xffffffffu);
                if (table.bytes(left).size() + table.bytes(right).size() > longest) continue;
                token_id const merged = table.add(std::string(table.bytes(left)) + std::string(table.bytes(right)));
                std::vector<std::uint32_t> const where = std::move(found->second.words);
                merge_in(where, left, right, merged);
                pairs_.erase(best.pair);
                return true;
            }
            return false;
        }

    private:
        static pair_key key_of(token_id left, token_id right) {
            return static_cast<pair_key>(left) << 32 | static_cast<pair_key>(right);
        }

        // Adds sign times the pairs of a word; notes the word at the pairs that `is_new` names.
        template <class IsNew> void count_pairs(std::size_t word, std::int64_t sign, IsNew is_new) {
            std::vector<token_id> const& ids = words_[word];
            for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
                pair_key const pair = key_of(ids[i], ids[i + 1]);
                pair_entry& entry = pairs_[pair];
                entry.count += sign * counts_[word];
                if (is_new(pair) && (entry.words.empty() || entry.words.back() != word))
                    entry.words.push_back(static_cast<std::uint32_t>(word));
            }
        }

        void merge_in(std::vector<std::uint32_t> const& where, token_id left, token_id right, token_id merged) {
            auto const never = [](pair_key) { return false; };
            auto const touches = [&](pair_key pair) {
                return static_cast<token_id>(pair >> 32) == merged ||
                       static_cast<token_id>(pair & 0xffffffffu) == merged;
            };
            std::vector<pair_key> grown;
            for (std::uint32_t const word : where) {
                std::vector<token_id>& ids = words_[word];
                std::size_t hits = 0;
                for (std::size_t i = 0; i + 1 < ids.size(); ++i) hits += ids[i] == left && ids[i + 1] == right;
                if (hits == 0) continue;
                count_pairs(word, -1, never);
                std::size_t out = 0;
                for (std::size_t i = 0; i < ids.size(); ++i) {
                    bool const hit = i + 1 < ids.size() && ids[i] == left && ids[i + 1] == right;
                    ids[out++] = hit ? merged : ids[i];
                    i += hit;
                }
                ids.resize(out);
                count_pairs(word, 1, touches);
                for (std::size_t i = 0; i + 1 < ids.size(); ++i)
                    if (touches(key_of(ids[i], ids[i + 1]))) grown.push_back(key_of(ids[i], ids[i + 1]));
            }
            std::sort(grown.begin(), grown.end());
            grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
            for (pair_key const pair : grown) heap_.push({pairs_[pair].count, pair});
        }

        std::vector<std::vector<token_id>> words_;
        std::vector<std::int64_t> counts_;
        std::unordered_map<pair_key, pair_entry> pairs_;
        std::priority_queue<candidate> heap_;
    };

    std::shared_ptr<pretokenizer const> pattern_ = pretokenizer::shared();
    std::map<std::string, std::int64_t, std::less<>> pieces_;  // ordered: words are numbered alike every time
};

}  // namespace calm
