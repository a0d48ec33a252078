#include "run/metrics_lines.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "calm/base/error.hpp"
#include "strict_json.hpp"

namespace calm::apps {

namespace {

void add(run_metrics& to, nlohmann::json const& line) {
    metrics_line numbers;
    for (auto const key : metrics_line::keys)
        if (auto const found = line.find(std::string(key)); found != line.end()) {
            auto const& value = found->is_array() && !found->empty() ? found->front() : *found;
            if (value.is_number()) numbers[key] = value.get<double>();
        }
    if (std::isnan(numbers["step"])) return;
    bool const trained = line.contains("loss");
    if (!trained && line.contains("skipped")) return;  // a skipped step
    (trained ? to.steps : to.evaluations)[numbers["step"]] = numbers;
}

}  // namespace

std::size_t metrics_line::place_of(std::string_view key) {
    return static_cast<std::size_t>(std::find(keys.begin(), keys.end(), key) - keys.begin());
}

run_place place_of(double step, lines_by_step const& steps) {
    auto const of = [](metrics_line const& line) { return run_place{line["step"], line["tokens"], line["seconds"]}; };
    auto after = steps.lower_bound(step);
    if (after == steps.end()) --after;
    auto const before = after == steps.begin() ? after : std::prev(after);
    auto const a = of(before->second), b = of(after->second);
    double const share = b.step > a.step ? std::clamp((step - a.step) / (b.step - a.step), 0.0, 1.0) : 1.0;
    return {step, a.tokens + share * (b.tokens - a.tokens), a.seconds + share * (b.seconds - a.seconds)};
}

run_metrics read_metrics(std::string const& path) {
    constexpr std::size_t most = 1'000'000;
    run_metrics all;
    each_json_line(path, [&](std::string_view, nlohmann::json const& line) {
        add(all, line);
        if (all.steps.size() + all.evaluations.size() > most)
            throw error(errc::data, path, "", sentence("expected lines of at most ", most, " steps, found more"));
    });
    if (all.steps.empty()) throw error(errc::data, path, "", "expected lines of steps with a loss, found none");
    return all;
}

}  // namespace calm::apps
