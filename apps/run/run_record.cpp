#include "run/run_record.hpp"

#include <chrono>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "calm/base/detail/file.hpp"
#include "calm/base/detail/sha256.hpp"
#include "calm/version.hpp"
#include "program.hpp"
#include "strict_json.hpp"

namespace calm::apps {

namespace {

#ifdef CALM_GIT_DESCRIPTION
constexpr char const* sources = CALM_GIT_DESCRIPTION;
#else
constexpr char const* sources = "";
#endif

std::string date_text() {
    auto const now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

// The previous calls; none if the file is not valid.
nlohmann::ordered_json calls_of(std::string const& path) {
    if (!calm::is_there(path)) return nlohmann::ordered_json::array();
    auto const file = mapped_file::open(path);
    std::string why = "it has no list of calls";
    try {
        auto const before = nlohmann::ordered_json::parse(json_line(strict_json(file.text())));
        if (before.is_object() && before.contains("calls") && before["calls"].is_array()) return before["calls"];
    } catch (error const& wrong) {
        why = wrong.what();
    }
    log_line(path + ": earlier calls are lost: " + why);
    return nlohmann::ordered_json::array();
}

// Keeps the lines up to `step`.
std::string cut(std::string const& path, index_t step) {
    if (!calm::is_there(path)) return path;
    replaced_file kept(path);
    each_json_line(path, [&](std::string_view line, nlohmann::json const& at) {
        if (at.contains("step") && at["step"].is_number_integer() && at["step"].get<index_t>() <= step)
            kept.write(std::string(line) + '\n');
    });
    kept.commit();
    return path;
}

}  // namespace

std::string version_text() {
    std::string const number =
        std::to_string(version.major) + "." + std::to_string(version.minor) + "." + std::to_string(version.patch);
    return *sources == '\0' ? number : number + " (" + sources + ")";
}

std::string with_defaults(std::string const& options, recipe_record const& values) {
    constexpr std::string_view mark = "  # default";
    std::string all;
    for (auto const& line : lines_of(options)) {
        auto const option = line.substr(0, line.find(" = "));
        auto const* const value = line.ends_with(mark) ? calm::value_of(values, option) : nullptr;
        all += (value != nullptr ? option + " = " + *value + "  # as begun" : line) + "\n";
    }
    return all;
}

void write_record(std::string const& directory, run_record const& record, index_t step) {
    std::filesystem::path const folder(directory);
    auto const path = (folder / run_file).string();
    nlohmann::ordered_json all{{"calls", calls_of(path)}};
    auto& calls = all["calls"];
    calls.push_back({{"date", date_text()},
                     {"command", recorded(record.words)},
                     {"version", version_text()},
                     {"after_step", step}});
    auto const text = [&] { return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"; };
    auto written = text();
    if (written.size() > longest_json) {
        log_line(path + ": is too long; only the newer half of its calls is kept");
        for (; written.size() > longest_json; written = text())
            calls.erase(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>((calls.size() + 1) / 2));
    }
    replace_file(path, written);
    auto const options = (folder / options_toml).string();
    if (record.options.size() <= longest_json) {
        if (!record.options.empty()) replace_file(options, record.options);
        return;
    }
    std::filesystem::remove(options);
    log_line(options + ": is not written, because options of more than 1 MB cannot be read again; name many files by a "
                       "folder or a quoted pattern");
}

std::vector<std::string> recorded(std::vector<std::string> const& words) {
    constexpr std::size_t most = 100'000;
    std::vector<std::string> first;
    std::size_t bytes = 0;
    sha256 hash;
    for (auto const& word : words) {
        hash.add(word + '\n');
        bytes += word.size() + 1;
        if (bytes <= most) first.push_back(word);
    }
    if (bytes > most) first.push_back("... " + std::to_string(words.size()) + " in all, SHA-256 " + hash.hex());
    return first;
}

samples_log::samples_log(std::string const& directory, index_t step) :
    log_(cut((std::filesystem::path(directory) / samples_file).string(), step)) {}

void samples_log::add(index_t step, double seconds, std::string const& prompt, std::string const& text) {
    auto const readable = [](std::string const& s) {
        return strict_json(json_line(nlohmann::json(s))).get<std::string>();
    };
    log_.write({{"step", step}, {"seconds", seconds}, {"prompt", readable(prompt)}, {"text", readable(text)}});
}

}  // namespace calm::apps
