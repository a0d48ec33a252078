// Runs whole programs with the n-th system call disturbed (tests/faults): killed before the call, a failed call, or
// half a write. Each time the program must end with a documented exit status and an error message, and --out must be
// unchanged or complete. Repeating the command must give the bytes of an undisturbed run.
//
// CI runs a sample. FAULTS=all disturbs every call in every way, FAULTS=NAME does so for one scenario. FAULTS=NAME/N
// takes every N-th call, with the kinds in rotation; NAME/1 takes each call once.

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "calm/base/detail/file.hpp"

#include "support/programs.hpp"
#include "support/sentences.hpp"

using calm::test::has;
using calm::test::ran;
using calm::test::run_in;
using calm::test::temporary_folder;

namespace fs = std::filesystem;

namespace {

constexpr char const* kinds[] = {"kill", "EIO", "short", "ENOSPC", "EINTR"};

struct noted_call {
    std::string name, path, other;
};

struct scenario {
    std::string name;
    std::string command;
    std::vector<std::string> results;  // files and folders that it writes
    std::string check = "true";        // holds before, and after every disturbed run
    std::size_t stride = 1;            // stride of CI's sample
};

std::string const few = "--config tiny --threads 1 --seed 3 --steps 2 --save-every 1 ";
std::string const autoencoder = "train autoencoder " + few + "--tokenizer words --batch 16 --out ae --data ";

// A folder `start` with the initial state of the scenarios, and `work`, where each of them runs.
class workshop {
public:
    workshop() {
        std::string lines;
        for (int i = 0; i < 12000; ++i)
            lines += "{\"text\": \"line " + std::to_string(i * i) + std::string(90, ' ') + "\"}\n";
        fs::create_directory(folder.path("start"));
        static_cast<void>(folder.with("start/lines.jsonl", lines));
        shell("cd start && seq 1 900 >text.txt && "
              "train tokenizer --vocabulary 266 --data text.txt --out words && "
              "train tokenizer --vocabulary 265 --data text.txt --out other && " +
              autoencoder + "text.txt");
    }
    // Includes the program's output in failure messages.
    ran shell(std::string const& line) const {
        auto r = run_in(folder, line);
        BOOST_REQUIRE_MESSAGE(r.status == 0, line << ": " << r.err);
        return r;
    }
    // Runs the command in a fresh copy of the start folder, with the n-th call disturbed; 0: none is.
    ran disturbed(std::string const& command, std::size_t n, std::string const& kind) const {
        return again("env LD_PRELOAD='" CALM_PROGRAMS_DIR "/../tests/faults/libcalm_faults.so' FAULTS_UNDER='" +
                     fs::canonical(folder.path("work")).string() + "/' FAULTS_LOG='" + folder.path("calls") +
                     "' FAULTS_AT=" + std::to_string(n) + " FAULTS_KIND=" + kind + " " + command);
    }
    void begin(std::string const& prepare) const { shell("rm -rf work && cp -a start work && cd work && " + prepare); }
    ran again(std::string const& command) const { return run_in(folder, "cd work && " + command); }

    [[nodiscard]] std::vector<noted_call> calls() const {
        std::vector<noted_call> all;
        std::istringstream lines(folder.content("calls"));
        for (std::string number, name, path, other; std::getline(lines, number, '\t') &&
                                                    std::getline(lines, name, '\t') &&
                                                    std::getline(lines, path, '\t') && std::getline(lines, other);)
            all.push_back({name, path, other});
        return all;
    }

    temporary_folder folder;
};

workshop const& shop() {
    static workshop const one;
    return one;
}

// A line of a log without the values that differ between runs.
std::string without_times(std::string line) {
    for (std::string const key : {"\"seconds\":", "\"learning_rate\":", "\"tokens_per_second\":", "\"share_of_peak\":"})
        if (auto const at = line.find(key); at != std::string::npos)
            line.erase(at, std::min(line.find_first_of(",}", at), line.size()) - at);
    return line;
}

// The lines of a text that contain none of the words.
std::string lines_without(std::string const& text, std::vector<std::string> const& words) {
    std::string kept;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (std::none_of(words.begin(), words.end(), [&](auto const& word) { return has(line, word); }))
            kept += line + "\n";
    return kept;
}

// The distinct calls in a run.json, without their number and dates.
std::string calls_of(std::string const& text) {
    std::set<std::string> calls;
    for (auto call : nlohmann::json::parse(text).at("calls")) {
        for (auto const* const key : {"date", "after_step"}) BOOST_TEST(call.erase(key) == 1U, key);
        calls.insert(call.dump());
    }
    std::string all;
    for (auto const& call : calls) all += call + "\n";
    return all;
}

// A table with its time columns blanked.
std::string cells_without_times(std::string const& text) {
    std::set<std::size_t> timed;
    std::string kept;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line); kept += '\n') {
        std::istringstream cells(line);
        std::size_t column = 0;
        for (std::string cell; std::getline(cells, cell, '\t'); ++column) {
            if (kept.find('\n') == std::string::npos)
                for (std::string const name : {"seconds", "training seconds per token", "ms per patch", "ms per token"})
                    if (cell == name) timed.insert(column);
            bool const shown = !timed.contains(column) || kept.find('\n') == std::string::npos;
            kept += (shown ? cell : "a time") + '\t';
        }
    }
    BOOST_TEST(timed.size() == 4U, text);
    return kept;
}

// The part of a result file that depends only on the command.
std::string determined(std::string const& file, std::string const& content) {
    if (file == "run.json") return calls_of(content);
    // The log's length depends on the digits of its times, and the checksum of a state on both.
    if (file == "state.json") return lines_without(content, {"\"seconds\":", "\"log_bytes\":"});
    if (file == "manifest.json") return lines_without(content, {"\"state.json\":"});
    if (file == "sweep.tsv") return cells_without_times(content);
    // It shows times.
    if (file == "sweep.svg")
        return content.starts_with("<svg") && content.ends_with("</svg>\n") ? "a whole plot" : content;
    if (!file.ends_with(".jsonl")) return content;
    std::string all;
    std::istringstream lines(content);
    for (std::string line; std::getline(lines, line);) all += without_times(line) + "\n";
    return all;
}

// Names and bytes of all result files, without dates and times.
std::map<std::string, std::string> bytes_of(scenario const& s) {
    std::map<std::string, std::string> all;
    auto const take = [&](fs::path const& path) {
        auto const name = path.lexically_relative(shop().folder.path("work")).string();
        auto const file = path.filename().string();
        if (file == "run.lock" || !fs::is_regular_file(path)) return;
        all[name] = determined(file, std::string(calm::mapped_file::open(path.string()).text()));
    };
    for (auto const& result : s.results) {
        fs::path const path = shop().folder.path("work/" + result);
        for (auto const* const rest : {"", ".partial", ".new", ".old", ".previous"})
            if (fs::is_regular_file(path.string() + rest)) take(path.string() + rest);
        if (fs::is_directory(path.string() + ".partial")) all[result + ".partial"] = "a folder";
        if (fs::is_directory(path))
            for (auto const& entry : fs::recursive_directory_iterator(path)) take(entry.path());
    }
    return all;
}

std::string names_of_differences(std::map<std::string, std::string> const& a,
                                 std::map<std::string, std::string> const& b) {
    std::string names;
    for (auto const& [name, content] : a)
        if (!b.contains(name) || b.at(name) != content) names += name + " ";
    for (auto const& [name, content] : b)
        if (!a.contains(name)) names += "+" + name + " ";
    return names;
}

// The data that a power cut would lose, tracked from a program's calls: bytes written and names created since their
// last flush.
class unflushed {
public:
    void apply(noted_call const& c) {
        auto const entered = [&](std::string const& path) { names_.insert(fs::path(path).parent_path().string()); };
        if (c.name == "write" || c.name == "truncate") bytes_.insert(c.path);
        if (c.name == "fsync") bytes_.erase(c.path), names_.erase(c.path);
        if (c.name == "mkdir") entered(c.path);
        if (c.name == "link") entered(c.other);
        if (c.name == "rename" || c.name == "exchange") {
            move(c.path, c.other);
            entered(c.path), entered(c.other);
        }
    }
    [[nodiscard]] bool has_bytes_of(std::string const& path) const {
        return std::any_of(bytes_.begin(), bytes_.end(),
                           [&](auto const& each) { return each == path || each.starts_with(path + "/"); });
    }
    [[nodiscard]] bool has_names_in(std::string const& folder) const { return names_.contains(folder); }

private:
    // A file, or a folder with its contents.
    void move(std::string const& from, std::string const& to) {
        for (auto* const all : {&bytes_, &names_}) {
            std::set<std::string> moved;
            for (auto const& each : *all) {
                bool const goes = each == from || each.starts_with(from + "/");
                moved.insert(goes ? to + each.substr(from.size()) : each);
            }
            *all = moved;
        }
    }

    std::set<std::string> bytes_, names_;
};

// A file's bytes must be flushed before a rename puts it in place, and its name before anything relies on it.
void check_that_all_is_flushed(std::string const& scenario, std::vector<noted_call> const& calls) {
    unflushed disk;
    std::size_t renamed = 0, checkpoints = 0;
    std::string published;  // the folder whose model is being replaced
    for (auto const& c : calls) {
        auto const where = scenario + ": " + c.name + " " + c.path + " " + c.other;
        bool const takes_its_place = c.name == "rename" || c.name == "exchange";
        if (takes_its_place && !c.other.ends_with(".old")) {
            BOOST_TEST(!disk.has_bytes_of(c.path), where);
            BOOST_TEST(!disk.has_names_in(c.path), where);
            ++renamed;
        }
        fs::path const to = c.other;
        if (takes_its_place && to.parent_path().filename() == "checkpoints" && !to.has_extension()) {
            auto const run = to.parent_path().parent_path();
            BOOST_TEST(!disk.has_bytes_of((run / "metrics.jsonl").string()), where);
            for (auto const& above : {run, run.parent_path()}) BOOST_TEST(!disk.has_names_in(above.string()), where);
            ++checkpoints;
        }
        if (takes_its_place && to.filename() == "replaced-by") {
            published = to.parent_path().string();
            BOOST_TEST(!disk.has_names_in(published + "/checkpoints"), where);
        }
        if (c.name == "unlink" && c.path == published + "/replaced-by")
            BOOST_TEST(!disk.has_names_in(published), where);
        disk.apply(c);
    }
    BOOST_TEST(renamed > 0U, scenario);
    if (has(scenario, "calm") || has(scenario, "autoencoder") || has(scenario, "autoregressive"))
        BOOST_TEST(checkpoints == 2U, scenario);
}

std::vector<scenario> scenarios() {
    auto const readable = [](std::string const& model) {
        return "[ ! -e " + model + "/config.json ] || inspect " + model;
    };
    std::string const small = few + "--batch 16 --data text.txt ";
    return {
        {.name = "tokenizer",
         .command = "train tokenizer --vocabulary 270 --data text.txt --out new/words",
         .results = {"new/words"},
         .stride = 4},
        {.name = "autoencoder",
         .command = "train autoencoder " + small + "--tokenizer words --out new/ae",
         .results = {"new/ae"},
         .check = readable("new/ae"),
         .stride = 41},
        {.name = "fresh",
         .command = "train autoencoder " + small + "--tokenizer other --out ae --fresh",
         .results = {"ae"},
         .check = "inspect ae",
         .stride = 37},
        {.name = "calm",
         .command = "train calm " + few + "--autoencoder ae --batch 2 --block 16 --data text.txt --out new/calm",
         .results = {"new/calm"},
         .check = readable("new/calm"),
         .stride = 97},
        {.name = "autoregressive",
         .command = "train ar --config tiny-ar --threads 1 --seed 3 --steps 2 --save-every 1 --tokenizer words "
                    "--batch 2 --block 16 --data text.txt --out new/ar",
         .results = {"new/ar"},
         .check = readable("new/ar"),
         .stride = 101},
        {.name = "text",
         .command = "train text " + std::string("--config tiny --threads 1 --seed 3 --save-every 1 --data text.txt ") +
                    "--vocabulary 266 --autoencoder-steps 2 --autoencoder-batch 16 --steps 2 --batch 2 --block 16 "
                    "--out new/text",
         .results = {"new/text"},
         .check = readable("new/text/model"),
         .stride = 211},
        {.name = "large",
         .command = autoencoder + "lines.jsonl --fresh",
         .results = {"ae"},
         .check = "inspect ae",
         .stride = 73},
        {.name = "convert",
         .command = "convert --model ae --out half --dtype bf16",
         .results = {"half"},
         .check = "[ ! -e half ] || inspect half",
         .stride = 9},
        {.name = "sweep",
         .command = "sweep --configs tiny --tokenizer words --data stories:3000 --autoencoder-tokens 64 --tokens 64 "
                    "--block 16 --positions 10 --samples 2 --threads 1 --out swept",
         .results = {"swept"},
         .check = readable("swept/tiny/calm"),
         .stride = 307},
    };
}

bool is_documented(int status) {
    return std::set<int>{0, 2, 3, 4, 5, 6, 7, 8, 10}.contains(status);
}

void try_one(scenario const& s, std::map<std::string, std::string> const& whole, std::size_t n,
             std::string const& kind) {
    auto const what = s.name + ", " + kind + " at call " + std::to_string(n);
    shop().begin("true");
    auto const first = shop().disturbed(s.command, n, kind);
    auto const calls = shop().calls();
    auto const place = what + (n <= calls.size() ? " (" + calls[n - 1].name + " " + calls[n - 1].path + ")" : "");
    if (kind == "kill")
        BOOST_TEST(first.status == 137, place << ": " << first.err);
    else
        BOOST_TEST((is_documented(first.status) && (first.status == 0 || !first.err.empty())),
                   place << ": status " << first.status << ", " << first.err);
    auto const check = shop().again(s.check);
    BOOST_TEST(check.status == 0, place << ": " << check.err);
    auto const second = shop().again(s.command);
    // Results that are never replaced may have been complete before the fault.
    bool const refused = has(second.err, "is there already") || has(second.err, "already exists") ||
                         has(second.err, "a path that does not exist yet");
    BOOST_TEST((second.status == 0 || refused), place << ": " << second.err);
    auto const found = bytes_of(s);
    BOOST_TEST((found == whole), place << ": differs in " << names_of_differences(found, whole));
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_program_recovers_from_any_fault_when_repeated) {
    char const* const chosen = std::getenv("FAULTS");
    std::string const asked = chosen != nullptr ? chosen : "";
    auto const only = asked.substr(0, asked.find('/'));
    bool const in_turn = asked.empty() || asked != only;
    std::size_t const every = asked == only ? 1 : std::stoul(asked.substr(only.size() + 1));
    std::size_t tried = 0;
    for (auto const& s : scenarios()) {
        if (!only.empty() && only != "all" && only != s.name) continue;
        shop().begin("true");
        auto const undisturbed = shop().disturbed(s.command, 0, "none");
        BOOST_REQUIRE_MESSAGE(undisturbed.status == 0, s.name << ": " << undisturbed.err);
        auto const whole = bytes_of(s);
        for (auto const& result : s.results)
            BOOST_TEST(fs::exists(shop().folder.path("work/" + result)), s.name << ": " << result << " is missing");
        auto const calls = shop().calls();
        check_that_all_is_flushed(s.name, calls);
        auto const count = calls.size();
        BOOST_TEST_MESSAGE(s.name << ": " << count << " calls");
        BOOST_TEST(count > 3U);
        auto const stride = only.empty() ? s.stride : every;
        for (std::size_t n = 1; n <= count; n += stride)
            for (std::size_t k = 0; k < std::size(kinds); ++k)
                if (!in_turn || k == n / stride % std::size(kinds)) {
                    try_one(s, whole, n, kinds[k]);
                    ++tried;
                }
    }
    BOOST_TEST_MESSAGE(tried << " programs were disturbed");
}
