#include "text/generation.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "calm/base/detail/file.hpp"
#include "calm/io/detail/config_json.hpp"
#include "calm/text/detail/text_encoding.hpp"
#include "command/suggest.hpp"
#include "run/report.hpp"
#include "text/text_data.hpp"

namespace calm::apps {

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

any_generation_settings generation_settings_of(generate_options const& o, bool autoregressive) {
    return {.sampler = autoregressive ? any_sampler(token_sampler_of(o.sampler, o.temperature, o.top_k, o.top_p))
                                      : any_sampler(sampler_of(o.sampler, o.temperature, o.pool)),
            .max_tokens = o.max_tokens,
            .pad_left = o.pad_left,
            .seed = o.seed,
            .at_once = o.at_once};
}

prompt_reader::prompt_reader(generate_options const& o) : given_(o.prompts) {
    if (!o.prompts_file.empty()) file_.emplace(o.prompts_file);
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
    auto const& given = given_[taken_++];
    prompt = given == "-" ? prompt_source(given).whole() : checked_prompt(given, "--prompt");
    return true;
}

bool prompt_reader::next_of_file(std::string& prompt) {
    if (!file_) return false;
    if (!file_->next(prompt)) {
        if (!any_line_) file_->fail_as_empty("expected one prompt per line");
        return false;
    }
    any_line_ = true;
    auto const place = [&] { return sentence("line ", file_->number()); };
    if (prompt.size() > longest_prompt)
        throw error(errc::data, file_->name(), place(), "expected a prompt of at most 1 MiB, found more: shorten it");
    if (auto const fault = fault_of_encoding(prompt))
        throw error(errc::data, file_->name(), sentence(place(), ", byte ", fault->byte), fault->sentence);
    return true;
}

void generation_statistics::add(generation_result const& text, bool at_stop) {
    ++texts;
    tokens += text.tokens.size();
    ended += text.stopped_at_eos ? 1 : 0;
    stopped += at_stop ? 1 : 0;
    patches += text.patches;
    draws += text.draws;
    capped += text.capped;
}

std::string statistics(generation_statistics const& all, double seconds, generation_unit unit) {
    bool const by_patches = unit == generation_unit::patch;
    auto const each = static_cast<double>(std::max<index_t>(1, all.patches));
    std::string line = all.texts > 1 ? formatted("%zu texts, ", all.texts) : "";
    line += formatted("%zu tokens in %.2f s (%.0f tokens/s), ", all.tokens, seconds,
                      static_cast<double>(all.tokens) / seconds);
    if (by_patches) line += formatted("%lld patches, ", static_cast<long long>(all.patches));
    line += formatted("%.2f draws and %.2f ms per %s", static_cast<double>(all.draws) / each, 1e3 * seconds / each,
                      by_patches ? "patch" : "token");
    if (all.capped > 0) line += formatted(", %lld capped", static_cast<long long>(all.capped));
    if (all.texts > 1)
        return line + formatted("; %zu ended with EOS", all.ended) +
               (all.stopped > 0 ? formatted(", %zu at --stop", all.stopped) : "");
    return line + (all.ended > 0     ? "; ended with EOS"
                   : all.stopped > 0 ? "; stopped at --stop"
                                     : "; stopped at --max-tokens");
}

}  // namespace calm::apps
