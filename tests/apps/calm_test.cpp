// The program `calm`: its commands are the programs, and messages name them as the user called them. And tokenize.

#include <boost/test/unit_test.hpp>

#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "calm/text/load_tokenizer.hpp"
#include "calm/text/stories.hpp"
#include "command/completion.hpp"
#include "support/programs.hpp"
#include "support/sentences.hpp"

using calm::test::has;
using calm::test::run_in;
using calm::test::temporary_folder;

BOOST_AUTO_TEST_CASE(calm_describes_its_commands) {
    temporary_folder const folder;
    auto const help = run_in(folder, "calm --help");
    BOOST_TEST(help.status == 0);
    for (auto const* const command :
         {"train", "generate", "evaluate", "tokenize", "inspect", "convert", "sweep", "plot"}) {
        BOOST_TEST(has(help.out, "\n  " + std::string(command) + " "), command);
        auto const own = run_in(folder, "calm " + std::string(command) + " --help");
        BOOST_TEST(own.status == 0, command);
        BOOST_TEST(has(own.out, "Usage: calm " + std::string(command) + " "), own.out);
    }
    BOOST_TEST(run_in(folder, "calm --version").out.starts_with("calm 0."));
    BOOST_TEST(run_in(folder, "calm generate --version").out == run_in(folder, "calm --version").out);

    auto const none = run_in(folder, "calm");
    BOOST_TEST(none.status == 2);
    BOOST_TEST(has(none.err, "calm: expected a command, found none"), none.err);
    auto const misspelt = run_in(folder, "calm generat");
    BOOST_TEST(misspelt.status == 2);
    BOOST_TEST(has(misspelt.err, "found 'generat'; did you mean generate?"), misspelt.err);
    auto const wrong = run_in(folder, "calm inspect nowhere");
    BOOST_TEST(wrong.status == 2);
    BOOST_TEST(has(wrong.err, "calm inspect: "), wrong.err);
    BOOST_TEST(has(wrong.err, "(calm inspect --help-all shows every option)"), wrong.err);
    BOOST_TEST(run_in(folder, "calm train calm --bacth 4 2>&1 | grep bacth").out ==
               "  - there is no option --bacth; did you mean --batch?\n");
}

// Completes the words of a line in bash, as the tabulator key does.
BOOST_AUTO_TEST_CASE(bash_completes_commands_and_options_of_calm) {
    temporary_folder const folder;
    static_cast<void>(folder.with("calm.bash", calm::apps::completion_of_calm()));
    BOOST_TEST(run_in(folder, "train --completion bash >train.bash").status == 0);
    auto const completed = [&](std::vector<std::string> const& words) {
        std::string line = "source " + words[0] + ".bash; COMP_WORDS=(";
        for (auto const& word : words) line += "'" + word + "' ";
        line +=
            "); COMP_CWORD=" + std::to_string(words.size() - 1) + "; _calm_" + words[0] + "; echo \"${COMPREPLY[@]}\"";
        auto const r = run_in(
            folder, "bash -c '" + [&] {
                std::string quoted;
                for (char const c : line) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
                return quoted;
            }() + "'");
        BOOST_TEST(r.err == "");
        return r.out;
    };
    BOOST_TEST(completed({"calm", "gen"}) == "generate\n");
    BOOST_TEST(completed({"calm", "t"}) == "train tokenize\n");
    BOOST_TEST(completed({"calm", "train", "to"}) == "tokenizer\n");
    BOOST_TEST(completed({"calm", "train", "calm", "--autoenc"}) == "--autoencoder\n");
    BOOST_TEST(completed({"calm", "train", "my.txt", "--autoencoder-min"}) == "--autoencoder-minutes\n");
    BOOST_TEST(completed({"calm", "train", "--mi"}) == "--minutes\n");
    BOOST_TEST(completed({"calm", "train", "--schedule", "co"}) == "constant cosine\n");
    BOOST_TEST(completed({"calm", "train", ""}) == "text tokenizer autoencoder calm ar\n");
    BOOST_TEST(completed({"train", "--mi"}) == "--minutes\n");
    BOOST_TEST(completed({"train", "my.txt", "--mi"}) == "--minutes\n");
    BOOST_TEST(completed({"train", "tokenizer", "--vocab"}) == "--vocabulary\n");
    BOOST_TEST(completed({"train", "to"}) == "tokenizer\n");
    BOOST_TEST(completed({"calm", "generate", "--top-k"}) == "--top-k\n");
    BOOST_TEST(completed({"calm", "generate", "mine", "--top-k"}) == "--top-k\n");
    BOOST_TEST(completed({"calm", "tokenize", "--format", "js"}) == "json\n");
}

// A text as the first word, a plan without minutes, and a model named by the directory of its run.
BOOST_AUTO_TEST_CASE(a_text_is_trained_and_used_by_short_commands) {
    temporary_folder const folder;
    auto const planned = run_in(folder, "calm train stories:4000 --out mine --dry-run");
    BOOST_TEST(planned.status == 0, planned.err);
    BOOST_TEST(has(planned.err + planned.out, "minutes"), planned.err);
    BOOST_TEST(has(planned.err + planned.out, "the default"), planned.err);

    auto const trained =
        run_in(folder, "calm train stories:8000 --config tiny --steps 2 --autoencoder-steps 2 --batch 2 --block 64 "
                       "--autoencoder-batch 64 --out mine");
    BOOST_REQUIRE_MESSAGE(trained.status == 0, trained.err);
    BOOST_TEST(has(trained.err, "calm generate mine --prompt"), trained.err);
    // The words as they were given: run.json and "to resume" show them.
    auto const recorded = folder.content("mine/run.json");
    BOOST_TEST(has(recorded, "\"train\""), recorded);
    BOOST_TEST(!has(recorded, "\"train text\""), recorded);
    auto const whole = run_in(folder, "generate --model mine/model --prompt Mia --max-tokens 8 --seed 3");
    BOOST_TEST(whole.status == 0, whole.err);
    BOOST_TEST(run_in(folder, "calm generate mine --prompt Mia --max-tokens 8 --seed 3").out == whole.out);
    BOOST_TEST(run_in(folder, "calm inspect mine").out == run_in(folder, "inspect --model mine/model").out);
    BOOST_TEST(run_in(folder, "calm evaluate mine --data stories:2000 --samples 2").status == 0);
    auto const next = run_in(folder, "calm train calm --config tiny --autoencoder mine --init mine --data stories:8000 "
                                     "--batch 2 --block 64 --steps 1 --evaluate-every 9 --out next");
    BOOST_TEST(next.status == 0, next.err);
    BOOST_TEST(run_in(folder, "calm tokenize mine --text Mia").out ==
               run_in(folder, "calm tokenize mine/tokenizer.model --text Mia").out);

    // Of whole patches; the sizes are tiny's.
    auto const latents =
        nlohmann::json::parse(run_in(folder, "calm tokenize mine --format latents --text 'Mia a'").out);
    auto const ids = latents["ids"].size();
    BOOST_TEST(latents["patch_size"] == 4);
    BOOST_TEST(latents["latents"].size() == (ids + 3) / 4);
    BOOST_TEST(latents["latents"][0].size() == 32U);
    auto const of_autoencoder = run_in(folder, "calm tokenize mine/autoencoder --format latents --text 'Mia a'").out;
    BOOST_TEST(nlohmann::json::parse(of_autoencoder) == latents);
    auto const none = run_in(folder, "calm tokenize mine/tokenizer.model --format latents --text Mia");
    BOOST_TEST(none.status == 2);
    BOOST_TEST(has(none.err, "expected the directory of a model"), none.err);
}

BOOST_AUTO_TEST_CASE(tokens_are_shown_as_text_and_numbers) {
    temporary_folder const folder;
    auto const tokenizer = calm::tokenizer::train(calm::stories(400), 300);
    tokenizer.save(folder.path("words"));
    std::string const text = "Mia saw a ball.\n\xc3\xa9 \"x\"";
    auto const ids = tokenizer.encode(text);
    static_cast<void>(folder.with("text", text));

    std::string row;
    for (auto const id : ids) row += (row.empty() ? "" : " ") + std::to_string(id);
    BOOST_TEST(run_in(folder, "tokenize words --format ids < text").out == row + "\n");

    auto const table = run_in(folder, "tokenize words < text").out;
    std::istringstream lines(table);
    std::size_t count = 0;
    for (std::string line; std::getline(lines, line); ++count)
        BOOST_TEST(line.substr(0, line.find('\t')) == std::to_string(ids[count]));
    BOOST_TEST(count == ids.size());
    BOOST_TEST(has(table, "\\xc3"), table);  // half a character, no UTF-8

    auto const json = run_in(folder, "tokenize words --format json --text Mia --text 'a ball'").out;
    BOOST_TEST(json.starts_with("{\"ids\":["), json);
    BOOST_TEST(std::count(json.begin(), json.end(), '\n') == 2);

    BOOST_TEST(run_in(folder, "tokenize nowhere --text Mia").status == 2);
    auto const stray = run_in(folder, "tokenize words Mia");
    BOOST_TEST(stray.status == 2);
    BOOST_TEST(has(stray.err, "give a text as --text TEXT"), stray.err);
    BOOST_TEST(run_in(folder, "printf 'a\\0b' | tokenize words").status == 4);
}

BOOST_AUTO_TEST_CASE(the_ids_of_files_are_written_as_a_numpy_array) {
    temporary_folder const folder;
    auto const tokenizer = calm::tokenizer::train(calm::stories(400), 300);
    tokenizer.save(folder.path("words"));
    std::vector<calm::token_id> expected;
    for (std::string const text : {"Mia saw a ball.", "Tom did not."}) {
        for (auto const id : tokenizer.encode(text)) expected.push_back(id);
        expected.push_back(tokenizer.specials().eos);
    }
    static_cast<void>(folder.with("two.jsonl", R"({"text": "Mia saw a ball."})"
                                               "\n"
                                               R"({"text": "Tom did not."})"
                                               "\n"));

    auto const done = run_in(folder, "tokenize words --data two.jsonl --out ids.npy");
    BOOST_REQUIRE_MESSAGE(done.status == 0, done.err);
    auto const file = folder.content("ids.npy");
    std::string const magic("\x93NUMPY\x01\0\x76\0", 10);  // the header takes 128 bytes in all
    BOOST_TEST(file.starts_with(magic));
    auto const header = file.substr(magic.size(), 0x76);
    BOOST_TEST(
        has(header, "{'descr': '<i4', 'fortran_order': False, 'shape': (" + std::to_string(expected.size()) + ",), }"),
        header);
    BOOST_TEST(header.ends_with('\n'));
    std::vector<calm::token_id> ids(expected.size());
    BOOST_REQUIRE(file.size() == magic.size() + header.size() + ids.size() * sizeof(calm::token_id));
    std::memcpy(ids.data(), file.data() + magic.size() + header.size(), ids.size() * sizeof(calm::token_id));
    BOOST_TEST(ids == expected, boost::test_tools::per_element());

    BOOST_TEST(has(run_in(folder, "tokenize words --data two.jsonl --out ids.npy").err, "already exists"));
    BOOST_TEST(has(run_in(folder, "tokenize words --data two.jsonl").err, "give --data and --out together"));
    BOOST_TEST(has(run_in(folder, "tokenize words --data two.jsonl --out new --text Mia").err, "give either --text"));
    BOOST_TEST(
        has(run_in(folder, "tokenize words --data two.jsonl --out new --format json").err, "give --format with"));
    for (auto const* const of_data : {"--holdout 10:9", "--data-seed 1", "--skip-bad"})
        BOOST_TEST(has(run_in(folder, std::string("tokenize words --text Mia ") + of_data).err, "give --data with"),
                   of_data);
}
