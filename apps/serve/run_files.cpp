#include "serve/run_files.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "calm/base/detail/file.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "run/report.hpp"
#include "run/text_record.hpp"

namespace calm::apps {

std::string name_of_directory(std::string const& directory) {
    auto const path = std::filesystem::absolute(directory).lexically_normal();
    return (path.has_filename() ? path : path.parent_path()).filename().string();
}

shown_run run_in(std::string const& directory) {
    auto const name = name_of_directory(directory);
    auto const record = read_text_record(directory);
    if (!record) return {directory, name, false};
    auto const model = in_directory(directory, model_stage);
    bool const finished = std::find(record->done.begin(), record->done.end(), model_stage) != record->done.end();
    if (is_there(in_directory(model, metrics_file))) return {model, name, finished};
    return {in_directory(directory, autoencoder_stage), name + ", " + autoencoder_stage, false};
}

std::string lines_from(std::string const& path, std::uint64_t from, std::size_t most) {
    std::ifstream file(path, std::ios::binary);
    if (!file || !file.seekg(static_cast<std::streamoff>(from))) return {};
    std::string bytes(most, '\0');
    file.read(bytes.data(), static_cast<std::streamsize>(most));
    bytes.resize(static_cast<std::size_t>(file.gcount()));
    auto const end = bytes.rfind('\n');
    bytes.resize(end == std::string::npos ? 0 : end + 1);
    return bytes;
}

std::optional<std::uint64_t> offset_in_query(std::string const& query) {
    constexpr std::string_view name = "from=";
    auto const at = query.find(name);
    if (at == std::string::npos) return 0;
    std::uint64_t from = 0;
    auto const* const begin = query.data() + at + name.size();
    auto const [end, code] = std::from_chars(begin, query.data() + query.size(), from);
    bool const whole = end == query.data() + query.size() || *end == '&';
    if (code != std::errc{} || !whole || from > (std::uint64_t{1} << 62)) return std::nullopt;
    return from;
}

}  // namespace calm::apps
