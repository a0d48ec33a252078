#include "text/writing.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <utility>

#include "calm/base/file.hpp"
#include "calm/base/utf8.hpp"
#include "calm/io/config_json.hpp"
#include "calm/io/stored_weights.hpp"
#include "command/suggest.hpp"
#include "run/report.hpp"
#include "text/next_line.hpp"
#include "text/prompt.hpp"
#include "text/text_data.hpp"

namespace calm::apps {

namespace {

constexpr char const* too_long = "expected a prompt of at most 1 MiB, found more: shorten it";

// All of standard input, a prompt.
std::string standard_input() {
    std::string text(longest_prompt + 3, '\0');  // and the end of a line
    std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (std::cin.bad()) throw error(errc::storage, "standard input", "", "cannot be read to its end");
    text.resize(static_cast<std::size_t>(std::cin.gcount()));
    if (text.ends_with('\n')) text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
    if (text.size() > longest_prompt) throw error(errc::data, "standard input", "", too_long);
    return text;
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

std::optional<model_description> description_in(std::string const& directory) {
    if (directory.empty()) return std::nullopt;
    try {
        return read_config_json(in_directory(whole_directory(directory), config_file));
    } catch (error const&) {
        return std::nullopt;
    }
}

std::ifstream opened_prompts(std::string const& path) {
    std::error_code failed;
    auto const type = std::filesystem::status(path, failed).type();
    bool const terminal = type == std::filesystem::file_type::character && [&] {
        int const device = ::open(path.c_str(), O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        bool const is_one = ::isatty(device) == 1;
        if (device >= 0) ::close(device);
        return is_one;
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

prompt_reader::prompt_reader(generate_options const& o) : given_(o.prompts), file_name_(o.prompts_file) {
    if (file_name_.empty()) return;
    if (file_name_ == "-") {
        file_name_ = "standard input";
        lines_ = &std::cin;
    } else {
        file_ = opened_prompts(file_name_);
        lines_ = &file_;
    }
}

std::vector<std::string> prompt_reader::next(std::size_t most) {
    std::vector<std::string> prompts;
    for (std::string prompt; prompts.size() < most && (next_given(prompt) || next_of_file(prompt));)
        prompts.push_back(std::move(prompt));
    if (count_ == 0 && prompts.empty() && most > 0) prompts.emplace_back();
    count_ += prompts.size();
    return prompts;
}

bool prompt_reader::next_given(std::string& prompt) {
    if (taken_ == given_.size()) return false;
    prompt = given_[taken_++];
    if (prompt == "-") prompt = standard_input();
    return true;
}

bool prompt_reader::next_of_file(std::string& prompt) {
    if (lines_ == nullptr) return false;
    bool const any = next_line(*lines_, prompt, longest_prompt + 1);  // with a carriage return
    if (lines_->bad()) throw error(errc::storage, file_name_, "", "cannot be read to its end");
    if (!any) return false;
    ++line_;
    if (prompt.size() > longest_prompt + 1) throw error(errc::data, file_name_, sentence("line ", line_), too_long);
    if (auto const valid = valid_prefix(prompt); valid < prompt.size())
        throw error(errc::data, file_name_, sentence("line ", line_, ", byte ", valid),
                    "no valid UTF-8: convert the prompts (iconv -f LATIN1 -t UTF-8, say)");
    if (prompt.ends_with('\r')) prompt.pop_back();
    return true;
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
