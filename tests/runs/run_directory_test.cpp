// Run directories whose process dies, whose disk fills, or whose files are damaged. This program replaces write, fsync,
// rename and mkdir by versions that fail on request; all calls of this library and of the C++ library end in them.

#include <boost/test/unit_test.hpp>

#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <functional>
#include <vector>

#include "calm/runs/run_directory.hpp"

#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using calm::test::has;
using calm::test::sentence_of;
using calm::test::temporary_folder;

namespace {

enum class failing { nothing, kills, once, from_then_on };

// Which file operation fails, and how.
struct trouble {
    failing how = failing::nothing;
    int number = 0;  // counted down; the operation at 0 fails
    int code = ENOSPC;
    int count = 0;  // operations so far

    bool strikes() {
        ++count;
        if (how == failing::nothing) return false;
        --number;
        return how == failing::from_then_on ? number <= 0 : number == 0;
    }
};
trouble now;

// Dies, or sets the error.
long struck() {
    if (now.how == failing::kills) ::kill(::getpid(), SIGKILL);
    errno = now.code;
    return -1;
}

}  // namespace

// A failing write has written half of its bytes.
extern "C" ssize_t write(int fd, void const* bytes, size_t n) {
    if (!now.strikes()) return ::syscall(SYS_write, fd, bytes, n);
    ::syscall(SYS_write, fd, bytes, n / 2);
    return struck();
}
extern "C" int fsync(int fd) {
    return static_cast<int>(now.strikes() ? struck() : ::syscall(SYS_fsync, fd));
}
extern "C" int rename(char const* from, char const* to) noexcept {
    return static_cast<int>(now.strikes() ? struck() : ::syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}
extern "C" int mkdir(char const* path, mode_t mode) noexcept {
    return static_cast<int>(now.strikes() ? struck() : ::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}

namespace {

// The state of a run after some step; its values show the step.
struct small_state {
    std::vector<float> first;
    std::vector<double> second;

    explicit small_state(index_t step) :
        first(100, static_cast<float>(step)), second(50, 0.5 * static_cast<double>(step)) {}
    training_state of(index_t step) {
        return {.step = step,
                .updates = step,
                .skipped = 0,
                .seconds = 1,
                .optimizer_state = {{"exp_avg.a", sizeof(float), std::as_writable_bytes(std::span(first))},
                                    {"exp_avg_sq.a", sizeof(double), std::as_writable_bytes(std::span(second))}}};
    }
};

// Writes a stand-in for a model directory.
void write_model(std::string const& directory, index_t step) {
    replaced_directory target(directory);
    target.write("config.json", "{}\n");
    target.write("model.safetensors", "the weights of step " + std::to_string(step));
    target.commit();
}

void save(run_directory& run, index_t step, std::optional<double> score = {}, std::size_t keep = 2,
          calm::recipe_record const& recipe = {}) {
    small_state state(step);
    run.save(
        {state.of(step), 1, {}, 0, score, recipe}, [&](std::string const& d) { write_model(d, step); }, keep);
}

std::string text_of_file(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the step that is found; all restored values must belong to it.
index_t found_step(run_directory const& run, std::vector<std::string>* told = nullptr) {
    auto const found = run.newest([&](std::string const& damage) {
        if (told != nullptr) told->push_back(damage);
    });
    if (!found) return 0;
    index_t const step = found->record.state.step;
    small_state state(-1);
    auto into = state.of(-1);
    restore_training(found->directory, into);
    BOOST_TEST(into.step == step);
    BOOST_TEST((state.first == small_state(step).first && state.second == small_state(step).second));
    BOOST_TEST(text_of_file(found->directory + "/model.safetensors") == "the weights of step " + std::to_string(step));
    return step;
}

std::vector<std::string> names_in(std::string const& path) {
    std::vector<std::string> names;
    for (auto const& entry : std::filesystem::directory_iterator(path))
        names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

// Runs f in a child process; true if that was killed.
bool dies(std::function<void()> const& f) {
    pid_t const child = ::fork();
    if (child == 0) {
        f();
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status);
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_newest_and_the_best_are_kept) {
    temporary_folder const folder;
    run_directory run(folder.path("run"));
    BOOST_TEST(!run.newest().has_value());
    save(run, 10, -3.0);
    save(run, 20, -1.0);
    save(run, 30);
    save(run, 40, -2.0);
    save(run, 50);
    using names = std::vector<std::string>;
    BOOST_TEST(names_in(run.path("checkpoints")) == (names{"step-00000020", "step-00000040", "step-00000050"}));
    BOOST_TEST(names_in(run.path()) == (names{"best", "checkpoints", "config.json", "model.safetensors", "run.lock"}));
    BOOST_TEST(found_step(run) == 50);
    BOOST_TEST(*run.best_score() == -1.0);
    BOOST_TEST(text_of_file(run.path("model.safetensors")) == "the weights of step 50");
    BOOST_TEST(text_of_file(run.path("best/model.safetensors")) == "the weights of step 20");
    save(run, 60, {}, 1);
    BOOST_TEST(names_in(run.path("checkpoints")) == (names{"step-00000020", "step-00000060"}));
    save(run, 60, {}, 1);  // saved again
    BOOST_TEST(found_step(run) == 60);
    save(run, 30);  // a run that went back gives up later checkpoints
    BOOST_TEST(names_in(run.path("checkpoints")) == (names{"step-00000020", "step-00000030"}));
    // A run that starts over keeps the old model until there is a new one.
    static_cast<void>(std::ofstream(run.path("metrics.jsonl")));
    static_cast<void>(std::ofstream(run.path("bigram.counts")));
    run.clear({"metrics.jsonl"});
    BOOST_TEST(!run.newest().has_value());
    BOOST_TEST(names_in(run.path()) ==
               (names{"bigram.counts", "checkpoints", "config.json", "model.safetensors", "run.lock"}));
    save(run, 5);
    BOOST_TEST(names_in(run.path()) == (names{"checkpoints", "config.json", "model.safetensors", "run.lock"}));
    BOOST_TEST(text_of_file(run.path("model.safetensors")) == "the weights of step 5");
}

BOOST_AUTO_TEST_CASE(opening_a_run_finishes_an_interrupted_publication) {
    temporary_folder const folder;
    auto const path = folder.path("run");
    {
        run_directory run(path);
        save(run, 10);
    }
    std::filesystem::remove(path + "/model.safetensors");
    std::ofstream(path + "/replaced-by") << "checkpoints/step-00000010";
    BOOST_TEST(whole_directory(path) == path + "/checkpoints/step-00000010");
    run_directory const run(path);
    BOOST_TEST(text_of_file(run.path("model.safetensors")) == "the weights of step 10");
    BOOST_TEST(whole_directory(path) == path);
}

// A checkpoint that is newer than the resume point is damaged or given up, so it no longer counts as the best.
BOOST_AUTO_TEST_CASE(the_best_is_none_that_goes_away) {
    temporary_folder const folder;
    run_directory run(folder.path("run"));
    save(run, 10, -3.0);
    save(run, 20, -1.0);
    BOOST_TEST(*run.best_score(10) == -3.0);
    BOOST_TEST(!run.best_score(0).has_value());
    save(run, 15, -2.0);
    BOOST_TEST(*run.best_score() == -2.0);
    BOOST_TEST(text_of_file(run.path("best/model.safetensors")) == "the weights of step 15");
}

BOOST_AUTO_TEST_CASE(scores_on_other_text_do_not_compare) {
    temporary_folder const folder;
    run_directory run(folder.path("run"));
    calm::recipe_record const former{{"data", "easy.txt"}, {"learning-rate", "0.1"}};
    calm::recipe_record const present{{"data", "hard.txt"}, {"learning-rate", "0.1"}};
    calm::recipe_record const slower{{"data", "hard.txt"}, {"learning-rate", "0.01"}};
    save(run, 10, -1.0, 1, former);
    save(run, 20, -3.0, 1, present);
    BOOST_TEST(*run.best_score() == -3.0);
    BOOST_TEST(text_of_file(run.path("best/model.safetensors")) == "the weights of step 20");
    save(run, 30, -4.0, 1, slower);
    BOOST_TEST(*run.best_score() == -3.0);
}

BOOST_AUTO_TEST_CASE(one_process_at_a_time) {
    temporary_folder const folder;
    auto const path = folder.path("run");
    std::optional<run_directory> held(std::in_place, path);
    auto const refusal = sentence_of<error>([&] { run_directory other(path); });
    BOOST_TEST(has(refusal, "another process is training in it"));
    BOOST_TEST(
        !dies([&] { BOOST_TEST(has(sentence_of<error>([&] { run_directory other(path); }), "another process")); }));
    held.reset();
    // A process that dies releases the lock.
    BOOST_TEST(dies([&] {
        run_directory other(path);
        ::kill(::getpid(), SIGKILL);
    }));
    run_directory free(path);
}

BOOST_AUTO_TEST_CASE(checkpoints_of_another_run_are_not_reached_through_a_link) {
    temporary_folder const folder;
    std::filesystem::create_directories(folder.path("victim/checkpoints/step-00000001"));
    std::filesystem::create_directory(folder.path("run"));
    static_cast<void>(folder.with("run/run.lock", ""));
    std::filesystem::create_directory_symlink(folder.path("victim/checkpoints"), folder.path("run/checkpoints"));
    auto const said = sentence_of<error>([&] { run_directory(folder.path("run")).clear({}); });
    BOOST_TEST(has(said, "run/checkpoints: is a link, which is not followed"), said);
    BOOST_TEST(std::filesystem::exists(folder.path("victim/checkpoints/step-00000001")));
}

BOOST_AUTO_TEST_CASE(other_directories_are_left_alone) {
    temporary_folder const folder;
    static_cast<void>(folder.with("file", "x"));
    BOOST_TEST(!run_directory::can_hold(folder.path("file")));
    BOOST_TEST(!run_directory::can_hold(folder.path("")));
    BOOST_TEST(has(sentence_of<error>([&] { run_directory run(folder.path("file")); }), "holds no run"));
    BOOST_TEST(folder.content("file") == "x");
    std::filesystem::create_directory(folder.path("empty"));
    BOOST_TEST(run_directory::can_hold(folder.path("empty")));
    BOOST_TEST(run_directory::can_hold(folder.path("nothing")));
    BOOST_TEST(!run_directory::holds_run(folder.path("empty")));
    run_directory run(folder.path("empty"));
    BOOST_TEST(run_directory::holds_run(folder.path("empty")));
}

BOOST_AUTO_TEST_CASE(every_damage_is_found_and_the_checkpoint_before_is_taken) {
    temporary_folder const folder;
    run_directory run(folder.path("run"));
    save(run, 1);
    save(run, 2);
    std::string const newest = run.path("checkpoints/step-00000002");
    auto const files = names_in(newest);
    BOOST_TEST(files.size() == 5u);
    auto const expect_damage = [&](std::string const& what) {
        std::vector<std::string> told;
        BOOST_TEST(found_step(run, &told) == 1, what);
        BOOST_REQUIRE(told.size() == 1u);
        BOOST_TEST(has(told[0], newest), told[0]);
    };
    for (auto const& file : files) {
        auto const path = newest + "/" + file;
        auto const whole = text_of_file(path);
        auto const damaged = [&](std::string const& bytes, std::string const& what) {
            std::filesystem::remove(path);  // a hard link exists elsewhere
            std::ofstream(path, std::ios::binary) << bytes;
            expect_damage(file + ": " + what);
        };
        for (std::size_t at = 0; at < whole.size(); at += 1 + whole.size() / 40)
            for (int const bit : {0, 5, 7}) {
                auto bytes = whole;
                bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
                damaged(bytes, "bit " + std::to_string(bit) + " of byte " + std::to_string(at));
            }
        for (std::size_t const size : {std::size_t{0}, whole.size() / 2, whole.size() - 1})
            damaged(whole.substr(0, size), "cut to " + std::to_string(size));
        damaged(whole + "x", "a byte more");
        damaged(text_of_file(run.path("checkpoints/step-00000001/" + file)) + (file == "config.json" ? " " : ""),
                "the other checkpoint's");
        std::filesystem::remove(path);
        expect_damage(file + ": deleted");
        std::filesystem::create_directory(path);
        expect_damage(file + ": a directory");
        std::filesystem::remove(path);
        std::ofstream(path, std::ios::binary) << whole;
        BOOST_TEST(found_step(run) == 2);
    }
    static_cast<void>(std::ofstream(newest + "/more"));
    expect_damage("a file more");
    std::filesystem::remove(newest + "/more");

    // Intact, but another step than its name says.
    std::filesystem::remove_all(newest);
    std::filesystem::copy(run.path("checkpoints/step-00000001"), newest);
    expect_damage("the other checkpoint");
    std::filesystem::remove(run.path("checkpoints/step-00000001/state.json"));
    BOOST_TEST(
        has(sentence_of<error>([&] { static_cast<void>(run.newest()); }), "none of its 2 checkpoints is intact"));
    save(run, 3);
    BOOST_TEST(found_step(run) == 3);
}

BOOST_AUTO_TEST_CASE(a_process_that_is_killed_at_any_operation_leaves_a_checkpoint) {
    temporary_folder const folder;
    index_t step = 1;
    {
        run_directory run(folder.path("run"));
        save(run, step);
    }
    // A run killed at the first operation, resumed, killed at the second, and so on until a save completes.
    bool killed = true;
    int operation = 0;
    for (; killed; ++operation) {
        killed = dies([&] {
            run_directory run(folder.path("run"));
            now = {.how = failing::kills, .number = operation + 1};
            save(run, step + 1);
        });
        run_directory run(folder.path("run"));
        index_t const found = found_step(run);
        BOOST_TEST((found == step || found == step + 1));
        BOOST_TEST((killed || found == step + 1));
        step = found;
        auto const published = text_of_file(whole_directory(run.path()) + "/model.safetensors");
        BOOST_TEST((published == "the weights of step " + std::to_string(step) ||
                    published == "the weights of step " + std::to_string(step - 1)));
        run.publish(run.newest()->directory);
        BOOST_TEST(text_of_file(run.path("model.safetensors")) == "the weights of step " + std::to_string(step));
        for (auto const& name : names_in(run.path("checkpoints")))
            BOOST_TEST(name.find('.') == std::string::npos, name);
    }
    BOOST_TEST(operation > 20);
}

BOOST_AUTO_TEST_CASE(a_disk_that_is_full_at_any_operation_loses_nothing) {
    for (auto const how : {failing::once, failing::from_then_on})
        for (int const code : {ENOSPC, EROFS, EIO}) {
            temporary_folder const folder;
            run_directory run(folder.path("run"));
            save(run, 1);
            index_t step = 1;
            int const before = now.count;
            save(run, ++step);
            int const operations = now.count - before;
            BOOST_TEST(operations > 20);
            for (int operation = 1; operation <= operations; ++operation) {
                now = {.how = how, .number = operation, .code = code};
                auto const problem = sentence_of<error>([&] { save(run, step + 1); });
                now = {};
                index_t const found = found_step(run);
                BOOST_TEST((found == step || found == step + 1));
                // Some operations may fail without an error, such as flushing a folder; then everything is saved.
                if (problem.empty()) BOOST_TEST(found == step + 1);
                step = found;
            }
            save(run, step + 1);
            BOOST_TEST(found_step(run) == step + 1);
        }
}

BOOST_AUTO_TEST_CASE(a_directory_that_cannot_be_written_is_refused_and_read) {
    temporary_folder const folder;
    auto const path = folder.path("run");
    now = {.how = failing::from_then_on, .number = 1, .code = EROFS};
    auto const made = sentence_of<error>([&] { run_directory run(path); });
    now = {};
    BOOST_TEST(has(made, "cannot be created: Read-only file system"));
    run_directory run(path);
    save(run, 1);
    now = {.how = failing::from_then_on, .number = 1, .code = EROFS};
    auto const saved = sentence_of<error>([&] { save(run, 2); });
    now = {};
    BOOST_TEST(has(saved, "Read-only file system"));
    BOOST_TEST(found_step(run) == 1);
}
