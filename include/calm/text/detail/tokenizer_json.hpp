#pragma once
// Hugging Face's tokenizer.json: byte-level BPE. Settings that would change ids and are not supported are refused.

#include <algorithm>
#include <array>
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
#include "calm/text/detail/byte_letters.hpp"
#include "calm/text/detail/json_values.hpp"
#include "calm/text/detail/merge_list.hpp"
#include "calm/text/detail/merge_order.hpp"
#include "calm/text/detail/nfc.hpp"
#include "calm/text/detail/pretokenizer.hpp"
#include "calm/text/detail/vocabulary.hpp"

namespace calm::detail {

// Reads one file.
class tokenizer_json_reader : json_values {
public:
    explicit tokenizer_json_reader(std::string path) : json_values(std::move(path)) {}

    [[nodiscard]] vocabulary read(std::string_view json) {
        require_tokenizer_size(path(), json.size());
        if (json.starts_with("\xef\xbb\xbf")) json.remove_prefix(3);
        object const file = parse(json, most_values);
        // Ignored: padding and truncation, which are up to the caller.
        only(file, "",
             {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
              "decoder", "model"});
        read_normalizer(file);
        if (auto const decoder = find(file, "decoder"); decoder && !decoder->is_null())
            expect(type_of(as_object(*decoder, "decoder"), "decoder"), "decoder.type", "ByteLevel");
        read_patterns(file);
        auto const first = first_special(find(file, "post_processor"), "post_processor");
        object const model = as_object(present(file, "", "model"), "model");
        check_model(model);
        read_tokens(file, model, first);
        read_merges(model);
        return std::move(v_);
    }

private:
    static constexpr std::string_view deepseek_begin = "<\uff5cbegin\u2581of\u2581sentence\uff5c>";
    static constexpr std::string_view deepseek_pad = "<\uff5c\u2581pad\u2581\uff5c>";
    static constexpr std::string_view deepseek_end = "<\uff5cend\u2581of\u2581sentence\uff5c>";
    // A token takes four values (name, colon, id, comma) and a merge up to six: over twice what 300,000 tokens need.
    static constexpr std::size_t most_values = std::size_t{8} << 20;
    // Published files have up to five.
    static constexpr std::size_t most_steps = 16;
    // Published files have up to some 1,300.
    static constexpr std::size_t most_matched = 4096;

    struct added_entry {
        token_id id;
        std::string place;
        bool special;
        bool normalized;
        bool in_vocabulary = false;
    };
    using added_map = std::map<std::string, added_entry, std::less<>>;

    // NFC, none, or a Sequence of these.
    void read_normalizer(object file) {
        auto const found = find(file, "normalizer");
        if (!found || found->is_null()) return;
        std::string const place = "normalizer";
        object const whole = as_object(*found, place);
        if (type_of(whole, place) != "Sequence") return read_nfc(whole, place);
        only(whole, place, {"type", "normalizers"});
        std::string const list_place = place + ".normalizers";
        std::size_t i = 0;
        for (element const one : as_array(present(whole, place, "normalizers"), list_place)) {
            std::string const at_one = at(list_place, i++);
            read_nfc(as_object(one, at_one), at_one);
        }
    }
    void read_nfc(object o, std::string const& place) {
        only(o, place, {"type"});
        expect(type_of(o, place), place + ".type", "NFC");
        if (!has_nfc) fail(place, "NFC needs ICU, and this program was built without: install libicu-dev, build again");
        v_.is_nfc = true;
    }

    // Splits and Digits, then ByteLevel: alone it cuts as GPT-2 does, else only if it says so.
    void read_patterns(object file) {
        v_.patterns.clear();
        std::string const place = "pre_tokenizer";
        object const whole = as_object(present(file, "", place), place);
        if (type_of(whole, place) != "Sequence") return read_byte_level(whole, place, true);
        only(whole, place, {"type", "pretokenizers"});
        std::string const list_place = place + ".pretokenizers";
        std::vector<element> steps;
        for (element const step : as_array(present(whole, place, "pretokenizers"), list_place)) steps.push_back(step);
        if (steps.empty() || steps.size() > most_steps)
            fail(list_place, "expected Split or Digits, then ByteLevel, in a list of 1 to " +
                                 std::to_string(most_steps) + ", found a list of " + std::to_string(steps.size()));
        for (std::size_t i = 0; i < steps.size(); ++i) {
            std::string const at_step = at(list_place, i);
            object const step = as_object(steps[i], at_step);
            if (i + 1 == steps.size())
                read_byte_level(step, at_step, i == 0);
            else if (type_of(step, at_step) == "Digits")
                read_digits(step, at_step);
            else
                read_split(step, at_step);
        }
    }

    void add_pattern(std::string_view regex) {
        v_.patterns.push_back(regex == piece_pattern ? pretokenizer::shared()
                                                     : std::make_shared<pretokenizer const>(regex));
    }

    void read_byte_level(object o, std::string const& place, bool must_cut) {
        expect(type_of(o, place), place + ".type", "ByteLevel");
        only(o, place, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
        flag_is(o, place, "add_prefix_space", true, false);
        if (must_cut) flag_is(o, place, "use_regex", true, true);
        if (flag(o, place, "use_regex", true)) add_pattern(gpt2_pattern);
    }

    void read_digits(object o, std::string const& place) {
        only(o, place, {"type", "individual_digits"});
        add_pattern(flag(o, place, "individual_digits", false) ? digit_pattern : number_pattern);
    }

    void read_split(object o, std::string const& place) {
        expect(type_of(o, place), place + ".type", "Split");
        only(o, place, {"type", "pattern", "behavior", "invert"});
        expect(as_string(present(o, place, "behavior"), place + ".behavior"), place + ".behavior", "Isolated");
        flag_is(o, place, "invert", false, false);
        std::string const inner = place + ".pattern";
        object const pattern = as_object(present(o, place, "pattern"), inner);
        only(pattern, inner, {"Regex"});
        auto const regex = as_string(present(pattern, inner, "Regex"), inner + ".Regex");
        try {
            add_pattern(regex);
        } catch (error const& e) {
            fail(inner + ".Regex", e.what());
        }
    }

    // The special token that a post-processor puts before a text.
    struct leading_special {
        std::string_view name;            // empty: it puts none there
        std::string place;                // of the name
        std::optional<element> ids = {};  // that the post-processor has for it
        std::string ids_place = {};
    };

    // Throws if the post-processor puts several there.
    leading_special first_special(std::optional<element> found, std::string const& place) const {
        if (!found || found->is_null()) return {};
        object const o = as_object(*found, place);
        auto const type = type_of(o, place);
        if (type == "Sequence") {
            only(o, place, {"type", "processors"});
            std::string const list_place = place + ".processors";
            leading_special first;
            std::size_t i = 0;
            for (element const one : as_array(present(o, place, "processors"), list_place))
                add_leading(first, first_special(one, at(list_place, i++)));
            return first;
        }
        if (type == "ByteLevel") return {};
        expect(type, place + ".type", "TemplateProcessing");
        std::string const single = place + ".single";
        leading_special first;
        std::size_t i = 0;
        for (element const step : as_array(present(o, place, "single"), single)) {
            std::string const at_step = at(single, i++);
            auto const special = find(as_object(step, at_step), "SpecialToken");
            if (!special) break;
            std::string const inner = at_step + ".SpecialToken";
            auto const name = as_string(present(as_object(*special, inner), inner, "id"), inner + ".id");
            add_leading(first, {name, inner + ".id"});
        }
        auto const known = find(o, "special_tokens");
        if (first.name.empty() || !known) return first;
        std::string const known_place = place + ".special_tokens";
        std::string const of_first = known_place + "[" + in_quotes(first.name, '"') + "]";
        auto const entry = find(as_object(*known, known_place), first.name);
        if (!entry) fail(of_first, "expected the ids of the token that begins a text, found none");
        first.ids_place = of_first + ".ids";
        first.ids = present(as_object(*entry, of_first), of_first, "ids");
        return first;
    }
    void add_leading(leading_special& first, leading_special more) const {
        if (!first.name.empty() && !more.name.empty())
            fail(more.place, "expected one special token before a text, found a second one, " +
                                 in_quotes(more.name, '"') + ": only one beginning of text is supported");
        if (!more.name.empty()) first = std::move(more);
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
        added_entry const* added = nullptr;
        bool given = false;
    };

    // Reads the ids 0 .. V-1, each assigned once, to a token of model.vocab or to a special token.
    void read_tokens(object file, object model, leading_special const& first) {
        object const vocab = as_object(present(model, "model", "vocab"), "model.vocab");
        std::size_t limit = 0;
        for ([[maybe_unused]] auto const field : vocab) ++limit;
        auto added = read_added(file, limit);
        if (limit + added.size() >= limits::vocabulary)  // a PAD may follow
            fail("model.vocab", "expected fewer than " + std::to_string(limits::vocabulary) + " tokens, found " +
                                    std::to_string(limit + added.size()) + " with those added");
        std::vector<token_name> tokens(limit + added.size());
        auto const give = [&](token_id id, std::string_view name, added_entry const* one, auto const& place) {
            token_name& t = tokens[static_cast<std::size_t>(id)];
            if (t.given)
                fail(place(), "expected a unique id, found " + std::to_string(id) + ", which is also the id of " +
                                  in_quotes(t.name, '"'));
            t = {name, one, true};
        };
        for (auto const field : vocab) {
            auto const place = [&] { return "model.vocab[" + in_quotes(field.key, '"') + "]"; };
            token_id const id = read_id(field.value, tokens.size(), place);
            auto const one = added.find(field.key);
            if (one != added.end()) {
                if (one->second.in_vocabulary) fail(place(), "expected the key once, found it twice");
                one->second.in_vocabulary = true;
                if (one->second.id != id)
                    fail(place(), "expected the id of the added token, " + std::to_string(one->second.id) + ", found " +
                                      std::to_string(id));
            }
            give(id, field.key, one == added.end() ? nullptr : &one->second, place);
        }
        std::size_t count = limit;
        for (auto const& [name, one] : added) {
            if (one.in_vocabulary) continue;
            give(one.id, name, &one, [&, &where = one.place] { return where; });
            ++count;
        }
        name_specials(added, first);
        add_tokens(std::span(tokens).first(count));
        require_specials();
        if (v_.specials.pad < 0) {
            v_.specials.pad = v_.tokens.add_special();
            v_.added_pad = true;
        }
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
            if (t.added != nullptr && add_added(t)) continue;
            auto const bytes = bytes_of_letters(t.name);
            if (!bytes || bytes->empty())
                fail(place(), "expected a token in GPT-2's letters for bytes, found another character");
            if (bytes->size() > longest_token)
                fail(place(), "expected a token of at most " + std::to_string(longest_token) + " bytes, found " +
                                  std::to_string(bytes->size()));
            if (v_.tokens.add(*bytes) < 0) fail(place(), "expected the key once, found it twice: remove one");
        }
        match_added();
        // Published vocabularies lack bytes that no text has, but not these.
        if (int const byte = missing_byte(v_.tokens, ' '); byte >= 0 && byte <= '~')
            fail("model.vocab", "expected a token for each printable character of ASCII, found none for byte " +
                                    std::to_string(byte) + ": the vocabulary is not of bytes, or cut short");
        if (v_.tokens.size() < 256)
            fail("model.vocab", "expected at least 256 tokens, found " + std::to_string(v_.tokens.size()) +
                                    ": the vocabulary is not of bytes, or cut short");
    }

    // Adds an added token; returns false if it is also an ordinary token.
    bool add_added(token_name const& t) {
        auto const id = v_.tokens.size();
        bool const special =
            t.added->special || id == v_.specials.bos || id == v_.specials.eos || id == v_.specials.pad;
        if (special) {
            v_.tokens.add_special();
            matched_.push_back({{std::string(t.name), -1}, t.added->normalized});
            return true;
        }
        // NFC leaves spaces alone, so that they match before it as after it.
        bool const spaces = t.name.find_first_not_of(' ') == std::string_view::npos;
        if (v_.is_nfc && t.added->normalized && !spaces)
            fail(t.added->place + ".normalized",
                 "expected false for a token that is not special, next to the normalizer NFC; found true");
        matched_.push_back({{std::string(t.name), id}, t.added->normalized});
        if (t.added->in_vocabulary && bytes_of_letters(t.name) == t.name) return false;
        v_.tokens.add_special(t.name);
        return true;
    }

    // Text is searched only if a token is not special. That takes time in proportion to their number. A second search
    // is needed only if a normalized token can overlap one that is not.
    void match_added() {
        if (std::none_of(matched_.begin(), matched_.end(), [](matched const& one) { return one.token.id >= 0; }))
            return;
        if (matched_.size() > most_matched)
            fail("added_tokens", "expected at most " + std::to_string(most_matched) +
                                     ", because some are not special, found " + std::to_string(matched_.size()));
        bool const twice = kinds_may_overlap();
        for (auto& [token, normalized] : matched_)
            (twice && normalized ? v_.added_normalized : v_.added).add(std::move(token.text), token.id);
    }

    // Whether a normalized token may overlap one that is not, in some text. Takes little time for any file: false only
    // if no token begins another of the other kind, and none has the first byte of another of the other kind inside.
    [[nodiscard]] bool kinds_may_overlap() const {
        std::array<std::array<bool, 256>, 2> begins{};  // by kind
        for (auto const& [token, normalized] : matched_)
            begins[normalized ? 1 : 0][static_cast<std::uint8_t>(token.text.front())] = true;
        std::vector<matched const*> sorted;
        for (auto const& one : matched_) {
            auto const& others = begins[one.normalized ? 0 : 1];
            if (std::any_of(one.token.text.begin() + 1, one.token.text.end(),
                            [&](char c) { return others[static_cast<std::uint8_t>(c)]; }))
                return true;
            sorted.push_back(&one);
        }
        // A token is next to those that it begins.
        std::sort(sorted.begin(), sorted.end(),
                  [](auto const* a, auto const* b) { return a->token.text < b->token.text; });
        std::vector<matched const*> beginnings;  // of the current token, each the beginning of the next
        for (auto const* const one : sorted) {
            while (!beginnings.empty() && !one->token.text.starts_with(beginnings.back()->token.text))
                beginnings.pop_back();
            if (!beginnings.empty() && beginnings.back()->normalized != one->normalized) return true;
            beginnings.push_back(one);
        }
        return false;
    }

    // The added tokens by name. Text matches those that are not special.
    added_map read_added(object file, std::size_t others) const {
        added_map added;
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
            bool const special = flag(o, place, "special", false);
            bool const normalized = flag(o, place, "normalized", !special);
            // Without effect for a special token: text never matches it.
            for (auto const* key : {"single_word", "lstrip", "rstrip"})
                if (flag(o, place, key, false) && !special)
                    fail(joined(place, key), "expected false for a token that is not special, found true");
            auto const name = as_string(present(o, place, "content"), place + ".content");
            if (name.empty()) fail(place + ".content", "expected a name, found an empty string");
            if (name.size() > longest_token)
                fail(place + ".content", "expected a name of at most " + std::to_string(longest_token) +
                                             " bytes, found " + std::to_string(name.size()));
            token_id const id = read_id(present(o, place, "id"), others + number, [&] { return place + ".id"; });
            if (!added.emplace(name, added_entry{id, place, special, normalized}).second)
                fail(place + ".content", "expected a unique name, found " + in_quotes(name, '"') + " twice");
        }
        return added;
    }

    // Finds BOS, EOS and PAD by their usual names; BOS is the `first` of the post-processor, if there is one.
    void name_specials(added_map const& added, leading_special const& first) {
        auto const named = [&](std::string& name, std::initializer_list<std::string_view> usual) {
            for (auto const candidate : usual)
                if (auto const found = added.find(candidate); found != added.end()) {
                    name = candidate;
                    return found->second.id;
                }
            return token_id{-1};
        };
        auto& [bos, eos, pad] = v_.names;
        v_.bos_first = !first.name.empty();
        if (!first.name.empty())
            v_.specials.bos = named_first(bos, added, first);
        else
            v_.specials.bos = named(bos, {"<|begin_of_text|>", "<s>", deepseek_begin, "<|endoftext|>"});
        v_.specials.eos = named(eos, {"<|end_of_text|>", "</s>", deepseek_end, "<|endoftext|>"});
        v_.specials.pad = named(pad, {"[PAD]", "<pad>", deepseek_pad});
    }
    // The id of `first`, which must be an added token with the id that the post-processor gives it.
    token_id named_first(std::string& name, added_map const& added, leading_special const& first) const {
        auto const found = added.find(first.name);
        if (found == added.end())
            fail(first.place, "expected the name of an added token, found " + in_quotes(first.name, '"') +
                                  ": add it to added_tokens");
        token_id const id = found->second.id;
        if (first.ids) {
            std::vector<element> ids;
            for (element const one : as_array(*first.ids, first.ids_place)) ids.push_back(one);
            std::uint64_t one = 0;
            if (ids.size() != 1 || ids[0].get(one) != simdjson::SUCCESS || one != static_cast<std::uint64_t>(id))
                fail(first.ids_place, "expected only the id of the added token, " + std::to_string(id) + ", found " +
                                          simdjson::minify(*first.ids));
        }
        name = first.name;
        return id;
    }
    void require_specials() const {
        if (v_.specials.bos < 0)
            fail("added_tokens",
                 "expected a beginning of text named <|begin_of_text|>, <s> or <|endoftext|>, found none");
        if (v_.specials.eos < 0)
            fail("added_tokens", "expected an end of text named <|end_of_text|>, </s> or <|endoftext|>, found none");
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

    struct matched {
        added_token token;
        bool normalized;
    };
    std::vector<matched> matched_;
    vocabulary v_{.tokens = {}, .file = "tokenizer.json"};
};

// Parses a tokenizer.json. Throws errc::tokenizer with `path` and the key in question.
[[nodiscard]] inline vocabulary parse_tokenizer_json(std::string_view json, std::string const& path) {
    return tokenizer_json_reader(path).read(json);
}

}  // namespace calm::detail
