#include "run/text_record.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "calm/base/detail/file.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "strict_json.hpp"

namespace calm::apps {

namespace {

constexpr int plan_format = 1;

class reader {
public:
    reader(std::string_view text, std::string path) : path_(std::move(path)) {
        try {
            all_ = strict_json(text);
        } catch (error const& problem) {
            refuse("", problem.what());
        }
        if (!all_.is_object() || !all_.contains("format") || all_["format"] != plan_format)
            refuse("format", sentence("expected a plan of format ", plan_format, ", found another"));
    }

    [[nodiscard]] recipe_record record(char const* key) const {
        recipe_record made;
        for (auto const& [option, value] : member(key, nlohmann::json::value_t::object, "an object").items())
            made.push_back({option, text(key, value)});
        return made;
    }
    [[nodiscard]] std::vector<std::string> list(char const* key) const {
        std::vector<std::string> made;
        for (auto const& value : member(key, nlohmann::json::value_t::array, "a list"))
            made.push_back(text(key, value));
        return made;
    }

private:
    [[noreturn]] void refuse(std::string const& place, std::string const& reason) const {
        throw error(errc::model_file, path_, place, reason + "; put the file back, or start over with --fresh");
    }
    [[nodiscard]] nlohmann::json const& member(char const* key, nlohmann::json::value_t type, char const* what) const {
        if (!all_.contains(key) || all_[key].type() != type) refuse(key, sentence("expected ", what, " of texts"));
        return all_[key];
    }
    [[nodiscard]] std::string text(char const* key, nlohmann::json const& value) const {
        if (!value.is_string()) refuse(key, "expected texts in it, found " + json_line(value));
        return value.get<std::string>();
    }

    std::string path_;
    nlohmann::json all_;
};

// Sorted by name, which is also the order of reading.
nlohmann::ordered_json object_of(recipe_record const& record) {
    std::map<std::string, std::string> object;
    for (auto const& [option, value] : record) object[option] = value;
    return object;
}

}  // namespace

std::string stage_in(std::string const& path, char const* stage) {
    return calm::is_there(calm::in_directory(path, plan_file)) ? calm::in_directory(path, stage) : path;
}

text_record plan_in(std::string_view text, std::string const& path) {
    reader const file(text, path);
    return {file.record("given"), file.record("plan"), file.record("why"), file.list("done")};
}

std::optional<text_record> read_text_record(std::string const& directory) {
    auto const path = calm::in_directory(directory, plan_file);
    if (!calm::is_there(path)) return std::nullopt;
    auto const file = mapped_file::open(path);
    return plan_in(file.text(), path);
}

std::string plan_text(text_record const& record) {
    nlohmann::ordered_json const all{{"format", plan_format},
                                     {"given", object_of(record.given)},
                                     {"plan", object_of(record.plan)},
                                     {"why", object_of(record.why)},
                                     {"done", record.done}};
    return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void write_text_record(std::string const& directory, text_record const& record) {
    replace_file(calm::in_directory(directory, plan_file), plan_text(record));
}

}  // namespace calm::apps
