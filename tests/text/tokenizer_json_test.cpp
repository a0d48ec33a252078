#include "calm/text/detail/tokenizer_json.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include "calm/base/random.hpp"
#include "calm/text/load_tokenizer.hpp"
#include "shared_data.hpp"
#include "support/sentences.hpp"
#include "tokenizer_files.hpp"

namespace {

using calm::token_id;
using calm::tokenizer;
using calm::test::has;
using calm::test::json_added;
using calm::test::json_of;
using calm::test::sentence_of;
using calm::test::temporary_file;

std::string const sample =
    "The cat sat on the mat, and the other cat sat on the other mat. That was that, they said; the end of the matter.\n"
    "She sells sea shells on the sea shore. The shells she sells are sea shells, she's sure. It isn't 12345 shells! "
    "Été";

calm::detail::token_table trained(token_id merges) {
    calm::bpe_trainer trainer;
    trainer.add(sample);
    return trainer.train(merges);
}

tokenizer parsed(calm::test::tokenizer_json_text const& file) {
    return calm::parse_tokenizer(file.text(), "tokenizer.json");
}

std::string random_text(calm::random_sequence& random) {
    std::string text;
    for (std::uint32_t i = random.below(60); i > 0; --i) {
        if (random.below(4) == 0) {
            text += static_cast<char>(random.below(256));
        } else {
            text += sample.substr(random.below(static_cast<std::uint32_t>(sample.size())), 1 + random.below(9));
        }
    }
    return text;
}

// Like GPT-2: ignore_merges is off, and merges follow the order of the list.
calm::test::tokenizer_json_text small_file() {
    calm::test::tokenizer_json_text file;
    auto table = calm::bpe_trainer().train(0);
    for (auto const* token : {"abc", "ab", "bc", "zzz"}) table.add(token);
    file.vocab = calm::test::json_vocab(table, table.size());
    file.added_tokens = calm::test::json_specials(table.size());
    file.merges = R"(["b c","a b","a bc"])";
    file.ignore_merges = "false";
    return file;
}

}  // namespace

BOOST_AUTO_TEST_CASE(files_that_would_take_much_memory_are_refused) {
    auto const refused = [](std::string const& text) {
        try {
            (void)calm::parse_tokenizer(text, "t");
        } catch (calm::error const& wrong) {
            BOOST_TEST((wrong.code() == calm::errc::tokenizer));
            return std::string(wrong.what());
        }
        return std::string();
    };
    for (char const first : {'{', 'Y', ' '}) {
        auto const said = refused(first + std::string(std::size_t{64} << 20, ' '));
        BOOST_TEST(has(said, "t: expected a tokenizer of at most 67108864 bytes, found 67108865"), said);
    }
    for (auto const* const part : {"[", "0,", "\"\",", "{}", "0 "}) {
        std::string text = "{";
        while (text.size() < (std::size_t{9} << 20) * std::string(part).size()) text += part;
        BOOST_TEST(has(refused(text), "t: expected at most 8388608 values and signs, found more"), part);
    }
    BOOST_TEST(has(refused("{" + std::string(9'000'000, ' ')), "invalid JSON"));
    BOOST_TEST(has(refused("{\"" + std::string(9'000'000, ',') + "\\\\\": 1}"), "not supported"));
}

// The limit exists because each token is a row of a model's tables.
BOOST_AUTO_TEST_CASE(files_of_too_many_tokens_are_refused) {
    std::size_t const most = std::size_t{1} << 20;
    auto const said = [](std::string const& text) {
        return calm::test::sentence_of<calm::error>([&] { (void)calm::parse_tokenizer(text, "t"); });
    };
    std::string lines, vocab;
    for (std::size_t id = 0; id < most; ++id) {
        std::string token(5, 'a');
        for (std::size_t i = 0, rest = id; i < 5; ++i, rest /= 26) token[i] = static_cast<char>('a' + rest % 26);
        lines += calm::base64_encode(token) + ' ' + std::to_string(id) + '\n';
        vocab += (id > 0 ? ",\"" : "{\"") + token + "\":" + std::to_string(id);
    }
    BOOST_TEST(said(lines) ==
               "t, line 1048574: expected at most 1048573 tokens, found more: the file is of another kind");
    calm::test::tokenizer_json_text json;
    json.vocab = vocab + "}";
    auto const refusal = said(json.text());
    BOOST_TEST(has(refusal, "expected fewer than 1048576 tokens, found 1048576 with those added"), refusal);
    // One fewer passes this check and fails the next: byte tokens are missing.
    json.vocab = vocab.substr(0, vocab.rfind(',')) + "}";
    auto const missing = said(json.text());
    BOOST_TEST(has(missing, "expected a token for each printable character of ASCII"), missing);
}

BOOST_AUTO_TEST_CASE(letters_encode_bytes) {
    std::string all;
    for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
    auto const letters = calm::letters_of_bytes(all);
    BOOST_TEST(calm::bytes_of_letters(letters).value() == all);
    BOOST_TEST(calm::letters_of_bytes(" the\n\xff!") == "ĠtheĊÿ!");
    BOOST_TEST(calm::letters_of_bytes(std::string("\0\x7f\xad", 3)) == "ĀġŃ");
    for (std::string const none : {" ", "\n", "\u00ad", "ń", "中", "\xc4", "\xff", "a\x80"})
        BOOST_TEST(!calm::bytes_of_letters(none).has_value(), none);
}

BOOST_AUTO_TEST_CASE(the_same_tokenizer_in_either_form) {
    auto const table = trained(60);
    auto const words = tokenizer::train(std::vector<std::string>{sample}, 259 + 60);
    calm::random_sequence random({.seed = 1});
    std::vector<std::string> texts;
    for (int i = 0; i < 200; ++i) texts.push_back(random_text(random));
    for (bool const as_pairs : {false, true})
        for (auto const* ignore : {"true", "false", ""}) {
            auto file = json_of(table, as_pairs);
            file.ignore_merges = ignore;
            auto const again = parsed(file);
            BOOST_TEST(again.fingerprint() == words.fingerprint());
            BOOST_TEST((again.specials() == words.specials()));
            for (auto const& text : texts) BOOST_REQUIRE(again.encode(text) == words.encode(text));
            BOOST_TEST(again.lines() == words.lines());
        }
    // From files of any name.
    temporary_file const json("tokenizer.model", "\xef\xbb\xbf \n" + json_of(table).text());
    temporary_file const lines("tokenizer.json", words.lines());
    BOOST_TEST(calm::load_tokenizer(json.path()).fingerprint() == words.fingerprint());
    BOOST_TEST(calm::load_tokenizer(lines.path()).fingerprint() == words.fingerprint());
}

BOOST_AUTO_TEST_CASE(one_merge_per_token_is_enough) {
    auto const table = trained(60);
    auto file = json_of(table);
    file.merges = "[";
    for (token_id id = 256; id < table.size(); ++id) {
        calm::detail::token_table below;
        for (token_id i = 0; i < id; ++i) below.add(table.bytes(i));
        std::vector<token_id> parts;
        calm::detail::bpe_merger(below, calm::detail::merge_rules{below}).merge(table.bytes(id), parts);
        BOOST_REQUIRE(parts.size() == 2);
        file.merges +=
            (id > 256 ? "," : "") + calm::test::json_string(calm::letters_of_bytes(table.bytes(parts[0])) + " " +
                                                            calm::letters_of_bytes(table.bytes(parts[1])));
    }
    file.merges += "]";
    BOOST_TEST(parsed(file).fingerprint() ==
               tokenizer::train(std::vector<std::string>{sample}, 259 + 60).fingerprint());
}

BOOST_AUTO_TEST_CASE(merges_of_another_order_are_followed) {
    auto const words = parsed(small_file());
    auto const strings = [&](std::string const& text) {
        std::vector<std::string> parts;
        for (token_id const id : words.encode(text)) parts.emplace_back(words.bytes(id));
        return parts;
    };
    using list = std::vector<std::string>;
    BOOST_TEST(strings("abc") == (list{"abc"}));  // bc, then a bc
    BOOST_TEST(strings("abab") == (list{"ab", "ab"}));
    BOOST_TEST(strings("bcbc") == (list{"bc", "bc"}));
    BOOST_TEST(strings("zzz") == (list{"z", "z", "z"}));  // no merge makes this token
    auto file = small_file();
    file.ignore_merges = "true";
    auto const whole = parsed(file);
    BOOST_TEST(whole.encode("zzz").size() == 1);
    BOOST_TEST(whole.encode("zzzz").size() == 4);
    file.merges = R"(["a b","ab c"])";  // "bc" never merges
    auto const other = parsed(file);
    BOOST_TEST(other.encode("xbc").size() == 3);
    BOOST_TEST(other.encode("xabc").size() == 2);
    // A merge order that is not by id is part of the fingerprint.
    BOOST_TEST(words.fingerprint() != whole.fingerprint());
    BOOST_TEST(whole.fingerprint() != other.fingerprint());
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)words.lines(); }), "copy its tokenizer.json"));
    calm::random_sequence random({.seed = 2});
    for (int i = 0; i < 100; ++i) {
        auto const text = random_text(random) + "abcabzzz";
        for (auto const* t : {&words, &whole, &other}) BOOST_REQUIRE(t->decode(t->encode(text)) == text);
    }
}

BOOST_AUTO_TEST_CASE(byte_level_alone_cuts_as_gpt2) {
    auto file = json_of(trained(0));
    for (auto const* pre : {R"({"type":"ByteLevel","add_prefix_space":false})",
                            R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})",
                            R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":false}]})"}) {
        file.pre_tokenizer = pre;
        BOOST_TEST(parsed(file).pattern() == calm::gpt2_pattern);
    }
    BOOST_TEST(parsed(file).fingerprint() != tokenizer().fingerprint());
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)parsed(file).lines(); }), "copy its tokenizer.json"));
    file.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[)"
                         R"({"type":"Split","pattern":{"Regex":"a+"},"behavior":"Isolated"},)"
                         R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
    BOOST_TEST(parsed(file).pattern() == "a+");
}

BOOST_AUTO_TEST_CASE(specials_may_be_anywhere_and_have_their_usual_names) {
    auto const table = trained(3);
    auto file = json_of(table);
    // As Hugging Face's library writes them: first, and also in model.vocab.
    std::string vocab = R"({"<s>":0,"<pad>":1,"</s>":2)";
    for (token_id id = 0; id < table.size(); ++id)
        vocab += "," + calm::test::json_string(calm::letters_of_bytes(table.bytes(id))) + ":" + std::to_string(id + 3);
    file.vocab = vocab + "}";
    file.added_tokens = "[" + json_added(0, "<s>") + "," + json_added(1, "<pad>") + "," + json_added(2, "</s>") + "]";
    auto const front = parsed(file);
    BOOST_TEST((front.specials() == calm::special_tokens{0, 2, 1}));
    BOOST_TEST(front.vocabulary_size() == table.size() + 3);
    BOOST_TEST(front.decode(std::vector<token_id>{0, 1, 2, 'a' + 3}) == "a");
    BOOST_TEST(front.encode("<s>").size() == 3);
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)front.lines(); }), "copy its tokenizer.json"));
    // One token is both begin and end; a missing PAD adds an id.
    auto gpt = json_of(table);
    gpt.added_tokens = "[" + json_added(table.size(), "<|endoftext|>") + "]";
    BOOST_TEST((parsed(gpt).specials() == calm::special_tokens{259, 259, 260}));
    BOOST_TEST(parsed(gpt).vocabulary_size() == 261);
}

// Other programs drop such bytes.
BOOST_AUTO_TEST_CASE(a_byte_without_a_token_is_refused_where_a_text_needs_it) {
    auto file = small_file();
    std::string const letter = calm::test::json_string(calm::letters_of_bytes("\x06")) + ":6,";
    std::size_t const at = file.vocab.find(letter);
    BOOST_REQUIRE(at != std::string::npos);
    file.vocab.replace(at, letter.size(), "\"aa\":6,");
    auto const words = parsed(file);
    BOOST_TEST(words.encode("abc\x05").size() == 2);
    for (auto const* const text : {"\x06",
                                   "ab\x06"
                                   "c",
                                   "a long text whose pieces end \x06\x06"})
        BOOST_TEST(has(sentence_of<calm::error>([&] { (void)words.encode(text); }),
                       "byte 6 of the text has no token in this vocabulary"));
}

BOOST_AUTO_TEST_CASE(added_tokens_that_are_not_special_match_in_text) {
    auto file = small_file();
    file.added_tokens = "[" + json_added(260, "<|begin_of_text|>") + "," + json_added(261, "<|end_of_text|>") + "," +
                        json_added(262, "[PAD]") + "," + json_added(263, "<think>", false) + "," +
                        json_added(264, "<|end", false) + "]";
    auto const words = parsed(file);
    auto const tokens = words.encode("abc<think>abc");
    auto const abc = words.encode("abc");
    BOOST_TEST(tokens == (std::vector<token_id>{abc[0], 263, abc[0]}));
    BOOST_TEST(words.decode(tokens) == "abc<think>abc");
    BOOST_TEST(words.encode("<|end").size() == 1);
    BOOST_TEST(words.encode("<|end_of_text|>").size() == 15);  // the name of a special token is text
    BOOST_TEST(words.fingerprint() != parsed(small_file()).fingerprint());
}

// Tokens that are not normalized match first, wherever they are; the ids are those of the package `tokenizers`.
BOOST_AUTO_TEST_CASE(added_tokens_match_in_two_searches) {
    auto file = json_of(trained(0));
    auto const tokens = [&](std::vector<std::string> const& added) {
        file.added_tokens = "[" + json_added(256, "<|endoftext|>");
        for (auto const& one : added) file.added_tokens += "," + one;
        file.added_tokens += "]";
        return parsed(file);
    };
    auto const same = [](tokenizer const& words, std::string const& text, std::vector<token_id> const& ids) {
        BOOST_TEST(words.encode(text) == ids, text);
        for (std::size_t part = 1; part < 3; ++part) {
            calm::token_stream stream(words);
            std::vector<token_id> in_parts;
            for (std::size_t at = 0; at < text.size(); at += part) stream.push(text.substr(at, part), in_parts);
            stream.finish(in_parts);
            BOOST_TEST(in_parts == ids, text);
        }
    };
    auto const abc = json_added(257, "abc", false, true), bcd = json_added(258, "bcd", false);
    auto const plain = tokens({abc, bcd, json_added(259, "ab", false)});
    same(plain, "abcd", {259, 99, 100});
    same(plain, "xabc", {120, 259, 99});
    same(plain, "bcdabc", {258, 259, 99});
    auto const with_special = tokens({abc, bcd, json_added(259, "zab"), json_added(260, "abz", true, true)});
    same(with_special, "abcd", {97, 258});
    same(with_special, "zabc", {122, 257});
    same(with_special, "abzabcd", {97, 98, 122, 257, 100});
    same(with_special, "bcdabcb", {258, 257, 98});
    BOOST_TEST(tokens({abc, bcd}).fingerprint() != tokens({json_added(257, "abc", false), bcd}).fingerprint());
    // Tokens that cannot overlap need one search, and the kind of each makes no difference.
    auto const apart = json_added(258, "<b>", false);
    BOOST_TEST(tokens({abc, apart}).fingerprint() == tokens({json_added(257, "abc", false), apart}).fingerprint());
}

BOOST_AUTO_TEST_CASE(added_tokens_that_nfc_could_change_are_refused) {
    if (!calm::detail::has_nfc) return;
    auto file = small_file();
    file.normalizer = R"({"type":"NFC"})";
    auto const with = [&](std::string const& name) {
        file.added_tokens = "[" + json_added(260, "<|endoftext|>") + R"(,{"id":261,"content":")" + name +
                            R"(","normalized":true,"special":false}])";
        return parsed(file);
    };
    BOOST_TEST(with("    ").encode("a     b").size() == 4);
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)with("<think>"); }),
                   "added_tokens[1].normalized: expected false for a token that is not special"));
}

BOOST_AUTO_TEST_CASE(published_models_follow_the_rules_of_their_files) {
    auto file = small_file();
    file.added_tokens = "[" + json_added(260, "<|endoftext|>") + "]";
    auto const words = parsed(file);
    BOOST_TEST(words.specials().bos_first);  // of a model that was trained here
    BOOST_TEST(words.vocabulary_size() == 262);
    auto const exact = words.published(261, std::nullopt);
    BOOST_TEST(!exact.specials().bos_first);
    BOOST_TEST(exact.vocabulary_size() == 261);
    BOOST_TEST((exact.bos() == 260 && exact.eos() == 260 && exact.pad() == -1));
    BOOST_TEST(exact.encode("abc") == words.encode("abc"));
    auto const rounded = words.published(320, true);
    BOOST_TEST(rounded.specials().bos_first);
    BOOST_TEST((rounded.vocabulary_size() == 320 && rounded.pad() == 261 && rounded.bytes(319).empty()));
    for (token_id const rows : {260, 2000})
        BOOST_TEST(has(sentence_of<calm::error>([&] { (void)words.published(rows, std::nullopt); }),
                       "the file belongs to another model"));
}

BOOST_AUTO_TEST_CASE(any_bytes_survive_in_either_form) {
    auto const words = parsed(small_file());
    std::string text;
    for (int a = 0; a < 256; ++a)
        for (int b = 0; b < 256; ++b) {
            text = {static_cast<char>(a), static_cast<char>(b)};
            BOOST_REQUIRE(words.decode(words.encode(text)) == text);
        }
}
