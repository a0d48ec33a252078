#include "run/advice.hpp"

#include <algorithm>
#include <string_view>

#include "calm/text/tokenizer.hpp"
#include "run/report.hpp"

namespace calm::apps {

namespace {

using calm_sizes = configuration<any_head>;

// The head that learned context soonest.
constexpr std::string_view soonest = "drafted";

// " (--config NAME)" of the first compiled CALM that satisfies the predicate, else a reference to the documentation.
template <class Wanted> std::string named(std::vector<entry> const& compiled, Wanted const& wanted) {
    auto const found = std::find_if(compiled.begin(), compiled.end(), [&](entry const& each) {
        return !each.is_autoregressive() && wanted(each.calm());
    });
    return " (" + (found == compiled.end() ? "docs/configurations.md" : "--config " + found->name) + ")";
}

std::string another_head(calm_sizes const& c, std::vector<entry> const& compiled) {
    if (c.head.name() == soonest) return {};
    auto const same_autoencoder = [&](calm_sizes const& other) {
        return other.head.name() == soonest && other.autoencoder == c.autoencoder;
    };
    return "the " + std::string(soonest) + " head on the same autoencoder" + named(compiled, same_autoencoder);
}

std::string smaller_patches(calm_sizes const& c, std::vector<entry> const& compiled) {
    if (c.autoencoder.patch_size <= 2) return {};
    auto const of_two = [&](calm_sizes const& other) {
        return other.autoencoder.patch_size == 2 && other.hidden_size == c.hidden_size &&
               other.head.name() == c.head.name();
    };
    return "patches of 2 tokens" + named(compiled, of_two);
}

}  // namespace

std::string what_helps(entry const& one, index_t V, std::vector<entry> const& compiled, std::string const& command) {
    std::vector<std::string> all;
    if (!one.is_autoregressive()) {
        all.push_back(another_head(one.calm(), compiled));
        all.emplace_back("an autoencoder trained on this text");
        all.push_back(smaller_patches(one.calm(), compiled));
    }
    if (V > tokenizer::byte_vocabulary)
        all.push_back(sentence("a vocabulary of bytes (", command, " --vocabulary ", tokenizer::byte_vocabulary, ")"));
    all.emplace_back("more time");
    std::erase(all, "");
    std::string list;
    for (auto const& each : all) list += (list.empty() ? "" : &each == &all.back() ? " and " : ", ") + each;
    if (one.is_autoregressive()) return list;
    if (V > tokenizer::byte_vocabulary)
        list += "; with a BPE of 512 tokens, learning rate, batch and samples changed little";
    if (V == tokenizer::byte_vocabulary) list += "; on bytes a learning rate of 1e-3 worked where 1.5e-3 did not";
    return list;
}

std::string no_context_sentence(double brier_1, double unigram_brier_1, std::string const& helps) {
    return formatted("a fifth of the run is done and Brier-1 on held-out text is %.4f, not above the unigram's %.4f: "
                     "the model has learned no context yet. Watch the next evaluations. If it learns none, these have "
                     "helped before: ",
                     brier_1, unigram_brier_1) +
           helps;
}

}  // namespace calm::apps
