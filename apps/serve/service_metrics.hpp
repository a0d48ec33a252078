#pragma once
// Counters of a server, in the text format of Prometheus.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace calm::apps {

// Counts seconds in buckets.
class seconds_histogram {
public:
    void add(double seconds);
    // Lines of the metric `name`.
    [[nodiscard]] std::string lines(std::string const& name, std::string const& help) const;

private:
    static constexpr std::array<double, 12> bounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30, 120};
    std::array<std::uint64_t, bounds.size() + 1> counts_{};
    double sum_ = 0;
    mutable std::mutex mutex_;
};

// May be used from any thread.
class service_metrics {
public:
    std::atomic<std::uint64_t> texts{0}, prompt_tokens{0}, tokens{0}, patches{0}, draws{0};
    seconds_histogram first_token, request;  // seconds until the first new token, and until the end of an answer

    // A request was answered.
    void answered(std::string const& path, int status);
    // All of them, with these values of now.
    [[nodiscard]] std::string text(std::size_t queued, std::size_t active, std::size_t connections) const;

private:
    std::map<std::pair<std::string, int>, std::uint64_t> answers_;
    mutable std::mutex mutex_;
};

}  // namespace calm::apps
