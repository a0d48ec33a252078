#include "calm/text/detail/file_list.hpp"

#include <boost/test/unit_test.hpp>

#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

namespace {

using calm::test::has;
using calm::test::sentence_of;
using strings = std::vector<std::string>;

strings files_of(std::string const& spec) {
    return calm::detail::files_of(spec).files;
}

std::string complaint(std::string const& spec) {
    return sentence_of<calm::error>([&] { (void)files_of(spec); });
}

struct some_files {
    calm::test::temporary_folder folder;

    some_files() {
        for (auto const* const name : {"deep/er", ".hidden", "none", "deep/none"})
            std::filesystem::create_directories(folder.path(name));
        for (auto const* const name : {"b.txt", "a.jsonl.zst", "deep/er/c.json", "deep/a.txt.gz", "notes.md",
                                       ".hidden/d.txt", ".e.txt", "text.tokens", "none/data.csv"})
            (void)folder.with(name, "x");
    }
    [[nodiscard]] std::string at(std::string const& name) const { return folder.path(name); }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_folder_is_all_texts_below_it_in_order) {
    some_files const f;
    BOOST_TEST(files_of(f.at("")) ==
               (strings{f.at("a.jsonl.zst"), f.at("b.txt"), f.at("deep/a.txt.gz"), f.at("deep/er/c.json")}));
    BOOST_TEST(files_of(f.at("deep")).size() == 2U);
    BOOST_TEST(has(complaint(f.at("none")), "none: there is no text in this folder: expected files .txt"));
    BOOST_TEST(has(complaint(f.at("deep/none")), "there is no text in this folder"));
    std::filesystem::create_directory_symlink(f.at(""), f.at("deep/round"));  // not followed
    BOOST_TEST(files_of(f.at("deep")).size() == 2U);
}

// A user may name a link to any file, but a folder from elsewhere must not choose what else is read.
BOOST_AUTO_TEST_CASE(links_in_a_folder_stay_in_it) {
    some_files const f;
    std::filesystem::create_symlink("er/c.json", f.at("deep/inside.json"));
    BOOST_TEST(files_of(f.at("deep")).size() == 3U);
    std::filesystem::create_symlink(f.at("b.txt"), f.at("deep/outside.txt"));
    BOOST_TEST(has(complaint(f.at("deep")), "deep/outside.txt: is a link to a file outside of the folder"));
    BOOST_TEST(files_of(f.at("")).size() == 6U);
    BOOST_TEST(files_of(f.at("deep/outside.txt")).size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_pattern_is_the_texts_that_match) {
    some_files const f;
    BOOST_TEST(files_of(f.at("*")) == (strings{f.at("a.jsonl.zst"), f.at("b.txt")}));
    BOOST_TEST(files_of(f.at("?.*")).size() == 2U);
    BOOST_TEST(files_of(f.at("[b-z].txt")) == (strings{f.at("b.txt")}));
    BOOST_TEST(files_of(f.at("deep/*/*.json")) == (strings{f.at("deep/er/c.json")}));
    BOOST_TEST(has(complaint(f.at("*.jsonl")), "*.jsonl: no file matches the pattern"));
    BOOST_TEST(has(complaint(f.at("no*")), "none of the 2 paths that match the pattern is a file of text"));
    (void)f.folder.with("x[1].txt", "a file of this name comes before a pattern");
    (void)f.folder.with("x1.txt", "x");
    BOOST_TEST(files_of(f.at("x[1].txt")) == (strings{f.at("x[1].txt")}));
}

BOOST_AUTO_TEST_CASE(runs_and_models_in_a_folder_are_no_text) {
    some_files const f;
    auto const put = [&](std::string const& name) {
        std::filesystem::create_directories(std::filesystem::path(f.at(name)).parent_path());
        (void)f.folder.with(name, "x");
    };
    for (auto const* const name : {"run/run.lock", "run/samples.jsonl", "run/deep/a.txt", "deep/text/text.lock",
                                   "deep/text/plan.json", "copy/run.json", "copy/options.toml", "copy/metrics.jsonl",
                                   "hub/model.safetensors.index.json", "hub/config.json", "plain/run.json",
                                   "old/pytorch_model.bin", "old/config.json", "shards/pytorch_model.bin.index.json"})
        put(name);
    auto const all = calm::detail::files_of(f.at(""));
    BOOST_TEST(all.files == (strings{f.at("a.jsonl.zst"), f.at("b.txt"), f.at("deep/a.txt.gz"), f.at("deep/er/c.json"),
                                     f.at("plain/run.json")}));
    BOOST_TEST(all.left_out ==
               (strings{f.at("copy"), f.at("deep/text"), f.at("hub"), f.at("old"), f.at("run"), f.at("shards")}));
    // Left out if a wildcard finds the run, but not if the pattern names it.
    auto const some = calm::detail::files_of(f.at("*/*.json*"));
    BOOST_TEST(some.files == strings{f.at("plain/run.json")});
    BOOST_TEST(some.left_out == (strings{f.at("copy"), f.at("hub"), f.at("old"), f.at("run"), f.at("shards")}));
    BOOST_TEST(files_of(f.at("run/*.jsonl")) == strings{f.at("run/samples.jsonl")});
    BOOST_TEST(files_of(f.at("run/samples.jsonl")) == strings{f.at("run/samples.jsonl")});
    BOOST_TEST(calm::detail::files_of(f.at("run/d*/*.txt")).left_out.empty());
    BOOST_TEST(has(complaint(f.at("run")), "run: it holds a run or a model, whose files are not text"));
}

BOOST_AUTO_TEST_CASE(a_file_is_itself_or_refused) {
    some_files const f;
    BOOST_TEST(files_of(f.at("b.txt")) == (strings{f.at("b.txt")}));
    BOOST_TEST(files_of(f.at(".e.txt")) == (strings{f.at(".e.txt")}));
    BOOST_TEST(has(complaint(f.at("notes.md")), "unknown kind of text \".md\": give a .txt file"));
    BOOST_TEST(has(complaint(f.folder.with("a.csv.gz", "x")), "unknown kind of text \".csv.gz\""));
    BOOST_TEST(has(complaint(f.folder.with("a", "x")), "unknown kind of text: give"));
    for (auto const* const name : {"c.txt.gz", "c.csv", "dep", "deep/more/"})
        BOOST_TEST(has(complaint(f.at(name)), std::string(name) + ": there is no such file or folder"), name);
}
