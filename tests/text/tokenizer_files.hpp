#pragma once
// tokenizer.json files for tests, written from a vocabulary.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "calm/base/quoted.hpp"
#include "calm/text/detail/byte_letters.hpp"
#include "calm/text/detail/pretokenizer.hpp"
#include "calm/text/detail/token_table.hpp"

namespace calm::test {

using detail::json_string;

// The values of the keys of a tokenizer.json as JSON text; empty ones are left out.
struct tokenizer_json_text {
    std::string added_tokens = "[]";
    std::string normalizer = "null";
    std::string pre_tokenizer =
        R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)" + json_string(piece_pattern) +
        R"(},"behavior":"Isolated","invert":false},)"
        R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})";
    std::string post_processor =
        R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true})";
    std::string decoder = R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})";
    std::string more;  // more keys of the file
    std::string type = "\"BPE\"";
    std::string unk_token = "null";
    std::string dropout = "null";
    std::string byte_fallback = "false";
    std::string ignore_merges = "true";
    std::string vocab;
    std::string merges = "[]";
    std::string more_of_model;

    [[nodiscard]] std::string text() const {
        std::string out;
        auto const key = [&](std::string_view name, std::string const& value) {
            if (!value.empty()) out += (out.back() == '{' ? "" : ",") + json_string(name) + ":" + value;
        };
        out = "{";
        key("version", "\"1.0\"");
        key("truncation", "null");
        key("padding", "null");
        key("added_tokens", added_tokens);
        key("normalizer", normalizer);
        key("pre_tokenizer", pre_tokenizer);
        key("post_processor", post_processor);
        key("decoder", decoder);
        out += more + ",\"model\":{";
        key("type", type);
        key("dropout", dropout);
        key("unk_token", unk_token);
        key("continuing_subword_prefix", "null");
        key("end_of_word_suffix", "\"\"");
        key("fuse_unk", "false");
        key("byte_fallback", byte_fallback);
        key("ignore_merges", ignore_merges);
        key("vocab", vocab);
        key("merges", merges);
        return out + more_of_model + "}}";
    }
};

// {"a":0,...} with the tokens below `size`.
inline std::string json_vocab(detail::token_table const& table, token_id size) {
    std::string out = "{";
    for (token_id id = 0; id < size; ++id)
        out += (id > 0 ? "," : "") + json_string(letters_of_bytes(table.bytes(id))) + ":" + std::to_string(id);
    return out + "}";
}

// The standard conversion of ranks: all splits of each token into two tokens, ordered by token, then by its parts.
inline std::string json_merges(detail::token_table const& table, token_id size, bool as_pairs) {
    std::string out = "[";
    for (token_id id = 0; id < size; ++id) {
        std::string_view const token = table.bytes(id);
        std::vector<std::tuple<token_id, token_id>> cuts;
        for (std::size_t cut = 1; cut < token.size(); ++cut) {
            token_id const left = table.find(token.substr(0, cut));
            token_id const right = table.find(token.substr(cut));
            if (left >= 0 && right >= 0) cuts.emplace_back(left, right);
        }
        std::sort(cuts.begin(), cuts.end());
        for (auto const& [left, right] : cuts) {
            std::string const a = letters_of_bytes(table.bytes(left));
            std::string const b = letters_of_bytes(table.bytes(right));
            out += out.size() > 1 ? "," : "";
            out += as_pairs ? "[" + json_string(a) + "," + json_string(b) + "]" : json_string(a + " " + b);
        }
    }
    return out + "]";
}

inline std::string json_added(token_id id, std::string_view name, bool special = true, bool normalized = false) {
    return R"({"id":)" + std::to_string(id) + R"(,"content":)" + json_string(name) +
           R"(,"single_word":false,"lstrip":false,"rstrip":false,"normalized":)" + (normalized ? "true" : "false") +
           R"(,"special":)" + (special ? "true}" : "false}");
}

// BOS, EOS and PAD after `size` tokens, as in a vocabulary trained here.
inline std::string json_specials(token_id size) {
    return "[" + json_added(size, "<|begin_of_text|>") + "," + json_added(size + 1, "<|end_of_text|>") + "," +
           json_added(size + 2, "[PAD]") + "]";
}

// A complete file for a vocabulary trained here.
inline tokenizer_json_text json_of(detail::token_table const& table, bool as_pairs = false) {
    tokenizer_json_text file;
    file.added_tokens = json_specials(table.size());
    file.vocab = json_vocab(table, table.size());
    file.merges = json_merges(table, table.size(), as_pairs);
    return file;
}

}  // namespace calm::test
