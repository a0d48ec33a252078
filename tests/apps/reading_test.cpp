// The memory that programs use for a large text, as measured by the system: each command has a limit.

#include <boost/test/unit_test.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "calm/base/random.hpp"
#include "support/programs.hpp"

using calm::test::run_in;
using calm::test::temporary_folder;

namespace fs = std::filesystem;

namespace {

constexpr std::size_t megabyte = 1'000'000;
constexpr long most = 200;  // MB of memory

// The peak memory of a command in MB, and its exit status.
struct measured {
    int status;
    long megabytes;
};
measured measure(temporary_folder const& folder, std::string const& line) {
    pid_t const child = ::fork();
    if (child == 0) ::_exit(run_in(folder, line).status);
    int status = 0;
    struct rusage usage {};
    ::wait4(child, &status, 0, &usage);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), usage.ru_maxrss / 1000};
}

// Checks the exit status and that the memory is below the limit; returns the memory in MB.
long taken(temporary_folder const& folder, std::string const& line, int status = 0, long ceiling = most) {
    auto const [found, megabytes] = measure(folder, line);
    BOOST_TEST(found == status, line << ": " << folder.content("err.txt"));
    BOOST_TEST(megabytes < ceiling, line << ": " << megabytes << " MB");
    BOOST_TEST_MESSAGE(megabytes << " MB: " << line);
    return megabytes;
}

// Random words, an eighth of them rare.
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

// Writes 64 MB of random words, each megabyte between `before` and `after`.
void write_large(temporary_folder const& folder, std::string const& name, std::string const& before,
                 std::string const& after) {
    auto const text = words_of(8 * megabyte);
    std::ofstream file(folder.path(name), std::ios::binary);
    for (int i = 0; i < 64; ++i)
        file << before << std::string_view(text).substr(static_cast<std::size_t>(i) % 8 * megabyte, megabyte) << after;
}

// Writes 64 MB of random words as files of `size` bytes in a folder.
void write_folder(temporary_folder const& folder, std::string const& name, std::size_t size) {
    auto const text = words_of(8 * megabyte);
    fs::create_directory(folder.path(name));
    for (std::size_t i = 0; i * size < 64 * megabyte; ++i)
        static_cast<void>(folder.with(name + "/" + std::to_string(i) + ".txt",
                                      std::string_view(text).substr(i * megabyte % (7 * megabyte), size)));
}

// A tokenizer `words`, an autoencoder `ae`, a CALM `lm` and an autoregressive model `ar`, trained on little text.
void train_models(temporary_folder const& folder) {
    static_cast<void>(folder.with("little.jsonl", "{\"text\": \"" + words_of(20'000) + "\"}\n"));
    for (std::string const line :
         {"train tokenizer --vocabulary 300 --data little.jsonl --out words",
          "train autoencoder --config tiny --tokenizer words --data little.jsonl --batch 64 --steps 1 --out ae",
          "train calm --config tiny --autoencoder ae --data little.jsonl --batch 2 --block 64 --steps 1 --out lm",
          "train ar --config tiny-ar --tokenizer words --data little.jsonl --batch 2 --block 64 --steps 1 --out ar"})
        taken(folder, line);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_vocabulary_is_learned_of_text_that_is_never_held) {
    temporary_folder const folder;
    write_large(folder, "a.jsonl", "{\"text\": \"", "\"}\n");
    write_large(folder, "a.txt", "", "");
    for (std::string const name : {"a.jsonl", "a.txt"})
        taken(folder, "train tokenizer --vocabulary 1000 --data " + name + " --out words-of-" + name);
}

BOOST_AUTO_TEST_CASE(text_without_a_break_takes_no_more) {
    temporary_folder const folder;
    std::ofstream file(folder.path("a.txt"), std::ios::binary);
    for (int i = 0; i < 64; ++i) file << std::string(megabyte, static_cast<char>('a' + i % 26));
    file.close();
    taken(folder, "train tokenizer --vocabulary 300 --out words --data a.txt");
}

BOOST_AUTO_TEST_CASE(reading_part_of_a_text_takes_no_more_memory) {
    temporary_folder const folder;
    train_models(folder);
    write_large(folder, "a.jsonl", "{\"text\": \"", "\"}\n");
    for (std::string const line :
         {"train autoencoder --config tiny --tokenizer words --data a.jsonl --steps 1000 --dry-run --out new",
          "evaluate --model lm --data a.jsonl --block 64 --positions 100",
          "evaluate --model ar --data a.jsonl --block 64 --positions 100",
          "train autoencoder --config tiny --tokenizer words --data a.jsonl --batch 64 --steps 1 --out ae2",
          "train calm --config tiny --autoencoder ae --data a.jsonl --batch 2 --block 64 --steps 1 --out lm2",
          "train ar --config tiny-ar --tokenizer words --data a.jsonl --batch 2 --block 64 --steps 1 --out ar2"})
        taken(folder, line);
}

// One text as a file, and as many files.
BOOST_AUTO_TEST_CASE(a_folder_holds_no_more_than_a_file) {
    temporary_folder const folder;
    train_models(folder);
    write_large(folder, "a.txt", "", "");
    write_folder(folder, "large", 11 * megabyte / 10);
    write_folder(folder, "small", 9 * megabyte / 10);
    for (std::string const program :
         {"train autoencoder --config tiny --tokenizer words --batch 64 --steps 1 --out ae-of-",
          "train ar --config tiny-ar --tokenizer words --batch 2 --block 64 --steps 1 --out ar-of-"}) {
        auto const of = [&](std::string const& data) {
            return taken(folder, program + fs::path(data).stem().string() + " --data " + data);
        };
        long const file = of("a.txt");
        BOOST_TEST(of("large") < file + 64);
        BOOST_TEST(of("small") < file + 64);
    }
    for (std::string const data : {"a.txt", "large", "small"})
        taken(folder, "evaluate --model lm --block 64 --positions 100 --data " + data);
}

// Memory grows linearly with the number of files.
BOOST_AUTO_TEST_CASE(many_files_hold_no_more_than_a_few) {
    temporary_folder const folder;
    train_models(folder);
    fs::create_directory(folder.path("many"));
    for (int i = 0; i < 10'000; ++i)
        static_cast<void>(folder.with("many/" + std::to_string(i) + ".txt", "a text of a few words"));
    taken(folder, "evaluate --model ar --data many --block 64 --positions 20 --samples 2", 0, 150);
    taken(folder,
          "train ar --config tiny-ar --tokenizer words --data many --holdout 100:1 --batch 2 --block 64 --steps 2 "
          "--evaluate-every 1 --out new",
          0, 150);
}

// Prompts are processed in groups: texts appear before all prompts are read, and none is kept.
BOOST_AUTO_TEST_CASE(a_file_of_prompts_is_never_held) {
    temporary_folder const folder;
    train_models(folder);
    std::string lines;
    for (std::size_t i = 0; i < std::size_t{4} << 20; ++i) lines += "a\n";
    static_cast<void>(folder.with("lines", lines));
    taken(folder, "{ generate --model lm --prompts lines --max-tokens 1; echo $? >status; } | head -n 9000 >some", 0,
          150);
    BOOST_TEST(folder.content("status") == "141\n");  // the reader stopped reading
    BOOST_TEST(folder.content("some").find("\n=== 3000\n") != std::string::npos);
}

// A run from an untrusted source: a plan and calls that claim large sizes, and more samples than may be held.
BOOST_AUTO_TEST_CASE(files_of_a_run_are_never_held) {
    temporary_folder const folder;
    train_models(folder);
    long constexpr little = 150;
    auto const sized = [&](std::string const& name) { fs::resize_file(folder.with(name, ""), 200 * megabyte); };
    fs::create_directory(folder.path("text"));
    static_cast<void>(folder.with("text/text.lock", ""));
    sized("text/plan.json");
    taken(folder, "train text --data stories:4000 --minutes 1 --out text", 5, little);
    std::string const line = "{\"step\":1,\"text\":\"" + std::string(900'000, 'x') + "\"}\n";
    std::size_t constexpr lines = 150;
    std::ofstream samples(folder.path("lm/samples.jsonl"), std::ios::binary);
    for (std::size_t i = 0; i < lines; ++i) samples << line;
    samples.close();
    taken(folder,
          "train calm --config tiny --autoencoder ae --data little.jsonl --batch 2 --block 64 --steps 2 --out lm", 0,
          little);
    BOOST_TEST(fs::file_size(folder.path("lm/samples.jsonl")) >= lines * line.size());
    auto const log = [&](std::string const& run, std::string const& scores) {
        std::ofstream file(folder.path(run + "/metrics.jsonl"), std::ios::binary);
        for (std::size_t i = 1; i <= 200; ++i)
            file << "{\"step\":" << i << ",\"seconds\":" << i << (i % 2 > 0 ? ",\"loss\":5" : scores) << ",\"more\":\""
                 << std::string(900'000, 'x') << "\"}\n";
    };
    log("lm", ",\"loss\":4");
    taken(folder, "plot lm", 0, little);
    log("ar", ",\"brier\":[0.1,0.01,0.001,0.001],\"brier_lm\":1");
    taken(folder,
          "train calm --config tiny --autoencoder ae --data little.jsonl --batch 2 --block 64 --steps 1 --baseline ar "
          "--out compared",
          0, little);
    sized("ae/run.json");
    taken(folder, "train autoencoder --config tiny --tokenizer words --data little.jsonl --batch 64 --steps 2 --out ae",
          0, little);
    BOOST_TEST(fs::file_size(folder.path("ae/run.json")) < megabyte);
}
