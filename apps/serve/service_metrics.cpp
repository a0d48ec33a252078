#include "serve/service_metrics.hpp"

#include <algorithm>

#include "calm/base/detail/number_text.hpp"

namespace calm::apps {

namespace {

std::string described_metric(std::string const& name, char const* type, std::string const& help) {
    return "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

std::string single_metric(std::string const& name, char const* type, std::string const& help, std::uint64_t value) {
    return described_metric(name, type, help) + name + " " + std::to_string(value) + "\n";
}

}  // namespace

void seconds_histogram::add(double seconds) {
    auto const at = static_cast<std::size_t>(std::lower_bound(bounds.begin(), bounds.end(), seconds) - bounds.begin());
    std::lock_guard const lock(mutex_);
    ++counts_[at];
    sum_ += seconds;
}

std::string seconds_histogram::lines(std::string const& name, std::string const& help) const {
    std::lock_guard const lock(mutex_);
    auto text = described_metric(name, "histogram", help);
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
        total += counts_[i];
        text += name + "_bucket{le=\"" + (i < bounds.size() ? shortest(bounds[i]) : "+Inf") + "\"} " +
                std::to_string(total) + "\n";
    }
    return text + name + "_sum " + shortest(sum_) + "\n" + name + "_count " + std::to_string(total) + "\n";
}

void service_metrics::answered(std::string const& path, int status) {
    std::lock_guard const lock(mutex_);
    ++answers_[{path, status}];
}

std::string service_metrics::text(std::size_t queued, std::size_t active, std::size_t connections) const {
    auto all = described_metric("calm_requests_total", "counter", "Requests answered, by path and status.");
    {
        std::lock_guard const lock(mutex_);
        for (auto const& [of, count] : answers_)
            all += "calm_requests_total{path=\"" + of.first + "\",status=\"" + std::to_string(of.second) + "\"} " +
                   std::to_string(count) + "\n";
    }
    return all + single_metric("calm_texts_queued", "gauge", "Texts that wait to begin.", queued) +
           single_metric("calm_texts_active", "gauge", "Texts under generation.", active) +
           single_metric("calm_connections", "gauge", "Open connections.", connections) +
           single_metric("calm_texts_total", "counter", "Texts generated.", texts) +
           single_metric("calm_prompt_tokens_total", "counter", "Tokens of prompts.", prompt_tokens) +
           single_metric("calm_tokens_total", "counter", "Tokens generated.", tokens) +
           single_metric("calm_patches_total", "counter", "Patches generated.", patches) +
           single_metric("calm_draws_total", "counter", "Patches drawn from the head for them.", draws) +
           first_token.lines("calm_first_token_seconds", "Time from a request to its first new token.") +
           request.lines("calm_request_seconds", "Time from a request to the end of its answer.");
}

}  // namespace calm::apps
