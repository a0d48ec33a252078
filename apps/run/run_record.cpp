#include "run/run_record.hpp"

#include <chrono>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "calm/base/file.hpp"
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

// The calls before; none where the file is not one of ours.
nlohmann::ordered_json calls_of(std::string const& path) {
    auto none = nlohmann::ordered_json::array();
    if (!calm::is_there(path)) return none;
    auto const file = mapped_file::open(path);
    try {
        auto const before = nlohmann::ordered_json::parse(json_line(strict_json(file.text())));
        if (before.is_object() && before.contains("calls") && before["calls"].is_array()) return before["calls"];
    } catch (error const&) {
        return none;
    }
    return none;
}

// Leaves the lines of a step at most `step`.
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
    auto calls = calls_of(path);
    calls.push_back(
        {{"date", date_text()}, {"command", record.words}, {"version", version_text()}, {"after_step", step}});
    nlohmann::ordered_json const all{{"calls", std::move(calls)}};
    replace_file(path, all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    if (!record.options.empty()) replace_file((folder / options_toml).string(), record.options);
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
