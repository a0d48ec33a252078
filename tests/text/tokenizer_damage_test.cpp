// Damaged and foreign tokenizer files: each error names the path, the place, the expected and the found value.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "calm/base/random.hpp"
#include "calm/text/load_tokenizer.hpp"
#include "support/sentences.hpp"
#include "tokenizer_files.hpp"

namespace {

using calm::token_id;
using calm::tokenizer;
using calm::test::has;
using calm::test::json_added;

struct damage {
    std::string name;
    std::string bytes;
    std::string place;     // after the path
    std::string sentence;  // a part of the message
};

void refused(std::vector<damage> const& all) {
    for (auto const& one : all) {
        try {
            (void)calm::parse_tokenizer(one.bytes, "the/file");
            BOOST_ERROR(one.name << " was accepted");
        } catch (calm::error const& e) {
            std::string const text = e.what();
            BOOST_CHECK_MESSAGE(e.code() == calm::errc::tokenizer, one.name << ": " << text);
            BOOST_CHECK_MESSAGE(text.starts_with("the/file" + (one.place.empty() ? "" : ", " + one.place) + ": "),
                                one.name << ": " << text);
            BOOST_CHECK_MESSAGE(has(text, one.sentence), one.name << ": " << text);
            BOOST_CHECK_MESSAGE(has(text, "expected") || has(text, "is not a token") || has(text, "repeats"),
                                one.name << ": " << text);
            BOOST_CHECK_MESSAGE(text.size() < 400 && text.find('\n') == std::string::npos, one.name << ": " << text);
        }
    }
}

std::vector<std::string> byte_lines() {
    std::vector<std::string> lines;
    std::istringstream in(tokenizer().lines());
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

std::string text_of(std::vector<std::string> const& lines) {
    std::string text;
    for (auto const& line : lines) text += line + "\n";
    return text;
}

std::string first_lines(std::size_t count) {
    auto lines = byte_lines();
    lines.resize(count);
    return text_of(lines);
}

std::string with_line(std::size_t number, std::string const& line) {
    auto lines = byte_lines();
    lines[number - 1] = line;
    return text_of(lines);
}

std::string with_lines(std::vector<std::string> const& more) {
    auto lines = byte_lines();
    lines.insert(lines.end(), more.begin(), more.end());
    return text_of(lines);
}

calm::test::tokenizer_json_text good() {
    auto table = calm::bpe_trainer().train(0);
    table.add("ab");
    table.add("abc");
    return calm::test::json_of(table);
}

std::string changed(std::function<void(calm::test::tokenizer_json_text&)> const& change) {
    auto file = good();
    change(file);
    return file.text();
}

// A valid file with one part of its text replaced.
std::string replaced(std::string const& part, std::string const& by) {
    auto text = good().text();
    auto const at = text.find(part);
    BOOST_REQUIRE_MESSAGE(at != std::string::npos, part);
    return text.replace(at, part.size(), by);
}

std::string pre(std::string const& json) {
    return changed([&](auto& f) { f.pre_tokenizer = json; });
}
std::string split(std::string const& json) {
    return pre(R"({"type":"Sequence","pretokenizers":[)" + json +
               R"(,{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})");
}
std::string regex(std::string const& json) {
    return split(R"({"type":"Split","pattern":{"Regex":)" + json + R"(},"behavior":"Isolated"})");
}
std::string merges(std::string const& json) {
    return changed([&](auto& f) { f.merges = json; });
}
std::string added(std::string const& json) {
    return changed([&](auto& f) { f.added_tokens = json; });
}
std::string model(std::string const& key, std::string const& value) {
    return changed([&](auto& f) { f.more_of_model = ",\"" + key + "\":" + value; });
}

std::string const sequence = R"({"Sequence":{"id":"A","type_id":0}})";
std::string special(std::string const& name) {
    return R"({"SpecialToken":{"id":")" + name + R"(","type_id":0}})";
}
std::string post(std::string const& single, std::string const& tokens) {
    return changed([&](auto& f) {
        f.post_processor =
            R"({"type":"TemplateProcessing","single":[)" + single + R"(],"special_tokens":{)" + tokens + "}}";
    });
}

std::string many_added() {
    std::string list = "[" + json_added(258, "<|endoftext|>");
    for (token_id i = 1; i < 5000; ++i) list += "," + json_added(258 + i, "<" + std::to_string(i) + ">", i != 7);
    return list + "]";
}
std::string many_digits() {
    std::string list;
    for (int i = 0; i < 16; ++i) list += (i > 0 ? "," : "") + std::string(R"({"type":"Digits"})");
    return list;
}

}  // namespace

BOOST_AUTO_TEST_CASE(lines_that_are_no_vocabulary) {
    std::string const many(3'000'000, 'A');
    refused({
        {"empty", "", "line 1", "byte 0 is not a token"},
        {"blank lines", "\n\n\r\n", "line 1", "byte 0 is not a token"},
        {"cut after a line", first_lines(200), "line 201", "byte 200"},
        {"cut in a token", text_of(byte_lines()).substr(0, 1001), "line 124", "no space"},
        {"cut in a rank", text_of(byte_lines()).substr(0, text_of(byte_lines()).size() - 2), "line 256", "rank 255"},
        {"no base64", with_line(4, "A*== 3"), "line 4", "found \"A*==\""},
        {"base64 without padding", with_line(4, "Aw 3"), "line 4", "in base64"},
        {"base64 with bits left", with_line(4, "Ax== 3"), "line 4", "in base64"},
        {"base64 of too much padding", with_line(4, "A=== 3"), "line 4", "in base64"},
        {"base64 of URLs", with_line(4, "-_== 3"), "line 4", "in base64"},
        {"no token", with_line(4, " 3"), "line 4", "in base64"},
        {"no rank", with_line(4, "Aw=="), "line 4", "no space"},
        {"empty rank", with_line(4, "Aw== "), "line 4", "a number after the space"},
        {"tab for space", with_line(4, "Aw==\t3"), "line 4", "no space"},
        {"two spaces", with_line(4, "Aw==  3"), "line 4", "a number after the space"},
        {"a word for a rank", with_line(4, "Aw== three"), "line 4", "found \"three\""},
        {"something after the rank", with_line(4, "Aw== 3 4"), "line 4", "found \"3 4\""},
        {"a negative rank", with_line(4, "Aw== -3"), "line 4", "found -3"},
        {"a signed rank", with_line(4, "Aw== +3"), "line 4", "a number after the space"},
        {"a padded rank", with_line(4, "Aw== 03"), "line 4", "found \"03\""},
        {"a fraction", with_line(4, "Aw== 3.0"), "line 4", "a number after the space"},
        {"a rank in hexadecimal", with_line(4, "Aw== 0x3"), "line 4", "a number after the space"},
        {"a huge rank", with_line(4, "Aw== 2147483647"), "line 4", "expected rank 3, found 2147483647"},
        {"a rank past 32 bits", with_line(4, "Aw== 4294967299"), "line 4", "a number after the space"},
        {"a rank of many digits", with_line(4, "Aw== " + std::string(100'000, '9')), "line 4", "999...\""},
        {"a gap", with_line(4, "Aw== 4"), "line 4", "expected rank 3, found 4"},
        {"a rank twice", with_line(4, "Aw== 2"), "line 4", "expected rank 3, found 2"},
        {"a token twice", with_line(4, "AA== 3"), "line 4", "repeats the token of rank 0"},
        {"a longer token twice", with_lines({"YWI= 256", "YWI= 257"}), "line 258", "repeats the token of rank 256"},
        {"a huge token", with_lines({many + " 256"}), "line 257", "at most 1048576 bytes, found 2250000"},
        {"lines out of order", with_lines({"YWI= 257", "YWM= 256"}), "line 257", "expected rank 256, found 257"},
        {"two files", text_of(byte_lines()) + text_of(byte_lines()), "line 257", "expected rank 256, found 0"},
        {"zero bytes", std::string(1000, '\0'), "line 1", "no space"},
        {"invalid UTF-8", "\xff\xfe\x80 0\n", "line 1", "in base64"},
        {"UTF-16",
         with_line(1, std::string("A\0A\0=\0=\0 \0"
                                  "0\0",
                                  12)),
         "line 1", "in base64"},
        {"old Mac's line ends", "AA== 0\rAQ== 1\r", "line 1", "a number after the space"},
        {"a list", "[1, 2]", "line 1", "in base64"},
        {"a string", "\"model\"", "line 1", "no space"},
        {"protobuf", "\x0a\x0e\x0a\x05<unk>\x15", "line 2", "no space"},
        {"merges.txt", "#version: 0.2\nt h\n", "line 1", "in base64"},
    });
}

// As GPT-2's and cl100k's files, whose first token is "!".
BOOST_AUTO_TEST_CASE(lines_of_an_unknown_pattern) {
    auto lines = byte_lines();
    std::swap(lines[0], lines[33]);
    lines[0] = "IQ== 0";
    lines[33] = "AA== 33";
    auto const said = calm::test::sentence_of<calm::error>([&] { (void)calm::parse_tokenizer(text_of(lines), "t"); });
    BOOST_TEST(has(said, "whose pattern of pieces the format does not tell: give --pattern llama3, gpt2, cl100k, o200k "
                         "or qwen, or use"),
               said);
    // They are not written either, because they would be refused.
    auto const words = calm::tokenizer::parse_lines(text_of(lines), "t");
    BOOST_TEST(has(calm::test::sentence_of<calm::error>([&] { (void)words.lines(); }), "copy its tokenizer.json"));
}

BOOST_AUTO_TEST_CASE(json_that_is_no_vocabulary_of_bytes) {
    BOOST_TEST(calm::parse_tokenizer(good().text(), "").vocabulary_size() == 261);
    auto const text = good().text();
    std::string const deep = std::string(100'000, '[') + std::string(100'000, ']');
    refused({
        {"an empty object", "{}", "pre_tokenizer", "found none"},
        {"cut early", text.substr(0, 500), "", "invalid JSON"},
        {"cut at the end", text.substr(0, text.size() - 1), "", "invalid JSON"},
        {"something after it", text + "x", "", "invalid JSON"},
        {"two files", text + text, "", "invalid JSON"},
        {"invalid UTF-8", replaced("ByteLevel", "Byte\xffLevel"), "", "invalid JSON"},
        {"a lone surrogate", replaced("ByteLevel", "\\ud800"), "", "invalid JSON"},
        {"zero bytes", "{" + std::string(1000, '\0'), "", "invalid JSON"},
        {"deep nesting", changed([&](auto& f) { f.normalizer = deep; }), "", "invalid JSON"},
        {"a huge number", replaced(":256", ":1" + std::string(1000, '0')), "", "invalid JSON"},
        {"an unknown key", changed([](auto& f) { f.more = ",\"tokens\":1"; }), "\"tokens\"", "not supported"},
        {"a key twice", changed([](auto& f) { f.more = ",\"padding\":null"; }), "padding", "found it twice"},
        {"a normalizer", changed([](auto& f) { f.normalizer = R"({"type":"NFKC"})"; }), "normalizer.type",
         "expected \"NFC\", found \"NFKC\""},
        {"a normalizer in a sequence",
         changed([](auto& f) { f.normalizer = R"({"type":"Sequence","normalizers":[{"type":"Lowercase"}]})"; }),
         "normalizer.normalizers[0].type", "found \"Lowercase\""},
        {"a foreign post_processor",
         replaced(R"("post_processor":{"type":"ByteLevel")", R"("post_processor":{"type":"BertProcessing")"),
         "post_processor.type", "expected \"TemplateProcessing\", found \"BertProcessing\""},
        {"a first token that is none", post(special("[CLS]") + "," + sequence, R"("[CLS]":{"ids":[7]})"),
         "post_processor.single[0].SpecialToken.id", "expected the name of an added token, found \"[CLS]\""},
        {"two first tokens", post(special("[PAD]") + "," + special("[PAD]") + "," + sequence, ""),
         "post_processor.single[1].SpecialToken.id", "found a second one, \"[PAD]\""},
        {"two first tokens of two processors", changed([](auto& f) {
             auto const one = R"({"type":"TemplateProcessing","single":[)" + special("[PAD]") + "]}";
             f.post_processor = R"({"type":"Sequence","processors":[)" + one + "," + one + "]}";
         }),
         "post_processor.processors[1].single[0].SpecialToken.id", "found a second one, \"[PAD]\""},
        {"a first token of another id", post(special("[PAD]") + "," + sequence, R"("[PAD]":{"ids":[65]})"),
         "post_processor.special_tokens[\"[PAD]\"].ids", "only the id of the added token, 260, found [65]"},
        {"a first token of two ids", post(special("[PAD]") + "," + sequence, R"("[PAD]":{"ids":[260,260]})"),
         "post_processor.special_tokens[\"[PAD]\"].ids", "found [260,260]"},
        {"a first token without ids", post(special("[PAD]") + "," + sequence, ""),
         "post_processor.special_tokens[\"[PAD]\"]", "expected the ids of the token that begins a text, found none"},
        {"a foreign decoder", changed([](auto& f) { f.decoder = R"({"type":"Metaspace"})"; }), "decoder.type",
         "expected \"ByteLevel\", found \"Metaspace\""},
        {"no model", "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}}", "model", "found none"},
        {"a list for a model", replaced("\"model\":{", "\"model\":[],\"m\":{"), "\"m\"", "not supported"},
        // The pre-tokenizer.
        {"no pre_tokenizer", pre("null"), "pre_tokenizer", "expected an object, found null"},
        {"a foreign pre_tokenizer", pre(R"({"type":"Whitespace"})"), "pre_tokenizer.type", "found \"Whitespace\""},
        {"no type", pre(R"({"add_prefix_space":false})"), "pre_tokenizer.type", "found none"},
        {"a prefix space", pre(R"({"type":"ByteLevel","add_prefix_space":true})"), "pre_tokenizer.add_prefix_space",
         "found true"},
        {"a prefix space by default", pre(R"({"type":"ByteLevel"})"), "pre_tokenizer.add_prefix_space", "found true"},
        {"bytes that are not cut", pre(R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})"),
         "pre_tokenizer.use_regex", "expected true"},
        {"a flag of the wrong type", pre(R"({"type":"ByteLevel","add_prefix_space":0})"),
         "pre_tokenizer.add_prefix_space", "expected true or false, found 0"},
        {"an empty sequence", pre(R"({"type":"Sequence","pretokenizers":[]})"), "pre_tokenizer.pretokenizers",
         "a list of 0"},
        {"punctuation apart", split(R"({"type":"Punctuation","behavior":"Isolated"})"),
         "pre_tokenizer.pretokenizers[0].type", "expected \"Split\", found \"Punctuation\""},
        {"bytes before a split", split(R"({"type":"ByteLevel","add_prefix_space":false})"),
         "pre_tokenizer.pretokenizers[0].type", "expected \"Split\", found \"ByteLevel\""},
        {"digits of another kind", split(R"({"type":"Digits","individual_digits":true,"width":3})"),
         "pre_tokenizer.pretokenizers[0].\"width\"", "not supported"},
        {"many splits", split(many_digits()), "pre_tokenizer.pretokenizers", "a list of 17"},
        {"removed pieces", split(R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Removed"})"),
         "pre_tokenizer.pretokenizers[0].behavior", "expected \"Isolated\", found \"Removed\""},
        {"an inverted split", split(R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Isolated","invert":true})"),
         "pre_tokenizer.pretokenizers[0].invert", "expected false"},
        {"a string to split at", split(R"({"type":"Split","pattern":{"String":" "},"behavior":"Isolated"})"),
         "pre_tokenizer.pretokenizers[0].pattern.\"String\"", "not supported"},
        {"a broken pattern", regex("\"(a\""), "pre_tokenizer.pretokenizers[0].pattern.Regex", "does not compile"},
        {"a pattern of nothing", regex("\"a*\""), "pre_tokenizer.pretokenizers[0].pattern.Regex",
         "found one that does"},
        {"a pattern with recursion", regex("\"a(?R)\""), "pre_tokenizer.pretokenizers[0].pattern.Regex", "(?R)"},
        {"a pattern of lines", regex("\"^a$\""), "pre_tokenizer.pretokenizers[0].pattern.Regex", "not supported"},
        {"a pattern that calls", regex("\"(*LIMIT_MATCH=1)a\""), "pre_tokenizer.pretokenizers[0].pattern.Regex", "(*"},
        {"a long pattern", regex("\"" + std::string(5000, 'a') + "\""), "pre_tokenizer.pretokenizers[0].pattern.Regex",
         "at most 4096 bytes"},
        {"a number for a pattern", regex("7"), "pre_tokenizer.pretokenizers[0].pattern.Regex", "expected a string"},
        // The model.
        {"another model", changed([](auto& f) { f.type = "\"Unigram\""; }), "model.type", "expected \"BPE\""},
        {"a number for a type", changed([](auto& f) { f.type = "1"; }), "model.type", "expected a string, found 1"},
        {"dropout", changed([](auto& f) { f.dropout = "0.1"; }), "model.dropout", "found 0.1"},
        {"unknown tokens", changed([](auto& f) { f.unk_token = "\"<unk>\""; }), "model.unk_token", "found \"<unk>\""},
        {"byte_fallback", changed([](auto& f) { f.byte_fallback = "true"; }), "model.byte_fallback", "found true"},
        {"a word's end", replaced("\"end_of_word_suffix\":\"\"", "\"end_of_word_suffix\":\"</w>\""),
         "model.end_of_word_suffix", "found \"</w>\""},
        {"ignore_merges null", changed([](auto& f) { f.ignore_merges = "null"; }), "model.ignore_merges", "found null"},
        {"an unknown key of the model", model("alpha", "1"), "model.\"alpha\"", "not supported"},
        {"merges twice", model("merges", "[]"), "model.merges", "found it twice"},
        {"no vocab", changed([](auto& f) { f.vocab = ""; }), "model.vocab", "found none"},
        {"a list for a vocab", changed([](auto& f) { f.vocab = "[]"; }), "model.vocab", "expected an object"},
        {"an empty vocab", changed([](auto& f) { f.vocab = "{}"; }), "added_tokens[0].id", "below 3"},
        {"a missing byte", replaced("\"A\":65", "\"AA\":65"), "model.vocab", "none for byte 65"},
        {"an id that is a string", replaced("\"A\":65", "\"A\":\"65\""), "model.vocab[\"A\"]", "found \"65\""},
        {"a negative id", replaced("\"A\":65", "\"A\":-65"), "model.vocab[\"A\"]", "found -65"},
        {"a fraction for an id", replaced("\"A\":65", "\"A\":65.0"), "model.vocab[\"A\"]", "found 65"},
        {"a huge id", replaced("\"A\":65", "\"A\":4294967361"), "model.vocab[\"A\"]", "an id below 261"},
        {"the first id that is too large", replaced("\"A\":65", "\"A\":261"), "model.vocab[\"A\"]", "an id below 261"},
        {"an id twice", replaced("\"A\":65", "\"A\":66"), "model.vocab[\"B\"]",
         "found 66, which is also the id of \"A\""},
        {"a gap", replaced("\"abc\":257", "\"abc\":260"), "added_tokens[2]", "a unique id, found 260"},
        {"a token twice", replaced("\"abc\":257", "\"ab\":257"), "model.vocab[\"ab\"]", "found it twice"},
        {"a token that is no letters", replaced("\"abc\":257", "\"a b\":257"), "model.vocab[\"a b\"]",
         "letters for bytes"},
        {"an empty token", replaced("\"abc\":257", "\"\":257"), "model.vocab[\"\"]", "letters for bytes"},
        {"a huge token", replaced("\"abc\":257", "\"" + std::string(2'000'000, 'x') + "\":257"),
         "model.vocab[\"" + std::string(100, 'x') + "...\"]", "at most 1048576 bytes, found 2000000"},
        // Merges.
        {"no merges", merges(""), "model.merges", "found none"},
        {"an object of merges", merges("{}"), "model.merges", "expected a list, found an object"},
        {"a merge that is a number", merges("[1]"), "model.merges[0]", "found 1"},
        {"a merge of one token", merges("[\"ab\"]"), "model.merges[0]", "a space between, found \"ab\""},
        {"a merge of three tokens", merges("[\"a b c\"]"), "model.merges[0]", "a space between"},
        {"a pair of one", merges("[[\"a\"]]"), "model.merges[0]", "a list of 1"},
        {"a pair of three", merges("[[\"a\",\"b\",\"c\",\"a\"]]"), "model.merges[0]", "a list of 3"},
        {"a pair of numbers", merges("[[1,2]]"), "model.merges[0]", "expected a string, found 1"},
        {"an unknown token merges", merges("[\"a b\",\"abcd e\"]"), "model.merges[1]", "found \"abcd\""},
        {"an unknown letter merges", merges("[\"a 中\"]"), "model.merges[0]", "found \"中\""},
        {"a special merges", merges("[[\"[PAD]\",\"a\"]]"), "model.merges[0]", "found \"[PAD]\""},
        {"merged into no token", merges("[\"b c\"]"), "model.merges[0]", "found \"b\" and \"c\""},
        {"a merge twice", merges("[\"a b\",\"ab c\",[\"a\",\"b\"]]"), "model.merges[2]", "the pair of model.merges[0]"},
        // Added tokens.
        {"an object of added tokens", added("{}"), "added_tokens", "expected a list, found an object"},
        {"an added string", added("[\"<s>\"]"), "added_tokens[0]", "expected an object, found \"<s>\""},
        {"no specials", added("[]"), "added_tokens", "a beginning of text"},
        {"no end of text", added("[" + json_added(258, "<s>") + "]"), "added_tokens", "an end of text"},
        {"an added token that takes spaces", added(R"([{"id":258,"content":"<s>","special":false,"lstrip":true}])"),
         "added_tokens[0].lstrip", "expected false for a token that is not special, found true"},
        {"many added tokens to search for", added(many_added()), "added_tokens",
         "at most 4096, because some are not special, found 5000"},
        {"a huge added token", added("[" + json_added(258, std::string(2'000'000, 'x')) + "]"),
         "added_tokens[0].content", "at most 1048576 bytes, found 2000000"},
        {"no id", added(R"([{"content":"<s>","special":true}])"), "added_tokens[0].id", "found none"},
        {"no content", added(R"([{"id":258,"special":true}])"), "added_tokens[0].content", "found none"},
        {"empty content", added("[" + json_added(258, "") + "]"), "added_tokens[0].content", "an empty string"},
        {"a name twice", added("[" + json_added(258, "<s>") + "," + json_added(259, "<s>") + "]"),
         "added_tokens[1].content", "found \"<s>\" twice"},
        {"an added id twice", added("[" + json_added(258, "</s>") + "," + json_added(258, "<s>") + "]"),
         "added_tokens[1]", "found 258, which is also the id of"},
        {"an added id of a token", added("[" + json_added(65, "<s>") + "]"), "added_tokens[0]",
         "which is also the id of \"A\""},
        {"an added id far away", added("[" + json_added(2'000'000'000, "<s>") + "]"), "added_tokens[0].id",
         "below 259"},
        {"an added gap", added("[" + json_added(258, "</s>") + "," + json_added(257, "ab") + "]"),
         "model.vocab[\"ab\"]", "expected the id of the added token, 257, found 256"},
        {"an unknown key of an added token", added(R"([{"id":258,"content":"<s>","special":true,"x":1}])"),
         "added_tokens[0].\"x\"", "not supported"},
    });
}

BOOST_AUTO_TEST_CASE(any_changed_byte_gives_a_tokenizer_or_an_error) {
    calm::random_sequence random({.seed = 7});
    int accepted = 0;
    for (auto const& whole : {good().text(), text_of(byte_lines())})
        for (int i = 0; i < 300; ++i) {
            auto text = whole;
            auto const at = random.below(static_cast<std::uint32_t>(text.size()));
            switch (i % 3) {
            case 0:
                text[at] = static_cast<char>(random.below(256));
                break;
            case 1:
                text.resize(at);
                break;
            default:
                text.erase(at, 1 + random.below(5));
            }
            try {
                auto const words = calm::parse_tokenizer(text, "the/file");
                BOOST_TEST(words.decode(words.encode("any text")) == "any text");
                ++accepted;
            } catch (calm::error const& e) {
                BOOST_TEST((e.code() == calm::errc::tokenizer), e.what());
            }
        }
    BOOST_TEST(accepted < 300);
}
