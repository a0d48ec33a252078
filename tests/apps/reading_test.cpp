// What programs hold of a large text, as the system counts it.

#include <boost/test/unit_test.hpp>

#include <sys/resource.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

#include "calm/base/random.hpp"
#include "support/programs.hpp"

using calm::test::run_in;
using calm::test::temporary_folder;

namespace {

constexpr std::size_t megabyte = 1'000'000;
constexpr long most = 300;  // MB of memory

// The most memory that any program took so far, in MB.
long most_taken() {
    struct rusage all {};
    ::getrusage(RUSAGE_CHILDREN, &all);
    return all.ru_maxrss / 1000;
}

// Some megabytes of words, many of them met once.
std::string words_of(std::size_t size) {
    calm::random_sequence random({.seed = 9});
    std::string text;
    text.reserve(size + 16);
    while (text.size() < size) {
        bool const rare = random.below(8) == 0;
        std::uint32_t number = rare ? random.next() : random.below(5000) * 7919;
        for (; number > 0; number /= 26) text += static_cast<char>('a' + number % 26);
        text += ' ';
    }
    return text;
}

// Writes 64 MB of them, each time after `before` and before `after`.
void write_large(temporary_folder const& folder, std::string const& name, std::string const& before,
                 std::string const& after) {
    auto const text = words_of(8 * megabyte);
    std::ofstream file(folder.path(name), std::ios::binary);
    for (int i = 0; i < 64; ++i)
        file << before << std::string_view(text).substr(static_cast<std::size_t>(i) % 8 * megabyte, megabyte) << after;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_vocabulary_is_learned_of_text_that_is_never_held) {
    temporary_folder const folder;
    write_large(folder, "a.jsonl", "{\"text\": \"", "\"}\n");
    write_large(folder, "a.txt", "", "");
    for (auto const* const name : {"a.jsonl", "a.txt"}) {
        auto const made =
            run_in(folder, std::string("train tokenizer --vocabulary 1000 --data ") + name + " --out words-of-" + name);
        BOOST_TEST(made.status == 0, made.err);
        BOOST_TEST(most_taken() < most, name);
    }
}

BOOST_AUTO_TEST_CASE(text_without_a_break_takes_no_more) {
    temporary_folder const folder;
    std::ofstream file(folder.path("a.txt"), std::ios::binary);
    for (int i = 0; i < 64; ++i) file << std::string(megabyte, static_cast<char>('a' + i % 26));
    file.close();
    auto const made = run_in(folder, "train tokenizer --vocabulary 300 --out words --data a.txt");
    BOOST_TEST(made.status == 0, made.err);
    BOOST_TEST(most_taken() < most);
}

BOOST_AUTO_TEST_CASE(what_needs_a_part_of_a_text_holds_no_more) {
    temporary_folder const folder;
    write_large(folder, "a.jsonl", "{\"text\": \"", "\"}\n");
    static_cast<void>(folder.with("b.jsonl", "{\"text\": \"" + words_of(20'000) + "\"}\n"));
    for (std::string const line : {
             "train tokenizer --vocabulary 300 --data b.jsonl --out words",
             "train autoencoder --config tiny --tokenizer words --data a.jsonl --steps 1000 --dry-run --out ae",
             "train autoencoder --config tiny --tokenizer words --data b.jsonl --batch 64 --steps 1 --out ae",
             "train calm --config tiny --autoencoder ae --data b.jsonl --batch 2 --block 64 --steps 1 --out lm",
             "evaluate --model lm --data a.jsonl --block 64 --positions 100",  // it makes the cache
             "train calm --config tiny --autoencoder ae --data a.jsonl --batch 2 --block 64 --steps 1 --out lm2",
         }) {
        auto const ran = run_in(folder, line);
        BOOST_TEST(ran.status == 0, line << ": " << ran.err);
        BOOST_TEST(most_taken() < most, line << ": " << most_taken() << " MB");
    }
}

// Of a run as somebody else may have left it: a plan and calls that claim much, and samples of more than may be held.
BOOST_AUTO_TEST_CASE(files_of_a_run_are_never_held) {
    temporary_folder const folder;
    auto const sized = [&](std::string const& name) {
        std::filesystem::resize_file(folder.with(name, ""), 600 * megabyte);
    };
    auto const done = [&](std::string const& line, int status) {
        auto const ran = run_in(folder, line);
        BOOST_TEST(ran.status == status, line << ": " << ran.err);
        BOOST_TEST(most_taken() < most, line << ": " << most_taken() << " MB");
    };
    std::filesystem::create_directory(folder.path("text"));
    static_cast<void>(folder.with("text/text.lock", ""));
    sized("text/plan.json");
    done("train text --data stories:4000 --minutes 1 --out text", 5);

    std::string const small = " --config tiny --data stories:4000 --schedule constant --threads 1 ";
    std::string const autoencoder = "train autoencoder --tokenizer words --batch 64 --out ae" + small;
    done("train tokenizer --vocabulary 300 --data stories:4000 --out words", 0);
    done(autoencoder + "--steps 1", 0);
    sized("ae/run.json");
    done(autoencoder + "--steps 2", 0);
    BOOST_TEST(std::filesystem::file_size(folder.path("ae/run.json")) < megabyte);

    std::string const model = "train calm --autoencoder ae --batch 2 --block 64 --out lm" + small;
    done(model + "--steps 1", 0);
    std::string const line = "{\"step\":1,\"text\":\"" + std::string(900'000, 'x') + "\"}\n";
    std::size_t constexpr lines = 350;
    std::ofstream samples(folder.path("lm/samples.jsonl"), std::ios::binary);
    for (std::size_t i = 0; i < lines; ++i) samples << line;
    samples.close();
    done(model + "--steps 2", 0);
    BOOST_TEST(std::filesystem::file_size(folder.path("lm/samples.jsonl")) >= lines * line.size());
}
