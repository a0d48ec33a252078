#include "calm/text/load_tokenizer.hpp"

#include <boost/test/unit_test.hpp>

#include <map>
#include <sstream>

#include "calm/base/random.hpp"
#include "calm/text/markov.hpp"
#include "shared_data.hpp"
#include "support/sentences.hpp"

namespace {

using calm::token_id;
using calm::tokenizer;
using calm::test::has;
using calm::test::sentence_of;
using calm::test::temporary_file;

// Random mix of ASCII, arbitrary bytes, and valid characters of all lengths.
std::string random_bytes(calm::random_sequence& random, std::size_t size) {
    static std::string const some[] = {"é",  "中",  "😀", " ",        "\n",       "\r\n",
                                       "ab", "the", "1", "\xe2\x80", "\xf0\x9f", "\xc3"};
    std::string out;
    while (out.size() < size) {
        switch (random.below(3)) {
        case 0:
            out += static_cast<char>(random.below(128));
            break;
        case 1:
            out += static_cast<char>(random.below(256));
            break;
        default:
            out += some[random.below(std::size(some))];
        }
    }
    return out;
}

std::vector<std::string> const sample_documents{
    "The cat sat on the mat, and the other cat sat on the other mat. That was that, they said; the end of the matter.",
    "She sells sea shells on the sea shore. The shells she sells are sea shells, she's sure. It isn't 12345 shells!"};

// The definition, taken literally: count all adjacent pairs, merge the most frequent one, repeat.
std::vector<std::string> naive_merges(std::vector<std::string> const& documents, std::size_t merges) {
    std::vector<std::vector<std::string>> words;
    for (auto const& document : documents)
        calm::pretokenizer().cut(document, [&](std::string_view piece) {
            words.emplace_back();
            for (char const c : piece) words.back().emplace_back(1, c);
        });
    std::vector<std::string> learned;
    std::map<std::string, int> id;
    for (int i = 0; i < 256; ++i) id[std::string(1, static_cast<char>(i))] = i;
    while (learned.size() < merges) {
        std::map<std::pair<int, int>, int> counts;
        std::map<std::pair<int, int>, std::pair<std::string, std::string>> names;
        for (auto const& word : words)
            for (std::size_t i = 0; i + 1 < word.size(); ++i) {
                std::pair const pair{id[word[i]], id[word[i + 1]]};
                ++counts[pair];
                names[pair] = {word[i], word[i + 1]};
            }
        if (counts.empty()) break;
        auto best = counts.begin();
        for (auto it = counts.begin(); it != counts.end(); ++it)
            if (it->second > best->second) best = it;
        auto const [left, right] = names[best->first];
        id[left + right] = static_cast<int>(256 + learned.size());
        learned.push_back(left + right);
        for (auto& word : words)
            for (std::size_t i = 0; i + 1 < word.size(); ++i)
                if (word[i] == left && word[i + 1] == right) {
                    word[i] += right;
                    word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
                }
    }
    return learned;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_byte_vocabulary_maps_bytes_to_themselves) {
    tokenizer const bytes;
    BOOST_TEST(bytes.vocabulary_size() == 259);
    BOOST_TEST(bytes.bos() == 256);
    BOOST_TEST(bytes.eos() == 257);
    BOOST_TEST(bytes.pad() == 258);
    std::string all;
    for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
    auto const ids = bytes.encode(all);
    BOOST_REQUIRE(ids.size() == 256);
    for (int i = 0; i < 256; ++i) BOOST_TEST(ids[static_cast<std::size_t>(i)] == i);
    BOOST_TEST(bytes.encode("").empty());
}

BOOST_AUTO_TEST_CASE(training_is_the_definition) {
    auto const expected = naive_merges(sample_documents, 60);
    auto const trained = tokenizer::train(sample_documents, static_cast<token_id>(259 + expected.size()));
    BOOST_TEST(trained.vocabulary_size() == static_cast<token_id>(259 + expected.size()));
    for (std::size_t i = 0; i < expected.size(); ++i)
        BOOST_TEST(trained.bytes(static_cast<token_id>(256 + i)) == expected[i]);
    calm::random_sequence random({.seed = 5});
    for (int round = 0; round < 40; ++round) {
        std::vector<std::string> documents;
        for (int i = 0; i < 3; ++i) {
            documents.emplace_back();
            for (int j = 0; j < 60; ++j) documents.back() += "aab b"[random.below(5)];
        }
        auto const naive = naive_merges(documents, 25);
        auto const table = [&] {
            calm::bpe_trainer trainer;
            for (auto const& d : documents) trainer.add(d);
            return trainer.train(25);
        }();
        BOOST_REQUIRE(table.size() == static_cast<token_id>(256 + naive.size()));
        for (std::size_t i = 0; i < naive.size(); ++i)
            BOOST_TEST(table.bytes(static_cast<token_id>(256 + i)) == naive[i]);
    }
}

BOOST_AUTO_TEST_CASE(too_small_and_too_large_vocabularies_are_errors) {
    BOOST_TEST(has(sentence_of<calm::error>([] { (void)tokenizer::train(sample_documents, 258); }), "259 or more"));
    try {
        (void)tokenizer::train(sample_documents, 5000);
        BOOST_FAIL("no error");
    } catch (calm::error const& e) {
        BOOST_TEST((e.code() == calm::errc::tokenizer));
        std::string const text = e.what();
        std::size_t const at = text.find("at most ");
        BOOST_REQUIRE(at != std::string::npos);
        auto const most = static_cast<token_id>(std::stoi(text.substr(at + 8)));
        BOOST_TEST(tokenizer::train(sample_documents, most).vocabulary_size() == most);
        BOOST_CHECK_THROW((void)tokenizer::train(sample_documents, most + 1), calm::error);
    }
    BOOST_TEST(tokenizer::train(std::vector<std::string>{}, 259).fingerprint() == tokenizer().fingerprint());
}

BOOST_AUTO_TEST_CASE(any_bytes_survive_the_round_trip) {
    auto const trained = tokenizer::train(sample_documents, 320);
    calm::random_sequence random({.seed = 1});
    for (int round = 0; round < 400; ++round) {
        auto const text = random_bytes(random, random.below(300));
        auto const ids = trained.encode(text);
        for (token_id const id : ids) BOOST_REQUIRE(id < trained.bos());
        BOOST_REQUIRE(trained.decode(ids) == text);
    }
    auto const names = trained.encode("<|end_of_text|>[PAD]<|begin_of_text|>");
    for (token_id const id : names) BOOST_TEST(id < trained.bos());
    std::vector<token_id> const specials{trained.bos(), 'h', 'i', trained.eos(), trained.pad()};
    BOOST_TEST(trained.decode(specials) == "hi");
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)trained.bytes(320); }), "outside 0..319"));
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)trained.bytes(-1); }), "outside"));
}

BOOST_AUTO_TEST_CASE(a_text_in_parts_has_the_ids_of_the_whole) {
    auto const words = tokenizer::train(sample_documents, 300);
    calm::random_sequence random({.seed = 12});
    calm::token_stream stream(words);  // reused for all texts
    for (int round = 0; round < 200; ++round) {
        std::string text;
        for (auto i = random.below(300); i > 0; --i) text += "ab e\n1'\xc3\xa9\xff"[random.below(10)];
        std::vector<token_id> ids;
        for (std::string_view rest = text; !rest.empty();) {
            auto const part = rest.substr(0, 1 + random.below(40));
            stream.push(part, ids);
            rest.remove_prefix(part.size());
        }
        stream.finish(ids);
        BOOST_REQUIRE(ids == words.encode(text));
    }
    auto const symbols = tokenizer::of_symbols(calm::markov_alphabet);
    calm::token_stream of_symbols(symbols);
    std::vector<token_id> ids;
    of_symbols.push("Ab", ids);
    of_symbols.push("09", ids);
    of_symbols.finish(ids);
    BOOST_TEST(ids == symbols.encode("Ab09"));
}

BOOST_AUTO_TEST_CASE(every_short_string_and_every_kind_of_bad_utf8_survives) {
    auto const trained = tokenizer::train(sample_documents, 300);
    auto const survives = [&](std::string const& text) {
        std::string const within = "the" + text + " cat";
        return trained.decode(trained.encode(text)) == text && trained.decode(trained.encode(within)) == within;
    };
    for (int a = 0; a < 256; ++a) {
        std::string text(1, static_cast<char>(a));
        BOOST_REQUIRE(survives(text));
        text += ' ';
        for (int b = 0; b < 256; ++b) {
            text[1] = static_cast<char>(b);
            BOOST_REQUIRE(survives(text));
        }
    }
    std::string const smile = "😀";
    for (std::size_t size = 1; size < smile.size(); ++size) BOOST_TEST(survives(smile.substr(0, size)));
    for (std::string const bad : {"\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xf0\x80\x80\x80",
                                  "\xf0\x8f\xbf\xbf",                                          // overlong
                                  "\xed\xa0\x80", "\xed\xbf\xbf", "\xed\xa0\xbd\xed\xb8\x80",  // surrogates
                                  "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xff\xff", "\x80", "\xe2\x28\xa1",
                                  "\xef\xbf\xbe", "\xef\xbb\xbf"})
        BOOST_TEST(survives(bad));
}

BOOST_AUTO_TEST_CASE(pieces_make_up_the_text_and_white_space_is_unicodes) {
    calm::pretokenizer const pattern;
    auto const cut = [&](std::string_view text) {
        std::vector<std::string> pieces;
        pattern.cut(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
        return pieces;
    };
    using strings = std::vector<std::string>;
    BOOST_TEST(cut("I'LL go, 12345!\n\n  x") ==
               (strings{"I", "'LL", " go", ",", " ", "123", "45", "!\n\n", " ", " x"}));
    BOOST_TEST(cut("a\u2003 \u0085!") == (strings{"a", "\u2003 ", "\u0085", "!"}));  // White_Space
    BOOST_TEST(cut("!\u180e!") == (strings{"!\u180e!"}));                            // no longer White_Space
    BOOST_TEST(cut("ab\xff\xfe"
                   "cd\xe2\x80") == (strings{"ab", "\xff\xfe", "cd", "\xe2\x80"}));
    calm::random_sequence random({.seed = 2});
    for (int round = 0; round < 200; ++round) {
        auto const text = random_bytes(random, random.below(200));
        std::string joined;
        for (auto const& piece : cut(text)) {
            BOOST_REQUIRE(!piece.empty());
            joined += piece;
        }
        BOOST_REQUIRE(joined == text);
    }
}

BOOST_AUTO_TEST_CASE(long_pieces_are_not_quadratic) {
    auto const trained = tokenizer::train(sample_documents, 320);
    for (std::string const unit : {"a", "the", " ", "\n", "\xff", "é", "!", "1"}) {
        std::string text;
        while (text.size() < 400'000) text += unit;
        BOOST_TEST(trained.decode(trained.encode(text)).size() == text.size());
    }
}

BOOST_AUTO_TEST_CASE(saved_and_loaded_it_is_the_same) {
    auto const trained = tokenizer::train(sample_documents, 300);
    temporary_file const file("tokenizer.model");
    trained.save(file.path());
    auto const loaded = calm::load_tokenizer(file.path());
    BOOST_TEST(loaded.vocabulary_size() == 300);
    BOOST_TEST(loaded.fingerprint() == trained.fingerprint());
    BOOST_TEST(loaded.encode(sample_documents[0]) == trained.encode(sample_documents[0]));
    temporary_file const again("tokenizer.model");
    loaded.save(again.path());
    BOOST_TEST(again.content() == file.content());
    std::string crlf;
    for (char const c : file.content()) crlf += c == '\n' ? "\r\n" : std::string(1, c);
    temporary_file const other("windows.model", crlf + "\r\n");
    BOOST_TEST(calm::load_tokenizer(other.path()).fingerprint() == trained.fingerprint());
    temporary_file const marked("marked.model", "\xef\xbb\xbf" + file.content());
    BOOST_TEST(calm::load_tokenizer(marked.path()).fingerprint() == trained.fingerprint());
    BOOST_CHECK_THROW(trained.save(file.path() + "/no/such"), calm::error);
}

BOOST_AUTO_TEST_CASE(fingerprints_are_pinned) {
    BOOST_TEST(tokenizer().fingerprint() == "76ceb1173eaa97b458a56928807c4c40fe7bdc6b889e1e08aef35da2df0cd44d");
    BOOST_TEST(tokenizer::train(sample_documents, 300).fingerprint() != tokenizer().fingerprint());
}

BOOST_AUTO_TEST_CASE(malformed_files_name_path_line_and_cause) {
    temporary_file const good("good.model");
    tokenizer().save(good.path());
    std::vector<std::string> lines;
    std::istringstream in(good.content());
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    auto const complaint = [](std::vector<std::string> const& all) {
        std::string text;
        for (auto const& line : all) text += line + "\n";
        temporary_file const file("bad.model", text);
        return sentence_of<calm::error>([&] { (void)calm::load_tokenizer(file.path()); });
    };
    auto const with = [&](std::size_t i, std::string const& line) {
        auto copy = lines;
        copy[i] = line;
        return complaint(copy);
    };
    BOOST_TEST(has(with(3, "A*== 3"), "bad.model, line 4: expected a token in base64"));
    BOOST_TEST(has(with(3, " 3"), "line 4: expected a token in base64"));
    BOOST_TEST(has(with(3, "Aw=="), "line 4: expected `base64 rank`, found no space"));
    BOOST_TEST(has(with(3, "Aw== x"), "line 4: expected a number"));
    BOOST_TEST(has(with(3, "Aw== 3 "), "line 4: expected a number"));
    BOOST_TEST(has(with(3, "Aw== 4"), "line 4: expected rank 3, found 4"));
    BOOST_TEST(has(with(3, "Aw== 99999999999999"), "line 4: expected a number"));
    BOOST_TEST(has(with(3, "AA== 3"), "line 4: rank 3 repeats the token of rank 0"));
    BOOST_TEST(has(complaint({lines.begin(), lines.begin() + 200}), "line 201: the file ends, but byte 200"));
    BOOST_TEST(has(complaint({}), "byte 0"));
    BOOST_TEST(has(sentence_of<calm::error>([] { (void)calm::load_tokenizer("no-such-file"); }), "cannot be opened"));
    BOOST_CHECK_THROW((void)calm::load_tokenizer("."), calm::error);
}

BOOST_AUTO_TEST_CASE(symbols_of_a_source_are_its_tokens) {
    auto const symbols = tokenizer::of_symbols(calm::markov_alphabet);
    BOOST_TEST(symbols.vocabulary_size() == 64);
    BOOST_TEST(!symbols.specials().exist());
    BOOST_TEST(tokenizer().specials().exist());
    BOOST_TEST(symbols.encode("ABaz09+-") == (std::vector<token_id>{0, 1, 26, 51, 52, 61, 62, 63}));
    std::vector<token_id> ids;
    for (token_id id = 0; id < 64; ++id) ids.push_back(id);
    BOOST_TEST(symbols.decode(ids) == calm::markov_alphabet);
    BOOST_TEST(symbols.encode(symbols.decode(ids)) == ids);
    BOOST_TEST(
        has(sentence_of<calm::error>([&] { (void)symbols.encode("AB c"); }), "byte 32 of the text has no token"));
    BOOST_TEST(has(sentence_of<calm::error>([] { (void)tokenizer::of_symbols("ABA"); }), "found 'A' twice"));
    BOOST_TEST(has(sentence_of<calm::error>([&] { (void)symbols.bytes(64); }), "outside 0..63"));
    // It keeps its fingerprint in a file.
    calm::test::temporary_file const file("symbols.model", "");
    symbols.save(file.path());
    auto const again = calm::load_tokenizer(file.path());
    BOOST_TEST(!again.specials().exist());
    BOOST_TEST(again.fingerprint() == symbols.fingerprint());
    BOOST_TEST(symbols.fingerprint() != tokenizer().fingerprint());
}
