// Warnings about scoring a model's training text.

#include <boost/test/unit_test.hpp>

#include "run/seen_text.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include "support/sentences.hpp"
#include "support/standard_error.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::apps;
using calm::test::has;
using calm::test::standard_error_of;
using calm::test::temporary_folder;

namespace {

// The warning without its newline, or "".
std::string logged(stored_model const& model, data_options const& data) {
    auto line = standard_error_of([&] { log_seen_text(model, data); });
    if (line.ends_with('\n')) line.pop_back();
    return line;
}

// The warning for a model `calm` and a text; sources and holdout of its training come first.
std::string warning(std::vector<std::string> const& trained, std::string const& trained_holdout,
                    std::vector<std::string> const& scored, std::string const& holdout = "") {
    stored_model model;
    model.directory = "calm";
    auto& record = model.description.calm.emplace().data.emplace();
    record.sources = trained;
    record.holdout = trained_holdout;
    record.data_seed = 1;
    data_options data;
    data.sources = scored;
    data.holdout = holdout;
    return logged(model, data);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_text_that_was_trained_on_is_named_with_a_remedy) {
    std::string const seen = ": the score is of text that the model has seen; give ";
    BOOST_TEST(warning({"a.txt"}, "", {"b.txt", "a.txt"}) ==
               "calm was trained on a.txt" + seen + "another text, or train with --holdout");
    BOOST_TEST(warning({"a.txt"}, "5:1", {"a.txt"}) ==
               "calm was trained on a.txt with --holdout 5:1" + seen + "--holdout 5:1, or another text");
    BOOST_TEST(warning({"a.txt"}, "5:1", {"a.txt"}, "5:2") == warning({"a.txt"}, "5:1", {"a.txt"}));
    BOOST_TEST(warning({"a.txt"}, "", {"a.txt"}, "5:1") == warning({"a.txt"}, "", {"a.txt"}));
    // Documents are numbered across files, so the holdout selects other documents of b.txt here.
    BOOST_TEST(warning({"a.txt", "b.txt"}, "5:1", {"b.txt"}, "5:1") ==
               "calm was trained on b.txt with --holdout 5:1" + seen +
                   "the same files in the same order, or another text");
}

BOOST_AUTO_TEST_CASE(a_text_that_was_not_trained_on_is_not_reported) {
    BOOST_TEST(warning({"a.txt"}, "", {"b.txt"}) == "");
    BOOST_TEST(warning({"a.txt"}, "5:1", {"a.txt"}, "5:1") == "");
    BOOST_TEST(warning({"a.txt", "b.txt"}, "5:1", {"a.txt"}, "5:1") == "");
    BOOST_TEST(warning({"a.txt"}, "5:1", {"a.txt", "b.txt"}, "5:1") == "");
    stored_model unknown;
    data_options data;
    data.sources = {"a.txt"};
    BOOST_TEST(logged(unknown, data) == "");
    unknown.description.calm.emplace();
    BOOST_TEST(logged(unknown, data) == "");
}

BOOST_AUTO_TEST_CASE(files_are_known_by_any_path_and_inside_folders_and_patterns) {
    temporary_folder const folder;
    std::filesystem::create_directory(folder.path("news"));
    auto const file = folder.with("news/one.jsonl", "{\"text\": \"a\"}\n");
    static_cast<void>(folder.with("news/two.jsonl", "{\"text\": \"b\"}\n"));
    auto const found = warning({folder.path("news")}, "", {folder.path("news/../news/one.jsonl")});
    BOOST_TEST(has(found, "was trained on one.jsonl"), found);
    BOOST_TEST(warning({file}, "", {folder.path("news/*.jsonl")}) == found);
    BOOST_TEST(warning({file}, "", {folder.path("news/two.jsonl")}) == "");
    std::filesystem::create_symlink(file, folder.path("link.jsonl"));
    BOOST_TEST(warning({file}, "", {folder.path("link.jsonl")}) == found);
}

BOOST_AUTO_TEST_CASE(generated_text_for_evaluation_is_new_unless_a_holdout_takes_trained_stories) {
    BOOST_TEST(warning({"stories:400"}, "", {"stories:400"}) == "");
    BOOST_TEST(warning({"stories:400"}, "10:9", {"stories:400"}) == "");
    BOOST_TEST(warning({"stories:400"}, "10:9", {"stories:400"}, "10:9") == "");
    BOOST_TEST(has(warning({"stories:400"}, "", {"stories:60"}, "10:9"), "was trained on stories:"));
    BOOST_TEST(has(warning({"stories:400"}, "10:8", {"stories:60"}, "10:9"), "give --holdout 10:8"));
    BOOST_TEST(warning({"markov:400"}, "", {"markov:400"}, "10:9") == "");
    stored_model model;
    model.description.calm.emplace().data.emplace();
    auto& trained = *model.description.calm->data;
    trained.sources = {"stories:400"};
    trained.data_seed = 1;
    data_options data;
    data.sources = {"stories:400"};
    data.holdout = "10:9";
    data.data_seed = 2;  // other stories
    BOOST_TEST(logged(model, data) == "");
    data.data_seed = 1;
    BOOST_TEST(logged(model, data) != "");
}
