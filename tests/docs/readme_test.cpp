#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "calm/version.hpp"

namespace {

namespace fs = std::filesystem;

fs::path root() {
    return fs::path(__FILE__).parent_path().parent_path().parent_path();
}

std::string read(fs::path const& path) {
    std::ifstream file(root() / path, std::ios::binary);
    BOOST_REQUIRE_MESSAGE(file, "cannot open " << path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

// Files in the given folders whose names end in `end`, relative to the root.
std::vector<fs::path> files(std::vector<std::string> const& folders, std::string const& end) {
    std::vector<fs::path> found;
    for (auto const& folder : folders)
        for (auto const& entry : fs::recursive_directory_iterator(root() / folder))
            if (entry.path().string().ends_with(end)) found.push_back(fs::relative(entry.path(), root()));
    std::sort(found.begin(), found.end());
    return found;
}

std::vector<fs::path> documentation() {
    auto found = files({"docs", "apps", "bench", "examples", "tests", "include/calm"}, ".md");
    for (auto const& entry : fs::directory_iterator(root()))
        if (entry.path().extension() == ".md") found.push_back(entry.path().filename());
    return found;
}

// The Markdown blocks that open with ```language.
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

// Removes leading blanks: an excerpt may be indented differently from its source.
std::string flush_left(std::string const& text) {
    std::istringstream lines(text);
    std::string all = "\n";
    for (std::string line; std::getline(lines, line);)
        all += line.substr(std::min(line.size(), line.find_first_not_of(' '))) + "\n";
    return all;
}

// Every block of the language must occur in one of the files.
void check_excerpts(std::string const& language, std::vector<fs::path> const& originals) {
    std::vector<std::string> texts;
    for (auto const& path : originals) texts.push_back(flush_left(read(path)));
    int checked = 0;
    for (auto const& page : documentation())
        for (auto const& block : blocks(read(page), language)) {
            auto const lines = flush_left(block);
            auto const holds = [&](std::string const& text) { return text.find(lines) != std::string::npos; };
            BOOST_TEST(std::any_of(texts.begin(), texts.end(), holds),
                       page.string() << ": expected a file that is compiled with this in it, found none:\n"
                                     << block);
            ++checked;
        }
    BOOST_TEST(checked > 0);
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_example_of_the_readme_is_the_file) {
    auto const code = blocks(read("README.md"), "cpp");
    BOOST_REQUIRE(code.size() == 1U);
    BOOST_TEST(code.front() == read("examples/01_first_model.cpp"));
}

BOOST_AUTO_TEST_CASE(it_has_at_most_twenty_lines_of_code) {
    std::istringstream file(read("examples/01_first_model.cpp"));
    int lines = 0;
    for (std::string line; std::getline(file, line);)
        if (!line.empty() && !line.starts_with("//")) ++lines;
    BOOST_TEST(lines <= 20);
}

BOOST_AUTO_TEST_CASE(every_cpp_block_is_in_a_compiled_file) {
    auto originals = files({"examples", "apps", "tests/docs", "docs/tutorial"}, ".cpp");
    for (auto const& header : files({"include/calm"}, ".hpp")) originals.push_back(header);
    check_excerpts("cpp", originals);
}

BOOST_AUTO_TEST_CASE(every_cmake_block_is_in_the_consumer) {
    check_excerpts("cmake", {"tests/consumer/project/CMakeLists.txt"});
}

// ```text is a diagram or program output; a block without a language holds commands (tests/docs/commands).
BOOST_AUTO_TEST_CASE(blocks_are_code_commands_or_text) {
    for (auto const& page : documentation()) {
        std::istringstream text(read(page));
        bool inside = false;
        for (std::string line; std::getline(text, line);) {
            if (!line.starts_with("```")) continue;
            inside = !inside;
            if (inside)
                BOOST_TEST((line == "```" || line == "```cpp" || line == "```cmake" || line == "```text"),
                           page.string() << ": nothing tries a block of " << line.substr(3));
        }
        BOOST_TEST(!inside, page.string() << ": a block without an end");
    }
}

BOOST_AUTO_TEST_CASE(every_example_is_in_the_table_and_every_row_is_an_example) {
    auto const table = read("examples/README.md");
    auto const examples = files({"examples"}, ".cpp");
    BOOST_TEST(examples.size() >= 8U);
    for (auto const& example : examples)
        BOOST_TEST(table.find("| `" + example.filename().string() + "` |") != std::string::npos, example.string());
    for (std::size_t at = table.find("| `"); at != std::string::npos; at = table.find("| `", at + 1))
        BOOST_TEST(fs::exists(root() / "examples" / table.substr(at + 3, table.find('`', at + 3) - at - 3)));
}

BOOST_AUTO_TEST_CASE(every_path_that_the_readme_names_is_there) {
    auto const text = read("README.md");
    for (char const* const path :
         {"docs/architecture.md", "docs/mathematics.md", "docs/configurations.md", "docs/extending.md",
          "examples/README.md", "apps/README.md", "tests/README.md", "CHANGELOG.md", "CONTRIBUTING.md"}) {
        BOOST_TEST(text.find(path) != std::string::npos, path);
        BOOST_TEST(fs::exists(root() / path), path);
    }
}

// Sources that the documentation names, such as `tensor/expr/ops.hpp`, must exist.
BOOST_AUTO_TEST_CASE(every_source_that_the_documentation_names_is_there) {
    for (auto const& page : files({"docs"}, ".md")) {
        std::istringstream text(read(page));
        for (std::string name; std::getline(text, name, '`');) {
            if (name.find('/') == std::string::npos || !(name.ends_with(".hpp") || name.ends_with(".cpp")) ||
                name.find_first_of(" *<\n") != std::string::npos)
                continue;
            bool const mine = name == "apps/configs/mine.cpp";  // a file that the reader creates
            bool const exists = fs::exists(root() / name) || fs::exists(root() / "include/calm" / name) ||
                                fs::exists(root() / "include" / name);
            BOOST_TEST((mine || exists), page.string() << ": there is no " << name);
        }
    }
}

// | `name`, `other<T>` | ... | [`file.hpp`](../include/calm/file.hpp) |: each name of a row appears in one of its
// headers.
BOOST_AUTO_TEST_CASE(every_name_of_the_glossary_is_in_its_header) {
    auto const between = [](std::string const& text, std::string const& begin, char end) {
        std::vector<std::string> found;
        for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at)) {
            at += begin.size();
            std::size_t const stop = std::min(text.find(end, at), text.size());
            found.push_back(text.substr(at, stop - at));
            at = std::min(stop + 1, text.size());
        }
        return found;
    };
    std::istringstream page(read("docs/glossary.md"));
    int checked = 0;
    for (std::string row; std::getline(page, row);) {
        auto const headers = between(row, "](../", ')');
        if (!row.starts_with("| ") || headers.empty()) continue;
        std::string texts;
        for (auto const& header : headers) texts += read(header);
        for (auto name : between(row.substr(0, row.find('|', 2)), "`", '`')) {
            name = name.substr(name.starts_with("ctx.") ? 4 : name.find_first_not_of('-'));
            name = name.substr(0, name.find_first_of("<(:. "));
            BOOST_TEST(texts.find(name) != std::string::npos, "docs/glossary.md: '" << name << "' is not in " << row);
            ++checked;
        }
    }
    BOOST_TEST(checked > 50);
}

BOOST_AUTO_TEST_CASE(the_version_has_its_entry_and_the_readme_finds_it) {
    std::string const minor = std::to_string(calm::version.major) + "." + std::to_string(calm::version.minor);
    std::string const whole = minor + "." + std::to_string(calm::version.patch);
    static_assert(calm::version.major * 10000 + calm::version.minor * 100 + calm::version.patch == CALM_VERSION);
    static_assert(calm::version_number{0, 10, 0} > calm::version_number{0, 9, 9});
    BOOST_TEST(read("CHANGELOG.md").find("\n## " + whole + " ") != std::string::npos);
    BOOST_TEST(read("README.md").find("find_package(calm " + minor + " ") != std::string::npos);
}
