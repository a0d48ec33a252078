#include "text/tokenizer_json_writer.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "calm/base/detail/file.hpp"
#include "calm/base/error.hpp"
#include "calm/runs/model_tokenizer.hpp"
#include "calm/text/detail/byte_letters.hpp"

namespace calm::apps {

namespace {

constexpr char const* name_of_bos = "<|begin_of_text|>";
constexpr char const* name_of_eos = "<|end_of_text|>";
constexpr char const* name_of_pad = "[PAD]";

nlohmann::json special_entry(token_id id, char const* name) {
    return {{"id", id},        {"content", name},     {"single_word", false}, {"lstrip", false},
            {"rstrip", false}, {"normalized", false}, {"special", true}};
}

// Whether BOS, EOS and PAD follow the ranks of a file of lines, as in vocabularies trained here.
bool is_of_ranks(tokenizer const& tokenizer) {
    return tokenizer.file_name() == "tokenizer.model" && tokenizer.eos() == tokenizer.bos() + 1 &&
           tokenizer.pad() == tokenizer.bos() + 2;
}

// All ways to make each token of two, in the order of the tokens and then of their parts. A list of merges ranks pairs,
// lines rank tokens; so every pair of a token has its rank.
nlohmann::json merges_of(tokenizer const& tokenizer, std::unordered_map<std::string_view, token_id> const& ids) {
    auto merges = nlohmann::json::array();
    for (token_id id = 0; id < tokenizer.bos(); ++id) {
        auto const token = tokenizer.bytes(id);
        std::vector<std::pair<token_id, token_id>> cuts;
        for (std::size_t cut = 1; cut < token.size(); ++cut) {
            auto const left = ids.find(token.substr(0, cut));
            auto const right = ids.find(token.substr(cut));
            if (left != ids.end() && right != ids.end()) cuts.emplace_back(left->second, right->second);
        }
        std::sort(cuts.begin(), cuts.end());
        for (auto const& [left, right] : cuts)
            merges.push_back(letters_of_bytes(tokenizer.bytes(left)) + " " + letters_of_bytes(tokenizer.bytes(right)));
    }
    return merges;
}

}  // namespace

std::string tokenizer_json_of(tokenizer const& tokenizer) {
    require(is_of_ranks(tokenizer), errc::usage, "expected a tokenizer that train tokenizer wrote, found another one");
    std::unordered_map<std::string_view, token_id> ids;
    auto vocabulary = nlohmann::json::object();
    for (token_id id = 0; id < tokenizer.bos(); ++id) {
        ids.emplace(tokenizer.bytes(id), id);
        vocabulary[letters_of_bytes(tokenizer.bytes(id))] = id;
    }
    nlohmann::json const byte_level{
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
    nlohmann::json const split{
        {"type", "Split"}, {"pattern", {{"Regex", tokenizer.pattern()}}}, {"behavior", "Isolated"}, {"invert", false}};
    nlohmann::json const bos{{"SpecialToken", {{"id", name_of_bos}, {"type_id", 0}}}};
    auto const text_of = [](char const* which, int type) {
        return nlohmann::json{{"Sequence", {{"id", which}, {"type_id", type}}}};
    };
    nlohmann::json file;
    file["version"] = "1.0";
    file["truncation"] = nullptr;
    file["padding"] = nullptr;
    file["added_tokens"] =
        nlohmann::json::array({special_entry(tokenizer.bos(), name_of_bos), special_entry(tokenizer.eos(), name_of_eos),
                               special_entry(tokenizer.pad(), name_of_pad)});
    file["normalizer"] = nullptr;
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", nlohmann::json::array({split, byte_level})}};
    file["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", nlohmann::json::array({bos, text_of("A", 0)})},
                              {"pair", nlohmann::json::array({bos, text_of("A", 0), text_of("B", 1)})},
                              {"special_tokens",
                               {{name_of_bos,
                                 {{"id", name_of_bos},
                                  {"ids", nlohmann::json::array({tokenizer.bos()})},
                                  {"tokens", nlohmann::json::array({name_of_bos})}}}}}};
    file["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
    file["model"] = {{"type", "BPE"},
                     {"dropout", nullptr},
                     {"unk_token", nullptr},
                     {"continuing_subword_prefix", nullptr},
                     {"end_of_word_suffix", nullptr},
                     {"fuse_unk", false},
                     {"byte_fallback", false},
                     {"ignore_merges", true},
                     {"vocab", std::move(vocabulary)},
                     {"merges", merges_of(tokenizer, ids)}};
    return file.dump(1) + "\n";
}

std::string tokenizer_config_json() {
    nlohmann::json const settings{{"tokenizer_class", "PreTrainedTokenizerFast"},
                                  {"bos_token", name_of_bos},
                                  {"eos_token", name_of_eos},
                                  {"pad_token", name_of_pad},
                                  {"add_bos_token", true},
                                  {"clean_up_tokenization_spaces", false}};
    return settings.dump(1) + "\n";
}

bool write_tokenizer_json(stored_model const& model, std::string const& directory) {
    auto const& ours = model.description.calm;
    auto const path = in_directory(directory, "tokenizer.json");
    if (model.description.kind != model_kind::autoregressive || !ours || !ours->tokenizer || is_there(path))
        return false;
    auto const tokenizer = load_tokenizer(model);
    if (!is_of_ranks(tokenizer)) return false;
    replace_file(in_directory(directory, "tokenizer_config.json"), tokenizer_config_json());
    replace_file(path, tokenizer_json_of(tokenizer));
    return true;
}

void add_special_ids(stored_model& model) {
    auto& d = model.description;
    if (d.bos_token_id || !d.eos_token_id.empty() || d.pad_token_id || !d.calm || !d.calm->tokenizer) return;
    if (is_there(tokenizer_file_of(model))) set_special_ids(d, load_tokenizer(model).specials());
}

}  // namespace calm::apps
