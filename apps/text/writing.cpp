#include "text/writing.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "calm/base/file.hpp"
#include "calm/base/utf8.hpp"
#include "calm/io/config_json.hpp"
#include "calm/io/stored_weights.hpp"
#include "command/suggest.hpp"
#include "run/report.hpp"
#include "text/text_data.hpp"

namespace calm::apps {

namespace {

std::string all_of(std::istream& in, std::string const& name) {
    constexpr std::size_t most = std::size_t{64} << 20;
    std::string text;
    std::array<char, 65536> part{};
    while (in.read(part.data(), part.size()), in.gcount() > 0) {
        text.append(part.data(), static_cast<std::size_t>(in.gcount()));
        if (text.size() > most)
            throw error(errc::data, name, "",
                        "expected at most 64 MiB of prompts, found more: give them as --jsonl, of which some lines are "
                        "read at a time");
    }
    if (in.bad()) throw error(errc::storage, name, "", "cannot be read to its end");
    return text;
}

std::string standard_input() {
    return all_of(std::cin, "standard input");
}

// Of a directory that holds a model; who opens it says what is wrong where it cannot be read.
std::optional<model_description> description_in(std::string const& directory) {
    auto const path = detail::in_directory(directory, config_file);
    if (directory.empty() || !detail::is_there(path)) return std::nullopt;
    try {
        return read_config_json(path);
    } catch (error const&) {
        return std::nullopt;
    }
}

}  // namespace

sampler sampler_of(std::string const& name, std::string const& temperature, index_t pool) {
    std::vector<std::string> const names(std::begin(sampling_rule_names), std::end(sampling_rule_names));
    auto const found = name.empty() ? names.begin() : std::find(names.begin(), names.end(), name);
    if (found == names.end())
        throw error(errc::usage, "--sampler: expected one of " + listed(names) + ", found '" + name + "'" +
                                     did_you_mean(name, names));
    return sampler::of(static_cast<sampling_rule>(found - names.begin()), parse_temperature(temperature), pool);
}

token_sampler token_sampler_of(std::string const& name, std::string const& temperature, index_t top_k, double top_p) {
    if (!name.empty() && name != token_sampler::name())
        throw error(errc::usage, "--sampler: expected exact, the rule of an autoregressive model, found '" + name +
                                     "'; leave it out");
    return token_sampler::of(parse_temperature(temperature), top_k, top_p);
}

bool is_autoregressive(std::string const& directory) {
    auto const found = description_in(directory);
    return found && found->kind == model_kind::autoregressive;
}

head_facts const* head_of(std::string const& directory) {
    auto const found = description_in(directory);
    return found && found->kind == model_kind::calm ? found->head.facts : nullptr;
}

std::ifstream opened_prompts(std::string const& path) {
    std::error_code failed;
    auto const type = std::filesystem::status(path, failed).type();
    bool const terminal = type == std::filesystem::file_type::character && [&] {
        detail::descriptor const device(::open(path.c_str(), O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
        return ::isatty(device.get()) == 1;
    }();
    using kind = std::filesystem::file_type;
    if (type != kind::not_found && type != kind::regular && type != kind::fifo && !terminal)
        throw error(errc::storage, path, "",
                    type == kind::directory ? "expected a file, found a folder"
                                            : "expected a file, a pipe or a terminal, found another device");
    std::ifstream file(path, std::ios::binary);
    if (!file) throw error(errc::storage, path, "", "cannot be read: check the path and its permissions");
    return file;
}

generation_settings generation_settings_of(generate_options const& o) {
    return {.sampler = sampler_of(o.sampler, o.temperature, o.samples),
            .max_tokens = o.max_tokens,
            .pad_left = o.pad_left,
            .seed = o.seed,
            .at_once = o.at_once};
}

token_generation_settings token_generation_settings_of(generate_options const& o) {
    return {.sampler = token_sampler_of(o.sampler, o.temperature, o.top_k, o.top_p),
            .max_tokens = o.max_tokens,
            .pad_left = o.pad_left,
            .seed = o.seed,
            .at_once = o.at_once};
}

std::vector<std::string> prompts_of(generate_options const& o) {
    auto prompts = o.prompts;
    for (auto& prompt : prompts) {
        if (prompt != "-") continue;
        prompt = standard_input();
        if (prompt.ends_with('\n')) prompt.pop_back();
        if (prompt.ends_with('\r')) prompt.pop_back();
    }
    if (!o.prompts_file.empty()) {
        bool const standard = o.prompts_file == "-";
        auto file = standard ? std::ifstream() : opened_prompts(o.prompts_file);
        auto const text = standard ? standard_input() : all_of(file, o.prompts_file);
        std::size_t number = 0;
        for (std::size_t at = 0; at < text.size();) {
            auto const end = std::min(text.find('\n', at), text.size());
            auto const line = text.substr(at, end - at);
            ++number;
            if (auto const valid = valid_prefix(line); valid < line.size())
                throw error(errc::data, standard ? "standard input" : o.prompts_file,
                            sentence("line ", number, ", byte ", valid),
                            "no valid UTF-8: convert the prompts (iconv -f LATIN1 -t UTF-8, say)");
            prompts.push_back(line.ends_with('\r') ? line.substr(0, line.size() - 1) : line);
            at = end + 1;
        }
    }
    if (prompts.empty()) prompts.emplace_back();
    return prompts;
}

void written::add(generation_result const& text) {
    ++texts;
    tokens += text.tokens.size();
    ended += text.stopped_at_eos ? 1 : 0;
    patches += text.patches;
    draws += text.draws;
    capped += text.capped;
}

std::string statistics(written const& all, double seconds, unit_of_writing unit) {
    bool const by_patches = unit == unit_of_writing::patch;
    auto const each = static_cast<double>(std::max<index_t>(1, all.patches));
    std::string line = all.texts > 1 ? formatted("%zu texts, ", all.texts) : "";
    line += formatted("%zu tokens in %.2f s (%.0f tokens/s), ", all.tokens, seconds,
                      static_cast<double>(all.tokens) / seconds);
    if (by_patches) line += formatted("%lld patches, ", static_cast<long long>(all.patches));
    line += formatted("%.2f draws and %.2f ms a %s", static_cast<double>(all.draws) / each, 1e3 * seconds / each,
                      by_patches ? "patch" : "token");
    if (all.capped > 0) line += formatted(", %lld capped", static_cast<long long>(all.capped));
    if (all.texts > 1) return line + formatted("; %zu ended by themselves", all.ended);
    return line + (all.ended > 0 ? "; the text ends here" : "; stopped at --max-tokens");
}

}  // namespace calm::apps
