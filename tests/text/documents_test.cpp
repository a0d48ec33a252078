#include "calm/text/documents.hpp"

#include <boost/test/unit_test.hpp>

#include "shared_data.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

namespace {

using calm::document_selection;
using calm::document_source;
using calm::holdout;
using calm::split;
using calm::test::has;
using calm::test::sentence_of;
using calm::test::temporary_file;
using strings = std::vector<std::string>;

strings visited(strings const& specs, document_selection const& selection = {}) {
    strings all;
    bool inside = false;
    calm::visit_documents(specs, selection, [&](std::string_view part, bool ends) {
        if (!std::exchange(inside, !ends)) all.emplace_back();
        all.back() += part;
        return ends ? all.back().size() : 0;
    });
    return all;
}

std::string complaint(strings const& specs) {
    return sentence_of<calm::error>([&] { (void)visited(specs); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(holdouts_are_read_or_refused) {
    auto const sixth = holdout::parse("6:5");
    for (std::uint64_t i = 0; i < 100; ++i) BOOST_TEST(sixth.contains(i) == (i % 6 == 5));
    BOOST_TEST(sixth.text() == "6:5");
    for (std::string const bad : {"", "6", ":", "6:", ":5", "a:b", "6:5:1", "-6:5", "6:-1", " 6:5", "6:5 ", "6,5"})
        BOOST_TEST(has(sentence_of<calm::error>([&] { (void)holdout::parse(bad); }), "expected"), bad);
    BOOST_TEST(has(sentence_of<calm::error>([] { (void)holdout::parse("1:0"); }), "at least 2"));
    BOOST_TEST(has(sentence_of<calm::error>([] { (void)holdout::parse("0:0"); }), "at least 2"));
    BOOST_TEST(has(sentence_of<calm::error>([] { (void)holdout::parse("6:6"); }), "less than the modulus 6"));
    for (auto const* const many : {"1000001:0", "18446744073709551615:3"})
        BOOST_TEST(has(sentence_of<calm::error>([&] { (void)holdout::parse(many); }), "at most 1000000"));
    BOOST_TEST(holdout::parse("1000000:999999").contains(999999));
    for (std::string const name : {"stories:", "markov:"}) {
        for (auto const* const many : {"1000000001", "9223372036854775808", "18446744073709551615"})
            BOOST_TEST(has(sentence_of<calm::error>([&] { (void)calm::document_source::parse(name + many); }),
                           "at most 1000000000"));
        BOOST_TEST(calm::document_source::parse(name + "1000000000").is_generated());
    }
}

BOOST_AUTO_TEST_CASE(a_text_file_is_one_document) {
    temporary_file const file("a.txt", "one\r\ntwo\tthree\u00e9\n");
    BOOST_TEST(visited({file.path()}) == strings{"one\r\ntwo\tthree\u00e9\n"});
}

BOOST_AUTO_TEST_CASE(json_lines_give_their_text) {
    temporary_file const file("a.jsonl", "\xef\xbb\xbf{\"id\": 1, \"text\": \"a\\n\\u00e9\\ud83d\\ude00\"}\r\n\n  \n"
                                         "{\"text\":\"\",\"meta\":{\"text\":3}}\n{\"text\": \"last\"}");
    BOOST_TEST(visited({file.path()}) == (strings{"a\né😀", "", "last"}));
    temporary_file const other("a.json", "{\"text\": \"x\"}\n");
    BOOST_TEST(visited({file.path(), other.path()}) == (strings{"a\né😀", "", "last", "x"}));
    temporary_file const large("l.jsonl", "{\"text\": \"" + std::string(3'000'000, 'x') + "\"}\n{\"text\": \"y\"}\n");
    BOOST_TEST(visited({large.path()}, {split::heldout})[0].size() == 3'000'000U);
}

BOOST_AUTO_TEST_CASE(training_splits_long_documents) {
    constexpr std::size_t most = calm::training_pieces::longest;
    std::string words;
    for (int i = 0; i < 25'000; ++i) words += "w" + std::to_string(i) + " ";
    std::string signs;  // three bytes per character, without spaces
    while (signs.size() < 2 * most) signs += "中";
    std::string const spaces = std::string(9'999, ' ');
    auto const split_of = [](std::string const& document) {
        strings pieces;
        std::size_t met = 0, begin = 0;
        for (std::size_t at = 0; at < document.size();) {
            std::size_t next = at + 1;
            while (next < document.size() && (document[next] & 0xc0) == 0x80) ++next;
            bool const tenth = document[at] == ' ' && ++met == 10'000;
            if (tenth || next - begin > most) {
                pieces.push_back(document.substr(begin, at - begin));
                begin = tenth ? next : at;
                met = !tenth && document[at] == ' ' ? 1 : 0;
            }
            at = next;
        }
        pieces.push_back(document.substr(begin));
        return pieces;
    };
    for (auto const& text : {words, signs, spaces + "x", spaces + " ", spaces + " y", std::string(most, 'x'),
                             std::string(most + 1, 'x'), std::string(most, 'x') + " z", words + signs + words}) {
        auto const pieces = split_of(text);
        temporary_file const whole("a.txt", text);
        temporary_file const line("a.jsonl", "{\"text\": \"" + text + "\"}\n");
        for (auto const& path : {whole.path(), line.path()}) {
            BOOST_TEST((visited({path}) == pieces));
            BOOST_TEST((visited({path}, {split::heldout}) == strings{text}));
        }
    }
    BOOST_TEST(split_of(words).size() == 3U);
    BOOST_TEST(split_of(signs).size() == 3U);
}

BOOST_AUTO_TEST_CASE(errors_are_reported) {
    BOOST_TEST(has(complaint({}), "no text"));
    temporary_file const pdf("a.pdf", "x");
    BOOST_TEST(has(complaint({pdf.path()}), "a.pdf: unknown kind of text \".pdf\": give a .txt file"));
    BOOST_TEST(has(complaint({"folder/a"}), "folder/a: there is no such file or folder"));
    BOOST_TEST(has(complaint({"no-such.txt"}), "no-such.txt: there is no such file"));
    temporary_file const empty("e.txt", "");
    BOOST_TEST(has(complaint({empty.path()}), "the file is empty"));
    for (std::string const bad : {"stories:", "stories:0", "stories:-3", "stories:1k", "stories:99999999999999999999"})
        BOOST_TEST(has(complaint({bad}), "stories:N"), bad);
    BOOST_TEST(has(complaint({"stories:10", "stories:10"}), "more than once"));
    BOOST_TEST(has(complaint({"stories:10", "a.pdf"}), "a.pdf"));  // all are checked before the first is read
    auto const line = [](std::string const& content) {
        temporary_file const file("bad.jsonl", "{\"text\": \"fine\"}\n" + content + "\n");
        return complaint({file.path()});
    };
    BOOST_TEST(has(line("{\"text\": \"cut"), "bad.jsonl, line 2: invalid JSON"));
    BOOST_TEST(has(line("{\"text\": \"\xff\"}"), "bad.jsonl, line 2, byte 10: invalid UTF-8"));
    BOOST_TEST(has(line("{\"text\": \"a\"} {\"text\": \"b\"}"), "line 2: invalid JSON"));
    BOOST_TEST(has(line("[1]"), "line 2: expected an object with a field \"text\", found an array"));
    BOOST_TEST(has(line("\"text\""), "found a string"));
    BOOST_TEST(has(line("{\"Text\": \"a\"}"), "line 2: the object has no field \"text\""));
    BOOST_TEST(has(line("{\"text\": 3}"), "line 2: the field \"text\" must be a string, found a number"));
    BOOST_TEST(has(line("{\"text\": null}"), "found null"));
    BOOST_TEST(has(line("{\"text\": true}"), "found true or false"));
    BOOST_TEST(has(line("{\"text\": {}}"), "found an object"));
    BOOST_TEST(has(line("{\"text\": \"a\", \"text\": \"b\"}"), "more than one field"));
    temporary_file const blank("blank.jsonl", "\n \n");
    BOOST_TEST(has(complaint({blank.path()}), "only blank lines"));
}

BOOST_AUTO_TEST_CASE(folders_and_patterns_are_their_files) {
    calm::test::temporary_folder const folder;
    for (auto const* const name : {"b.jsonl", "a.jsonl"})
        (void)folder.with(name, "{\"text\": \"" + std::string(name) + "\"}\n");
    (void)folder.with("c.txt", "c");
    BOOST_TEST(visited({folder.path("")}) == (strings{"a.jsonl", "b.jsonl", "c"}));
    BOOST_TEST(visited({folder.path("*.jsonl"), folder.path("c.txt")}, {split::heldout, holdout::parse("2:0")}) ==
               (strings{"a.jsonl", "c"}));
    BOOST_TEST(document_source::parse(folder.path("[ab].jsonl")).files() ==
               (strings{folder.path("a.jsonl"), folder.path("b.jsonl")}));
}

BOOST_AUTO_TEST_CASE(malformed_documents_are_dropped_and_not_numbered) {
    temporary_file const file("a.jsonl", "{\"text\": \"0\"}\nnothing\n{\"text\": \"1\"}\n{}\n{\"text\": \"2\"}\n");
    calm::skipped_documents skipped;
    BOOST_TEST(visited({file.path()}, {.skip = &skipped}) == (strings{"0", "1", "2"}));
    BOOST_TEST(skipped.count == 2U);
    BOOST_REQUIRE(skipped.causes.size() == 2U);
    BOOST_TEST(has(skipped.causes[0].first, "line 2: invalid JSON"));
    BOOST_TEST(has(skipped.causes[1].first, "line 4: the object has no field"));
    BOOST_TEST(visited({file.path()}, {.use = split::heldout, .held = holdout::parse("3:1"), .skip = &skipped}) ==
               (strings{"1"}));
    BOOST_TEST(skipped.count == 4U);
    BOOST_TEST(skipped.causes.size() == 2U);
    BOOST_TEST(skipped.causes[1].count == 2U);
}

BOOST_AUTO_TEST_CASE(held_out_documents_are_exactly_those) {
    std::string content;
    for (int i = 0; i < 20; ++i) content += "{\"text\": \"" + std::to_string(i) + "\"}\n";
    temporary_file const file("a.jsonl", content);
    temporary_file const text("b.txt", "b");
    strings const specs{file.path(), text.path(), file.path()};  // numbers 0..19, 20, 21..40
    auto const sixth = holdout::parse("6:2");
    auto const train = visited(specs, {split::train, sixth});
    auto const held = visited(specs, {split::heldout, sixth});
    BOOST_TEST(held == (strings{"2", "8", "14", "b", "5", "11", "17"}));
    BOOST_TEST(train.size() + held.size() == 41U);
    BOOST_TEST(visited(specs).size() == 41U);
    BOOST_TEST(visited(specs, {split::heldout}).size() == 41U);
    // Generated stories do not shift the numbers of documents in files.
    auto const stories_first = visited({"stories:2000", file.path()}, {split::heldout, sixth});
    BOOST_TEST(strings(stories_first.end() - 3, stories_first.end()) == (strings{"2", "8", "14"}));
}

BOOST_AUTO_TEST_CASE(a_holdout_that_leaves_nothing_is_an_error) {
    temporary_file const text("a.txt", "one");
    auto const left = [&](split use, std::string const& held) {
        return sentence_of<calm::error>(
            [&] { (void)visited({text.path()}, {.use = use, .held = holdout::parse(held)}); });
    };
    BOOST_TEST(left(split::heldout, "6:0") == "");
    BOOST_TEST(left(split::train, "6:5") == "");
    BOOST_TEST(has(left(split::train, "6:0"), "no document is left to train on with the holdout 6:0 (documents in all: "
                                              "1): choose another m:r, give more documents, or cut a .txt file"));
    BOOST_TEST(has(left(split::heldout, "6:5"), "no document is left to evaluate on with the holdout 6:5"));
    // If there is no document at all, the holdout is not to blame.
    temporary_file const bad("a.jsonl", "bad\n");
    calm::skipped_documents skipped;
    auto const none = sentence_of<calm::error>(
        [&] { (void)visited({bad.path()}, {.held = holdout::parse("6:0"), .skip = &skipped}); });
    BOOST_TEST(none == "no document is left to train on: give more documents");
    BOOST_TEST(skipped.count == 1U);
}

BOOST_AUTO_TEST_CASE(stories_end_after_n_tokens_and_splits_differ) {
    auto const train = visited({"stories:5000"}, {split::train});
    std::size_t sum = 0;
    for (auto const& s : train) sum += s.size();
    BOOST_TEST(sum >= 5000U);
    BOOST_TEST(sum - train.back().size() < 5000U);
    BOOST_TEST(train[3] == calm::story(1, split::train, 3));
    BOOST_TEST(visited({"stories:5000"}, {split::heldout})[3] == calm::story(1, split::heldout, 3));
    auto const tenth = holdout::parse("10:4");
    auto const held = visited({"stories:5000"}, {split::heldout, tenth, 7});
    BOOST_TEST(held[0] == calm::story(7, split::train, 4));
    BOOST_TEST(held[1] == calm::story(7, split::train, 14));
    BOOST_TEST(visited({"stories:5000"}, {split::train, tenth, 7})[4] == calm::story(7, split::train, 5));
}

BOOST_AUTO_TEST_CASE(long_documents_are_split_for_training_only) {
    std::string text;
    for (int i = 0; i < 25'000; ++i) text += (i > 0 ? " w" : "w") + std::to_string(i);
    temporary_file const file("long.txt", text);
    auto const pieces = visited({file.path()});
    BOOST_REQUIRE(pieces.size() == 3U);
    BOOST_TEST(pieces[0].ends_with(" w9999"));
    BOOST_TEST(pieces[1].starts_with("w10000 "));
    BOOST_TEST(pieces[1].ends_with(" w19999"));
    BOOST_TEST(pieces[2].starts_with("w20000 "));
    BOOST_TEST((pieces[0] + " " + pieces[1] + " " + pieces[2] == text));
    BOOST_TEST(visited({file.path()}, {split::heldout}).size() == 1U);
    temporary_file const exact("exact.txt", text.substr(0, text.find(" w10000")));
    BOOST_TEST(visited({exact.path()}).size() == 1U);
}

BOOST_AUTO_TEST_CASE(markov_is_one_document_of_each_split) {
    calm::markov_chain const chain(4);
    auto const train = visited({"markov:20000"}, {split::train, {}, 4});
    BOOST_REQUIRE(train.size() == 1u);  // one document of any length
    BOOST_TEST(train[0] == chain.text(split::train, 20000));
    BOOST_TEST(visited({"markov:300"}, {split::heldout, {}, 4})[0] == chain.text(split::heldout, 300));
    auto const tenth = calm::holdout::parse("10:4");
    BOOST_TEST(visited({"markov:300"}, {split::train, tenth, 4})[0] == train[0].substr(0, 300));
    BOOST_TEST(visited({"markov:300"}, {split::heldout, tenth, 4})[0] == chain.text(split::heldout, 300));
    BOOST_TEST(has(complaint({"markov:300", "stories:10"}), "alone"));
    BOOST_TEST(has(complaint({"markov:0"}), "markov:N"));
    BOOST_TEST(calm::document_source::parse("markov:5").is_generated());
}
