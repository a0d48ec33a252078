#include "calm/text/detail/line_reader.hpp"

#include <boost/test/unit_test.hpp>

#include <vector>

#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

namespace {

using strings = std::vector<std::string>;

}  // namespace

BOOST_AUTO_TEST_CASE(lines_end_where_they_end_whatever_the_blocks) {
    calm::test::temporary_folder const folder;
    // A line end at, before and after the boundaries of 128 KiB blocks.
    for (std::size_t const size : {131070U, 131071U, 131072U, 131073U, 262143U, 262144U}) {
        strings const lines{std::string(size, 'a'), "", std::string(size, 'b'), "end"};
        std::string content;
        for (auto const& line : lines) content += line + "\n";
        for (bool const ended : {true, false}) {
            calm::line_reader reader(folder.with("a.txt", ended ? content : content.substr(0, content.size() - 1)),
                                     size);
            strings read;
            for (std::string line; reader.next(line);) read.push_back(line);
            BOOST_TEST((read == lines), size);
            BOOST_TEST(reader.number() == 4U);
        }
        calm::line_reader reader(folder.path("a.txt"), size - 1);
        strings read;
        std::string said;
        for (std::string line;;) {
            try {
                if (!reader.next(line)) break;
                read.push_back(line);
            } catch (calm::error const& wrong) {
                said += wrong.place() + ";";
            }
        }
        BOOST_TEST(read == (strings{"", "end"}));
        BOOST_TEST(said == "line 1;line 3;");
    }
}

BOOST_AUTO_TEST_CASE(only_the_first_line_has_a_byte_order_mark) {
    calm::test::temporary_folder const folder;
    calm::line_reader reader(folder.with("a.txt", "\xef\xbb\xbf"
                                                  "a\r\n\xef\xbb\xbf"
                                                  "b"),
                             10);
    std::string line;
    BOOST_TEST(reader.next(line));
    BOOST_TEST(line == "a\r");
    BOOST_TEST(reader.next(line));
    BOOST_TEST(line == "\xef\xbb\xbf"
                       "b");
    BOOST_TEST(!reader.next(line));
    BOOST_TEST(!reader.next(line));
}
