#include "text/writing.hpp"

#include <algorithm>
#include <iostream>
#include <iterator>

#include "calm/tensor/utf8.hpp"
#include "command/suggest.hpp"
#include "run/report.hpp"
#include "text/text_data.hpp"

namespace calm::apps {

namespace {

std::string standard_input() {
    std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    if (std::cin.bad()) throw error(errc::storage, "standard input", "", "cannot be read to its end");
    return text;
}

}  // namespace

sampler sampler_of(std::string const& name, std::string const& temperature, index_t pool) {
    std::vector<std::string> const names(std::begin(sampling_rule_names), std::end(sampling_rule_names));
    auto const found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
        throw error(errc::usage, "--sampler: expected one of " + listed(names) + ", found '" + name + "'" +
                                     did_you_mean(name, names));
    return sampler::of(static_cast<sampling_rule>(found - names.begin()), parse_temperature(temperature), pool);
}

generation_settings generation_settings_of(generate_options const& o) {
    return {.sampler = sampler_of(o.sampler, o.temperature, o.samples),
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
        auto const text = standard ? standard_input() : bytes_of_file(o.prompts_file);
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

std::string statistics(written const& all, double seconds) {
    auto const each = static_cast<double>(std::max<index_t>(1, all.patches));
    std::string line = all.texts > 1 ? formatted("%zu texts, ", all.texts) : "";
    line += formatted("%zu tokens in %.2f s (%.0f tokens/s), %lld patches, %.2f draws and %.2f ms a patch", all.tokens,
                      seconds, static_cast<double>(all.tokens) / seconds, static_cast<long long>(all.patches),
                      static_cast<double>(all.draws) / each, 1e3 * seconds / each);
    if (all.capped > 0) line += formatted(", %lld capped", static_cast<long long>(all.capped));
    if (all.texts > 1) return line + formatted("; %zu ended by themselves", all.ended);
    return line + (all.ended > 0 ? "; the text ends here" : "; stopped at --max-tokens");
}

}  // namespace calm::apps
