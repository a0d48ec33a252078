#include "calm/text/read_text.hpp"

#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <fstream>

#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using calm::test::has;
using calm::test::sentence_of;

namespace {

std::string written(calm::test::temporary_folder const& folder, std::string const& name, std::string const& bytes) {
    auto path = folder.path(name);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
}

}  // namespace

BOOST_AUTO_TEST_CASE(documents_come_in_the_order_of_the_files) {
    calm::test::temporary_folder const folder;
    auto const lines = written(folder, "b.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    auto const whole = written(folder, "a.txt", "three\nlines\nhere\n");
    std::vector<std::string> const expected{"one", "two", "three\nlines\nhere\n"};
    BOOST_TEST(read_text(lines, whole) == expected, boost::test_tools::per_element());
    BOOST_TEST(read_text(lines).size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_long_document_comes_in_pieces) {
    calm::test::temporary_folder const folder;
    std::string book;
    for (int i = 0; i < 25'000; ++i) book += "word ";
    auto const pieces = read_text(written(folder, "book.txt", book));
    BOOST_TEST_REQUIRE(pieces.size() == 3U);
    BOOST_TEST(pieces[0] + " " + pieces[1] + " " + pieces[2] == book);
}

BOOST_AUTO_TEST_CASE(generated_stories_have_about_four_bytes_per_token) {
    auto const made = read_text("stories:1000");
    std::size_t bytes = 0;
    for (auto const& one : made) bytes += one.size();
    BOOST_TEST(bytes >= 3900U);
    BOOST_TEST(bytes <= 5000U);
    BOOST_TEST(made.front() == story(1, split::train, 0));
}

BOOST_AUTO_TEST_CASE(texts_that_cannot_be_read_are_named) {
    calm::test::temporary_folder const folder;
    auto const missing = folder.path("no.txt");
    BOOST_TEST(has(sentence_of<error>([&] { (void)read_text(missing); }), "no.txt"));
    auto const empty = written(folder, "empty.txt", "");
    BOOST_TEST(has(sentence_of(errc::data, [&] { (void)read_text(empty); }), "the file is empty"));
    auto const broken = written(folder, "broken.jsonl", "{\"text\": \"one\"}\n{\"text\": 2}\n");
    BOOST_TEST(has(sentence_of(errc::data, [&] { (void)read_text(broken); }), "line 2"));
    BOOST_TEST(has(sentence_of(errc::usage, [&] { (void)read_text(std::span<std::string const>()); }), "no text"));
}
