#pragma once
// Hugging Face's tokenizer.json: byte-level BPE. Settings that would change ids and are not supported are refused.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "calm/text/byte_letters.hpp"
#include "calm/text/json_size.hpp"
#include "calm/text/json_values.hpp"
#include "calm/text/merge_list.hpp"
#include "calm/text/merge_order.hpp"
#include "calm/text/pretokenizer.hpp"
#include "calm/text/vocabulary.hpp"

namespace calm {

namespace detail {

// Reads one file.
class tokenizer_json_reader : json_values {
public:
    explicit tokenizer_json_reader(std::string path) : json_values(std::move(path)) {}

    [[nodiscard]] vocabulary read(std::string_view json) {
        require_tokenizer_size(path(), json.size());
        if (!json_has_at_most(json, most_values))
            fail("", "expected at most " + std::to_string(most_values) +
                         " values and signs, found more: the file is of another kind");
        if (json.starts_with("\xef\xbb\xbf")) json.remove_prefix(3);
        simdjson::padded_string const padded(json);
        element root;
        if (auto const code = parser_.parse(padded).get(root); code != simdjson::SUCCESS)
            fail("", std::string("invalid JSON (") + simdjson::error_message(code) +
                         "): expected one object; the file is damaged, copy it again");
        object const file = as_object(root, "the file");
        // Ignored: padding, truncation and post_processor. Adding or cutting ids is up to the caller.
        only(file, "",
             {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
              "decoder", "model"});
        absent(file, "", "normalizer");
        if (auto const decoder = find(file, "decoder"); decoder && !decoder->is_null())
            expect(type_of(as_object(*decoder, "decoder"), "decoder"), "decoder.type", "ByteLevel");
        v_.pattern = read_pattern(file);
        object const model = as_object(present(file, "", "model"), "model");
        check_model(model);
        read_tokens(file, model);
        read_merges(model);
        return std::move(v_);
    }

private:
    // A token takes four values (name, colon, id, comma) and a merge up to six: over twice what 300,000 tokens need.
    static constexpr std::size_t most_values = std::size_t{8} << 20;

    struct added_token {
        token_id id;
        std::string place;
        bool in_vocabulary = false;
    };

    // ByteLevel alone cuts as GPT-2 does; after a Split it only maps bytes to characters.
    std::shared_ptr<pretokenizer const> read_pattern(object file) const {
        std::string const place = "pre_tokenizer";
        object const whole = as_object(present(file, "", place), place);
        if (type_of(whole, place) != "Sequence") {
            check_byte_level(whole, place, true);
            return std::make_shared<pretokenizer const>(gpt2_pattern);
        }
        only(whole, place, {"type", "pretokenizers"});
        std::string const list_place = place + ".pretokenizers";
        std::vector<element> steps;
        for (element const step : as_array(present(whole, place, "pretokenizers"), list_place)) steps.push_back(step);
        if (steps.empty() || steps.size() > 2)
            fail(list_place, "expected Split and ByteLevel, found a list of " + std::to_string(steps.size()));
        check_byte_level(as_object(steps.back(), at(list_place, steps.size() - 1)), at(list_place, steps.size() - 1),
                         steps.size() == 1);
        if (steps.size() == 1) return std::make_shared<pretokenizer const>(gpt2_pattern);
        return read_split(as_object(steps[0], at(list_place, 0)), at(list_place, 0));
    }

    void check_byte_level(object o, std::string const& place, bool cuts) const {
        expect(type_of(o, place), place + ".type", "ByteLevel");
        only(o, place, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
        flag_is(o, place, "add_prefix_space", true, false);
        flag_is(o, place, "use_regex", true, cuts);
    }

    std::shared_ptr<pretokenizer const> read_split(object o, std::string const& place) const {
        expect(type_of(o, place), place + ".type", "Split");
        only(o, place, {"type", "pattern", "behavior", "invert"});
        expect(as_string(present(o, place, "behavior"), place + ".behavior"), place + ".behavior", "Isolated");
        flag_is(o, place, "invert", false, false);
        std::string const inner = place + ".pattern";
        object const pattern = as_object(present(o, place, "pattern"), inner);
        only(pattern, inner, {"Regex"});
        auto const regex = as_string(present(pattern, inner, "Regex"), inner + ".Regex");
        if (regex == piece_pattern) return pretokenizer::shared();
        try {
            return std::make_shared<pretokenizer const>(regex);
        } catch (error const& e) {
            fail(inner + ".Regex", e.what());
        }
    }

    void check_model(object model) {
        std::string const place = "model";
        only(model, place,
             {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"});
        if (find(model, "type")) expect(type_of(model, place), "model.type", "BPE");  // old files omit it
        absent(model, place, "dropout");
        absent(model, place, "unk_token");
        for (auto const* key : {"continuing_subword_prefix", "end_of_word_suffix"})
            if (auto const e = find(model, key); e && !e->is_null())
                expect(as_string(*e, joined(place, key)), joined(place, key), "");
        flag_is(model, place, "fuse_unk", false, false);
        flag_is(model, place, "byte_fallback", false, false);
        v_.whole_pieces = flag(model, place, "ignore_merges", false);
    }

    template <class Place> token_id read_id(element e, std::size_t limit, Place const& place) const {
        std::uint64_t id = 0;
        if (e.get(id) != simdjson::SUCCESS || id >= limit)
            fail_kind(place(), "an id below " + std::to_string(limit) + ", the number of tokens", e);
        return static_cast<token_id>(id);
    }

    // The token that has an id.
    struct token_name {
        std::string_view name;
        bool special = false;
        bool given = false;
    };

    // Reads the ids 0 .. V-1, each assigned once, to a token of model.vocab or to a special token.
    void read_tokens(object file, object model) {
        object const vocab = as_object(present(model, "model", "vocab"), "model.vocab");
        std::size_t limit = 0;
        for ([[maybe_unused]] auto const field : vocab) ++limit;
        auto added = read_added(file, limit);
        if (limit + added.size() >= limits::vocabulary)  // a PAD may follow
            fail("model.vocab", "expected fewer than " + std::to_string(limits::vocabulary) + " tokens, found " +
                                    std::to_string(limit + added.size()) + " with those added");
        std::vector<token_name> tokens(limit + added.size());
        auto const give = [&](token_id id, std::string_view name, bool special, auto const& place) {
            token_name& t = tokens[static_cast<std::size_t>(id)];
            if (t.given)
                fail(place(), "expected a unique id, found " + std::to_string(id) + ", which is also the id of " +
                                  in_quotes(t.name, '"'));
            t = {name, special, true};
        };
        for (auto const field : vocab) {
            auto const place = [&] { return "model.vocab[" + in_quotes(field.key, '"') + "]"; };
            token_id const id = read_id(field.value, tokens.size(), place);
            auto const special = added.find(field.key);
            if (special != added.end()) {
                if (special->second.in_vocabulary) fail(place(), "expected the key once, found it twice");
                special->second.in_vocabulary = true;
                if (special->second.id != id)
                    fail(place(), "expected the id of the added token, " + std::to_string(special->second.id) +
                                      ", found " + std::to_string(id));
            }
            give(id, field.key, special != added.end(), place);
        }
        std::size_t count = limit;
        for (auto const& [name, special] : added) {
            if (special.in_vocabulary) continue;
            give(special.id, name, true, [&, &where = special.place] { return where; });
            ++count;
        }
        add_tokens(std::span(tokens).first(count));
        name_specials(added);
    }

    // Adds the tokens by id; every id must be assigned.
    void add_tokens(std::span<token_name const> tokens) {
        for (std::size_t id = 0; id < tokens.size(); ++id) {
            token_name const& t = tokens[id];
            auto const place = [&] { return "model.vocab[" + in_quotes(t.name, '"') + "]"; };
            if (!t.given)
                fail("model.vocab", "expected a token with id " + std::to_string(id) +
                                        ", found none: ids of tokens "
                                        "and added tokens count up from 0");
            if (t.special) {
                v_.tokens.add_special();
                continue;
            }
            auto const bytes = bytes_of_letters(t.name);
            if (!bytes || bytes->empty())
                fail(place(), "expected a token in GPT-2's letters for bytes, found another character");
            if (bytes->size() > longest_token)
                fail(place(), "expected a token of at most " + std::to_string(longest_token) + " bytes, found " +
                                  std::to_string(bytes->size()));
            if (v_.tokens.add(*bytes) < 0) fail(place(), "expected the key once, found it twice: remove one");
        }
        if (int const byte = missing_byte(v_.tokens); byte >= 0)
            fail("model.vocab", "expected a token for each of the 256 bytes, found none for byte " +
                                    std::to_string(byte) + ": the vocabulary is not of bytes, or cut short");
    }

    // The added tokens by name. Text never matches them here, so added tokens that it would match are refused.
    std::map<std::string, added_token, std::less<>> read_added(object file, std::size_t others) const {
        std::map<std::string, added_token, std::less<>> added;
        auto const list = find(file, "added_tokens");
        if (!list) return added;
        array const all = as_array(*list, "added_tokens");
        std::size_t number = 0;
        for ([[maybe_unused]] element const e : all) ++number;
        std::size_t i = 0;
        for (element const e : all) {
            std::string const place = at("added_tokens", i++);
            object const o = as_object(e, place);
            only(o, place, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
            for (auto const* key : {"single_word", "lstrip", "rstrip", "normalized"}) (void)flag(o, place, key, false);
            flag_is(o, place, "special", false, true);
            auto const name = as_string(present(o, place, "content"), place + ".content");
            if (name.empty()) fail(place + ".content", "expected a name, found an empty string");
            token_id const id = read_id(present(o, place, "id"), others + number, [&] { return place + ".id"; });
            if (!added.emplace(name, added_token{id, place}).second)
                fail(place + ".content", "expected a unique name, found " + in_quotes(name, '"') + " twice");
        }
        return added;
    }

    // Finds BOS, EOS and PAD by their usual names; a vocabulary without PAD gets one more id.
    void name_specials(std::map<std::string, added_token, std::less<>> const& added) {
        auto const named = [&](std::string& name, std::initializer_list<char const*> usual) {
            for (auto const* candidate : usual)
                if (auto const found = added.find(candidate); found != added.end()) {
                    name = candidate;
                    return found->second.id;
                }
            return token_id{-1};
        };
        auto& [bos, eos, pad] = v_.names;
        v_.specials.bos = named(bos, {"<|begin_of_text|>", "<s>", "<|endoftext|>"});
        v_.specials.eos = named(eos, {"<|end_of_text|>", "</s>", "<|endoftext|>"});
        v_.specials.pad = named(pad, {"[PAD]", "<pad>"});
        if (v_.specials.bos < 0)
            fail("added_tokens",
                 "expected a beginning of text named <|begin_of_text|>, <s> or <|endoftext|>, found none");
        if (v_.specials.eos < 0)
            fail("added_tokens", "expected an end of text named <|end_of_text|>, </s> or <|endoftext|>, found none");
        if (v_.specials.pad < 0) v_.specials.pad = v_.tokens.add_special();
    }

    // Merges are "a b" or ["a", "b"], in merge order. The list is kept only if that is not the order of ids.
    void read_merges(object model) {
        merge_list merges;
        std::size_t i = 0;
        for (element const e : as_array(present(model, "model", "merges"), "model.merges")) {
            std::size_t const number = i++;
            auto const place = [&] { return at("model.merges", number); };
            auto const [left, right] = read_pair(e, place);
            auto const id_of_part = [&](std::string_view part) {
                auto const bytes = bytes_of_letters(part);
                token_id const id = bytes ? v_.tokens.find(*bytes) : -1;
                if (id < 0) fail(place(), "expected two tokens of model.vocab, found " + in_quotes(part, '"'));
                return id;
            };
            token_id const a = id_of_part(left);
            token_id const b = id_of_part(right);
            token_id const both = v_.tokens.find(std::string(v_.tokens.bytes(a)) + std::string(v_.tokens.bytes(b)));
            if (both < 0)
                fail(place(), "expected two tokens that together are one of model.vocab, found " +
                                  in_quotes(left, '"') + " and " + in_quotes(right, '"'));
            if (!merges.add(a, b, both))
                fail(place(), "expected each pair once, found the pair of model.merges[" +
                                  std::to_string(merges.rank(a, b)) + "] again");
        }
        auto const order = order_of(merges, v_.tokens);
        if (!order.by_id) {
            v_.merges = std::move(merges);
        } else if (order.all_reached) {
            v_.whole_pieces = true;  // merging a token's bytes gives the token: looking it up first changes nothing
        }
    }

    template <class Place>
    std::pair<std::string_view, std::string_view> read_pair(element e, Place const& place) const {
        if (e.is_array()) {
            std::vector<std::string_view> parts;
            for (element const part : as_array(e, ""))
                if (parts.size() < 3) parts.push_back(as_string(part, place()));
            if (parts.size() != 2)
                fail(place(), "expected two tokens, found a list of " + std::to_string(parts.size()));
            return {parts[0], parts[1]};
        }
        if (!e.is_string()) fail_kind(place(), "two tokens, \"a b\" or [\"a\", \"b\"]", e);
        auto const text = e.get_string().value_unsafe();
        std::size_t const space = text.find(' ');
        if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
            fail(place(), "expected two tokens with a space between, found " + in_quotes(text, '"'));
        return {text.substr(0, space), text.substr(space + 1)};
    }

    simdjson::dom::parser parser_;
    vocabulary v_{.tokens = {}, .file = "tokenizer.json"};
};

}  // namespace detail

// Parses a tokenizer.json. Throws errc::tokenizer with `path` and the key in question.
[[nodiscard]] inline vocabulary parse_tokenizer_json(std::string_view json, std::string const& path) {
    return detail::tokenizer_json_reader(path).read(json);
}

}  // namespace calm
