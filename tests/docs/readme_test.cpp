#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::filesystem::path root() {
    return std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
}

std::string read(std::string const& path) {
    std::ifstream file(root() / path, std::ios::binary);
    BOOST_REQUIRE_MESSAGE(file, "cannot open " << path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

// The blocks of a Markdown file between ```language and ```.
std::vector<std::string> blocks(std::string const& text, std::string const& language) {
    std::string const begin = "```" + language + "\n";
    std::vector<std::string> found;
    for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at)) {
        at += begin.size();
        std::size_t const end = text.find("```\n", at);
        BOOST_REQUIRE(end != std::string::npos);
        found.push_back(text.substr(at, end - at));
        at = end + 4;
    }
    return found;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_example_of_the_readme_is_the_file) {
    auto const code = blocks(read("README.md"), "cpp");
    BOOST_REQUIRE(code.size() == 1U);
    BOOST_TEST(code.front() == read("examples/01_train_your_own.cpp"));
}

BOOST_AUTO_TEST_CASE(it_has_at_most_twenty_lines_of_code) {
    std::istringstream file(read("examples/01_train_your_own.cpp"));
    int lines = 0;
    for (std::string line; std::getline(file, line);)
        if (!line.empty() && !line.starts_with("//")) ++lines;
    BOOST_TEST(lines <= 20);
}

BOOST_AUTO_TEST_CASE(every_path_in_backticks_or_links_is_there) {
    auto const text = read("README.md");
    for (char const* const path : {"docs/architecture.md", "docs/mathematics.md", "docs/configurations.md",
                                   "examples/README.md", "apps/README.md", "tests/README.md"}) {
        BOOST_TEST(text.find(path) != std::string::npos, path);
        BOOST_TEST(std::filesystem::exists(root() / path), path);
    }
}
