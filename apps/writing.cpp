#include "writing.hpp"

#include <algorithm>
#include <iterator>

#include "report.hpp"
#include "suggest.hpp"
#include "text_data.hpp"

namespace calm::apps {

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
    if (!o.prompts_file.empty()) {
        auto const text = bytes_of_file(o.prompts_file);
        for (std::size_t at = 0; at < text.size();) {
            auto const end = std::min(text.find('\n', at), text.size());
            auto const line = text.substr(at, end - at);
            prompts.push_back(line.ends_with('\r') ? line.substr(0, line.size() - 1) : line);
            at = end + 1;
        }
    }
    if (prompts.empty()) prompts.emplace_back();
    return prompts;
}

std::string statistics(std::span<generation_result const> texts, double seconds) {
    std::size_t tokens = 0, ended = 0;
    index_t patches = 0, draws = 0, capped = 0;
    for (auto const& text : texts) {
        tokens += text.tokens.size();
        ended += text.stopped_at_eos ? 1 : 0;
        patches += text.patches;
        draws += text.draws;
        capped += text.capped;
    }
    auto const each = static_cast<double>(std::max<index_t>(1, patches));
    std::string line = texts.size() > 1 ? formatted("%zu texts, ", texts.size()) : "";
    line += formatted("%zu tokens in %.2f s (%.0f tokens/s), %lld patches, %.2f draws and %.2f ms a patch", tokens,
                      seconds, static_cast<double>(tokens) / seconds, static_cast<long long>(patches),
                      static_cast<double>(draws) / each, 1e3 * seconds / each);
    if (capped > 0) line += formatted(", %lld capped", static_cast<long long>(capped));
    if (texts.size() > 1) return line + formatted("; %zu ended by themselves", ended);
    return line + (ended > 0 ? "; the text ends here" : "; stopped at --max-tokens");
}

}  // namespace calm::apps
