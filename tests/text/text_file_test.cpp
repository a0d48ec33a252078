#include "calm/text/detail/text_file.hpp"

#include <boost/test/unit_test.hpp>

#include <vector>

#include "compressed.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

namespace {

using calm::test::gzip;
using calm::test::has;
using calm::test::sentence_of;
using calm::test::zstd;
using strings = std::vector<std::string>;

constexpr calm::text_limits narrow{.line = 100, .file = 1000};

strings documents_of(std::string const& path, calm::skipped_documents* skip = nullptr,
                     calm::text_limits const& limits = {}) {
    strings all;
    std::string document;
    calm::read_documents(path, limits, skip, [&](std::string_view part, bool ends) {
        document += part;
        if (ends) all.push_back(std::exchange(document, {}));
    });
    return all;
}

std::string line(std::string const& text) {
    return "{\"text\": \"" + text + "\"}\n";
}

std::string bytes(std::string_view text) {
    return std::string(text);
}

// A malformed file, the expected complaint, and the documents that remain if malformed ones are skipped.
struct bad_file {
    std::string name;
    std::string content;
    std::string complaint;  // after the path
    strings left = {};
    std::uint64_t skipped = 1;
};

std::vector<bad_file> bad_files() {
    using namespace std::string_view_literals;
    std::string const good = line("good");
    std::string const cut_gz = gzip(good + good);
    std::string const cut_zst = zstd(good + good);
    std::string const long_line = "{\"text\": \"" + std::string(200, 'x') + "\"}\n";
    return {
        // JSON lines: invalid JSON
        {"a.jsonl", "nothing\n" + good, "line 1: invalid JSON", {"good"}},
        {"a.jsonl", good + "{\"text\": \"cut", "line 2: invalid JSON", {"good"}},
        {"a.jsonl", good + "{\"text\": \"a\"} {}\n" + good, "line 2: invalid JSON", {"good", "good"}},
        {"a.jsonl", "{'text': 'a'}\n", "line 1: invalid JSON"},
        {"a.jsonl", "{\"text\": \"a\",}\n", "line 1: invalid JSON"},
        {"a.jsonl", "{\"text\": NaN}\n", "line 1: invalid JSON: NaN is not a JSON value"},
        {"a.jsonl", "{\"text\": \"a NaN\", \"n\": [-Infinity]}\n",
         "line 1: invalid JSON: -Infinity is not a JSON value"},
        {"a.jsonl", "{\"text\": \"a\", \"n\": 01e999}\n", "line 1: invalid JSON"},
        {"a.jsonl", "{\"text\": \"a\", \"n\": 1e999x}\n", "line 1: invalid JSON"},
        {"a.jsonl", "{\"text\": 1e999}\n", "line 1: the field \"text\" must be a string, found a number"},
        {"a.jsonl", "{\"text\": \"\\ud800\"}\n", "line 1: invalid JSON: \\ud800 is a lone surrogate"},
        {"a.jsonl", "{\"text\": \"\\\\\\uD83D\\uDE00\\uDE01\"}\n", "invalid JSON: \\uDE01 is a lone surrogate"},
        {"a.jsonl", "{\"text\": \"\\x41\"}\n", "line 1: invalid JSON"},
        {"a.jsonl", "{\"text\": \"a\tb\"}\n", "line 1: invalid JSON"},
        {"a.jsonl", bytes("{\"text\": \"a\0b\"}\n"sv), "line 1, byte 11: a zero byte"},
        {"a.jsonl", "{\"text\": \"a\"}, \n", "line 1: invalid JSON"},
        {"a.json", "{\n  \"text\": \"pretty\"\n}\n", "line 1: invalid JSON", {}, 3},
        {"a.jsonl", "{\"meta\": " + std::string(40, '[') + "\n", "line 1: invalid JSON"},
        {"a.jsonl", good + "\xef\xbb\xbf{\"text\": \"a\"}\n", "line 2: invalid JSON", {"good"}},
        // invalid UTF-8
        {"a.jsonl", good + "{\"text\": \"a\xff\"}\n", "line 2, byte 11: invalid UTF-8", {"good"}},
        {"a.jsonl", "{\"text\": \"\xed\xa0\x80\"}\n", "line 1, byte 10: invalid UTF-8"},
        {"a.jsonl", "{\"text\": \"\xc3\"}\n", "line 1, byte 10"},
        {"a.jsonl", "{\"\xe9\": 1, \"text\": \"a\"}\n", "line 1, byte 2"},
        {"a.jsonl", bytes("\xff\xfe{\0"sv), "line 1, byte 0: the text is UTF-16"},
        // objects without a text
        {"a.jsonl", "[1]\n", "line 1: expected an object with a field \"text\", found an array"},
        {"a.jsonl", "\"text\"\n", "line 1: expected an object with a field \"text\", found a string"},
        {"a.jsonl", "null\n" + good, "line 1: expected an object with a field \"text\", found null", {"good"}},
        {"a.jsonl", "{}\n", "line 1: the object has no field \"text\""},
        {"a.jsonl", "{\"Text\": \"a\"}\n", "line 1: the object has no field \"text\""},
        {"a.jsonl", "{\"meta\": {\"text\": \"a\"}}\n", "line 1: the object has no field \"text\""},
        {"a.jsonl", "{\"text\": 3}\n", "line 1: the field \"text\" must be a string, found a number"},
        {"a.jsonl", "{\"text\": [\"a\"]}\n", "line 1: the field \"text\" must be a string, found an array"},
        {"a.jsonl", "{\"text\": false}\n", "line 1: the field \"text\" must be a string, found true or false"},
        {"a.jsonl", "{\"text\": \"a\", \"text\": \"b\"}\n", "line 1: the object has more than one field \"text\""},
        {"a.jsonl", "{\"id\": 1, \"text\": \"a\", \"id\": 2}\n", "line 1: the object has more than one field \"id\""},
        {"a.jsonl", "{\"text\": \"a\", \"te\\u0078t\": 1}\n", "line 1: the object has more than one field \"text\""},
        // lines and files that are too long, or empty
        {"a.jsonl", good + long_line + good, "line 2: the line has more than 100 bytes", {"good", "good"}},
        {"a.jsonl", std::string(300'000, ' '), "line 1: the line has more than 100 bytes"},
        {"a.jsonl.gz", gzip(good + std::string(5'000'000, 'x')), "line 2: the line has more than 100 bytes", {"good"}},
        {"a.jsonl", "", "the file has only blank lines"},
        {"a.jsonl", "\r\n \t\n\n", "the file has only blank lines"},
        {"a.jsonl.zst", zstd(""), "the file has only blank lines"},
        {"a.txt", "", "the file is empty"},
        {"a.txt", "\xef\xbb\xbf", "the file is empty"},
        {"a.txt.gz", gzip(""), "the file is empty"},
        {"a.txt", std::string(1001, 'x'), "the file has more than 1000 bytes, too much for one document"},
        // .txt: not text
        {"a.txt", "caf\xe9, s. v. p.", "byte 3: invalid UTF-8"},
        {"a.txt", "\xc0\xaf", "byte 0: invalid UTF-8"},
        {"a.txt", "ends inside \xe2\x82", "byte 12: invalid UTF-8"},
        {"a.txt", bytes("\xff\xfeh\0"sv), "byte 0: the text is UTF-16"},
        {"a.txt", bytes("\xff\xfe\0\0h\0\0\0"sv), "byte 0: the text is UTF-32"},
        {"a.txt", bytes("\0\0\xfe\xff\0\0\0h"sv), "byte 0: the text is UTF-32"},
        {"a.jsonl", bytes("\0\0\xfe\xff\0\0\0{"sv), "line 1, byte 0: the text is UTF-32"},
        {"a.txt", bytes("ELF\0\1"sv), "byte 3: a zero byte"},
        {"a.txt.zst", zstd("caf\xe9"), "byte 3: invalid UTF-8"},
        // compressed files: a partial last line does not count
        {"a.jsonl.gz", cut_gz.substr(0, cut_gz.size() - 1), "the compressed file ends early", {"good", "good"}},
        {"a.jsonl.zst", cut_zst.substr(0, cut_zst.size() - 1), "the compressed file ends early", {"good", "good"}},
        {"a.jsonl.gz", gzip(good) + gzip(line("cut")).substr(0, 20), "the compressed file ends early", {"good"}},
        {"a.txt.gz", gzip("some text").substr(0, 20), "byte 20: the compressed file ends early"},
        {"a.jsonl.gz", good, "byte 2: invalid gzip data"},
        {"a.jsonl.zst", good, "invalid zstd data"},
        {"a.jsonl.gz", zstd(good), "invalid gzip data"},
        {"a.jsonl.zst", zstd(good) + "and more", "invalid zstd data", {"good"}},
    };
}

}  // namespace

BOOST_AUTO_TEST_CASE(formats_are_known_by_name) {
    using calm::text_format;
    using calm::text_format_of;
    for (std::string const packed : {"", ".gz", ".zst"}) {
        BOOST_TEST((text_format_of("a.txt" + packed) == text_format::document));
        BOOST_TEST((text_format_of("b/a.b.jsonl" + packed) == text_format::lines));
        BOOST_TEST((text_format_of(".json" + packed) == text_format::lines));
    }
    for (auto const* const other : {"", "a", "a.gz", "a.txt.bz2", "a.txt.gz.zst", "a.TXT", "text.tokens"})
        BOOST_TEST(!text_format_of(other), other);
}

BOOST_AUTO_TEST_CASE(malformed_input_is_an_error_or_is_counted) {
    auto const all = bad_files();
    BOOST_TEST(all.size() >= 50U);
    for (auto const& bad : all) {
        calm::test::temporary_folder const folder;
        auto const path = folder.with(bad.name, bad.content);
        std::string said;
        try {
            (void)documents_of(path, nullptr, narrow);
        } catch (calm::error const& wrong) {
            said = wrong.what();
            BOOST_TEST((wrong.code() == calm::errc::data));
            BOOST_TEST(wrong.path() == path);
        }
        BOOST_TEST(said.starts_with(path), said);
        BOOST_TEST(has(said, bad.complaint), "expected " << bad.complaint << ", found " << said);
        calm::skipped_documents skipped;
        BOOST_TEST(documents_of(path, &skipped, narrow) == bad.left, said);
        BOOST_TEST(skipped.count == bad.skipped, said);
        BOOST_TEST(skipped.causes.at(0).first == said);
    }
}

BOOST_AUTO_TEST_CASE(dropped_documents_are_counted_by_cause) {
    calm::test::temporary_folder const folder;
    std::string lines;
    for (int i = 0; i < 5; ++i) lines += "[1]\n{\"text\": 3}\n" + line("good") + "{\"a\": 1}\n[2]\n";
    calm::skipped_documents skipped;
    BOOST_TEST(documents_of(folder.with("a.jsonl", lines), &skipped).size() == 5U);
    BOOST_TEST(skipped.count == 20U);
    BOOST_REQUIRE(skipped.causes.size() == 3U);
    BOOST_TEST(skipped.causes[0].count == 10U);
    BOOST_TEST(skipped.causes[1].count == 5U);
    BOOST_TEST(has(skipped.causes[1].first, "a.jsonl, line 2: the field \"text\" must be"));
    BOOST_TEST(skipped.causes[2].sentence.starts_with("the object has no field"));
    for (int i = 0; i < 100; ++i) skipped.add(calm::error(calm::errc::data, "cause " + std::to_string(i)));
    BOOST_TEST(skipped.causes.size() == calm::skipped_documents::most_causes);
    BOOST_TEST(skipped.causes.back().sentence == "another cause");
    std::uint64_t all = 0;
    for (auto const& cause : skipped.causes) all += cause.count;
    BOOST_TEST(all == skipped.count);
}

BOOST_AUTO_TEST_CASE(unusual_but_well_formed_input_is_read) {
    calm::test::temporary_folder const folder;
    auto const read = [&](std::string const& name, std::string const& content) {
        return documents_of(folder.with(name, content));
    };
    using namespace std::string_view_literals;
    BOOST_TEST(read("a.jsonl", "\xef\xbb\xbf" + line("bom") + "\r\n" + line("") + " \t\n{ \"text\" : \"end\" }\r") ==
               (strings{"bom", "", "end"}));
    BOOST_TEST(read("a.jsonl", "{\"id\": {\"text\": [1]}, \"text\": \"\\u0000\\ud83d\\ude00\\r\\n\"}\n") ==
               (strings{bytes("\0😀\r\n"sv)}));
    BOOST_TEST(read("a.txt", "\xef\xbb\xbfone\r\ntwo") == (strings{"one\r\ntwo"}));
    BOOST_TEST(read("a.txt.gz", gzip("one ") + gzip("two")) == (strings{"one two"}));
    BOOST_TEST(read("a.json.zst", zstd(line("o") + "{\"text\": \"n") + zstd("e\"}")) == (strings{"o", "ne"}));
    BOOST_TEST(read("a.jsonl", line("last") + line("line").substr(0, 16)) == (strings{"last", "line"}));
    // JSON does not limit numbers, and these are ignored.
    BOOST_TEST(read("a.jsonl", "{\"text\": \"-1e999 \\\"12\", \"n\": 123456789012345678901234567890}\n"
                               "{\"n\": [1e999, -1E+400 ,0.1e-9999], \"m\": {\"\\\\\": -0}, \"text\": \"b\"}\n") ==
               (strings{"-1e999 \"12", "b"}));
    std::string const text(1'000'000, 'x');
    BOOST_TEST((read("a.jsonl.gz", gzip(line(text) + line("short"))) == strings{text, "short"}));
}

BOOST_AUTO_TEST_CASE(files_of_every_size_are_read) {
    calm::test::temporary_folder const folder;
    auto const read = [&](std::string const& name, std::string const& content) {
        return documents_of(folder.with(name, content));
    };
    auto const refused = [&](std::string const& name, std::string const& content) {
        return sentence_of<calm::malformed_document>([&] { (void)read(name, content); });
    };
    BOOST_TEST(has(refused("a.txt", ""), "the file is empty"));
    BOOST_TEST(has(refused("a.jsonl", ""), "only blank lines"));
    BOOST_TEST(read("a.txt", "x") == strings{"x"});
    BOOST_TEST(read("a.txt", "\n") == strings{"\n"});
    BOOST_TEST(has(refused("a.jsonl", "x"), "line 1: invalid JSON"));
    BOOST_TEST(read("a.txt", "no end") == strings{"no end"});
    BOOST_TEST(read("a.jsonl", "{\"text\": \"no end\"}") == strings{"no end"});
    std::string text;  // characters of one to four bytes, so that blocks end inside them
    while (text.size() < 15'000'000) text += "aé中😀 ";
    BOOST_TEST((read("a.txt", text) == strings{text}));
    BOOST_TEST((read("a.txt.zst", zstd(text)) == strings{text}));
    BOOST_TEST((read("a.jsonl", line(text) + line("b")) == strings{text, "b"}));
    for (auto const size : {131'071U, 131'072U, 131'073U, 262'144U})  // around block boundaries
        for (auto const* const end : {"", "é", "中", "😀"}) {
            auto const one = std::string(size, 'x') + end + "y";
            BOOST_TEST((read("a.txt", one) == strings{one}));
            BOOST_TEST(has(refused("a.txt", std::string(size, 'x') + end + "\xff"),
                           "byte " + std::to_string(size + std::string(end).size()) + ": invalid UTF-8"));
            BOOST_TEST(has(refused("a.txt", std::string(size, 'x') + "\xf0\x9f\x98"),
                           "byte " + std::to_string(size) + ": invalid UTF-8"));
        }
    // Parsed structure takes memory, so a line may contain little besides text.
    auto const many = refused("a.jsonl", "{\"a\": [" + std::string(3'000'000, ',') + "], \"text\": \"x\"}\n");
    BOOST_TEST(has(many, "line 1: the line has more than 1048576 values and signs"), many);
    BOOST_TEST(has(refused("a.jsonl", std::string(16'000'000, '[')), "more than 1048576 values"));
    BOOST_TEST((read("a.jsonl", line(std::string(3'000'000, ',') + "\\\"" + std::string(3'000'000, '['))) ==
                strings{std::string(3'000'000, ',') + "\"" + std::string(3'000'000, '[')}));
}

BOOST_AUTO_TEST_CASE(a_line_of_a_hundred_megabytes_is_one_too_many) {
    calm::test::temporary_folder const folder;
    auto const path = folder.with("a.jsonl.zst", zstd(line("a")) + zstd(line(std::string(100'000'000, 'x'))));
    auto const said = sentence_of<calm::error>([&] { (void)documents_of(path); });
    BOOST_TEST(has(said, "grows more than 1000 times"), said);
    std::string varied(100'000'000, 'x');
    for (std::size_t i = 0; i < varied.size(); i += 1 + i % 97) varied[i] = static_cast<char>('a' + i * i % 23);
    auto const plain = folder.with("a.jsonl", line("a") + line(varied) + line("b"));
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)documents_of(plain); }),
                   "line 2: the line has more than 67108864 bytes: expected one document per line"));
    calm::skipped_documents skipped;
    BOOST_TEST(documents_of(plain, &skipped) == (strings{"a", "b"}));
    BOOST_TEST(skipped.count == 1U);
}
